"""Memory and process ceilings by control groups, where this process may make them (v1 or v2)."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from twoloop.sandbox.types import Limits

_COUNTER = itertools.count()
_REMOVAL_S = 2.0  # the kernel lets go of dead processes a little after they are gone


@dataclass(frozen=True)
class Group:
    """One command's groups. The kernel enforces the ceilings and counts how often each was hit."""

    folders: tuple[Path, ...]
    memory_events: Path
    process_events: Path
    poll_s: float = 1.0

    def attach(self, pid: int) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def breach(self) -> bool:
        """Never: the kernel holds the ceilings."""
        return False

    def out_of_memory(self) -> bool:
        """True once the kernel killed a process of the group for its memory."""
        return _count(self.memory_events, "oom_kill") > 0

    def process_limit(self) -> bool:
        """True once a fork was refused."""
        return _count(self.process_events, "max") > 0

    def remove(self) -> None:
        deadline = time.monotonic() + _REMOVAL_S
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        break  # `sweep` will try again
                    time.sleep(0.001)
                else:
                    break


@dataclass(frozen=True)
class Cgroups:
    """The groups of this process, under which it may make others: the ceilings above it stay in force."""

    kind: str  # "cgroup v1" or "cgroup v2"
    memory: Path
    pids: Path

    def make(self, limits: Limits, remember: Callable[[Path], None]) -> Group:
        """New groups with these ceilings; `remember` is told each folder before it exists. Raises OSError."""
        name = f"twoloop-{os.getpid()}-{next(_COUNTER)}"
        memory, pids = self.memory / name, self.pids / name
        files = ("memory.events", "pids.events") if self.kind == "cgroup v2" else ("memory.oom_control", "pids.events")
        group = Group(tuple(dict.fromkeys((memory, pids))), memory / files[0], pids / files[1])
        try:
            for folder in group.folders:
                remember(folder)
                folder.mkdir()
            self._limit(memory, str(limits.memory_mb << 20))
            (pids / "pids.max").write_text(str(limits.processes + 1))  # one is bubblewrap's own first process
        except BaseException:
            group.remove()
            raise
        return group

    def _limit(self, memory: Path, size: str) -> None:
        if self.kind == "cgroup v2":
            (memory / "memory.max").write_text(size)
            (memory / "memory.oom.group").write_text("1")
            with contextlib.suppress(OSError):  # no swap accounting
                (memory / "memory.swap.max").write_text("0")
        else:
            (memory / "memory.limit_in_bytes").write_text(size)
            with contextlib.suppress(OSError):
                (memory / "memory.memsw.limit_in_bytes").write_text(size)


@cache
def find_cgroups() -> Cgroups | None:
    """Where groups can be made, found by making one and removing it; None where polling must do."""
    for found in _candidates():
        try:
            found.make(Limits(memory_mb=64, processes=8), lambda _: None).remove()
        except OSError:
            continue
        return found
    return None


def _candidates() -> list[Cgroups]:
    own = _own_folders()
    found = []
    if "memory" in own and "pids" in own:
        found.append(Cgroups("cgroup v1", own["memory"], own["pids"]))
    if "" in own:
        # A v2 group that holds processes has no children with controllers, so ours stands beside this process's.
        found += [Cgroups("cgroup v2", place, place) for place in (own[""].parent, own[""])]
    return found


def _own_folders() -> dict[str, Path]:
    """Controller ("" for v2) -> folder of this process's group, from proc(5): cgroup and mountinfo."""
    paths: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    folders: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, settings = after.split(" ", 2)
        names = {"cgroup": settings.split(","), "cgroup2": [""]}.get(kind, [])
        for name in names:
            own = paths.get(name)
            if own is not None and (own + "/").startswith(root.rstrip("/") + "/"):
                folders[name] = Path(point, own[len(root.rstrip("/")) :].lstrip("/"))
    return folders


def _count(path: Path, key: str) -> int:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return 0
