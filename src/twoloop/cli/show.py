"""How results and errors reach the reader: tables and sentences on a terminal, JSON when asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

WorkspaceOption = Annotated[
    str, typer.Option("--workspace", "-w", metavar="DIR", help="The folder that holds all that turns make.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_WORKSPACE = ".twoloop"


def error_out(message: str, fix: str | None, *, kind: str, as_json: bool) -> None:
    """One error on stderr: what went wrong, then what to do about it."""
    if as_json:
        print(
            json.dumps({"error": {"kind": kind, "message": message, "fix": fix}}, ensure_ascii=False), file=sys.stderr
        )
        return
    from rich.console import Console
    from rich.text import Text

    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    errors.print(Text.assemble(("error: ", "bold red"), message))
    if fix:
        errors.print(Text.assemble(("  fix: ", "bold"), fix))


def console(*, soft_wrap: bool = False) -> Console:
    """Standard output. Where no one reads along, lines are not cut to a terminal's width."""
    from rich.console import Console

    return Console(soft_wrap=soft_wrap, highlight=False, width=None if sys.stdout.isatty() else 200)


def json_out(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def say(text: str, style: str = "") -> None:
    """A line of text as it is: no markup, since it may hold what a model wrote."""
    from rich.text import Text

    console(soft_wrap=True).print(Text(text, style))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str, right: Sequence[str] = ()) -> None:
    """A table; `right` names the columns that hold numbers. `empty` is said when there is no row."""
    if not rows:
        say(empty)
        return
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE, pad_edge=False, show_edge=False, header_style="dim")
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console().print(grid)
