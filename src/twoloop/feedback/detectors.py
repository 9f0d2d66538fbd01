"""Automatic reports: what went wrong in a session, found by rules that cannot be talked round.

A detector reads one trajectory and returns (turn, quote) findings. To add one, write the function and register it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from twoloop.agent.types import Harness
from twoloop.records import Event, Trajectory, new_id


@dataclass(frozen=True)
class Finding:
    """`turn` is None for a fault of the session as a whole."""

    turn: int | None
    quote: str


Detector = Callable[[Trajectory, Harness], Iterator[Finding]]


def detect(trajectory: Trajectory, harness: Harness) -> list[Event]:
    """All reports of one session. A session that the infrastructure lost has none: it says nothing of the model."""
    if trajectory.reward.status == "missing":
        return []
    return [
        _event(trajectory, kind, finding)
        for kind, detector in DETECTORS.items()
        for finding in detector(trajectory, harness)
    ]


def _event(trajectory: Trajectory, kind: str, finding: Finding) -> Event:
    turn = trajectory.turns[finding.turn] if finding.turn is not None else None
    start, end = (turn.start, turn.end) if turn else (trajectory.prompt_tokens, len(trajectory.tokens))
    return Event(
        id=new_id(),
        idem_key=f"{trajectory.id}:{kind}:{'' if finding.turn is None else finding.turn}",
        ts=trajectory.started,
        kind=kind,
        source="CODE",
        session=trajectory.id,
        checkpoint=trajectory.checkpoint,
        turn=finding.turn,
        attributes={"start": start, "end": end, "quote": finding.quote[:200], "task": trajectory.task_id},
    )


def _failed_calls(kind: str) -> Detector:
    def detector(trajectory: Trajectory, _harness: Harness) -> Iterator[Finding]:
        for i, turn in enumerate(trajectory.turns):
            if turn.error == kind:
                yield Finding(i, turn.text)

    return detector


def syntax_error(trajectory: Trajectory, _harness: Harness) -> Iterator[Finding]:
    """The session ended with a Python file that does not parse."""
    for path, text in sorted(trajectory.changed.items()):
        if path.endswith(".py"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ast.parse(text)
            except (SyntaxError, ValueError, RecursionError) as problem:
                yield Finding(None, f"{path}: {problem}")


def no_edit(trajectory: Trajectory, _harness: Harness) -> Iterator[Finding]:
    """The session ended without a changed file."""
    if not trajectory.changed:
        yield Finding(None, trajectory.turns[-1].text if trajectory.turns else "")


def tests_never_run(trajectory: Trajectory, harness: Harness) -> Iterator[Finding]:
    """A file was changed and no test was run after the last change."""
    actions = _actions(trajectory, harness)
    edits = [i for i, a in enumerate(actions) if a in ("write_file", "replace_in_file")]
    if edits and "run_tests" not in actions[edits[-1] :]:
        yield Finding(edits[-1], trajectory.turns[edits[-1]].text)


def gave_up(trajectory: Trajectory, _harness: Harness) -> Iterator[Finding]:
    """The session did not end by its own word: too many failed calls, or out of turns or context."""
    if trajectory.ending != "finished":
        yield Finding(None, trajectory.ending)


def repeated_itself(trajectory: Trajectory, _harness: Harness) -> Iterator[Finding]:
    """The same message as the one before, although that one had failed."""
    for i, (before, turn) in enumerate(zip(trajectory.turns, trajectory.turns[1:], strict=False)):
        if before.error is not None and turn.text == before.text:
            yield Finding(i + 1, turn.text)


def _actions(trajectory: Trajectory, harness: Harness) -> list[str]:
    """The action behind each turn's call that worked, "" for the others."""
    tools = [harness.tool(t.call.name) if t.call and t.error is None else None for t in trajectory.turns]
    return [tool.action if tool else "" for tool in tools]


DETECTORS: dict[str, Detector] = {
    "unknown_tool": _failed_calls("unknown_tool"),
    "malformed_call": _failed_calls("malformed_call"),
    "syntax_error": syntax_error,
    "no_edit": no_edit,
    "tests_never_run": tests_never_run,
    "gave_up": gave_up,
    "repeated_itself": repeated_itself,
}
