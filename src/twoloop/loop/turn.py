"""One turn of both loops: what went wrong, practise it, prove it, ship it or drop it.

Read this file from top to bottom and you have seen the product. Every `do.step` is durable: once its result is on
record it is never run again, however often the turn is killed and resumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twoloop.config import Settings
from twoloop.errors import StoreError
from twoloop.loop.durable import Durable
from twoloop.loop.engine import Engine, Progress
from twoloop.loop.plain import from_plain, to_plain
from twoloop.loop.report import write_report
from twoloop.loop.rooms import Rooms
from twoloop.loop.settle import settle
from twoloop.loop.telling import tell
from twoloop.loop.workspace import Workspace
from twoloop.records import Area, Checkpoint, Verdict
from twoloop.sandbox import probe, sweep
from twoloop.tasks import build, load


@dataclass(frozen=True)
class Outcome:
    """What a turn ends with."""

    turn: str
    verdict: Verdict
    report: Path


def silent(_what: str, _done: int, _of: int) -> None:
    """No progress."""


def turn(settings: Settings, root: Path, *, resume: bool = False, progress: Progress = silent) -> Outcome:
    """Run one turn in a workspace, or go on with the one that was interrupted.

    Raises NoSandbox before anything else when this machine cannot isolate code, and StoreError when there is nothing
    to resume, or something that must be resumed first.
    """
    probe()
    sweep()
    workspace = Workspace.open(root)
    name = _name(workspace, settings, resume)
    engine = Engine(settings, progress)
    build(settings.tasks.sources, workspace.tasks, cache=engine.cache, seed=settings.tasks.seed, progress=progress)
    rooms = Rooms(name, workspace, engine, load(workspace.tasks), progress)
    verdict = Durable(workspace.turns, name).run(lambda do: both_loops(do, rooms))
    report = workspace.turns / name / "report.html"
    return Outcome(name, from_plain(Verdict, verdict), report)


def both_loops(do: Durable, rooms: Rooms) -> object:
    """The turn itself; returns the verdict as plain data."""
    base = from_plain(Checkpoint, do.step("base", rooms.base))

    # Outer loop: what goes wrong in use.
    for i, tasks in enumerate(rooms.dogfood_batches()):
        do.step(f"dogfood/{i}", partial(rooms.dogfood, base, i, tasks))
    areas = from_plain(tuple[Area, ...], do.step("areas", rooms.areas))
    if not rooms.worth_a_climb(areas):
        return _end(do, rooms, areas, to_plain(rooms.nothing_to_do(base)))
    area = areas[0]

    # Inner loop: measure it, practise it.
    for i, batch in enumerate(rooms.probe_batches()):
        do.step(f"probe/{i}", partial(rooms.probe, base, i, batch))
    plan = do.step("prepare", rooms.prepare)
    for i in range(rooms.engine.settings.train.steps):
        do.step(f"climb/{i}", partial(rooms.climb, base, area, plan["train"], i))
    candidate = from_plain(Checkpoint, do.step("publish", partial(rooms.publish, base)))

    # Prove it on tasks and modules that were never trained on, then ship it or drop it.
    for side, checkpoint in (("base", base), ("candidate", candidate)):
        batches = rooms.gate_batches(plan["gate"])
        for i, tasks in enumerate(batches):
            do.step(f"gate/{side}/{i}", partial(rooms.gate, checkpoint, side, i, len(batches), tasks))
    verdict = do.step("verdict", lambda: to_plain(rooms.verdict(base, candidate, area)))
    return _end(do, rooms, areas, verdict)


def _end(do: Durable, rooms: Rooms, areas: tuple[Area, ...], verdict: object) -> object:
    """Promote or drop, write lineage either way, and tell."""
    decided = from_plain(Verdict, verdict)
    do.step("settle", lambda: settle(rooms.name, rooms.workspace, decided, areas))
    do.step("report", lambda: write_report(rooms.folder / "report.html", tell(rooms, decided, areas)))
    do.step("outcome", lambda: rooms.conclude(decided))
    return verdict


def _name(workspace: Workspace, settings: Settings, resume: bool) -> str:
    """The turn to work on. Settings are fixed when a turn begins."""
    unfinished = workspace.unfinished()
    if resume:
        if unfinished is None:
            raise StoreError("there is no interrupted turn to resume", fix="Start one: `twoloop turn`.")
        if workspace.begun_with(unfinished) != to_plain(settings.as_dict()):
            raise StoreError(
                f"{unfinished} was begun with other settings", fix="Resume it with the settings that began it."
            )
        return unfinished
    if unfinished is not None:
        raise StoreError(
            f"{unfinished} was interrupted and has not ended",
            fix="Go on with `twoloop turn --resume`, or use another --workspace.",
        )
    return workspace.begin(to_plain(settings.as_dict()))
