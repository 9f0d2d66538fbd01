"""The command line: parse, call a room, show what it said. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """The `twoloop` program. Exits with 0; 1 when a check found something; 2 for an error; 130 when interrupted."""
    from twoloop.cli.app import run

    run(arguments)
