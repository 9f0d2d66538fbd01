"""Memory and process ceilings without control groups: count what runs in the sandbox many times a second, and kill."""

from __future__ import annotations

import os
import platform
import re
import resource
from pathlib import Path

from twoloop.sandbox.types import Limits

_PAGE = os.sysconf("SC_PAGE_SIZE")
# A single process cannot outrun the counting by more than this; address space is not memory, hence the room.
_ADDRESS_SPACE_FACTOR = 4


class Watch:
    """Counts the processes below the sandbox's first one, and their private memory.

    As a normal user on Linux 5.14 or newer the kernel also holds the number of processes (RLIMIT_NPROC is counted per
    user namespace there). It ignores that limit for root and would count the user's other processes before.
    """

    poll_s = 0.02

    def __init__(self, limits: Limits) -> None:
        self._limits, self._first = limits, 0
        self._memory = self._processes = False

    def attach(self, pid: int) -> None:
        self._first = pid
        size = _ADDRESS_SPACE_FACTOR * self._limits.memory_mb << 20
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
        if kernel_counts_processes():
            most = self._limits.processes + 1  # bubblewrap's first process is one of them
            resource.prlimit(pid, resource.RLIMIT_NPROC, (most, most))

    def breach(self) -> bool:
        """True when a ceiling is passed and the sandbox must be killed."""
        most = self._limits.processes
        running = _below(self._first, most + 1)
        self._processes = self._processes or len(running) >= most
        if len(running) > most:
            return True
        size = self._limits.memory_mb << 20
        if sum(map(_private, running)) > size and sum(map(_proportional, running)) > size:
            self._memory = True
        return self._memory

    def out_of_memory(self) -> bool:
        return self._memory

    def process_limit(self) -> bool:
        return self._processes

    def remove(self) -> None:
        """Nothing stays behind."""


def kernel_counts_processes() -> bool:
    """Whether RLIMIT_NPROC set inside one sandbox counts that sandbox alone."""
    numbers = re.findall(r"\d+", platform.release())[:2]
    return os.geteuid() != 0 and tuple(map(int, numbers)) >= (5, 14)


def _below(first: int, most: int) -> list[int]:
    """Up to `most` descendants of a process. Orphans inside become children of the pid namespace's first process."""
    found: list[int] = []
    waiting = [first]
    while waiting and len(found) < most:
        for child in _words(f"/proc/{waiting.pop()}/task", "children"):
            found.append(child)
            waiting.append(child)
    return found


def _words(tasks: str, name: str) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(tasks):
            found += map(int, Path(tasks, task, name).read_text().split())
    except (OSError, ValueError):  # it has just ended
        pass
    return found


def _private(pid: int) -> int:
    """Resident bytes that no file backs; copies shared after a fork count in each process."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def _proportional(pid: int) -> int:
    """Proportional set size in bytes: each shared page divided among those who share it. Slow, so asked for second."""
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return _private(pid)
    return int(found[1]) * 1024 if found else 0
