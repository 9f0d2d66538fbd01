"""`twoloop feedback`: what people say about sessions."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from twoloop.cli.show import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, json_out, say

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Record what people say about sessions.")


class Thumbs(StrEnum):
    up = "up"
    down = "down"


@app.command()
def add(
    session: Annotated[str, typer.Option("--session", "-s", help="The session that it is about.")],
    direction: Annotated[Thumbs, typer.Option("--thumbs", help="Which way.")],
    text: Annotated[str, typer.Option("--text", "-t", help="Why, in the user's words.")] = "",
    turn: Annotated[int | None, typer.Option("--turn", help="The message that it is about, counted from 0.")] = None,
    actor: Annotated[str, typer.Option("--actor", help="Who says so.")] = "",
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Give a session a thumb. The next turn ranks it with everything else. Giving the same twice changes nothing.

    \b
    Example:
      twoloop feedback add --session S --thumbs down --text "It called a tool that we removed."
    """
    from twoloop.feedback import thumbs
    from twoloop.store import Store

    store = Store.open(Path(workspace))
    event = thumbs(store, session, up=direction is Thumbs.up, text=text, turn=turn, actor=actor)
    known = store.has_session(session)
    if as_json:
        json_out({**asdict(event), "known_session": known})
        return
    say(f"Recorded: thumbs {direction.value} on session {session}.")
    if not known:
        say("No session of that name is in this workspace yet; the feedback waits for it.", "yellow")


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="JSON lines: session, thumbs (up or down), and text, ts, actor, turn.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Import feedback from a file of JSON lines. Importing it again is harmless; bad lines are kept aside with reasons.

    \b
    A line looks like this:
      {"session": "S", "thumbs": "down", "text": "It gave up.", "ts": "2026-01-31T09:30:00Z"}
    """
    from twoloop.feedback import import_jsonl
    from twoloop.store import Store

    report = import_jsonl(Store.open(Path(workspace)), Path(file))
    if as_json:
        json_out(asdict(report))
        return
    say(f"{report.accepted} new, {report.repeated} known already, {len(report.rejected)} rejected.")
    for number, reason in report.rejected[:10]:
        say(f"  line {number}: {reason}", "yellow")
    if report.kept_aside is not None:
        say(f"  the rejected lines are kept in {report.kept_aside}", "yellow")
    if report.unknown_sessions:
        say(
            f"  {report.unknown_sessions} sessions are not in this workspace yet; their feedback waits for them",
            "yellow",
        )
