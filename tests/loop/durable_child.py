"""The process that the durability test kills: twelve steps, each of which leaves a mark in a file when it is called."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from twoloop.loop.durable import Durable

STEPS = 12


def body(durable: Durable, marks: Path) -> list[int]:
    values: list[int] = []
    for index in range(STEPS):

        def work(index: int = index, before: int = sum(values)) -> int:
            with marks.open("a") as file:
                file.write(f"begin {index}\n")
            time.sleep(0.03)
            with marks.open("a") as file:
                file.write(f"end {index}\n")
            return before + index + 1

        values.append(durable.step(f"step-{index}", work))
        with marks.open("a") as file:
            file.write(f"acknowledged {index}\n")
    return values


if __name__ == "__main__":
    root, marks = Path(sys.argv[1]), Path(sys.argv[2])
    print(json.dumps(Durable(root, "killed").run(lambda durable: body(durable, marks))))
