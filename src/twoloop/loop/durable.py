"""Durable runs: named steps whose results outlive the process. A thin adapter over DBOS on SQLite.

What it promises: a step whose result was recorded is never called again, and a run that was killed, or whose step
failed, goes on from there. The step in flight may be called again and must be safe to.
"""

from __future__ import annotations

import fcntl
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from twoloop.errors import StoreError
from twoloop.loop.journal import Entry, Journal
from twoloop.records import now

if TYPE_CHECKING:
    from dbos import DBOSConfig

T = TypeVar("T")
R = TypeVar("R")

_VERSION = "1"  # DBOS recovers only runs of the version that is running; what a run consists of is checked by name
_START_S = 60.0  # longest wait for DBOS to start, or pick up, the run
_SETTLE_S = 10.0  # longest wait for DBOS to write down that the body has returned


class Durable:
    """One durable run of named steps, kept in `root/run_id/`. Only one may be at work in a process."""

    _working: Durable | None = None

    def __init__(self, root: Path, run_id: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", run_id):
            raise ValueError(f"a run id is letters, digits, dots, dashes and underscores, not {run_id!r}")
        self.run_id = run_id
        self.folder = root.absolute() / run_id
        self._stopping = False

    def run(self, body: Callable[[Durable], R]) -> R:
        """Run the body to its end and return what it returns; call it again with the same id to resume.

        The body is deterministic between its steps: it calls the same steps in the same order every time. It runs in a
        thread of its own. What it raises is raised here, and the run can be resumed afterwards. After a
        KeyboardInterrupt the step in flight goes on until it ends or the process does; no further step is started.

        Raises StoreError when the run is being worked on elsewhere, or when the recorded steps are not the body's.
        """
        claim = self._claim()
        try:
            self._journal = Journal(self.folder / "steps.jsonl")
            self._body: Callable[[Durable], Any] = body
            self._begun = threading.Event()
            self._outcome: Future[R] = Future()
            self._called: list[str] = []
            with _told_of_a_full_disk(self.folder):
                self._launch()
            result = self._outcome.result()
            self._settle()
            return result
        except KeyboardInterrupt:
            self._stopping = True  # the body's thread keeps the claim: its step may still be at work
            raise
        finally:
            if not self._stopping:
                self._close(claim)

    def step(self, name: str, function: Callable[[], T]) -> T:
        """The function's result, from the record when it is there. The result must be JSON, and is returned as JSON
        gives it back (a tuple becomes a list), so that a resumed run sees just what the first one saw.

        Raises whatever the function raises; nothing is recorded then. Call it from the body's own thread.
        """
        from dbos import DBOS

        if DBOS.workflow_id != self.run_id:
            raise RuntimeError(f"step {name!r} was called outside the body's thread, where nothing would be recorded")
        if self._stopping:
            raise _Stopped
        self._check_order(name)
        try:
            with _told_of_a_full_disk(self.folder):
                record = DBOS.run_step({"name": name}, lambda: self._call(name, function))
        except _StepFailed as failure:
            raise failure.error from failure.error.__cause__
        if not self._journal.finished(name):  # not yet, or killed between the record and the journal
            self._journal.append(Entry(name, "finished", now(), record["seconds"]))
        value: T = record["value"]
        return value

    def _check_order(self, name: str) -> None:
        if name in self._called:
            raise ValueError(f"step {name!r} was called twice; each step of a run needs a name of its own")
        self._called.append(name)
        recorded = self._recorded.get(len(self._called), name)
        if recorded != name:
            raise StoreError(
                f"Run {self.run_id} was begun with other steps: its record has {recorded!r} where {name!r} comes now.",
                fix="Resume with the version and settings that began the run, or start a new one.",
            )

    def _call(self, name: str, function: Callable[[], T]) -> dict[str, Any]:
        """The record of a step: its value, after a round trip through JSON, and its seconds."""
        self._journal.append(Entry(name, "started", now()))
        begun = time.monotonic()
        try:
            value = json.loads(json.dumps(function()))
            return {"value": value, "seconds": round(time.monotonic() - begun, 3)}
        except BaseException as error:
            seconds = round(time.monotonic() - begun, 3)
            self._journal.append(Entry(name, "failed", now(), seconds, f"{type(error).__name__}: {error}"))
            raise _StepFailed(error) from error

    def _work(self) -> None:
        """The workflow, in DBOS's thread."""
        self._begun.set()
        try:
            result = self._body(self)
        except BaseException as error:
            self._outcome.set_exception(error)
            raise _Stopped from error
        self._outcome.set_result(result)

    def _claim(self) -> IO[str]:
        """The lock on the run's folder, which the system drops when the process dies."""
        if Durable._working is not None:
            working = Durable._working.run_id
            raise StoreError(f"Run {working} is still at work in this process.", fix="Wait for it to end.")
        self.folder.mkdir(parents=True, exist_ok=True)
        claim = (self.folder / "lock").open("w")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            raise StoreError(
                f"Another process is working on run {self.run_id}.", fix="Wait for it to end, or stop it, then resume."
            ) from None
        Durable._working = self
        return claim

    def _launch(self) -> None:
        """Start DBOS, then begin the run, or let DBOS pick it up where it was left."""
        from dbos import DBOS, SetWorkflowID

        logging.getLogger("dbos").addHandler(logging.NullHandler())  # keeps DBOS from adding one that prints
        workflow = _workflow()
        DBOS(config=self._config())
        DBOS.launch()
        status = DBOS.get_workflow_status(self.run_id)
        steps = DBOS.list_workflow_steps(self.run_id, load_output=False)
        self._recorded = {step["function_id"]: step["function_name"] for step in steps}
        if status is None:
            with SetWorkflowID(self.run_id):
                DBOS.start_workflow(workflow)
        elif status.status not in ("PENDING", "ENQUEUED"):  # over; replay it from its records
            DBOS.rewind_workflow(self.run_id, start_step=max(self._recorded, default=0) + 1)
        if not self._begun.wait(_START_S):
            raise StoreError(
                f"Run {self.run_id} did not start within {_START_S:.0f} s.",
                fix="See whether the disk is full or another program holds durable.sqlite, then resume.",
            )

    def _config(self) -> DBOSConfig:
        return {
            "name": "twoloop",
            "system_database_url": f"sqlite:///{self.folder / 'durable.sqlite'}",
            "application_version": _VERSION,
            "executor_id": "twoloop",
            "serializer": _serializer(),
            "log_level": "CRITICAL",
            "enable_otlp": False,
            "notification_listener_polling_interval_sec": 0.05,  # closing waits for one interval
        }

    def _settle(self) -> None:
        """Wait until the end is on record. Should it not come, resuming replays a run that has nothing left to do."""
        from dbos import DBOS

        deadline = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline:
            status = DBOS.get_workflow_status(self.run_id)
            if status is not None and status.status == "SUCCESS":
                return
            time.sleep(0.01)

    def _close(self, claim: IO[str]) -> None:
        from dbos import DBOS

        DBOS.destroy()
        Durable._working = None
        claim.close()


class _StepFailed(BaseException):
    """Carries a step's error past DBOS, which records `Exception`s only: a failed step must run again on resume."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _Stopped(BaseException):
    """Ends the workflow without an outcome on record, so that it can be resumed as if it had been killed."""


@contextmanager
def _told_of_a_full_disk(folder: Path) -> Iterator[None]:
    """Say what a user can do about a record that cannot be written."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error)
        raise StoreError(
            f"The record of the run in {folder} cannot be written or read: {reason}.",
            fix="Free some disk space (or mend the folder's rights), then resume; finished steps are kept.",
        ) from error


@cache
def _workflow() -> Callable[[], None]:
    """The one workflow that DBOS knows, registered once: it runs the body of whatever run is at work."""
    from dbos import DBOS

    def twoloop_run() -> None:
        if Durable._working is not None:
            Durable._working._work()

    return DBOS.workflow(name="twoloop_run", max_recovery_attempts=None)(twoloop_run)


@cache
def _serializer() -> Any:
    """JSON in place of DBOS's pickle: a workspace from elsewhere must not be able to run code when it is read."""
    from dbos import Serializer

    class Json(Serializer):
        def serialize(self, data: Any) -> str:
            return json.dumps(data)

        def deserialize(self, serialized_data: str) -> Any:
            return json.loads(serialized_data)

        def name(self) -> str:
            return "twoloop_json"

    return Json()
