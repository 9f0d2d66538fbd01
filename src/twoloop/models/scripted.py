"""A deterministic sampler that says what a function tells it to: for tests, demonstrations and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twoloop.models.types import Renderer, Sampled, SamplingParams


class ScriptedSampler:
    """`answer(prompt_text, sample_index)` gives the text of each sample. Every token is drawn with probability 1."""

    def __init__(self, renderer: Renderer, answer: Callable[[str, int], str], policy_version: int = 0) -> None:
        self._renderer, self._answer, self._version = renderer, answer, policy_version

    @property
    def policy_version(self) -> int:
        return self._version

    def sample(self, prompts: Sequence[Sequence[int]], n: int, params: SamplingParams) -> list[list[Sampled]]:
        return [[self._one(prompt, i, params) for i in range(n)] for prompt in prompts]

    def _one(self, prompt: Sequence[int], index: int, params: SamplingParams) -> Sampled:
        tokens = self._renderer.turn(self._answer(self._renderer.decode(prompt), index))
        kept = tuple(tokens[: params.max_tokens])
        return Sampled(kept, (0.0,) * len(kept), "stop" if len(kept) == len(tokens) else "length", self._version)

    def logprobs(self, sequences: Sequence[Sequence[int]], last_n: Sequence[int]) -> list[list[float]]:
        return [[0.0] * n for n in last_n]
