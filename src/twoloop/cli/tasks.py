"""`twoloop tasks`: codebases into verifiable tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twoloop.cli.show import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, json_out, say, table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Turn codebases into tasks with hidden tests.")


@app.command()
def build(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE]...", help="A folder, a pinned sdist (name==1.2), a git URL.")
    ] = None,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Default: tasks/ in the workspace.")] = "",
    seed: Annotated[int, typer.Option("--seed", help="Of what is deleted and how modules are split.")] = 0,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Delete functions that tests cover, prove that the tests notice, and seal the result.

    \b
    Examples:
      twoloop tasks build toolz==1.2.0
      twoloop tasks build ./my-library --out ./tasks

    Without a SOURCE, the ones of the settings are built. Tests of a source run in the sandbox only.
    """
    from dataclasses import asdict

    from twoloop.cli.progress import Bars
    from twoloop.config import load
    from twoloop.models.hub import cache_root
    from twoloop.tasks import build as build_tasks

    place = Path(out) if out else Path(workspace) / "tasks"
    chosen = sources or list(load().tasks.sources)
    with Bars(quiet=as_json) as bars:
        report = build_tasks(chosen, place.absolute(), cache=cache_root(), seed=seed, progress=bars)
    if as_json:
        json_out({"folder": str(place.absolute()), **asdict(report)})
        return
    say(f"{report.tasks} tasks from {report.clusters} modules in {place}.")
    say(f"{report.train} to train on, {report.heldout} held out.")
    for reason, count in sorted(report.rejected.items(), key=lambda one: -one[1]):
        say(f"  {count:>5} left out: {reason}", "dim")
    for source, reason in report.skipped.items():
        say(f"  {source} gave nothing: {reason}", "yellow")


@app.command("list")
def list_(
    folder: Annotated[str, typer.Option("--folder", metavar="DIR", help="Default: tasks/ in the workspace.")] = "",
    split: Annotated[str, typer.Option("--split", metavar="train|heldout", help="Only this split.")] = "",
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """List the tasks that were built."""
    from twoloop.errors import ConfigError
    from twoloop.tasks import load

    if split not in ("", "train", "heldout"):
        raise ConfigError(f"There is no split {split!r}.", fix="Use train or heldout.")
    place = Path(folder) if folder else Path(workspace) / "tasks"
    found = load(place.absolute(), split or None) if place.is_dir() else []
    rows = [
        (one.id, one.split, one.cluster, ", ".join(unit.qualname for unit in one.units), str(len(one.fail_to_pass)))
        for one in found
    ]
    columns = ("task", "split", "module", "deleted", "tests to pass")
    if as_json:
        json_out([dict(zip(columns, row, strict=True)) for row in rows])
        return
    table(columns, rows, empty=f"No tasks in {place}. `twoloop tasks build` makes some.", right=("tests to pass",))
