"""The one door: a sandbox is opened here, on a machine that was found able to hold one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from twoloop.sandbox.bwrap import BwrapSandbox
from twoloop.sandbox.cgroups import find_cgroups
from twoloop.sandbox.homes import sweep
from twoloop.sandbox.probe import probe
from twoloop.sandbox.types import Limits, Mount


def open_sandbox(tree: Path, *, mounts: Sequence[Mount] = (), limits: Limits | None = None) -> BwrapSandbox:
    """A sandbox whose workspace is a private copy of `tree`, links copied as links. `mounts` appear read-only;
    `limits` hold for every command that names none of its own. Raises NoSandbox or SandboxError."""
    tier = probe()
    _sweep_once()
    return BwrapSandbox(tier, tree, mounts, limits or Limits(), find_cgroups())


@cache
def _sweep_once() -> int:
    return sweep()
