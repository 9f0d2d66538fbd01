"""Runs one turn on the tiny model in its own process, or goes on with the one that was interrupted.

python turn_child.py WORKSPACE SOURCE
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from twoloop.config import Settings, load
from twoloop.loop.turn import turn
from twoloop.loop.workspace import Workspace


def settings(source: Path) -> Settings:
    chosen = {
        "model.name": "tiny-random",
        "tasks.sources": str(source),
        "dogfood.sessions": "4",
        "train.steps": "2",
        "train.groups": "2",
        "train.group_size": "2",
        "gate.tasks": "8",
        "gate.rollouts": "1",
        "runtime.batch": "8",
        "runtime.threads": "1",
    }
    return load(None, {**chosen, "model.cache": os.environ["TWOLOOP_CACHE"]})


def main() -> None:
    root, source = Path(sys.argv[1]), Path(sys.argv[2])
    resume = root.is_dir() and Workspace.open(root).unfinished() is not None
    outcome = turn(settings(source), root, resume=resume)
    print(json.dumps([outcome.turn, outcome.verdict.decision, outcome.verdict.sentence]))


if __name__ == "__main__":
    main()
