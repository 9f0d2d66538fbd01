"""Grading: a fresh sandbox, a patch of source files only, the real tests copied in afterwards, exact node ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from twoloop.agent.types import Environment, TestOutcome
from twoloop.errors import SandboxError
from twoloop.records import Reward, Task, missing, scored
from twoloop.sandbox import Sandbox, open_sandbox
from twoloop.tasks import disk
from twoloop.tasks.source import is_test
from twoloop.tasks.suite import SuiteResult, mounts, run_suite

WALL_S = 20.0
MAX_FILE = 1_000_000  # bytes of one patched file
_NEVER = ("conftest.py", "sitecustomize.py", "usercustomize.py", "setup.py")


def open_environment(task: Task, cache: Path) -> TaskEnvironment:
    """A fresh sandbox over the task's stubbed tree. Raises SandboxError."""
    sandbox = open_sandbox(Path(task.folder, disk.TREE), mounts=mounts(cache))
    return TaskEnvironment(task, sandbox)


class TaskEnvironment(Environment):
    """What a session works in; see `agent.types.Environment`."""

    def __init__(self, task: Task, sandbox: Sandbox) -> None:
        self.task_id, self.cluster, self.instruction = task.id, task.cluster, task.instruction
        self.sandbox, self._visible = sandbox, task.visible

    def run_tests(self) -> TestOutcome:
        result = run_suite(self.sandbox, self._visible, wall_s=WALL_S)
        passed = result.passed(self._visible)
        trouble = result.crashed or (result.errors[0] if result.errors and not result.outcomes else "")
        return TestOutcome(passed, len(self._visible) - passed, trouble)

    def close(self) -> None:
        self.sandbox.stop()


def grade(task: Task, changed: Mapping[str, bytes | None], cache: Path) -> Reward:
    """1 when every fail-to-pass and pass-to-pass test passes on the patched tree, else 0; fractions are in `parts`."""
    patch = accepted(changed, disk.packages_of(task))
    if not patch:
        return scored(0.0, solved=0, f2p=0, p2p=1, dropped=len(changed))
    try:
        sandbox = open_sandbox(Path(task.folder, disk.TREE), mounts=mounts(cache))
    except SandboxError as problem:
        return missing(str(problem))
    try:
        for path, data in patch.items():
            sandbox.put(path, data)
        files = Path(task.folder, disk.TESTS)
        for test in sorted(p for p in files.rglob("*") if p.is_file()):
            sandbox.put(test.relative_to(files).as_posix(), test.read_bytes())
        result = run_suite(sandbox, (*task.fail_to_pass, *task.pass_to_pass), wall_s=WALL_S)
    except (SandboxError, OSError) as problem:
        return missing(str(problem))
    finally:
        sandbox.stop()
    return _score(task, result, dropped=len(changed) - len(patch))


def accepted(changed: Mapping[str, bytes | None], packages: tuple[str, ...]) -> dict[str, bytes]:
    """The part of a change that may count: Python files of the source folders, no tests, no configuration."""
    kept = {}
    for path, data in changed.items():
        parts = path.split("/")
        inside = any(path.startswith(f"{package}/") for package in packages)
        odd = parts[-1] in _NEVER or is_test(parts[-1]) or {"tests", "test", ".."} & set(parts)
        if data is not None and inside and not odd and path.endswith(".py") and len(data) <= MAX_FILE:
            kept[path] = data
    return kept


def _score(task: Task, result: SuiteResult, dropped: int) -> Reward:
    """A test that is absent, skipped or crashed counts as failed."""
    f2p = result.passed(task.fail_to_pass) / len(task.fail_to_pass)
    p2p = result.passed(task.pass_to_pass) / len(task.pass_to_pass) if task.pass_to_pass else 1.0
    solved = float(f2p == 1.0 and p2p == 1.0 and not result.crashed)
    return scored(solved, solved=solved, f2p=f2p, p2p=p2p, dropped=dropped, timed_out=float(result.timed_out))
