"""Feedback from people: thumbs on a session, and files of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twoloop.errors import StoreError
from twoloop.records import Event, new_id, now
from twoloop.store import Store


@dataclass(frozen=True)
class ImportReport:
    """What an import did. Rejected lines are kept in `kept_aside`, with the reason for each."""

    accepted: int
    repeated: int
    rejected: tuple[tuple[int, str], ...]  # (line number, reason)
    kept_aside: Path | None
    unknown_sessions: int


def thumbs(store: Store, session: str, *, up: bool, text: str = "", actor: str = "", turn: int | None = None) -> Event:
    """Record a thumbs up or down. Giving the same one again changes nothing."""
    kind = "thumbs_up" if up else "thumbs_down"
    key = hashlib.sha256(f"{session}\0{kind}\0{actor}\0{turn}\0{text}".encode()).hexdigest()[:32]
    event = Event(new_id(), f"manual:{key}", now(), kind, "HUMAN", session, turn=turn, actor=actor, text=text)
    store.add_events([event])
    return event


def import_jsonl(store: Store, path: Path) -> ImportReport:
    """One JSON object a line: {"session", "thumbs": "up"|"down", "text"?, "ts"?, "actor"?, "turn"?, "idem_key"?}.

    Good lines are taken, bad ones are kept beside the record with their reasons; importing a file again is harmless.
    Raises StoreError when the file cannot be read."""
    try:
        lines = path.read_text("utf-8", errors="replace").split("\n")
    except OSError as problem:
        raise StoreError(f"cannot read {path}: {problem}", fix="Give a file with one JSON object a line.") from problem
    events: list[Event] = []
    rejected: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                events.append(_event(line))
            except (ValueError, TypeError) as problem:
                rejected.append((number, str(problem)))
    accepted = store.add_events(events)
    aside = _keep(store, path, lines, rejected) if rejected else None
    unknown = len({e.session for e in events if not store.has_session(e.session)})
    return ImportReport(accepted, len(events) - accepted, tuple(rejected), aside, unknown)


def _event(line: str) -> Event:
    document: Any = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    session, direction = document.get("session"), document.get("thumbs")
    if not isinstance(session, str) or not session:
        raise ValueError('"session" is missing')
    if direction not in ("up", "down"):
        raise ValueError('"thumbs" must be "up" or "down"')
    turn = document.get("turn")
    if turn is not None and not isinstance(turn, int):
        raise ValueError('"turn" must be a number')
    key = document.get("idem_key") or hashlib.sha256(line.strip().encode()).hexdigest()[:32]
    return Event(
        id=new_id(),
        idem_key=f"import:{key}",
        ts=str(document.get("ts") or now()),
        kind=f"thumbs_{direction}",
        source="USER",
        session=session,
        turn=turn,
        actor=str(document.get("actor") or ""),
        text=str(document.get("text") or ""),
    )


def _keep(store: Store, path: Path, lines: list[str], rejected: list[tuple[int, str]]) -> Path:
    aside = store.root / "rejected" / f"{path.stem}.rejected.jsonl"
    aside.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"line": n, "reason": reason, "text": lines[n - 1]} for n, reason in rejected]
    aside.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return aside
