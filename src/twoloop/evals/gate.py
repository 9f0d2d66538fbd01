"""The gate: a checkpoint ships only when what it was trained to fix is fixed and nothing slipped back."""

from __future__ import annotations

from typing import Literal

from twoloop.records import Estimate, Verdict

MARGIN = 0.02  # fall of the solve rate that is tolerated: one session in fifty
MIN_TASKS, MIN_CLUSTERS = 8, 4  # below these the interval rests on too few modules to be believed
MAX_LOST = 0.1  # share of sessions that the infrastructure may lose

Decision = Literal["promote", "reject", "not_enough_data"]


def gate(
    area: str,
    failure: Estimate,
    solve: Estimate,
    *,
    base: str,
    candidate: str,
    margin: float = MARGIN,
    min_tasks: int = MIN_TASKS,
    min_clusters: int = MIN_CLUSTERS,
) -> Verdict:
    """Promote when the failure rate's interval lies below zero and the solve rate's above −margin, and no way that the
    lost sessions could have gone undoes it. Reject when the failure rate did not fall, or the solve rate's interval
    lies below zero. Else there is not enough data to tell."""
    if failure.tasks < min_tasks or failure.clusters < min_clusters:
        decision: Decision = "not_enough_data"
        because = f"at least {min_tasks} tasks of {min_clusters} modules are needed"
    else:
        decision, because = _decide(failure, solve, margin)
    said = {"promote": "Promote", "reject": "Reject", "not_enough_data": "Not enough data on"}[decision]
    sentence = (
        f"{said} {candidate}: {area.replace('_', ' ')} {_move(failure)}, solve rate {_move(solve)}, on {failure.tasks} "
        f"held-out tasks of {failure.clusters} modules in {failure.rollouts} sessions"
        f"{f', {failure.missing} more lost' if failure.missing else ''}{f' ({because})' if because else ''}."
    )
    return Verdict(decision, sentence, area, base, candidate, (failure, solve))


def _decide(failure: Estimate, solve: Estimate, margin: float) -> tuple[Decision, str]:
    """The decision and, unless it is to promote, why."""
    if failure.missing > MAX_LOST * (failure.missing + failure.rollouts):
        return "not_enough_data", f"more than {MAX_LOST:.0%} of the sessions were lost"
    if solve.high < 0:
        return "reject", "the solve rate fell"
    if failure.difference >= 0:
        return "reject", "the failure did not become rarer"
    if failure.high >= 0:
        return "not_enough_data", "the failure rate's interval holds zero"
    if solve.low <= -margin:
        return "not_enough_data", f"a fall of the solve rate by {margin:.0%} cannot be ruled out"
    if _or(failure.lost_high, -1.0) >= 0 or _or(solve.lost_low, 0.0) <= -margin:
        return "not_enough_data", "the lost sessions could undo it"
    return "promote", ""


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _move(estimate: Estimate) -> str:
    return (
        f"{estimate.base:.1%} → {estimate.candidate:.1%} "
        f"({estimate.difference:+.1%}, 95 % interval {estimate.low:+.1%} to {estimate.high:+.1%})"
    )
