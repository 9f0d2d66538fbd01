"""The journal of a durable run: one line for each thing that happened to a step, on disk before the run goes on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from twoloop.errors import StoreError

Happening = Literal["started", "finished", "failed"]


@dataclass(frozen=True)
class Entry:
    """One line. `seconds` is the step's own time, 0 for a start; `reason` says why a step failed."""

    step: str
    happening: Happening
    at: str  # UTC, ISO 8601
    seconds: float = 0.0
    reason: str = ""


class Journal:
    """Append-only JSON lines. A line torn by a crash is dropped on the next opening; whole lines are never lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = _mend(path)

    def append(self, entry: Entry) -> None:
        line = json.dumps(asdict(entry), ensure_ascii=False) + "\n"
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(
                f"The journal {self.path} cannot be written: {error.strerror}.",
                fix="Free some disk space (or mend the folder's rights), then resume; finished steps are kept.",
            ) from error
        self.entries.append(entry)

    def finished(self, step: str) -> bool:
        return any(entry.step == step and entry.happening == "finished" for entry in self.entries)


def read_journal(path: Path) -> list[Entry]:
    """Every whole line, oldest first; none when there is no journal."""
    if not path.exists():
        return []
    whole = [line for line in path.read_bytes().split(b"\n")[:-1] if line.strip()]
    return [Entry(**json.loads(line)) for line in whole]


def _mend(path: Path) -> list[Entry]:
    """Cut a torn last line off, so that the next one starts on its own."""
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)
    return read_journal(path)
