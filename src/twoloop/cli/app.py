"""The commands, put together, and the one place where errors become messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from twoloop.cli import areas, doctor, feedback, models, record, tasks, train, turn
from twoloop.cli.show import error_out
from twoloop.errors import TwoloopError

INTERRUPTED = 130

app = typer.Typer(
    name="twoloop",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def twoloop(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Make a model better from what its users tell it, on repeat, and let nothing slip back.

    One turn watches the current checkpoint at work, ranks what goes wrong, practises that on real codebases with hidden
    tests, and promotes the new checkpoint only if it is better on held-out ones.

    \b
    Start here:
      twoloop doctor                      is this machine ready?
      twoloop turn                        one whole turn; ends in a verdict and a report
      twoloop turn --resume               go on after a crash, a kill or Ctrl-C
      twoloop turn --train.steps 4        change any setting of twoloop.toml for one turn

    \b
    Then:
      twoloop report open                 look at what happened
      twoloop lineage why turn-1          which reports led to this checkpoint?
      twoloop feedback add --session S --thumbs down --text "It gave up."

    All that a turn makes lies in one folder, .twoloop by default (--workspace). Settings: twoloop.toml, see
    `twoloop turn --show-settings`.
    """
    if version:
        from importlib.metadata import version as version_of

        print(f"twoloop {version_of('twoloop')}")
        raise typer.Exit


turn.add_to(app)
app.add_typer(models.app, name="models")
app.add_typer(tasks.app, name="tasks")
app.add_typer(feedback.app, name="feedback")
app.add_typer(areas.app, name="areas")
app.add_typer(record.checkpoints, name="checkpoints")
app.add_typer(record.lineage, name="lineage")
app.add_typer(record.reports, name="report")
app.add_typer(train.app, name="train")
doctor.add_to(app)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    try:
        code = app(given, prog_name="twoloop", standalone_mode=False)
    except typer.TyperException as error:
        error_out(
            _sentence(error.format_message()),
            "`twoloop --help` lists the commands.",
            kind="UsageError",
            as_json=as_json,
        )
        sys.exit(2)
    except TwoloopError as error:
        error_out(str(error.args[0]), error.fix, kind=type(error).__name__, as_json=as_json)
        sys.exit(2)
    except typer.Abort:
        code = INTERRUPTED
    if code == INTERRUPTED:
        _end_at_once("turn" in given[:1], as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _end_at_once(is_turn: bool, as_json: bool) -> None:
    """Say that nothing is lost, and end without waiting for the threads of the step that was in flight."""
    fix = "`twoloop turn --resume` continues." if is_turn else "Run the same command again."
    error_out("Interrupted. What was finished is kept.", fix, kind="Interrupted", as_json=as_json)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."
