"""`twoloop models`: what can be trained here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twoloop.cli.show import JsonOption, json_out, say, table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Fetch models and see what is there.")

CacheOption = Annotated[
    str, typer.Option("--cache", metavar="DIR", help="Default: $TWOLOOP_CACHE, else ~/.cache/twoloop.")
]


@app.command()
def pull(
    name: Annotated[str, typer.Argument(help="An embedded model, a hub name, or a folder.")] = "smollm2-135m-instruct",
    cache: CacheOption = "",
) -> None:
    """Fetch and convert a model, once. Without a name: the embedded one.

    \b
    Examples:
      twoloop models pull
      twoloop models pull HuggingFaceTB/SmolLM2-360M-Instruct
    """
    from twoloop.cli.progress import Bars
    from twoloop.models import hub

    with Bars() as bars:
        folder = hub.pull(name, cache=_path(cache), progress=bars)
    say(str(folder))


@app.command("list")
def list_(cache: CacheOption = "", as_json: JsonOption = False) -> None:
    """List the models on this machine."""
    from twoloop.loop.plot import number
    from twoloop.models import hub

    found = hub.list_models(_path(cache))
    if as_json:
        json_out([_about(one) for one in found])
        return
    table(
        ("name", "parameters", "MB", "from"),
        [(one.name, f"{one.parameters:,}", number(one.megabytes), one.origin) for one in found],
        empty="No model yet. `twoloop models pull` fetches the embedded one.",
        right=("parameters", "MB"),
    )


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A model's name or folder.")] = "smollm2-135m-instruct",
    cache: CacheOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what one model is and where it lies."""
    from twoloop.errors import ModelError
    from twoloop.models import hub

    given = Path(name).expanduser()
    found = [hub.show(given)] if given.is_dir() else [one for one in hub.list_models(_path(cache)) if one.name == name]
    if not found:
        raise ModelError(f"The model {name} is not on this machine.", fix=f"Fetch it: `twoloop models pull {name}`.")
    about = _about(found[0])
    if as_json:
        json_out(about)
        return
    for key, value in about.items():
        say(f"{key:<11} {value}")


def _about(one: object) -> dict[str, object]:
    from dataclasses import asdict, is_dataclass

    assert is_dataclass(one) and not isinstance(one, type)
    return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(one).items()}


def _path(text: str) -> Path | None:
    return Path(text) if text else None
