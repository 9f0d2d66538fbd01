"""A workspace in memory for sessions that run no code: files, and tests that look for what is not implemented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twoloop.agent.types import Environment, TestOutcome
from twoloop.records import Reward, Task, scored
from twoloop.sandbox.types import ExecResult, Limits

STUB = 'raise NotImplementedError("f")'
SOURCE = f"def f(x):\n    {STUB}\n"


class MemorySandbox:
    tier = "memory"

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files, self._start = dict(files), dict(files)

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
    ) -> ExecResult:
        return ExecResult(0, "\n".join(f"./{path}" for path in self.files).encode(), b"", 0.0)

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = data

    def get(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def changed(self) -> dict[str, bytes | None]:
        return {path: data for path, data in self.files.items() if self._start.get(path) != data}

    def stop(self) -> None:
        self.files.clear()


class MemoryEnvironment(Environment):
    def __init__(self, task: Task) -> None:
        self.task_id, self.cluster, self.instruction = task.id, task.cluster, task.instruction
        self.sandbox = MemorySandbox({"pkg/m.py": SOURCE.encode()})

    def run_tests(self) -> TestOutcome:
        done = b"NotImplementedError" not in self.sandbox.get("pkg/m.py")
        return TestOutcome(2, 0) if done else TestOutcome(1, 1)

    def close(self) -> None:
        self.sandbox.stop()


def task(name: str = "t") -> Task:
    return Task(name, "s", f"s:{name}", "train", f"Implement `f`. Its body is `{STUB}`.", (), ("a",), (), (), "")


def grade(_task: Task, changed: Mapping[str, bytes | None]) -> Reward:
    solved = b"return x" in (changed.get("pkg/m.py") or b"")
    return scored(float(solved), solved=float(solved))
