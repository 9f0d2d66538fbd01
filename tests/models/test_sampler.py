from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from twoloop.errors import ModelError
from twoloop.models.sampler import TorchSampler, draw
from twoloop.models.types import Sampled, SamplingParams


def random_prompt(length: int, seed: int) -> list[int]:
    return torch.randint(3, 250, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def oracle_logprobs(reference: Any, prompt: list[int], sampled: Sampled) -> list[float]:
    with torch.no_grad():
        logits = reference(torch.tensor([prompt + list(sampled.tokens)])).logits[0].log_softmax(-1)
    return [float(logits[len(prompt) + i - 1, t]) for i, t in enumerate(sampled.tokens)]


def assert_exact(reference: Any, prompts: list[list[int]], drawn: list[list[Sampled]]) -> None:
    for prompt, samples in zip(prompts, drawn, strict=True):
        for sampled in samples:
            assert sampled.logprobs == pytest.approx(oracle_logprobs(reference, prompt, sampled), abs=1e-4)


def test_recorded_logprobs_are_the_models_own_for_ragged_prompts_with_shared_starts(model: Any, reference: Any) -> None:
    start = random_prompt(40, 0)
    prompts = [start + random_prompt(n, n) for n in (1, 17, 30)] + [random_prompt(9, 99)]
    drawn = TorchSampler(model, batch=16).sample(prompts, 3, SamplingParams(max_tokens=12, stop=(2,)))
    assert [len(samples) for samples in drawn] == [3, 3, 3, 3]
    assert_exact(reference, prompts, drawn)


def test_sessions_that_go_on_stay_exact_in_any_order_and_past_the_batch(model: Any, reference: Any) -> None:
    sampler = TorchSampler(model, batch=3)
    prompts = [random_prompt(20 + i, i) for i in range(5)]
    for round_ in range(3):
        drawn = sampler.sample(prompts, 1, SamplingParams(max_tokens=6, stop=(2,), seed=round_))
        assert_exact(reference, prompts, drawn)
        prompts = [p + list(s[0].tokens) + [5, 6] for p, s in zip(prompts, drawn, strict=True)][::-1]


def test_greedy_decoding_equals_the_librarys(model: Any, reference: Any) -> None:
    prompt = random_prompt(25, 3)
    with torch.no_grad():
        expected = reference.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, 25), max_new_tokens=15, do_sample=False
        )[0, 25:].tolist()
    ((sampled,),) = TorchSampler(model).sample([prompt], 1, SamplingParams(max_tokens=15, temperature=0.0, stop=(2,)))
    assert list(sampled.tokens) == expected


def test_a_call_is_repeated_by_its_seed_and_changed_by_another(model: Any) -> None:
    prompts = [random_prompt(20, 1)]

    def run(seed: int) -> list[Sampled]:
        return TorchSampler(model).sample(prompts, 4, SamplingParams(max_tokens=10, seed=seed))[0]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_sample_ends_at_a_stop_token_a_length_or_the_context(model: Any) -> None:
    prompt = random_prompt(10, 4)
    free = TorchSampler(model).sample([prompt], 1, SamplingParams(max_tokens=8))[0][0]
    assert (free.reason, len(free.tokens)) == ("length", 8)
    stopped = TorchSampler(model).sample([prompt], 1, SamplingParams(max_tokens=8, stop=(free.tokens[3],)))[0][0]
    assert stopped.reason == "stop"
    assert stopped.tokens[-1] == free.tokens[3]
    full = TorchSampler(model, max_context=13).sample([prompt], 1, SamplingParams(max_tokens=8))[0][0]
    assert (full.reason, len(full.tokens)) == ("context", 3)


def test_new_weights_are_served_and_old_keys_forgotten(model: Any, reference: Any) -> None:
    sampler = TorchSampler(model, policy_version=1)
    prompt = random_prompt(30, 5)
    before = sampler.sample([prompt], 1, SamplingParams(max_tokens=5, temperature=0.0))[0][0]
    with torch.no_grad():
        for parameter in sampler.model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    sampler.serve(2)
    after = sampler.sample([prompt], 1, SamplingParams(max_tokens=5, temperature=0.0))[0][0]
    assert (before.policy_version, after.policy_version) == (1, 2)
    scored = sampler.logprobs([prompt + list(after.tokens)], [5])[0]
    assert after.logprobs == pytest.approx(scored, abs=1e-4)


def test_scoring_equals_the_librarys(model: Any, reference: Any) -> None:
    rows = [random_prompt(30, 6) + random_prompt(4, 7), random_prompt(30, 6) + random_prompt(9, 8)]
    for row, scores, n in zip(rows, TorchSampler(model).logprobs(rows, [4, 9]), (4, 9), strict=True):
        oracle = oracle_logprobs(reference, row[:-n], Sampled(tuple(row[-n:]), (), "length", 0))
        assert scores == pytest.approx(oracle, abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.3, 0.8, 1.0]))
def test_tokens_are_drawn_with_the_probability_that_is_recorded(seed: int, temperature: float, top_p: float) -> None:
    logits = torch.randn(6, generator=torch.Generator().manual_seed(seed)) * 2
    params = SamplingParams(temperature=temperature, top_p=top_p)
    n = 4000
    tokens, logprobs = draw(logits.repeat(n, 1), params, torch.Generator().manual_seed(seed))
    recorded = dict(zip(tokens, logprobs, strict=True))
    counts = Counter(tokens)
    seen = sorted(t for t in counts if n * torch.tensor(recorded[t]).exp() >= 5)
    expected = [n * float(torch.tensor(recorded[t]).exp()) for t in seen]
    observed = [float(counts[t]) for t in seen]
    scale = sum(observed) / sum(expected)
    assert scale == pytest.approx(1.0, abs=0.05)
    if len(seen) > 1:
        assert chisquare(observed, [e * scale for e in expected]).pvalue > 1e-5


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    tokens, logprobs = draw(logits.repeat(500, 1), SamplingParams(top_p=0.7), torch.Generator().manual_seed(0))
    assert set(tokens) == {0, 1}
    assert {t: round(lp, 4) for t, lp in zip(tokens, logprobs, strict=True)} == pytest.approx(
        {0: torch.tensor(0.625).log().item(), 1: torch.tensor(0.375).log().item()}, abs=1e-3
    )


def test_prompts_that_cannot_be_served_are_refused_with_a_reason(model: Any) -> None:
    with pytest.raises(ModelError, match="empty prompt"):
        TorchSampler(model).sample([[]], 1, SamplingParams())
    with pytest.raises(ModelError, match="limit is 8"):
        TorchSampler(model, max_context=8).sample([random_prompt(9, 0)], 1, SamplingParams())
