"""Private folders on the host, one per open sandbox, each named after the process that owns it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from pathlib import Path

from twoloop.errors import SandboxError
from twoloop.sandbox import files

_NAME = re.compile(r"(?P<namespace>\d+)-(?P<pid>\d+)-(?P<born>\d+)-[0-9a-f]+")
_GROUPS = "groups"


def make_home() -> Path:
    """A new folder that only this user can enter. Set-id files that sandboxed code makes stay out of others' reach."""
    home = _root() / f"{_namespace()}-{os.getpid()}-{_born(os.getpid())}-{os.urandom(6).hex()}"
    home.mkdir(mode=0o700)
    return home


def note_group(home: Path, folder: Path) -> None:
    """Remember a control group of this sandbox, so that `sweep` can remove it when we cannot."""
    with (home / _GROUPS).open("a") as file:
        file.write(f"{folder}\n")


def sweep() -> int:
    """Remove what dead owners left: their workspaces and control groups. Returns how many workspaces."""
    removed = 0
    for home in _root().iterdir():
        if _orphaned(home.name):
            with contextlib.suppress(OSError):
                for folder in (home / _GROUPS).read_text().split():
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)
            with contextlib.suppress(OSError):  # another sweep is at it
                files.remove_tree(home)
                removed += 1
    return removed


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"twoloop-{os.geteuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise SandboxError(f"{root} is not ours", fix="Remove it, or point TMPDIR at a folder of your own.")
    root.chmod(0o700)
    return root


def _orphaned(name: str) -> bool:
    """True when the owner is known to be gone. A process id alone would not do: they are used again."""
    owner = _NAME.fullmatch(name)
    if owner is None or int(owner["namespace"]) != _namespace():
        return False  # of another container, whose processes we cannot see
    return _born(int(owner["pid"])) != int(owner["born"])


def _born(pid: int) -> int:
    """Start time of a process in clock ticks since boot, proc(5); 0 when there is none."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    state, *rest = line.rpartition(")")[2].split()  # the command's name may hold spaces and brackets
    return 0 if state == "Z" else int(rest[18])


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
