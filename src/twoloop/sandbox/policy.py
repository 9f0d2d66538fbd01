"""What the inside of a sandbox looks like, as bubblewrap options: a minimal read-only root, one writable workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from twoloop.sandbox.python import base_folders, package_folders
from twoloop.sandbox.types import WORKSPACE, Limits, Mount

HOME = "/tmp/home"
USER = 1000  # uid and gid inside
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_ETC = {
    "passwd": f"user:x:{USER}:{USER}::{HOME}:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    "group": f"user:x:{USER}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
}
_ISOLATION = (
    # As root bubblewrap makes no user namespace unless told to.
    *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
    *("--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--clearenv"),
    *("--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox"),
)
_TAKEN = ("bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "sys", "tmp", "usr", "workspace")


def prepare(folder: Path) -> None:
    """Write the synthetic /etc files and the empty folder that `options` binds, once per sandbox."""
    for name, text in _ETC.items():
        (folder / name).write_text(text)
    (folder / "empty").mkdir()


def checked(mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """The mounts, if each exists and has a place of its own inside. Raises ValueError otherwise."""
    for mount in mounts:
        inside = PurePosixPath(mount.inside)
        if not inside.is_absolute() or len(inside.parts) < 2 or ".." in inside.parts or inside.parts[1] in _TAKEN:
            raise ValueError(f"{mount.inside} cannot be mounted over; choose a new top folder such as /data")
        if not mount.host.exists():
            raise ValueError(f"{mount.host} does not exist and cannot be mounted")
    return tuple(mounts)


def options(
    tree: Path, furniture: Path, mounts: Sequence[Mount], limits: Limits, env: Mapping[str, str], cwd: str
) -> list[str]:
    """bubblewrap options for one command over the workspace `tree`. `furniture` is what `prepare` filled."""
    scratch = str(limits.tmp_mb << 20)
    chosen = [*_ISOLATION, *_system()]
    for folder in package_folders():
        chosen += ["--ro-bind", str(furniture / "empty"), str(folder)]
    for name in _ETC:
        chosen += ["--ro-bind", str(furniture / name), f"/etc/{name}"]
    # Read-only as a whole: root's files below /proc/sys (core_pattern!) open for uid 0 even without any capability.
    chosen += ["--proc", "/proc", "--remount-ro", "/proc"]
    chosen += ["--dev", "/dev", "--size", scratch, "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    chosen += ["--size", scratch, "--perms", "1777", "--tmpfs", "/tmp", "--dir", HOME]
    for mount in mounts:
        chosen += ["--ro-bind", str(mount.host), mount.inside]
    chosen += ["--bind", str(tree), WORKSPACE, "--remount-ro", "/", "--chdir", cwd]
    for name, value in {**ENVIRONMENT, **env}.items():
        chosen += ["--setenv", name, value]
    return chosen


@cache
def _system() -> tuple[str, ...]:
    """Programs, libraries and the base interpreter; of /etc only what the loader and links into it need."""
    chosen = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            chosen += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            chosen += ["--ro-bind", str(path), str(path)]
    for path in map(Path, ("/etc/ld.so.cache", "/etc/alternatives")):
        if path.exists():
            chosen += ["--ro-bind", str(path), str(path)]
    for folder in base_folders():
        chosen += ["--ro-bind", str(folder), str(folder)]
    return tuple(chosen)
