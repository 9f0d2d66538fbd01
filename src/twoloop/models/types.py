"""The sampler contract: tokens in, tokens out, with the exact log-probability of each token as it was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class SamplingParams:
    """How to draw. `seed` fixes the draw of a whole call; `stop` holds token ids that end a sample (kept in it)."""

    max_tokens: int = 128
    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0
    stop: tuple[int, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Sampled:
    """One sample. `logprobs[i]` (nats) is the log of the probability with which `tokens[i]` was actually drawn, after
    temperature and top-p; under greedy decoding it is the model's own log-probability at temperature 1."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: Literal["stop", "length", "context"]
    policy_version: int


class Sampler(Protocol):
    """Serves one policy version."""

    @property
    def policy_version(self) -> int: ...

    def sample(self, prompts: Sequence[Sequence[int]], n: int, params: SamplingParams) -> list[list[Sampled]]:
        """n samples for each prompt. A batch is ragged; a prefix that prompts share is computed once."""
        ...

    def logprobs(self, sequences: Sequence[Sequence[int]], last_n: Sequence[int]) -> list[list[float]]:
        """log p(token | what precedes it) at temperature 1 for the last `last_n[i]` tokens of each sequence."""
        ...


class Renderer(Protocol):
    """Messages to tokens and back. Never re-tokenises what a sampler drew."""

    @property
    def stop(self) -> tuple[int, ...]: ...

    def message(self, role: str, text: str) -> list[int]:
        """One whole message, ending on a message boundary."""
        ...

    def generation_prompt(self) -> list[int]:
        """What opens the assistant's next message."""
        ...

    def after_turn(self, sampled: Sequence[int]) -> list[int]:
        """What must follow sampled tokens to close the assistant's message (e.g. the end mark when it was cut)."""
        ...

    def turn(self, text: str) -> list[int]:
        """The tokens of an assistant's message as a sampler would have drawn them, end mark included."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of sampled tokens without control marks."""
        ...
