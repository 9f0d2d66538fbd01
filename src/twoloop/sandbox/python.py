"""Python inside the sandbox: the base interpreter, and chosen packages copied out of the running environment."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from twoloop.errors import SandboxError


def sandbox_python() -> str:
    """Path of the interpreter inside: the base one, since the virtual environment is not mounted."""
    return os.path.realpath(sys.executable)


def runner_site(cache: Path, distributions: Sequence[str]) -> Path:
    """A folder with copies of these installed distributions, to be mounted and put on `sys.path`.

    It is named by their versions, made aside and renamed, so that concurrent callers and crashes leave a whole one.
    """
    found = []
    for name in sorted(distributions):
        try:
            found.append(distribution(name))
        except PackageNotFoundError as problem:
            raise SandboxError(f"{name} is not installed", fix=f"Run `pip install {name}`.") from problem
    label = "|".join(f"{d.name}=={d.version}" for d in found) + f"|{sys.version}"
    target = cache / "runner" / hashlib.sha256(label.encode()).hexdigest()[:16]
    if target.is_dir():
        return target
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    for dist in found:
        for file in dist.files or ():
            source = Path(str(dist.locate_file(file)))
            if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
                continue  # scripts outside of the packages, and byte code
            into = aside / file
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, into)
    try:
        os.replace(aside, target)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not target.is_dir():
            raise
    return target
