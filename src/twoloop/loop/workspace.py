"""A workspace: the folder in which a team's turns live."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from twoloop.errors import StoreError
from twoloop.records import Checkpoint
from twoloop.store import Store

DEFAULT = ".twoloop"


@dataclass(frozen=True)
class Workspace:
    """`record` holds what is known, `tasks` the built tasks, `checkpoints` the weights, `turns` each turn's state."""

    root: Path
    store: Store

    @classmethod
    def open(cls, root: Path) -> Workspace:
        """Open or create. Raises StoreError."""
        return cls(root.absolute(), Store.open(root.absolute()))

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def turns(self) -> Path:
        return self.root / "turns"

    def serving(self, start: Checkpoint) -> Checkpoint:
        """The checkpoint that people use; `start` when there has been none yet."""
        current = self.store.serving()
        if current is None:
            self.store.add_checkpoint(start)
            self.store.set_serving(start.name)
            return start
        return current

    def begin(self, settings: dict[str, object]) -> str:
        """Name a new turn and remember what it was begun with."""
        name = f"turn-{len(self._names()) + 1}"
        folder = self.turns / name
        try:
            folder.mkdir(parents=True)
            aside = folder / ".turn.json"
            aside.write_text(json.dumps({"settings": settings}))
            os.replace(aside, folder / "turn.json")
        except OSError as problem:
            raise StoreError(
                f"cannot begin a turn in {self.turns}: {problem}", fix="Free some disk space."
            ) from problem
        return name

    def unfinished(self) -> str | None:
        """The last turn, when it has not ended."""
        names = self._names()
        return names[-1] if names and not (self.turns / names[-1] / "outcome.json").is_file() else None

    def begun_with(self, turn: str) -> dict[str, dict[str, object]]:
        """The settings of a turn."""
        found: dict[str, dict[str, object]] = json.loads((self.turns / turn / "turn.json").read_text())["settings"]
        return found

    def last(self) -> str | None:
        names = self._names()
        return names[-1] if names else None

    def _names(self) -> list[str]:
        found = [p.name for p in self.turns.glob("turn-*") if (p / "turn.json").is_file()]
        return sorted(found, key=lambda n: int(n.partition("-")[2]))
