"""Hints: one short message that tells the model, just before a turn, what it lacked there.

Deterministic templates, one for each kind of report. A hint carries what the session's own context does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from twoloop.agent.products import tool_list
from twoloop.agent.types import Harness
from twoloop.models.types import Renderer
from twoloop.records import HintSpan, Trajectory

HintKind = Literal["right", "irrelevant"]
HintTurns = Literal["decisive", "failed", "all"]


def available_tools(harness: Harness) -> str:
    return f"Hint: the tools are {tool_list(harness)}."


def call_format(harness: Harness) -> str:
    return (
        "Hint: a message is one tool call and nothing else: the tool's name on the first line, then each argument as "
        f"`name: value`. The tools are {tool_list(harness)}."
    )


def irrelevant(harness: Harness) -> str:
    """The control: as long as a right hint and in its style, but of no use. Its gains are style drift, not learning."""
    shelf = "pear(oak, fig), plum(elm), river(), stone(ash, fir, yew), cloud(), lamp(path)"
    return f"Hint: the words are {shelf}."


TEMPLATES: dict[str, Callable[[Harness], str]] = {
    "unknown_tool": available_tools,
    "malformed_call": call_format,
}


def hint_for(kind: str, harness: Harness, which: HintKind = "right") -> str | None:
    """The hint's text for a report kind; None when there is no template for it."""
    if which == "irrelevant":
        return irrelevant(harness)
    template = TEMPLATES.get(kind)
    return template(harness) if template else None


def flagged_turns(trajectory: Trajectory, kind: str, which: HintTurns = "decisive") -> list[int]:
    """Which turns of a session get the hint.

    "decisive": the first turn, and the first that failed in this way if that is a later one. What follows a failure is
    conditioned on it and costs as much again for little; the first turn is hinted even after it has gone right, since
    hinting failures alone was measured to forget. "failed": every failed turn. "all": every turn.
    """
    turns = trajectory.turns
    failed = [i for i, turn in enumerate(turns) if turn.error == kind]
    if which == "all":
        return list(range(len(turns)))
    if which == "failed":
        return failed
    return sorted({0, *failed[:1]}) if turns else []


def splice(trajectory: Trajectory, turn: int, text: str, renderer: Renderer) -> HintSpan:
    """The hint as a message of its own just before the turn's generation prompt: both joins are message boundaries."""
    start, end = trajectory.turns[turn].start, trajectory.turns[turn].end
    at = start - len(renderer.generation_prompt())
    return HintSpan(at, start, end, tuple(renderer.message("user", text)))
