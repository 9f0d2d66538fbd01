"""`twoloop areas`: what to improve."""

from __future__ import annotations

from pathlib import Path

import typer

from twoloop.cli.show import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, json_out, say, table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What to improve, ranked, with evidence.")


@app.command("list")
def list_(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """List the areas as the last finished turn ranked them, with one piece of evidence each."""
    from twoloop.loop.plain import to_plain
    from twoloop.loop.plot import number, percent
    from twoloop.loop.report import latest_report, read_report

    report = read_report(latest_report(Path(workspace)))
    if as_json:
        json_out(to_plain(report.areas))
        return
    rows = [
        (
            str(place),
            area.title,
            f"{area.sessions} of {area.of}",
            f"{percent(area.share)} ({percent(area.low)} to {percent(area.high)})",
            number(area.severity),
            number(area.rank),
        )
        for place, area in enumerate(report.areas, 1)
    ]
    columns = ("", "area", "sessions", "share, 95 % interval", "severity", "rank")
    table(columns, rows, empty="The last turn saw nothing wrong.", right=("sessions", "severity", "rank"))
    for area in report.areas:
        for one in area.evidence[:1]:
            say(f"\n{area.title}: session {one.session}, turn {one.turn}", "dim")
            say("  " + one.quote.replace("\n", "\n  "))
