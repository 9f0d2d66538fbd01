"""Runs a codebase's tests in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twoloop.sandbox import WORKSPACE, Limits, Mount, Sandbox, runner_site, sandbox_python

_SITE, _DRIVER = "/runner", "/driver.py"
_PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "coverage")


@dataclass(frozen=True)
class SuiteResult:
    """What a run said. `crashed` holds the reason when no report came back: that is never a pass."""

    outcomes: dict[str, str] = field(default_factory=dict)  # node id -> passed | failed | skipped
    seconds: dict[str, float] = field(default_factory=dict)
    errors: tuple[str, ...] = ()  # files that could not be collected
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)  # file -> line -> node ids
    crashed: str = ""
    timed_out: bool = False

    def passed(self, ids: Sequence[str]) -> int:
        return sum(self.outcomes.get(i) == "passed" for i in ids)


def mounts(cache: Path) -> list[Mount]:
    """What a sandbox needs to run tests: pytest and our driver, both read-only."""
    return [
        Mount(runner_site(cache, _PACKAGES), _SITE),
        Mount(Path(__file__).with_name("driver.py"), _DRIVER),
    ]


def run_suite(
    sandbox: Sandbox,
    paths: Sequence[str],
    *,
    wall_s: float = 30.0,
    contexts_of: Sequence[str] = (),
    order: int | None = None,
) -> SuiteResult:
    """Run these files or node ids. With `contexts_of` (source folders), also which test ran which line."""
    request = {
        "site": _SITE,
        "root": WORKSPACE,
        "paths": list(paths),
        "contexts": bool(contexts_of),
        "sources": [f"{WORKSPACE}/{folder}" for folder in contexts_of],
        "order": order,
    }
    done = sandbox.exec(
        [sandbox_python(), "-P", "-s", "-S", _DRIVER],
        stdin=json.dumps(request).encode(),
        limits=Limits(wall_s=wall_s, memory_mb=1500, processes=64, output_bytes=64_000_000),
    )
    if done.timed_out:
        return SuiteResult(crashed=f"the tests took longer than {wall_s:g} s", timed_out=True)
    try:
        answer = json.loads(done.stdout)
        outcomes = answer["outcomes"]
    except (ValueError, KeyError, TypeError):
        tail = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        return SuiteResult(crashed=f"no report from the tests (exit {done.code}): {tail[:200]}")
    lines = {file: {int(n): ids for n, ids in found.items()} for file, found in answer["lines"].items()}
    return SuiteResult(outcomes, answer["seconds"], tuple(answer["errors"]), lines)
