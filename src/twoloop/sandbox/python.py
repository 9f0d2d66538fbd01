"""Python inside the sandbox: the base interpreter alone, and chosen packages copied out of the running environment."""

from __future__ import annotations

import compileall
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from py_compile import PycInvalidationMode

from twoloop.errors import SandboxError


@cache
def sandbox_python() -> str:
    """Path of the interpreter, the same inside and outside: the base one, as the virtual environment is not mounted."""
    named = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return os.path.realpath(named if named.is_file() else sys.executable)


@cache
def base_folders() -> tuple[Path, ...]:
    """What `sandbox_python` needs beside /usr: programs and libraries of its prefix, nothing else that stands there."""
    prefix = Path(sandbox_python()).parent.parent
    if prefix == Path("/") or prefix.is_relative_to("/usr"):
        return ()
    return tuple(path for name in ("bin", "lib", "lib64") if (path := prefix / name).is_dir() and not path.is_symlink())


@cache
def package_folders() -> tuple[Path, ...]:
    """Every site-packages that is mounted along with /usr or the base interpreter.

    They are covered with an empty folder: what happens to be installed there could change a test's outcome, or be the
    very code that was deleted from a task.
    """
    places = {Path("/usr"), Path("/usr/local"), Path(sandbox_python()).parent.parent}
    found = {
        folder.resolve()
        for place in places
        for pattern in ("lib*/python3*/site-packages", "lib*/python3*/dist-packages")
        for folder in place.glob(pattern)
    }
    mounted = (Path("/usr"), *base_folders())
    return tuple(sorted(f for f in found if f.is_dir() and any(f.is_relative_to(m) for m in mounted)))


def runner_site(cache: Path, distributions: Sequence[str]) -> Path:
    """A folder with copies of these installed distributions, to be mounted and put on `sys.path`.

    It is named by the content of their files, holds byte code for this interpreter, and is made aside, synced and
    renamed: concurrent callers and crashes leave a whole one or none. Raises SandboxError for a distribution that is
    not installed, or that is installed in editable mode and so has no files of its own.
    """
    files = {inside: source for name in sorted(distributions) for inside, source in _files(_installed(name))}
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {sys.hexversion:x}\n".encode())
    for inside, source in sorted(files.items()):
        digest.update(f"{inside}\0{hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode())
    target = cache / "runner" / digest.hexdigest()[:16]
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            _fill(aside, files)
            _publish(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as problem:
        raise SandboxError(f"{name} is not installed", fix=f"Run `pip install {name}`.") from problem


def _files(dist: Distribution) -> Iterator[tuple[str, Path]]:
    """(path in the folder, path on disk) of each file that is imported or read as metadata."""
    code = 0
    for file in dist.files or ():
        source = Path(str(dist.locate_file(file)))
        if ".." in file.parts or "__pycache__" in file.parts or file.suffix == ".pth" or not source.is_file():
            continue  # scripts outside of the packages, byte code, hooks of the environment
        metadata = file.parts[0].endswith(".dist-info")
        if metadata and file.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            continue
        code += not metadata
        yield file.as_posix(), source
    if code == 0:
        name = dist.metadata["Name"]
        raise SandboxError(f"{name} has no files here: is it an editable install?", fix=f"Run `pip install {name}`.")


def _fill(folder: Path, files: dict[str, Path]) -> None:
    for inside, source in files.items():
        into = folder / inside
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, into)
    # Unchecked: the folder is read-only inside and its name says what is in it.
    compileall.compile_dir(folder, quiet=2, stripdir=str(folder), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    folder.chmod(0o755)
    os.sync()


def _publish(aside: Path, target: Path) -> None:
    try:
        os.rename(aside, target)
    except OSError:  # somebody else was first, with the same content
        if not target.is_dir():
            raise
