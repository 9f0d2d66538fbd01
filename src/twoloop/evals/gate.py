"""The gate: a checkpoint ships only when what it was trained to fix is fixed and nothing slipped back."""

from __future__ import annotations

from twoloop.records import Estimate, Verdict

MARGIN = 0.02  # fall of the solve rate that is tolerated, as a share of sessions
MIN_TASKS, MIN_CLUSTERS = 8, 4


def gate(
    area: str,
    failure: Estimate,
    solve: Estimate,
    *,
    base: str,
    candidate: str,
    margin: float = MARGIN,
) -> Verdict:
    """Promote when the failure rate's interval lies below zero and the solve rate's above −margin; reject when the
    failure rate did not fall, or the solve rate's interval lies below zero; else there is not enough data to tell."""
    decision, because = _decide(failure, solve, margin)
    said = {"promote": "Promote", "reject": "Reject", "not_enough_data": "Not enough data on"}[decision]
    sentence = (
        f"{said} {candidate}: {area.replace('_', ' ')} {_move(failure)}, solve rate {_move(solve)}, on {failure.tasks} "
        f"held-out tasks of {failure.clusters} modules in {failure.rollouts} sessions{because}."
    )
    return Verdict(decision, sentence, area, base, candidate, (failure, solve))  # type: ignore[arg-type]


def _decide(failure: Estimate, solve: Estimate, margin: float) -> tuple[str, str]:
    if failure.tasks < MIN_TASKS or failure.clusters < MIN_CLUSTERS:
        return "not_enough_data", f" (at least {MIN_TASKS} tasks of {MIN_CLUSTERS} modules are needed)"
    if solve.high < 0:
        return "reject", " (the solve rate fell)"
    if failure.low > 0 or failure.difference >= 0:
        return "reject", " (the failure did not become rarer)"
    if failure.high >= 0:
        return "not_enough_data", " (the failure rate's interval holds zero)"
    if solve.low <= -margin:
        return "not_enough_data", f" (a fall of the solve rate by {margin:.0%} cannot be ruled out)"
    return "promote", ""


def _move(estimate: Estimate) -> str:
    return (
        f"{estimate.base:.1%} → {estimate.candidate:.1%} "
        f"({estimate.difference:+.1%}, 95 % interval {estimate.low:+.1%} to {estimate.high:+.1%})"
    )
