"""`twoloop turn`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twoloop.cli.show import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, json_out, say

if TYPE_CHECKING:
    from twoloop.config import Settings

_STYLES = {"promote": "bold green", "reject": "bold red", "not_enough_data": "bold yellow"}


def add_to(app: typer.Typer) -> None:
    app.command(
        "turn",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        options_metavar="[OPTIONS] [--SECTION.KEY VALUE]...",
    )(turn)


def turn(
    context: typer.Context,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the turn that was cut off.")] = False,
    config: Annotated[
        str, typer.Option("--config", "-c", metavar="FILE", help="Settings; default: ./twoloop.toml if it is there.")
    ] = "",
    show_settings: Annotated[
        bool, typer.Option("--show-settings", help="Print the resolved settings as a twoloop.toml and exit.")
    ] = False,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Run one turn of both loops: watch, rank, practise, prove, promote or drop.

    \b
    Examples:
      twoloop turn
      twoloop turn --resume
      twoloop turn --train.steps 4 --gate.tasks 20
      twoloop turn --model.name ./my-model --tasks.sources ./my-library
      twoloop turn --show-settings > twoloop.toml

    A finished step is never repeated and never lost, whatever kills the turn. The verdict (promote, reject, not enough
    data) is an answer, not an error: the exit status is 0 for all three.
    """
    place = Path(workspace)
    settings = _settings(place, config, context.args, resume)
    if show_settings:
        print(settings.describe(), end="")
        return
    from twoloop.cli.progress import Bars
    from twoloop.loop.plain import to_plain
    from twoloop.loop.turn import turn as run_turn

    with Bars(quiet=as_json) as bars:
        outcome = run_turn(settings, place, resume=resume, progress=bars)
    if as_json:
        json_out(to_plain({"turn": outcome.turn, "verdict": outcome.verdict, "report": str(outcome.report)}))
        return
    say(f"\n{outcome.verdict.sentence}", _STYLES[outcome.verdict.decision])
    say(f"Report: {outcome.report}")


def _settings(workspace: Path, config: str, arguments: list[str], resume: bool) -> Settings:
    """What the command line says; for a resumed turn without any, what the turn was begun with."""
    from twoloop.config import Settings, load, parse_overrides

    if resume and not config and not arguments and workspace.is_dir():
        from twoloop.loop.plain import from_plain
        from twoloop.loop.workspace import Workspace

        place = Workspace.open(workspace)
        unfinished = place.unfinished()
        if unfinished is not None:
            return from_plain(Settings, place.begun_with(unfinished))
    return load(Path(config) if config else None, parse_overrides(arguments))
