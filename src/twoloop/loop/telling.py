"""From the record of a turn to what its report shows."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from twoloop import __version__
from twoloop.areas.rank import TITLES
from twoloop.evals import by_task, clustered_mean
from twoloop.loop.journal import read_journal
from twoloop.loop.types import Curve, Excerpt, HintedTurn, KindRate, Share, StepCost, TokenRatio, TurnReport
from twoloop.records import Area, Trajectory, Verdict, now
from twoloop.train.hints import hint_for, splice

if TYPE_CHECKING:
    from twoloop.loop.rooms import Rooms

MEASURED = ("unknown_tool", "malformed_call")
LIMITS = (
    "One model, one turn, one seed: the intervals speak of these tasks and modules, not of other turns.",
    "Tasks are functions deleted from public libraries that the base model may have read.",
    "Training curves are on training tasks; only the gate's numbers are held out.",
)


def tell(rooms: Rooms, verdict: Verdict, areas: Sequence[Area]) -> TurnReport:
    """All that the report needs, read from the record; nothing is computed twice or kept in memory for it."""
    store, name = rooms.store, rooms.name
    before, after = store.trajectories(f"{name}/gate/base"), store.trajectories(f"{name}/gate/candidate")
    settings = rooms.engine.settings
    return TurnReport(
        run_id=name,
        created=now(),
        tier=rooms.tier,
        verdict=verdict,
        areas=tuple(areas),
        rates=tuple(_rates(rooms, before, after)) if before and after else (),
        curves=_curves(rooms),
        hinted=_hinted(rooms, verdict),
        steps=_costs(rooms),
        excerpts=_excerpts(before, after),
        lineage=tuple(store.parents(f"checkpoint:{verdict.candidate}")),
        facts=(
            ("model", settings.model.name),
            ("harness", rooms.engine.harness.name),
            ("sources", ", ".join(settings.tasks.sources)),
            ("tasks", f"{len(rooms.train)} to train on, {len(rooms.heldout)} held out"),
            ("machine", f"{platform.machine()}, {rooms.engine.cores} cores"),
            ("version", __version__),
        ),
        limits=LIMITS,
        settings=settings.as_dict(),
    )


def _rates(rooms: Rooms, before: list[Trajectory], after: list[Trajectory]) -> list[KindRate]:
    clusters = {t.id: t.cluster for t in rooms.heldout}

    def share(sessions: list[Trajectory], measure: str) -> Share:
        values = {task: sum(v) / len(v) for task, v in by_task(sessions, measure).items()}
        found = clustered_mean(list(values.values()), [clusters[t] for t in values], (0.0, 1.0))
        return Share(found.mean, found.low, found.high, len(sessions))

    kinds = [(kind, TITLES[kind]) for kind in MEASURED] + [("solved", "Solves the task")]
    return [KindRate(kind, title, share(before, kind), share(after, kind)) for kind, title in kinds]


def _curves(rooms: Rooms) -> tuple[Curve, ...]:
    steps = rooms.recorded_climb()

    def values(key: str) -> tuple[float | None, ...]:
        return tuple(step[key] if step["learned"] or key in _OF_SESSIONS else None for step in steps)

    return tuple(Curve(title, values(key), unit, share) for key, title, unit, share in _CURVES) if steps else ()


_OF_SESSIONS = ("failure_rate", "solve_rate", "reward", "sampled_tokens")
_CURVES = (
    ("failure_rate", "Sessions with the failure (no hint in the prompt)", "", True),
    ("solve_rate", "Sessions that solve their task", "", True),
    ("hint_kl", "KL to the hinted teacher", "nats", False),
    ("entropy", "Entropy of the policy", "nats", False),
    ("sampled_tokens", "Tokens a session", "", False),
)


def _hinted(rooms: Rooms, verdict: Verdict) -> HintedTurn | None:
    """The first failed turn of dogfooding, scored by the base with and without the hint."""
    text = hint_for(verdict.area, rooms.engine.harness) if verdict.area else None
    base = rooms.store.checkpoint(verdict.base)
    if text is None or base is None:
        return None
    for session in rooms.store.trajectories(f"{rooms.name}/dogfood"):
        flagged = [i for i, turn in enumerate(session.turns) if turn.error == verdict.area]
        if not flagged:
            continue
        rooms.engine.serve(base)
        turn = session.turns[flagged[0]]
        hint = splice(session, flagged[0], text, rooms.engine.renderer)
        plain = list(session.tokens[: turn.end])
        spliced = [*plain[: hint.at], *hint.hint_tokens, *plain[hint.at :]]
        without, taught = rooms.engine.sampler.logprobs([plain, spliced], [turn.end - turn.start] * 2)
        tokens = tuple(
            TokenRatio(rooms.engine.renderer.decode([token]), b - a)
            for token, a, b in zip(plain[turn.start :], without, taught, strict=True)
        )
        return HintedTurn(session.id, flagged[0], text, tokens)
    return None


def _costs(rooms: Rooms) -> tuple[StepCost, ...]:
    costs: dict[str, StepCost] = {}
    for entry in read_journal(rooms.folder / "steps.jsonl"):
        known = costs.get(entry.step, StepCost(entry.step, 0.0, 0))
        calls = known.calls + (entry.happening == "started")
        costs[entry.step] = replace(known, calls=calls, seconds=known.seconds + entry.seconds)
    return tuple(costs.values())


def _excerpts(before: list[Trajectory], after: list[Trajectory]) -> tuple[Excerpt, ...]:
    """The same held-out task before and after; one that was solved, if there is one."""
    solved = next((s for s in after if s.reward.solved), after[0] if after else None)
    if solved is None:
        return ()
    same = next((s for s in before if s.task_id == solved.task_id), None)
    found = [Excerpt(f"{solved.task_id}, before", _text(same))] if same else []
    return (*found, Excerpt(f"{solved.task_id}, after", _text(solved)))


def _text(session: Trajectory) -> str:
    lines = [f"{turn.text.strip()}\n→ {turn.observation or 'end'}" for turn in session.turns]
    return "\n\n".join([*lines, f"reward: {session.reward.value}"])
