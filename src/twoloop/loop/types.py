"""What a turn has to tell when it ends: plain data, enough to write its report anew without the workspace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twoloop.records import Area, Lineage, Verdict


@dataclass(frozen=True)
class Share:
    """A share of `of` sessions, with its 95 % interval."""

    value: float
    low: float
    high: float
    of: int


@dataclass(frozen=True)
class KindRate:
    """How often sessions failed in one way on held-out tasks, before and after, without any hint in the prompt."""

    kind: str
    title: str
    before: Share
    after: Share


@dataclass(frozen=True)
class Curve:
    """One quantity over the training steps 1, 2, …; None where a step had no value. A `share` is drawn from 0 to 1."""

    title: str
    values: tuple[float | None, ...]
    unit: str = ""
    share: bool = False


@dataclass(frozen=True)
class TokenRatio:
    """One sampled token, and log p(teacher) − log p(student) of it in nats: above 0, the hint makes it likelier."""

    text: str
    log_ratio: float


@dataclass(frozen=True)
class HintedTurn:
    """One flagged turn as the hinted teacher saw it."""

    session: str
    turn: int
    hint: str
    tokens: tuple[TokenRatio, ...]


@dataclass(frozen=True)
class StepCost:
    """What one durable step took. `calls` is above 1 when it was interrupted, or failed, and ran again."""

    step: str
    seconds: float
    calls: int = 1
    sampled_tokens: int = 0
    trained_tokens: int = 0


@dataclass(frozen=True)
class Excerpt:
    """A piece of a session, as text."""

    title: str
    text: str


@dataclass(frozen=True)
class TurnReport:
    """One turn, told whole. `facts` are name and value: model, harness, sources, machine, versions."""

    run_id: str
    created: str
    tier: str  # isolation tier that every rollout ran in
    verdict: Verdict
    areas: tuple[Area, ...] = ()
    rates: tuple[KindRate, ...] = ()
    curves: tuple[Curve, ...] = ()
    hinted: HintedTurn | None = None
    steps: tuple[StepCost, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    lineage: tuple[Lineage, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    limits: tuple[str, ...] = ()
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
