"""Memory and process ceilings by control groups, where this process may make them (v1 or v2)."""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_COUNTER = itertools.count()


@dataclass(frozen=True)
class Group:
    """One sandbox command's group: the folders to join, and where the kernel counts its out-of-memory kills."""

    folders: tuple[Path, ...]
    events: Path

    def joins(self) -> list[str]:
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def out_of_memory(self) -> bool:
        try:
            lines = self.events.read_text().split("\n")
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)

    def remove(self) -> None:
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


@dataclass(frozen=True)
class Cgroups:
    """Which hierarchy this process may write to."""

    kind: str  # "cgroup v1" or "cgroup v2"
    parents: tuple[Path, ...]

    def make(self, memory_mb: int, processes: int) -> Group:
        name = f"twoloop-{os.getpid()}-{next(_COUNTER)}"
        folders = tuple(parent / name for parent in self.parents)
        for folder in folders:
            folder.mkdir()
        size = str(memory_mb << 20)
        if self.kind == "cgroup v2":
            (folders[0] / "memory.max").write_text(size)
            (folders[0] / "pids.max").write_text(str(processes))
            with contextlib.suppress(OSError):  # no swap accounting
                (folders[0] / "memory.swap.max").write_text("0")
            return Group(folders, folders[0] / "memory.events")
        memory, pids = folders
        (memory / "memory.limit_in_bytes").write_text(size)
        (pids / "pids.max").write_text(str(processes))
        return Group(folders, memory / "memory.oom_control")


@cache
def find_cgroups() -> Cgroups | None:
    """A writable hierarchy, found by making a group and removing it; None where rlimits must do."""
    for found in (Cgroups("cgroup v1", (_ROOT / "memory", _ROOT / "pids")), Cgroups("cgroup v2", (_ROOT,))):
        if found.kind == "cgroup v2" and not (_ROOT / "cgroup.controllers").is_file():
            continue
        try:
            found.make(64, 8).remove()
        except OSError:
            continue
        return found
    return None
