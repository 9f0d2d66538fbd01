"""Automatic reports: what went wrong in a session, found by rules that cannot be talked round.

A detector reads one trajectory and returns (turn, quote) findings. To add one, write the function and register it.
"""

from __future__ import annotations

import ast
import posixpath
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
    """All reports of one session, at most one of a kind on a turn and one on the session as a whole.

    A session that the infrastructure lost has none: it says nothing of the model."""
    if trajectory.reward.status == "missing":
        return []
    found: dict[str, Event] = {}
    for kind, detector in DETECTORS.items():
        for finding in detector(trajectory, harness):
            event = _event(trajectory, kind, finding)
            found.setdefault(event.idem_key, event)
    return list(found.values())


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


def syntax_error(trajectory: Trajectory, harness: Harness) -> Iterator[Finding]:
    """The session ended with a Python file that does not parse; on the turn that last wrote that file."""
    edits = _edits(trajectory, harness)
    for path, text in sorted(trajectory.changed.items()):
        if path.endswith(".py"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ast.parse(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
                yield Finding(max((i for i, edited in edits if edited == path), default=None), f"{path}: {problem}")


def no_edit(trajectory: Trajectory, _harness: Harness) -> Iterator[Finding]:
    """The session ended without a changed file."""
    if not trajectory.changed:
        yield Finding(None, trajectory.turns[-1].text if trajectory.turns else "")


def tests_never_run(trajectory: Trajectory, harness: Harness) -> Iterator[Finding]:
    """A file was changed and no test was run after the last change."""
    edits, actions = _edits(trajectory, harness), _actions(trajectory, harness)
    if edits:
        last = edits[-1][0]
        if "run_tests" not in actions[last:]:
            yield Finding(last, trajectory.turns[last].text)


def gave_up(trajectory: Trajectory, _harness: Harness) -> Iterator[Finding]:
    """The session did not end by its own word: too many failed calls, or out of turns or context."""
    if trajectory.ending != "finished":
        yield Finding(None, trajectory.ending)


def repeated_itself(trajectory: Trajectory, _harness: Harness) -> Iterator[Finding]:
    """The same message as the one before, although that one had failed or brings the same answer again."""
    for i, (before, turn) in enumerate(zip(trajectory.turns, trajectory.turns[1:], strict=False)):
        if turn.text == before.text and (before.error is not None or turn.observation == before.observation):
            yield Finding(i + 1, turn.text)


def _edits(trajectory: Trajectory, harness: Harness) -> list[tuple[int, str]]:
    """(turn, path) of each edit that worked."""
    turns = enumerate(zip(trajectory.turns, _actions(trajectory, harness), strict=True))
    return [
        (i, posixpath.normpath(turn.call.arguments.get("path", "")))
        for i, (turn, action) in turns
        if turn.call is not None and action in ("write_file", "replace_in_file")
    ]


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
