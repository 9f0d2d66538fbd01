"""Writes a benchmark's two files: NAME.json with its claims, for machines, and NAME.md, for people."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Claim:
    """One figure that was asked for, and how it came out."""

    id: str
    statement: str
    target: str
    value: float
    unit: str
    n: int
    holds: bool


def machine() -> str:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().split("\n")
            if "model name" in line
        ),
        platform.machine(),
    )
    return f"{cpu}, Python {platform.python_version()}"


def write(name: str, title: str, claims: Sequence[Claim], body: str, figures: dict[str, Any]) -> None:
    """Write both files; `body` is Markdown, `figures` the raw numbers behind it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    document = {"claims": [asdict(c) for c in claims], "machine": machine(), "figures": figures}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    rows = "\n".join(
        f"| {c.statement} | {c.target} | {c.value:.3g} {c.unit} | {c.n} | {'yes' if c.holds else '**no**'} |"
        for c in claims
    )
    table = f"| claim | target | measured | n | holds |\n|---|---|---|---|---|\n{rows}"
    text = f"# {title}\n\nMachine: {machine()}.\n\n{table}\n\n{body.strip()}\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
