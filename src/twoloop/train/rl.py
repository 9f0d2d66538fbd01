"""The inner loop's climb: rollouts on training tasks, group advantages, turn-local hints, one step of the optimizer."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from twoloop.agent.session import Grader, Opener, Run, rollout
from twoloop.agent.types import Harness
from twoloop.errors import TrainError
from twoloop.models.sampler import TorchSampler
from twoloop.models.types import Renderer
from twoloop.records import Datum, HintSpan, Task, Trajectory
from twoloop.train.hints import HintKind, HintTurns, flagged_turns, hint_for, splice
from twoloop.train.trainer import LocalTrainer
from twoloop.train.types import LossConfig, StepStats

Arm = Literal["hint", "rl", "irrelevant", "hint_only"]


@dataclass(frozen=True)
class ClimbConfig:
    """How to climb. A step rolls out `groups` tasks, `group_size` sessions each."""

    kind: str  # the report kind to train away
    arm: Arm = "hint"
    steps: int = 16
    groups: int = 4
    group_size: int = 4
    minibatches: int = 2  # optimizer steps a rollout batch, each on its own sessions: every sample is trained once
    learning_rate: float = 1.5e-4
    warmup: int = 2  # steps
    hint_weight: float = 10.0  # λ; the hint term is a mean over a turn, the policy gradient a sum over a session
    hint_final: float = 10.0  # λ is moved linearly from hint_weight to this over the steps
    hint_turns: HintTurns = "decisive"
    failed_call_penalty: float = 0.1  # auxiliary reward: −penalty × share of failed calls
    max_sampler_gap: float = 0.05  # nats; above it sampler and trainer are not the same policy
    workers: int = 2
    seed: int = 0
    label: str = "climb"  # names the sessions

    @property
    def hint(self) -> HintKind | None:
        """Which hint this arm shows its teacher."""
        kinds: dict[Arm, HintKind | None] = {
            "hint": "right",
            "hint_only": "right",
            "irrelevant": "irrelevant",
            "rl": None,
        }
        return kinds[self.arm]


@dataclass(frozen=True)
class ClimbStats:
    """One step, for people and plots. Rates are over the step's sessions or turns; nothing is smoothed."""

    step: int
    sessions: int
    failure_rate: float  # share of sessions with at least one turn of the kind
    first_turn_failure: float
    solve_rate: float  # of scored sessions
    reward: float
    missing: int
    sampled_tokens: int  # per session
    trained_tokens: int
    hinted_tokens: int
    loss: float
    entropy: float
    hint_kl: float
    hint_gain: float
    sampler_gap: float
    grad_norm: float
    learned: bool  # False when no row carried a signal, so that no step was taken


def sync(trainer: LocalTrainer, sampler: TorchSampler) -> None:
    """Serve the trainer's current weights from the sampler."""
    trainer.weights.merge_into(sampler.model)
    sampler.serve(trainer.policy_version)


class Climb:
    """All that a climb needs, loaded once. `step(i)` depends on the trainer's state and i alone: it can be resumed."""

    def __init__(
        self,
        trainer: LocalTrainer,
        sampler: TorchSampler,
        renderer: Renderer,
        harness: Harness,
        tasks: Sequence[Task],
        opener: Opener,
        grade: Grader,
        config: ClimbConfig,
        weight_of: Callable[[Task], float] = lambda _task: 1.0,
    ) -> None:
        if not tasks:
            raise TrainError("there is no training task", fix="Build tasks first: `twoloop tasks build`.")
        self.trainer, self._sampler, self._renderer, self._harness = trainer, sampler, renderer, harness
        self._tasks, self._weights = list(tasks), [weight_of(task) for task in tasks]
        self._opener, self._grade, self.config = opener, grade, config

    def step(self, i: int, on_done: Callable[[Trajectory], None] | None = None) -> ClimbStats:
        """Roll out, learn, publish to the sampler."""
        sync(self.trainer, self._sampler)
        config = self.config
        sessions = self._rollouts(i, on_done)
        data = to_data(sessions, self._harness, self._renderer, config)
        if not data:
            return _stats(i, sessions, config.kind)
        parts = deal(data, config.minibatches)
        loss = LossConfig(
            hint_weight=anneal(config, i) if config.hint else 0.0,
            divisor=len(sessions) / len(parts),
        )
        seen: list[StepStats] = []
        norms: list[float] = []
        for part in parts:
            seen.append(self.trainer.forward_backward(part, loss))
            self._check_gap(seen[0].sampler_gap)  # later parts are one step off-policy, by design
            norms.append(self.trainer.optim_step(config.learning_rate * min(1.0, (i + 1) / config.warmup)).grad_norm)
        return replace(
            _stats(i, sessions, config.kind),
            trained_tokens=sum(s.tokens for s in seen),
            hinted_tokens=sum(s.hint_tokens for s in seen),
            loss=_mean([s.loss for s in seen]),
            entropy=_mean([s.entropy for s in seen]),
            hint_kl=_mean([s.hint_kl for s in seen]),
            hint_gain=_mean([s.hint_gain for s in seen]),
            sampler_gap=seen[0].sampler_gap,
            grad_norm=_mean(norms),
            learned=True,
        )

    def _check_gap(self, gap: float) -> None:
        if gap > self.config.max_sampler_gap:
            raise TrainError(
                f"sampler and trainer disagree by {gap:.3f} nats a token (limit {self.config.max_sampler_gap})",
                fix="They do not hold the same weights: start the turn again from its last checkpoint.",
            )

    def _rollouts(self, i: int, on_done: Callable[[Trajectory], None] | None) -> list[Trajectory]:
        config = self.config
        chosen = choose(self._tasks, self._weights, config.groups, random.Random(f"{config.seed}/{i}"))
        run = Run(
            self._sampler,
            self._renderer,
            self._harness,
            checkpoint=f"{config.label}.{i}",
            grade=self._grade,
            label=f"{config.label}.{i}",
            seed=config.seed * 7919 + i,
            workers=config.workers,
        )
        return rollout([task for task in chosen for _ in range(config.group_size)], self._opener, run, on_done)


def deal(data: Sequence[Datum], parts: int) -> list[list[Datum]]:
    """Deal rows into up to `parts` piles, group by group, so that each pile holds some of every group."""
    piles: list[list[Datum]] = [[] for _ in range(min(parts, len(data)))]
    for i, datum in enumerate(sorted(data, key=lambda d: d.group)):
        piles[i % len(piles)].append(datum)
    return piles


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def choose(tasks: Sequence[Task], weights: Sequence[float], count: int, rng: random.Random) -> list[Task]:
    """`count` different tasks, drawn by weight without replacement (Efraimidis and Spirakis 2006)."""
    keyed = [(math.log(rng.random()) / w, i) for i, w in enumerate(weights) if w > 0]
    return [tasks[i] for _, i in sorted(keyed, reverse=True)[:count]]


def anneal(config: ClimbConfig, step: int) -> float:
    """λ at a step."""
    share = step / max(config.steps - 1, 1)
    return config.hint_weight + (config.hint_final - config.hint_weight) * share


def value_of(trajectory: Trajectory, penalty: float) -> float | None:
    """The reward that the policy gradient sees; None for a session that the infrastructure lost."""
    if trajectory.reward.value is None:
        return None
    failed = sum(turn.error is not None for turn in trajectory.turns)
    return trajectory.reward.value - penalty * failed / max(len(trajectory.turns), 1)


def advantages(sessions: Sequence[Trajectory], penalty: float) -> list[float | None]:
    """Reward less the mean of the task's group, without dividing by its spread. None: not to be trained on."""
    values = [value_of(s, penalty) for s in sessions]
    groups: dict[str, list[float]] = {}
    for session, value in zip(sessions, values, strict=True):
        if value is not None:
            groups.setdefault(session.task_id, []).append(value)
    means = {task: sum(group) / len(group) for task, group in groups.items()}
    return [None if v is None else v - means[s.task_id] for s, v in zip(sessions, values, strict=True)]


def to_data(sessions: Sequence[Trajectory], harness: Harness, renderer: Renderer, config: ClimbConfig) -> list[Datum]:
    """Rows that carry a signal: a nonzero advantage on sampled tokens, a hint, or both."""
    text = hint_for(config.kind, harness, config.hint) if config.hint else None
    rows = []
    for session, advantage in zip(sessions, advantages(sessions, config.failed_call_penalty), strict=True):
        if advantage is None or not session.turns:
            continue
        hints = _hints(session, text, renderer, config) if text else ()
        if config.arm == "hint_only" or abs(advantage) < 1e-9:
            advantage = 0.0
        if advantage == 0.0 and not hints:
            continue
        rows.append(_datum(session, advantage, hints))
    return rows


def _hints(session: Trajectory, text: str, renderer: Renderer, config: ClimbConfig) -> tuple[HintSpan, ...]:
    turns = flagged_turns(session, config.kind, config.hint_turns)
    return tuple(splice(session, turn, text, renderer) for turn in turns)


def _datum(session: Trajectory, advantage: float, hints: tuple[HintSpan, ...]) -> Datum:
    length = len(session.tokens)
    mask, logprobs, advantages_T = [0.0] * length, [0.0] * length, [0.0] * length
    for turn in session.turns:
        for i, logprob in zip(range(turn.start, turn.end), turn.logprobs, strict=True):
            mask[i], logprobs[i], advantages_T[i] = 1.0, logprob, advantage
    return Datum(session.tokens, tuple(mask), tuple(logprobs), tuple(advantages_T), hints, session.task_id)


def _stats(step: int, sessions: Sequence[Trajectory], kind: str) -> ClimbStats:
    scored = [s for s in sessions if s.reward.status != "missing"]
    count = max(len(scored), 1)
    return ClimbStats(
        step=step,
        sessions=len(sessions),
        failure_rate=sum(any(t.error == kind for t in s.turns) for s in scored) / count,
        first_turn_failure=sum(bool(s.turns) and s.turns[0].error == kind for s in scored) / count,
        solve_rate=sum(s.reward.solved for s in scored) / count,
        reward=sum(s.reward.value or 0.0 for s in scored) / count,
        missing=len(sessions) - len(scored),
        sampled_tokens=round(sum(s.sampled for s in scored) / count),
        trained_tokens=0,
        hinted_tokens=0,
        loss=0.0,
        entropy=0.0,
        hint_kl=0.0,
        hint_gain=0.0,
        sampler_gap=0.0,
        grad_norm=0.0,
        learned=False,
    )
