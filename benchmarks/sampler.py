"""Tokens per second of our sampler against Hugging Face `generate`, on the same prompts in one run.

    python benchmarks/sampler.py

Rollouts for RL come in groups: several samples of one prompt. Batch 16 is measured as 4 prompts × 4 samples and as
1 prompt × 16, and with 16 different prompts, where nothing but the system prompt is shared. Both sides draw exactly
NEW tokens a sample at temperature 1 from the whole vocabulary. A and B alternate; the ratio is of medians.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import torch
from results import Claim, write
from transformers import AutoModelForCausalLM

from twoloop.agent.products import product
from twoloop.agent.session import prompt_tokens
from twoloop.models.chat import ChatMLRenderer
from twoloop.models.fast import speed_up
from twoloop.models.hub import load_model, load_tokenizer, pull
from twoloop.models.sampler import TorchSampler
from twoloop.models.types import SamplingParams
from twoloop.tasks.units import instruction
from twoloop.train.scripts import harvest

NEW, BATCH, ROUNDS = 48, 16, 3


def main() -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    folder = pull()
    tokenizer = load_tokenizer(folder)
    renderer = ChatMLRenderer(tokenizer)
    functions = [f for f in harvest() if len(f.head) > 250][:BATCH]
    prompts = [
        prompt_tokens(renderer, product("default"), instruction([f])) + renderer.generation_prompt() for f in functions
    ]
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    sampler = TorchSampler(speed_up(load_model(folder)), batch=BATCH)

    def ours(chosen: list[list[int]], n: int) -> None:
        sampler.clear()
        sampler.sample(chosen, n, SamplingParams(max_tokens=NEW))

    def theirs(chosen: list[list[int]], n: int) -> None:
        rows = [p for p in chosen for _ in range(n)]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(r)) + r for r in rows])
        mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
        with torch.inference_mode():
            reference.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=NEW,
                min_new_tokens=NEW,
                do_sample=True,
                top_k=0,
                pad_token_id=0,
            )

    figures = {}
    for name, chosen, n in (
        ("1 prompt × 16 samples", prompts[:1], 16),
        ("4 prompts × 4 samples", prompts[:4], 4),
        ("16 prompts × 1 sample", prompts, 1),
    ):
        a, b = alternate(lambda c=chosen, k=n: ours(c, k), lambda c=chosen, k=n: theirs(c, k))
        tokens = sum(map(len, chosen)) / len(chosen)
        figures[name] = {
            "prompt_tokens": tokens,
            "ours": BATCH * NEW / a,
            "generate": BATCH * NEW / b,
            "ratio": b / a,
        }
        print(name, figures[name], flush=True)
    best = figures["4 prompts × 4 samples"]["ratio"]
    single = figures["1 prompt × 16 samples"]["ratio"]
    claims = [
        Claim(
            "sampler_group",
            "tokens per second against `generate`, batch 16, one group of 16",
            "≥ 4 ×",
            single,
            "×",
            ROUNDS,
            single >= 4,
        ),
        Claim(
            "sampler_groups",
            "the same, 4 groups of 4",
            "≥ 4 ×",
            best,
            "×",
            ROUNDS,
            best >= 4,
        ),
    ]
    rows = "\n".join(
        f"| {name} | {f['prompt_tokens']:.0f} | {f['ours']:.0f} | {f['generate']:.0f} | {f['ratio']:.2f} |"
        for name, f in figures.items()
    )
    body = f"""
SmolLM2-135M-Instruct, fp32, {NEW} new tokens a sample, medians of {ROUNDS} alternating rounds, prefill included.

| batch of 16 | prompt tokens | ours, tok/s | `generate`, tok/s | ratio |
|---|---|---|---|---|
{rows}

The gain has three parts: the prompt of a group is computed once; tokens are drawn by inversion (one uniform number a
row, where `torch.multinomial` costs 16 ms a step at this vocabulary); and decode-time products walk each weight matrix
in its own order. With 16 different prompts only the last two remain.
"""
    write("sampler", "Sampler speed", claims, body, figures)


def alternate(ours: Callable[[], None], theirs: Callable[[], None]) -> tuple[float, float]:
    """Median seconds of each, run in turn after one warm-up."""
    ours()
    theirs()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for kept, run in zip(times, (ours, theirs), strict=True):
            began = time.perf_counter()
            run()
            kept.append(time.perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1])


if __name__ == "__main__":
    main()
