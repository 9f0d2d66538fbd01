"""The record: events, trajectories, checkpoints, verdicts and lineage in one SQLite file, big things in blobs.

A write that has returned is on disk (WAL, synchronous=FULL). Every write may be repeated without harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event, func, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import SQLAlchemyError

from twoloop.errors import StoreError
from twoloop.records import Checkpoint, Event, Lineage, Trajectory, Verdict, now
from twoloop.store import atif, codec, tables
from twoloop.store.blobs import Blobs

_BUSY_S = 30  # how long a write waits for another process's


class Store:
    """One workspace's record. Open it with `Store.open`; threads may share it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = Blobs(root / "blobs")
        self._engine = create_engine(f"sqlite:///{root / 'record.sqlite'}", connect_args={"timeout": _BUSY_S})
        event.listen(self._engine, "connect", _pragmas)

    @classmethod
    def open(cls, root: Path) -> Store:
        """Open or create. Raises StoreError when the place cannot be written or holds something else."""
        try:
            root.mkdir(parents=True, exist_ok=True)
            store = cls(root)
            store._make_tables()
        except OSError as problem:
            raise StoreError(
                f"cannot open the record in {root}: {problem}", fix="Choose a folder that can be written (--workspace)."
            ) from problem
        return store

    def _make_tables(self) -> None:
        """Opening a record that is up to date writes nothing and waits for nobody."""
        with _explained("open the record"), self._engine.connect() as connection:
            found = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
        if found > tables.VERSION:
            raise StoreError(
                f"the record in {self.root} is of version {found}; this twoloop reads up to {tables.VERSION}",
                fix="Upgrade twoloop.",
            )
        if found < tables.VERSION:
            with self._write("make the record") as connection:
                tables.META.create_all(connection)
                connection.exec_driver_sql(f"PRAGMA user_version = {tables.VERSION}")

    # -- events ------------------------------------------------------------------------------------------------------

    def add_events(self, events: Sequence[Event]) -> int:
        """Append all or none; an idem_key that is there already is left alone. Returns how many were new.

        Raises StoreError when an id is there under another idem_key: that would be another event's."""
        with self._write("store feedback") as connection:
            return sum(_add_event(connection, item) for item in events)

    def events(self, *, sessions: Sequence[str] | None = None, kind: str | None = None) -> list[Event]:
        """In order of their time stamps."""
        query = select(tables.EVENTS.c.document).order_by(tables.EVENTS.c.ts, tables.EVENTS.c.id)
        if kind is not None:
            query = query.where(tables.EVENTS.c.kind == kind)
        if sessions is not None:
            query = query.where(tables.EVENTS.c.session.in_(_listed(sessions)))
        return [codec.event_from_json(text) for text in self._column(query)]

    # -- trajectories ------------------------------------------------------------------------------------------------

    def add_trajectories(self, trajectories: Sequence[Trajectory], phase: str) -> None:
        """Store sessions; one whose id is there already is left as it was recorded first."""
        rows = [
            {
                "id": t.id,
                "phase": phase,
                "task": t.task_id,
                "cluster": t.cluster,
                "checkpoint": t.checkpoint,
                "reward_status": t.reward.status,
                "reward": t.reward.value,
                "blob": self.blobs.put(atif.dumps(t).encode()),
            }
            for t in trajectories
        ]
        with self._write("store sessions") as connection:
            for row in rows:
                connection.execute(insert(tables.TRAJECTORIES).values(**row).on_conflict_do_nothing())

    def trajectories(self, phase: str) -> list[Trajectory]:
        blobs = self._column(
            select(tables.TRAJECTORIES.c.blob)
            .where(tables.TRAJECTORIES.c.phase == phase)
            .order_by(tables.TRAJECTORIES.c.id)
        )
        return [atif.loads(self.blobs.get(blob).decode()) for blob in blobs]

    def trajectory(self, session: str) -> Trajectory | None:
        blobs = self._column(select(tables.TRAJECTORIES.c.blob).where(tables.TRAJECTORIES.c.id == session))
        return atif.loads(self.blobs.get(blobs[0]).decode()) if blobs else None

    def has_session(self, session: str) -> bool:
        return bool(self.known_sessions([session]))

    def known_sessions(self, sessions: Sequence[str]) -> set[str]:
        """Those of the given sessions that are in the record."""
        return set(
            self._column(select(tables.TRAJECTORIES.c.id).where(tables.TRAJECTORIES.c.id.in_(_listed(sessions))))
        )

    # -- checkpoints and verdicts ------------------------------------------------------------------------------------

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """A name is given once: a second checkpoint of that name with other weights is refused."""
        values = {"name": checkpoint.name, "document": codec.checkpoint_to_json(checkpoint)}
        mine = select(tables.CHECKPOINTS.c.document).where(tables.CHECKPOINTS.c.name == checkpoint.name)
        with self._write("store a checkpoint") as connection:
            connection.execute(insert(tables.CHECKPOINTS).values(**values).on_conflict_do_nothing())
            there = codec.checkpoint_from_json(connection.execute(mine).scalar_one())
            if there.weights != checkpoint.weights:
                raise StoreError(f"checkpoint {checkpoint.name} exists with other weights", fix="Choose another name.")

    def checkpoint(self, name: str) -> Checkpoint | None:
        found = self._column(select(tables.CHECKPOINTS.c.document).where(tables.CHECKPOINTS.c.name == name))
        return codec.checkpoint_from_json(found[0]) if found else None

    def checkpoints(self) -> list[Checkpoint]:
        return [codec.checkpoint_from_json(text) for text in self._column(select(tables.CHECKPOINTS.c.document))]

    def set_serving(self, name: str) -> None:
        """Serve a checkpoint from now on. Setting the one that is served changes nothing.

        Raises StoreError when there is no checkpoint of that name."""
        if self.checkpoint(name) is None:
            known = ", ".join(one.name for one in self.checkpoints()) or "none yet"
            raise StoreError(f"there is no checkpoint {name} to serve", fix=f"The checkpoints are: {known}.")
        current = self.serving()
        if current is not None and current.name == name:
            return
        with self._write("change the serving checkpoint") as connection:
            connection.execute(insert(tables.SERVING).values(name=name, ts=now()))

    def serving(self) -> Checkpoint | None:
        names = self._column(select(tables.SERVING.c.name).order_by(tables.SERVING.c.number.desc()).limit(1))
        return self.checkpoint(names[0]) if names else None

    def add_verdict(self, turn: str, verdict: Verdict) -> None:
        """A turn has one verdict: the first."""
        values = {"turn": turn, "decision": verdict.decision, "document": json.dumps(asdict(verdict))}
        with self._write("store a verdict") as connection:
            connection.execute(insert(tables.VERDICTS).values(**values).on_conflict_do_nothing())

    def verdict(self, turn: str) -> dict[str, Any] | None:
        found = self._column(select(tables.VERDICTS.c.document).where(tables.VERDICTS.c.turn == turn))
        return json.loads(found[0]) if found else None

    # -- lineage -----------------------------------------------------------------------------------------------------

    def add_lineage(self, rows: Sequence[Lineage]) -> None:
        with self._write("store lineage") as connection:
            for row in rows:
                connection.execute(insert(tables.LINEAGE).values(**asdict(row)).on_conflict_do_nothing())

    def parents(self, noun: str) -> list[Lineage]:
        query = (
            select(tables.LINEAGE)
            .where(tables.LINEAGE.c.destination == noun)
            .order_by(tables.LINEAGE.c.relation, tables.LINEAGE.c.source)
        )
        with _explained("read lineage"), self._engine.connect() as connection:
            return [Lineage(**row._mapping) for row in connection.execute(query)]

    def count(self, what: str) -> int:
        """Rows of a table, by its name."""
        with _explained("count"), self._engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(tables.META.tables[what])).scalar_one())

    # -- inside ------------------------------------------------------------------------------------------------------

    def _column(self, query: Any) -> list[str]:
        with _explained("read the record"), self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

    @contextmanager
    def _write(self, what: str) -> Iterator[Connection]:
        """One transaction. It takes the writer's lock at once: a lock wanted only midway could not be waited for."""
        with _explained(what), self._engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection


def _add_event(connection: Connection, item: Event) -> int:
    row = {"id": item.id, "idem_key": item.idem_key, "ts": item.ts, "kind": item.kind, "session": item.session}
    statement = insert(tables.EVENTS).values(**row, document=codec.event_to_json(item)).on_conflict_do_nothing()
    added = int(connection.execute(statement).rowcount)
    same = select(tables.EVENTS.c.id).where(tables.EVENTS.c.idem_key == item.idem_key)
    if not added and connection.execute(same).first() is None:
        raise StoreError(f"event {item.id} is another event's id", fix="Give every event an id of its own.")
    return added


def _listed(names: Sequence[str]) -> Any:
    """Names as a subquery, so that their number is not bound by SQLite's limit on parameters."""
    return select(func.json_each(json.dumps(list(names))).table_valued("value").c.value)


def _pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


_FIXES = {  # what SQLite says -> what to do about it
    "full": "Free some disk space and run the same command again.",
    "locked": f"Another process has been writing for over {_BUSY_S} s; let it end and run the same command again.",
    "readonly": "Make the workspace folder writable, or name another (--workspace).",
    "malformed": "Restore record.sqlite from a copy; the damaged file was left as it is.",
    "not a database": "Something else stands where record.sqlite should; move it away, or name another --workspace.",
}


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as problem:
        reason = str(getattr(problem, "orig", problem))
        fix = next((fix for said, fix in _FIXES.items() if said in reason), "Check that the workspace folder is whole.")
        raise StoreError(f"could not {what}: {reason}", fix=fix) from problem
    except UnicodeEncodeError as problem:
        raise StoreError(f"could not {what}: the text is not valid Unicode", fix="Give it as UTF-8.") from problem
