"""The trainer contract: Tinker's verbs with our own dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from twoloop.records import Checkpoint, Datum

LossName = Literal["next_token", "policy_gradient"]


@dataclass(frozen=True)
class LossConfig:
    """Which objective, and its dials. See `losses.py` for the formulas and their sources."""

    name: LossName = "policy_gradient"
    ratio_cap: float = 2.0  # cap of the detached importance ratio
    kl_reference: float = 0.0  # weight of the k1 KL to the reference (the frozen teacher's weights), 0 = off
    hint_weight: float = 0.0  # λ of hint KL; 0 = off
    hint_top_k: int = 0  # top-k tokens of student and teacher, the rest in one bucket; 0 = all, exact
    hint_direction: Literal["forward", "reverse"] = "forward"
    divisor: float = 1.0  # the loss is a sum over tokens divided by this


@dataclass(frozen=True)
class StepStats:
    """What one forward_backward saw. Means are over trained tokens."""

    loss: float
    tokens: int  # trained positions
    entropy: float  # nats, of the policy on trained positions
    sampler_gap: float  # mean |trainer − sampler| logprob on sampled tokens, nats; 0 when none were given
    ratio_mean: float
    hint_kl: float  # nats, mean over hinted tokens
    hint_tokens: int
    hint_gain: float  # mean teacher − student logprob of the sampled tokens on hinted turns, nats


@dataclass(frozen=True)
class OptimStats:
    grad_norm: float
    update_norm: float  # L2 norm of the change of the weights; zero is an error


class Trainer(Protocol):
    """Holds one trainable policy. Gradients accumulate over `forward_backward` until `optim_step`."""

    @property
    def policy_version(self) -> int: ...

    def forward_backward(self, data: Sequence[Datum], loss: LossConfig) -> StepStats:
        """Raises TrainError when the data hold no trained position."""
        ...

    def optim_step(self, lr: float) -> OptimStats:
        """Raises TrainError when no gradient was accumulated or the weights did not change."""
        ...

    def save_state(self, folder: Path) -> None:
        """Weights, optimizer, policy version; written aside, synced, renamed."""
        ...

    def load_state(self, folder: Path) -> None: ...

    def publish(self, name: str, folder: Path, *, base: Path, parent: str | None, recipe: str, data: str) -> Checkpoint:
        """Freeze the current weights under an immutable name."""
        ...
