"""`twoloop doctor`: is this machine ready for a turn?"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from twoloop.cli.show import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, json_out, say

_NEEDED_GB = 3.0  # of disk: the model, the tasks and the record of one turn
_NEEDED_MEMORY_GB = 6.0


@dataclass(frozen=True)
class Finding:
    """What one look at the machine found. `fix` is set when something is amiss; `blocks` when no turn can run so."""

    what: str
    says: str
    fix: str = ""
    blocks: bool = False


def add_to(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Look at the machine and say what is missing for a turn. Exit status 1 when something would stop it."""
    place = Path(workspace)
    looks: list[Callable[[], Finding]] = [_python, _torch, _memory, lambda: _disk(place), _sandbox, _model]
    findings = [look() for look in looks]
    blocked = any(one.blocks for one in findings)
    if as_json:
        json_out({"ready": not blocked, "findings": [asdict(one) for one in findings]})
    else:
        for one in findings:
            mark, style = ("✗", "red") if one.blocks else (("!", "yellow") if one.fix else ("✓", "green"))
            say(f"{mark} {one.what:<8} {one.says}", style)
            if one.fix:
                say(f"  {'':<8} fix: {one.fix}")
        say("Not ready." if blocked else "Ready: `twoloop turn`.", "bold")
    if blocked:
        raise typer.Exit(1)


def _python() -> Finding:
    return Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _torch() -> Finding:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return Finding("torch", f"{torch.__version__} on {device}, {cores} cores")


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    fix = "" if total >= _NEEDED_MEMORY_GB else "Sample fewer sequences together: `--runtime.batch 8`."
    return Finding("memory", f"{total:.1f} GB", fix)


def _disk(workspace: Path) -> Finding:
    place = next(one for one in (workspace.absolute(), *workspace.absolute().parents) if one.is_dir())
    free = shutil.disk_usage(place).free / 2**30
    if not os.access(place, os.W_OK):
        return Finding("disk", f"{place} cannot be written", "Choose another --workspace.", blocks=True)
    fix = "" if free >= _NEEDED_GB else f"Free some space: a turn takes up to {_NEEDED_GB:.0f} GB."
    return Finding("disk", f"{free:.1f} GB free at {place}", fix, blocks=free < 0.5)


def _sandbox() -> Finding:
    from twoloop.errors import NoSandbox
    from twoloop.sandbox import probe

    try:
        tier = probe()
    except NoSandbox as error:
        return Finding("sandbox", str(error.args[0]), error.fix or "", blocks=True)
    notes = f"; {'; '.join(tier.notes)}" if tier.notes else ""
    return Finding("sandbox", f"{tier.name}, bubblewrap {tier.version}{notes}")


def _model() -> Finding:
    from twoloop.models import hub

    names = [one.name for one in hub.list_models()]
    return Finding("models", ", ".join(names) if names else "none yet; the first turn fetches the embedded one")
