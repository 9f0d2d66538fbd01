"""Files of a workspace, reached from outside. No step of a path may be a link: code in the sandbox can plant them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(path: str) -> tuple[str, ...]:
    """The steps of a relative path. Raises ValueError for one that is absolute, empty or climbs."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in path:
        raise ValueError(f"not a path inside the workspace: {path!r}")
    return pure.parts


def _open_folder(root: Path, steps: tuple[str, ...], *, make: bool) -> int:
    descriptor = os.open(root, _FOLDER)
    for step in steps:
        try:
            if make:
                try:
                    os.mkdir(step, 0o755, dir_fd=descriptor)
                except FileExistsError:
                    pass
            below = os.open(step, _FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def read(root: Path, path: str) -> bytes:
    """Content of a regular file."""
    *steps, name = parts_of(path)
    folder = _open_folder(root, tuple(steps), make=False)
    try:
        # Non-blocking, so that a planted FIFO cannot hold us.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileNotFoundError(path)
        return file.read()


def write(root: Path, path: str, data: bytes) -> None:
    """Write a regular file, making folders on the way. Whatever else stands there is replaced, never followed."""
    *steps, name = parts_of(path)
    folder = _open_folder(root, tuple(steps), make=True)
    aside = f".{name}.{os.getpid()}.part"
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def walk(root: Path, below: str = "") -> Iterator[str]:
    """Relative paths of all regular files, links never followed."""
    with os.scandir(root / below) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from walk(root, path)
            elif entry.is_file(follow_symlinks=False):
                yield path


def fingerprint(root: Path) -> dict[str, str]:
    """Path -> sha256 of every regular file."""
    return {path: hashlib.sha256(read(root, path)).hexdigest() for path in walk(root)}


def copy_tree(source: Path, target: Path) -> None:
    """Copy folders, regular files and links (as links). Raises ValueError for anything else."""
    target.mkdir(mode=0o755)
    with os.scandir(source) as entries:
        for entry in entries:
            into = target / entry.name
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), into)
            elif entry.is_dir():
                copy_tree(Path(entry.path), into)
            elif entry.is_file():
                into.write_bytes(Path(entry.path).read_bytes())
                into.chmod(stat.S_IMODE(entry.stat().st_mode) | 0o600)
            else:
                raise ValueError(f"{entry.path} is neither file, folder nor link")
