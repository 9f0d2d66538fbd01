"""`twoloop train`: the checkpoints that ship with twoloop, made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twoloop.cli.show import say

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make checkpoints that no turn makes.")


@app.callback()
def train() -> None:
    """Make checkpoints that no turn makes."""


@app.command()
def seed(
    out: Annotated[str, typer.Argument(help="Where the adapter is written (.safetensors).")],
    model: Annotated[str, typer.Option("--model", help="The base model.")] = "smollm2-135m-instruct",
) -> None:
    """Train the seed adapter from nothing: a short supervised start on scripted sessions.

    It is how the adapter that ships with twoloop was made.

    \b
    Example:
      twoloop train seed ./seed.safetensors
    """
    from twoloop.cli.progress import Bars
    from twoloop.models import hub
    from twoloop.train.seed import build_seed

    with Bars() as bars:
        folder = hub.pull(model, progress=bars)
        digest = build_seed(folder, Path(out), progress=lambda done, of, loss: bars("seed training", done, of))
    say(f"{out}  sha256 {digest}")
