"""The bubblewrap sandbox: every command in fresh namespaces over one private workspace folder."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from twoloop.errors import SandboxError
from twoloop.sandbox import files, homes, policy, seccomp
from twoloop.sandbox.cgroups import Cgroups
from twoloop.sandbox.supervise import Launch, Meter, supervise
from twoloop.sandbox.types import WORKSPACE, ExecResult, Limits, Mount, Tier
from twoloop.sandbox.watch import Watch

_MOST_CHANGED = 256 << 20  # bytes that `changed` will hold in memory


class BwrapSandbox:
    """See `sandbox.types.Sandbox`. Commands of one sandbox may run at the same time, from any thread."""

    def __init__(self, tier: Tier, tree: Path, mounts: Sequence[Mount], limits: Limits, groups: Cgroups | None) -> None:
        """Copy `tree` into a private workspace; without control groups the limits are held by counting. Raises
        SandboxError when the workspace cannot be made."""
        self._tier, self._limits, self._groups = tier, limits, groups
        self._home = homes.make_home()
        self._tree, self._furniture = self._home / "tree", self._home / "furniture"
        try:
            self._mounts = policy.checked(mounts)
            self._furniture.mkdir()
            policy.prepare(self._furniture)
            self._start = files.copy_tree(tree, self._tree)
        except (OSError, ValueError) as problem:
            self.stop()
            raise SandboxError(
                f"cannot prepare a workspace: {problem}", fix="Check the tree, the mounts and the free disk space."
            ) from problem

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
        if not argv or any("\0" in word for word in (*argv, cwd, *(env or {}), *(env or {}).values())):
            raise ValueError("a command needs a program, and no NUL byte anywhere")
        meter, program = self._meter(limits)
        try:
            options = policy.options(self._tree, self._furniture, self._mounts, limits, env or {}, cwd)
            launch = Launch(self._tier.bwrap, options, program, argv, stdin, limits)
            return supervise(launch, meter, partial(files.size, self._tree, limits.workspace_mb << 20))
        finally:
            meter.remove()

    def put(self, path: str, data: bytes) -> None:
        files.write(self._tree, path, data)

    def get(self, path: str) -> bytes:
        return files.read(self._tree, path)

    def changed(self) -> dict[str, bytes | None]:
        try:
            return files.difference(self._tree, self._start, _MOST_CHANGED)
        except OSError as problem:
            raise SandboxError(f"cannot read the workspace: {problem}") from problem

    def stop(self) -> None:
        try:
            files.remove_tree(self._home)
        except OSError as problem:
            raise SandboxError(f"cannot remove the workspace {self._home}: {problem}") from problem

    def _meter(self, limits: Limits) -> tuple[Meter, bytes]:
        program = seccomp.program(platform.machine(), memory_is_counted=self._groups is None)
        if self._groups is None:
            return Watch(limits), program
        try:
            return self._groups.make(limits, partial(homes.note_group, self._home)), program
        except OSError as problem:
            raise SandboxError(f"cannot make a control group: {problem}") from problem
