"""Progress for people: bars with the time left on a terminal, a line for each finished stage elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bars:
    """Call it with (what, done, of); use it as a context. Safe to call from any thread.

    The time left is the mean pace of the whole stage so far, so that it does not swing with each session.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, float] = {}

    def __enter__(self) -> Bars:
        if not self._quiet and sys.stderr.isatty():
            self._progress = _progress()
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, what: str, done: int, of: int) -> None:
        if self._progress is not None:
            if what not in self._tasks:
                self._tasks[what] = self._progress.add_task(_plain(what), total=of)
            self._progress.update(self._tasks[what], completed=done, total=of)
            return
        begun = self._begun.setdefault(what, time.monotonic())
        if not self._quiet and done >= of > 0 and what not in self._tasks:
            self._tasks[what] = _DONE
            print(f"{what}: {of} of {of} in {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)


_DONE: TaskID = 0  # type: ignore[assignment]


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        speed_estimate_period=24 * 3600,
        expand=True,
    )


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
