"""The sandbox contract. Code from models and strangers runs through `Sandbox.exec` and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

WORKSPACE = "/workspace"  # where the writable tree appears inside


@dataclass(frozen=True)
class Limits:
    """Ceilings for one `exec`. Every one of them is enforced from outside the process."""

    wall_s: float = 30.0
    memory_mb: int = 1024
    processes: int = 64
    output_bytes: int = 64_000
    file_mb: int = 64  # largest single file that a process may write
    workspace_mb: int = 512  # the whole workspace; looked at several times a second, not at every write
    tmp_mb: int = 256  # /tmp and /dev/shm each; their content counts as memory where a cgroup does the counting


@dataclass(frozen=True)
class Mount:
    """A host path that appears read-only inside."""

    host: Path
    inside: str


@dataclass(frozen=True)
class ExecResult:
    """What came of one command. `timed_out`, `out_of_memory` and `truncated` are facts, not guesses from the text."""

    code: int  # exit status; 128 + signal when killed
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False
    out_of_memory: bool = False
    truncated: bool = False  # stdout or stderr was longer than `output_bytes`; the beginning was kept
    process_limit: bool = False  # the process ceiling was reached
    disk_limit: bool = False  # killed because the workspace outgrew its ceiling


@dataclass(frozen=True)
class Tier:
    """What isolation this machine offers. `name` is printed in every result."""

    name: str  # "bwrap+userns", "bwrap+root"
    bwrap: Path
    version: str
    notes: tuple[str, ...] = field(default=())


class Sandbox(Protocol):
    """One isolated workspace. Files persist between commands, processes do not."""

    @property
    def tier(self) -> str: ...

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
    ) -> ExecResult:
        """Run one command to its end. Raises SandboxError only when the sandbox itself fails.

        A command that cannot be started (no such program, no such `cwd`) is a result with code 127, as in a shell.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file under the workspace from outside, with its folders. Raises ValueError when the path leaves the
        workspace and OSError when it meets a link or anything that is no regular file."""
        ...

    def get(self, path: str) -> bytes:
        """Read a regular file under the workspace. Raises FileNotFoundError; refuses every link."""
        ...

    def changed(self) -> dict[str, bytes | None]:
        """Path -> new content of every regular file that differs from the start (None: no regular file any more)."""
        ...

    def stop(self) -> None:
        """Remove the workspace. Idempotent."""
        ...
