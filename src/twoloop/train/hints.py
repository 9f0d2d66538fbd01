"""Hints: one short message that tells the model, just before a turn, what it lacked there.

Deterministic templates, one for each kind of report. A hint carries what the session's own context does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from twoloop.agent.products import tool_list
from twoloop.agent.types import Harness
from twoloop.models.types import Renderer
from twoloop.records import HintSpan, Trajectory

HintKind = Literal["right", "irrelevant"]
Flag = Callable[[Trajectory], Sequence[int]]  # indices of the turns to hint


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


def flagged_turns(trajectory: Trajectory, kind: str, *, always_first: bool = True) -> list[int]:
    """Turns whose call failed in this way, and the first turn of every session when `always_first`.

    The first turn is where a session's fate is decided; hinting it even after it has gone right keeps the pull of the
    teacher steady, where hinting failures alone was measured to forget.
    """
    failed = [i for i, turn in enumerate(trajectory.turns) if turn.error == kind]
    return sorted({*failed, *([0] if always_first and trajectory.turns else [])})


def splice(trajectory: Trajectory, turn: int, text: str, renderer: Renderer) -> HintSpan:
    """The hint as a message of its own just before the turn's generation prompt: both joins are message boundaries."""
    start, end = trajectory.turns[turn].start, trajectory.turns[turn].end
    at = start - len(renderer.generation_prompt())
    return HintSpan(at, start, end, tuple(renderer.message("user", text)))
