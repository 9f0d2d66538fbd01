"""The bubblewrap sandbox: every command in fresh namespaces over one private workspace folder."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from twoloop.errors import SandboxError
from twoloop.sandbox import files
from twoloop.sandbox.cgroups import Group, find_cgroups
from twoloop.sandbox.probe import HARDENING, NAMESPACES, probe, system_binds
from twoloop.sandbox.types import WORKSPACE, ExecResult, Limits, Mount, Tier

_HOME = "/tmp/home"
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": _HOME,
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Joins the control groups before anything of the sandbox exists, then becomes bwrap.
_JOIN = 'for group in $GROUPS_TO_JOIN; do echo $$ > "$group" || exit 125; done; unset GROUPS_TO_JOIN; exec "$@"'


def open_sandbox(tree: Path, *, mounts: Sequence[Mount] = (), limits: Limits | None = None) -> BwrapSandbox:
    """A sandbox whose workspace is a private copy of `tree`. Raises NoSandbox or SandboxError."""
    tier = probe()
    home = _private_root() / f"{os.getpid()}-{os.urandom(6).hex()}"
    try:
        home.mkdir(mode=0o700)
        files.copy_tree(tree, home / "tree")
    except (OSError, ValueError) as problem:
        shutil.rmtree(home, ignore_errors=True)
        raise SandboxError(
            f"cannot prepare a workspace: {problem}", fix="Check free disk space and the tree."
        ) from problem
    return BwrapSandbox(home, tier, tuple(mounts), limits or Limits())


def _private_root() -> Path:
    root = Path(tempfile.gettempdir()) / f"twoloop-{os.geteuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if status.st_uid != os.geteuid() or not root.is_dir() or root.is_symlink():
        raise SandboxError(f"{root} is not ours", fix="Remove it, or point TMPDIR at a folder of your own.")
    return root


def sweep() -> int:
    """Remove the workspaces of processes that are gone. Returns how many."""
    removed = 0
    for path in _private_root().iterdir():
        owner = path.name.partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed


class BwrapSandbox:
    """See `sandbox.types.Sandbox`. Commands of one sandbox may run at the same time."""

    def __init__(self, home: Path, tier: Tier, mounts: tuple[Mount, ...], limits: Limits) -> None:
        self._home, self._tier, self._mounts, self._limits = home, tier, mounts, limits
        self._tree = home / "tree"
        self._start = files.fingerprint(self._tree)

    @property
    def tier(self) -> str:
        return self._tier.name

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
    ) -> ExecResult:
        limits = limits or self._limits
        groups = find_cgroups()
        group = groups.make(limits.memory_mb, limits.processes) if groups else None
        try:
            return self._run([*self._command(limits, env or {}, cwd, group), *argv], stdin, limits, group)
        except OSError as problem:
            raise SandboxError(f"the sandbox could not be started: {problem}") from problem
        finally:
            if group is not None:
                group.remove()

    def put(self, path: str, data: bytes) -> None:
        files.write(self._tree, path, data)

    def get(self, path: str) -> bytes:
        return files.read(self._tree, path)

    def changed(self) -> dict[str, bytes | None]:
        now = files.fingerprint(self._tree)
        found: dict[str, bytes | None] = {p: self.get(p) for p, digest in now.items() if self._start.get(p) != digest}
        found.update({path: None for path in self._start if path not in now})
        return found

    def stop(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    # -- one command -------------------------------------------------------------------------------------------------

    def _command(self, limits: Limits, env: Mapping[str, str], cwd: str, group: Group | None) -> list[str]:
        command = [str(self._tier.bwrap), *NAMESPACES, *HARDENING, *system_binds()]
        base = sys.base_prefix
        if not base.startswith("/usr/") and base != "/usr":
            command += ["--ro-bind", base, base]
        command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", _HOME]
        for mount in self._mounts:
            command += ["--ro-bind", str(mount.host), mount.inside]
        command += ["--bind", str(self._tree), WORKSPACE, "--remount-ro", "/", "--chdir", cwd]
        for name, value in {**_ENVIRONMENT, **env}.items():
            command += ["--setenv", name, value]
        caps = [f"--fsize={limits.file_mb << 20}", "--core=0"]
        if group is None:
            caps += [f"--as={limits.memory_mb << 20}", f"--nproc={limits.processes}"]
        return [*command, "--", "/usr/bin/prlimit", *caps, "--"]

    def _run(self, command: list[str], stdin: bytes, limits: Limits, group: Group | None) -> ExecResult:
        joins = " ".join(group.joins()) if group else ""
        began = time.monotonic()
        process = subprocess.Popen(
            ["/bin/sh", "-c", _JOIN, "sandbox", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"GROUPS_TO_JOIN": joins},
            start_new_session=True,
        )
        try:
            output, truncated, timed_out = _pump(process, stdin, limits, began)
        finally:
            # Killing bwrap kills the first process of its pid namespace, and with it everything inside.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        if code == 125 or (code == 1 and output[1].startswith(b"bwrap: ")):
            raise SandboxError(
                f"the sandbox failed: {output[1].decode('utf-8', 'replace').strip() or 'no control group'}"
            )
        return ExecResult(
            code=code,
            stdout=output[0],
            stderr=output[1],
            seconds=time.monotonic() - began,
            timed_out=timed_out,
            out_of_memory=group.out_of_memory() if group else False,
            truncated=truncated,
        )


def _pump(
    process: subprocess.Popen[bytes], stdin: bytes, limits: Limits, began: float
) -> tuple[tuple[bytes, bytes], bool, bool]:
    """Feed stdin and collect output until the command ends or its time is up: ((stdout, stderr), truncated, timed out).

    Output beyond the cap is read and dropped, so that a writer never blocks."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    out, err = process.stdout.fileno(), process.stderr.fileno()
    collected = {out: bytearray(), err: bytearray()}
    truncated = timed_out = False
    pending = memoryview(stdin)
    with selectors.DefaultSelector() as selector, process.stdin, process.stdout, process.stderr:
        for descriptor in collected:
            selector.register(descriptor, selectors.EVENT_READ)
        if pending:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        else:
            process.stdin.close()
        while len(selector.get_map()) > 0:
            left = began + limits.wall_s - time.monotonic()
            if left <= 0:
                timed_out = True
                break
            for key, _ in selector.select(min(left, 1.0)):
                if key.fd not in collected:
                    pending = _feed(process, pending, selector)
                    continue
                chunk = os.read(key.fd, 65_536)
                if not chunk:
                    selector.unregister(key.fd)
                    continue
                kept = collected[key.fd]
                room = limits.output_bytes - len(kept)
                truncated = truncated or len(chunk) > room
                kept.extend(chunk[: max(room, 0)])
        if not timed_out:
            try:
                process.wait(max(0.0, began + limits.wall_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                timed_out = True
    return (bytes(collected[out]), bytes(collected[err])), truncated, timed_out


def _feed(process: subprocess.Popen[bytes], pending: memoryview, selector: selectors.BaseSelector) -> memoryview:
    assert process.stdin is not None
    try:
        pending = pending[os.write(process.stdin.fileno(), pending) :]
    except BrokenPipeError:
        pending = pending[:0]
    if not pending:
        selector.unregister(process.stdin)
        process.stdin.close()
    return pending
