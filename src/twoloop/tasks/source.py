"""Where codebases come from: a folder, an sdist, a pinned `name==version`, or a git URL. What leaves: a clean tree."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from twoloop.errors import TaskError
from twoloop.tasks import index

DEFAULT_SOURCES = ("toolz==1.2.0", "more-itertools==11.2.1", "boltons==26.2.0")
_SHA256 = {  # of the sdists of the default sources
    "toolz==1.2.0": "9667a038e9d6ecba37995e26cb2f59ec6420b6ad8dd9677de59db9b956b08490",
    "more-itertools==11.2.1": "cbf08fd0af284dc69718b9b76a8e6203df624d70209ea511e4219d350c856f63",
    "boltons==26.2.0": "d39cfd15c1a1c3bd4d705c82252fa9edb8e4f5e8cc039f8e39afac7b1b47e92c",
}
PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+")
_LEFT_OUT = re.compile(  # version control, caches, builds, installed copies, and prose that names what was deleted
    r"^(\.git|\.hg|\.svn|\.github|\.tox|\.nox|\.venv|venv|__pycache__|build|dist|docs?|node_modules|\.eggs|htmlcov|"
    r"\.(mypy|pytest|ruff|pytype|hypothesis)(_cache)?|.*\.egg-info|.*\.py[co]|.*\.so|\.coverage.*|tags|"
    r"(CHANGE|README|HISTORY|NEWS|PKG-INFO).*)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Source:
    """A clean tree of a codebase. `packages` are the folders that hold its code, `tests` its test files."""

    name: str
    tree: Path
    sha256: str
    packages: tuple[str, ...]
    tests: tuple[str, ...]


def fetch(source: str, cache: Path) -> Source:
    """The clean tree of a source, made once in the cache. Raises TaskError with what to do."""
    if PINNED.fullmatch(source):
        return _from_sdist(_download(source, cache), source, cache)
    path = Path(source).expanduser()
    if path.is_dir():
        return _export(path, path.resolve().name, cache)
    if path.is_file() and path.name.endswith((".tar.gz", ".tgz")):
        return _from_sdist(path, path.name.removesuffix(".tar.gz").removesuffix(".tgz"), cache)
    if source.startswith(("https://", "ssh://", "git@", "file://", "git://")):
        return _from_git(source, cache)
    raise TaskError(
        f"{source!r} is no source of tasks", fix="Give a folder, an sdist (.tar.gz), `name==version`, or a git URL."
    )


def _download(pinned: str, cache: Path) -> Path:
    """The sdist of a pinned requirement, as the index holds it. pip is not used: it would run the sdist's own code."""
    name, _, version = pinned.partition("==")
    folder = cache / "sdists"
    file = folder / f"{re.sub(r'[-_.]+', '_', name)}-{version}.tar.gz"
    if not file.is_file():
        try:
            data = index.sdist(name, version)
            folder.mkdir(parents=True, exist_ok=True)
            file.with_suffix(".part").write_bytes(data)
            os.replace(file.with_suffix(".part"), file)
        except OSError as problem:
            raise TaskError(
                f"could not download {pinned}: {problem}", fix="Connect to a package index, or give a folder."
            ) from problem
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != _SHA256.get(pinned, digest):
        file.unlink()
        raise TaskError(
            f"the sdist of {pinned} is not the file that was pinned (sha256 {digest})",
            fix="Check the package index that pip uses, then run it again.",
        )
    return file


def _from_sdist(path: Path, name: str, cache: Path) -> Source:
    with tempfile.TemporaryDirectory(prefix="twoloop-sdist-") as temporary:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(temporary, filter="data")
        except (tarfile.TarError, OSError) as problem:
            raise TaskError(f"cannot unpack {path}: {problem}", fix="Download it again.") from problem
        inner = [p for p in Path(temporary).iterdir() if p.is_dir()]
        return _export(inner[0] if len(inner) == 1 else Path(temporary), name, cache)


def _from_git(url: str, cache: Path) -> Source:
    with tempfile.TemporaryDirectory(prefix="twoloop-git-") as temporary:
        command = ["git", "clone", "--quiet", "--depth", "1", "--", url, f"{temporary}/tree"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        )
        if done.returncode != 0:
            raise TaskError(
                f"could not clone {url}: {done.stderr.strip() or 'git failed'}",
                fix="Check the address and your access.",
            )
        return _export(Path(temporary) / "tree", url.rstrip("/").rpartition("/")[2].removesuffix(".git"), cache)


def _export(folder: Path, name: str, cache: Path) -> Source:
    """Copy what a task may hold, find packages and tests."""
    aside = Path(tempfile.mkdtemp(prefix="twoloop-export-"))
    try:
        digest = _copy_clean(folder, aside)
        target = cache / "trees" / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name)}-{digest[:12]}"
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copytree(aside, target.with_suffix(".part"), dirs_exist_ok=True)
                os.replace(target.with_suffix(".part"), target)
            except OSError as problem:
                raise TaskError(f"cannot store {name}: {problem}", fix="Free some disk space.") from problem
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    tests = tuple(sorted(p.relative_to(target).as_posix() for p in target.rglob("*.py") if is_test(p.name)))
    if not tests:
        raise TaskError(f"{name} has no tests (no test_*.py)", fix="Choose a codebase with a pytest suite.")
    packages = tuple(sorted({_package_of(p.relative_to(target)) for p in target.rglob("__init__.py")} - {""}))
    if not packages:
        raise TaskError(
            f"{name} has no Python package (no __init__.py)", fix="Choose a codebase laid out as a package."
        )
    return Source(name, target, digest, packages, tests)


def _package_of(init: Path) -> str:
    """Top package folder of an __init__.py, "" for test folders."""
    parts = init.parts[:-1]
    if not parts or parts[0] in ("tests", "test"):
        return ""
    return "/".join(parts[:2]) if parts[0] == "src" and len(parts) > 1 else parts[0]


def is_test(name: str) -> bool:
    return (name.startswith("test_") or name.endswith("_test.py")) and name.endswith(".py")


def _copy_clean(source: Path, target: Path) -> str:
    """Copy regular files that may stay; sha256 over their paths and contents."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_symlink() or not path.is_file() or any(_LEFT_OUT.match(part) for part in relative.parts):
            continue
        data = path.read_bytes()
        digest.update(f"{relative.as_posix()}\0{len(data)}\0".encode() + data)
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        (target / relative).write_bytes(data)
    return digest.hexdigest()
