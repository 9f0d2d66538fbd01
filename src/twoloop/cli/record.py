"""`twoloop checkpoints`, `lineage` and `report`: what the record of a workspace says."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoloop.cli.show import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, console, json_out, say, table

if TYPE_CHECKING:
    from rich.tree import Tree

    from twoloop.records import Event
    from twoloop.store import Store

checkpoints = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The checkpoints of a workspace.")
lineage = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Where things come from.")
reports = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The reports that turns wrote.")

_SHOWN = 5  # sources of one noun and relation that are shown in full


@checkpoints.command("list")
def list_(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """List the checkpoints, and which of them serves."""
    store = _store(workspace)
    serving, found = store.serving(), store.checkpoints()
    name = serving.name if serving else None
    if as_json:
        json_out([{**asdict(one), "serving": one.name == name} for one in found])
        return
    table(
        ("", "checkpoint", "parent", "policy version", "weights", "created"),
        [
            (
                "●" if one.name == name else "",
                one.name,
                one.parent or "",
                str(one.policy_version),
                one.weights[:12],
                one.created,
            )
            for one in found
        ],
        empty="No checkpoint yet. `twoloop turn` makes one.",
        right=("policy version",),
    )
    if name:
        say("● serves", "dim")


@lineage.command()
def why(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint's name.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Walk back from a checkpoint to the reports that led to it.

    \b
    Example:
      twoloop lineage why turn-1
    """
    from twoloop.errors import StoreError

    store = _store(workspace)
    noun = checkpoint if ":" in checkpoint else f"checkpoint:{checkpoint}"
    if noun.startswith("checkpoint:") and store.checkpoint(noun.partition(":")[2]) is None:
        names = ", ".join(one.name for one in store.checkpoints()) or "none yet"
        raise StoreError(f"There is no checkpoint {checkpoint} in {workspace}.", fix=f"The checkpoints are: {names}.")
    events = {one.id: one for one in store.events()}
    if as_json:
        json_out(_walk(store, noun, events, set()))
        return
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(noun, "bold"))
    _grow(tree, store, noun, events, set())
    console().print(tree)
    if not tree.children:
        say("Nothing led to it: it is where this workspace began.")


@reports.command("path")
def path_(workspace: WorkspaceOption = DEFAULT_WORKSPACE) -> None:
    """Print where the last turn's report is."""
    from twoloop.loop.report import latest_report

    print(latest_report(Path(workspace)).absolute())


@reports.command("open")
def open_(workspace: WorkspaceOption = DEFAULT_WORKSPACE) -> None:
    """Open the last turn's report in a browser, or print where it is when there is none."""
    import webbrowser

    from twoloop.loop.report import latest_report

    path = latest_report(Path(workspace)).absolute()
    if not webbrowser.open(path.as_uri()):
        say(f"No browser here. The report is {path}")


def _store(workspace: str) -> Store:
    """The record of a workspace that is there: looking must not create one."""
    from twoloop.errors import StoreError
    from twoloop.store import Store

    place = Path(workspace)
    if not place.is_dir():
        raise StoreError(
            f"There is no workspace {place}.", fix="Run a turn first: `twoloop turn`, or name another (-w)."
        )
    return Store.open(place)


def _walk(store: Store, noun: str, events: dict[str, Event], seen: set[str]) -> dict[str, Any]:
    """A noun and what it was made from. A noun that was met before is named, not walked again."""
    node: dict[str, Any] = {"noun": noun}
    event = events.get(noun.partition(":")[2]) if noun.startswith("event:") else None
    if event is not None:
        node["event"] = asdict(event)
    if noun in seen:
        return node
    seen.add(noun)
    parents = store.parents(noun)
    if parents:
        node["from"] = [{"relation": one.relation, **_walk(store, one.source, events, seen)} for one in parents]
    return node


def _grow(tree: Tree, store: Store, noun: str, events: dict[str, Event], seen: set[str]) -> None:
    """The same walk as a tree for people, in which many sources of one kind are summed up."""
    from rich.text import Text

    if noun in seen:
        return
    seen.add(noun)
    groups: dict[tuple[str, str], list[str]] = {}
    for one in store.parents(noun):
        groups.setdefault((one.relation, one.source.partition(":")[0]), []).append(one.source)
    for (relation, kind), sources in groups.items():
        for source in sources[:_SHOWN]:
            label = Text.assemble((f"{relation} ", "dim"), source)
            event = events.get(source.partition(":")[2]) if kind == "event" else None
            if event is not None:
                label.append(f"  {event.kind}, session {event.session}", "cyan")
                label.append(f", turn {event.turn}" if event.turn is not None else "", "cyan")
                label.append(f"  “{_one_line(event.text)}”" if event.text else "", "italic")
            _grow(tree.add(label), store, source, events, seen)
        if len(sources) > _SHOWN:
            tree.add(Text(f"{relation} {len(sources) - _SHOWN} more of {kind}", "dim"))


def _one_line(text: str, limit: int = 80) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"
