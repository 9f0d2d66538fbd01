"""Files of a workspace, reached from outside. No step of a path may be a link: code in the sandbox can plant them.

Every look at a workspace goes through folder descriptors opened one step at a time without following links, so that
what the sandboxed code renames meanwhile cannot lead out either.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

_MAX_DEPTH = 64


def parts_of(path: str) -> tuple[str, ...]:
    """The steps of a relative path. Raises ValueError for one that is absolute, empty or climbs."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in path:
        raise ValueError(f"not a path inside the workspace: {path!r}")
    return pure.parts


@contextlib.contextmanager
def _opened(root: Path, steps: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder `steps` below root. Raises NotADirectoryError where a step is a link."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for step in steps:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, 0o755, dir_fd=descriptor)
            below = _open_at(descriptor, step, os.O_DIRECTORY)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def read(root: Path, path: str) -> bytes:
    """Content of a regular file. Raises FileNotFoundError, or another OSError for a link or a folder."""
    *steps, name = parts_of(path)
    with _opened(root, steps) as folder:
        return _read_at(folder, name)


def _read_at(folder: int, name: str) -> bytes:
    descriptor = _open_at(folder, name, 0)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        return file.read()


def _open_at(folder: int, name: str, flags: int) -> int:
    """Open a folder (O_DIRECTORY in flags) or regular file, no link, without waiting for a FIFO's other end."""
    flags |= os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except PermissionError:
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    # The sandboxed code took the right to read away from its own user. That must not hide anything: give it back.
    try:
        wanted = stat.S_ISDIR if flags & os.O_DIRECTORY else stat.S_ISREG
        if not wanted(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "neither a regular file nor a folder", name)
        os.chmod(f"/proc/self/fd/{place}", 0o700)
        return os.open(f"/proc/self/fd/{place}", flags)
    finally:
        os.close(place)


def write(root: Path, path: str, data: bytes) -> None:
    """Write a regular file, making folders on the way. A link that stands there is replaced, never followed.

    An existing file keeps its mode. Raises an OSError where a step is a link or the name is a folder.
    """
    *steps, name = parts_of(path)
    aside = f".{os.urandom(8).hex()}.part"
    with _opened(root, steps, make=True) as folder:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, _mode_at(folder, name))
                file.write(data)
            os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside, dir_fd=folder)
            raise


def _mode_at(folder: int, name: str) -> int:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0o644
    return stat.S_IMODE(mode) & 0o777 | 0o600 if stat.S_ISREG(mode) else 0o644


def entries(root: Path) -> Iterator[tuple[int, str, os.stat_result]]:
    """(descriptor of its folder, relative path, lstat) of everything in the workspace that is no folder, folder by
    folder in no set order. What vanishes meanwhile, and what is nested deeper than 64 folders, is left out."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        steps = waiting.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), _opened(root, steps) as folder:
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if not stat.S_ISDIR(status.st_mode):
                        yield folder, "/".join((*steps, name)), status
                    elif len(steps) < _MAX_DEPTH:
                        waiting.append((*steps, name))


def size(root: Path, stop_at: int) -> int:
    """Bytes on disk below root, a block at least for each entry; counting stops once past `stop_at`."""
    total = 0
    for _, _, status in entries(root):
        total += max(status.st_blocks * 512, 4096)
        if total > stop_at:
            break
    return total


def difference(root: Path, start: dict[str, bytes], most: int) -> dict[str, bytes | None]:
    """What `changed` of the sandbox returns, given the digests that `copy_tree` took.

    Raises OSError (EFBIG) when the changed files hold more than `most` bytes together.
    """
    found: dict[str, bytes | None] = dict.fromkeys(start)
    held = 0
    for folder, path, status in entries(root):
        if not stat.S_ISREG(status.st_mode):
            continue
        if held + status.st_size > most:
            raise OSError(errno.EFBIG, f"the changed files hold more than {most >> 20} MB", path)
        try:
            data = _read_at(folder, path.rpartition("/")[2])
        except FileNotFoundError:
            continue
        if start.get(path) == _digest(data):
            del found[path]
        else:
            found[path] = data
            held += len(data)
    return found


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def copy_tree(source: Path, target: Path) -> dict[str, bytes]:
    """Copy folders, regular files and links (as links); returns path -> sha256 of each regular file.

    The copies belong to us and can be read and written by us, set-id bits are dropped. Raises ValueError for sockets,
    devices and pipes, and for a source that would hold its own copy.
    """
    if target.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"{source} holds the folder for temporary files; set TMPDIR to a place outside of it")
    digests = {}
    waiting = [""]
    while waiting:
        below = waiting.pop()
        into = target / below
        into.mkdir(mode=0o755)
        with os.scandir(source / below) as found:
            for entry in found:
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), target / path)
                elif entry.is_dir():
                    waiting.append(path)
                elif entry.is_file():
                    digests[path] = _copy_file(entry, target / path)
                else:
                    raise ValueError(f"{entry.path} is neither file, folder nor link")
    return digests


def _copy_file(entry: os.DirEntry[str], into: Path) -> bytes:
    data = Path(entry.path).read_bytes()
    mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode) & 0o777 | 0o600
    with os.fdopen(os.open(into, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(data)
    return _digest(data)


def remove_tree(top: Path) -> None:
    """Remove a folder that sandboxed code may have shaped: any depth, any mode. Nothing may be running in it any more.

    Deep chains are flattened (each folder's folders are moved up to `top`), so neither recursion nor path length grows.
    Raises OSError for what cannot be removed; a folder that is gone already is fine.
    """
    with contextlib.suppress(FileNotFoundError):
        top.chmod(0o700)
        while names := os.listdir(top):
            for name in names:
                path = top / name
                if not stat.S_ISDIR(path.lstat().st_mode):
                    path.unlink()
                    continue
                path.chmod(0o700)
                for inner in os.listdir(path):
                    if stat.S_ISDIR((path / inner).lstat().st_mode):
                        (path / inner).chmod(0o700)
                        (path / inner).rename(top / os.urandom(12).hex())
                    else:
                        (path / inner).unlink()
                path.rmdir()
        top.rmdir()
