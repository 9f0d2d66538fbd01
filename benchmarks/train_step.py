"""One GRPO-shaped step (4 prompts × 8 samples) against TRL's GRPOTrainer: same model, same shapes, LoRA r 16, one run.

    python benchmarks/train_step.py

A step is: sample NEW tokens for each of 32 rows, compute the policy gradient, step the optimizer, make the new weights
ready for sampling. Each side runs in a process of its own, so that its peak memory is its own; sides alternate.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import Claim, write

PROMPTS, SAMPLES, NEW, STEPS, ROUNDS, RANK = 4, 8, 48, 2, 2, 16


def prompts_text() -> list[str]:
    from twoloop.tasks.units import instruction
    from twoloop.train.scripts import harvest

    return [instruction([f]) for f in harvest() if len(f.head) > 250][:PROMPTS]


def ours() -> list[float]:
    """Seconds of each step."""
    import torch

    from twoloop.models.chat import ChatMLRenderer
    from twoloop.models.fast import speed_up
    from twoloop.models.hub import load_model, load_tokenizer, pull
    from twoloop.models.sampler import TorchSampler
    from twoloop.models.types import SamplingParams
    from twoloop.records import Datum
    from twoloop.train.rl import sync
    from twoloop.train.trainer import LocalTrainer
    from twoloop.train.types import LossConfig
    from twoloop.train.weights import LoraWeights

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    folder = pull()
    renderer = ChatMLRenderer(load_tokenizer(folder))
    prompts = [renderer.message("user", t) + renderer.generation_prompt() for t in prompts_text()]
    trainer = LocalTrainer(LoraWeights(load_model(folder), RANK))
    sampler = TorchSampler(speed_up(load_model(folder)), batch=PROMPTS * SAMPLES)
    seconds = []
    for step in range(STEPS + 1):
        began = time.perf_counter()
        sync(trainer, sampler)
        groups = sampler.sample(prompts, SAMPLES, SamplingParams(max_tokens=NEW, seed=step))
        rows = []
        for g, (prompt, group) in enumerate(zip(prompts, groups, strict=True)):
            rewards = [float(sum(t % 7 == 0 for t in s.tokens)) for s in group]
            mean = sum(rewards) / len(rewards)
            zeros = (0.0,) * len(prompt)
            for sampled, reward in zip(group, rewards, strict=True):
                ones, advantage = (1.0,) * len(sampled.tokens), (reward - mean,) * len(sampled.tokens)
                rows.append(
                    Datum(
                        (*prompt, *sampled.tokens),
                        zeros + ones,
                        zeros + sampled.logprobs,
                        zeros + advantage,
                        (),
                        str(g),
                    )
                )
        trainer.forward_backward(rows, LossConfig(divisor=float(len(rows))))
        trainer.optim_step(1e-4)
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def theirs() -> list[float]:
    """Seconds of each step of TRL's trainer."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from twoloop.models.hub import load_tokenizer, pull

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    folder = pull()
    stamps: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_args: object, **_kwargs: object) -> None:
            stamps.append(time.perf_counter())

        def on_step_end(self, *_args: object, **_kwargs: object) -> None:
            stamps.append(time.perf_counter())

    def reward(completion_ids: list[list[int]], **_: object) -> list[float]:
        return [float(sum(t % 7 == 0 for t in ids)) for ids in completion_ids]

    rows = [{"prompt": [{"role": "user", "content": text}]} for text in prompts_text()]
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    with tempfile.TemporaryDirectory() as out:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=reward,
            processing_class=load_tokenizer(folder),
            train_dataset=Dataset.from_list(rows * (STEPS + 1)),
            peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, task_type="CAUSAL_LM"),
            args=GRPOConfig(
                output_dir=out,
                per_device_train_batch_size=SAMPLES,
                gradient_accumulation_steps=PROMPTS,
                num_generations=SAMPLES,
                max_completion_length=NEW,
                generation_kwargs={"min_new_tokens": NEW},
                max_steps=STEPS + 1,
                learning_rate=1e-4,
                beta=0.0,
                loss_type="dr_grpo",
                scale_rewards="none",
                top_k=0,
                gradient_checkpointing=False,
                use_cpu=True,
                bf16=False,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            callbacks=[Clock()],
        )
        trainer.train()
    return [end - begin for begin, end in zip(stamps[::2], stamps[1::2], strict=True)][1:]


def child(side: str) -> None:
    seconds = ours() if side == "ours" else theirs()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print("RESULT " + json.dumps({"seconds": seconds, "peak_gb": peak}))


def main() -> None:
    found: dict[str, dict[str, list[float]]] = {s: {"seconds": [], "peak_gb": []} for s in ("ours", "theirs")}
    for _ in range(ROUNDS):
        for side, kept in found.items():
            done = subprocess.run([sys.executable, __file__, side], capture_output=True, text=True, check=False)
            line = next((x for x in done.stdout.split("\n") if x.startswith("RESULT ")), None)
            if line is None:
                raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
            result = json.loads(line[7:])
            kept["seconds"] += result["seconds"]
            kept["peak_gb"].append(result["peak_gb"])
            print(side, result, flush=True)
    a, b = (statistics.median(found[s]["seconds"]) for s in ("ours", "theirs"))
    memory_a, memory_b = (max(found[s]["peak_gb"]) for s in ("ours", "theirs"))
    n = ROUNDS * STEPS
    claims = [
        Claim("step_time", "seconds of one step, TRL over ours", "≥ 2 ×", b / a, "×", n, b / a >= 2),
        Claim(
            "step_memory", "peak memory, ours over TRL", "< 1 ×", memory_a / memory_b, "×", ROUNDS, memory_a < memory_b
        ),
    ]
    body = f"""
SmolLM2-135M-Instruct, fp32, LoRA r {RANK} on all linear layers, {PROMPTS} prompts × {SAMPLES} samples,
{NEW} new tokens each.
Each side in its own process, {ROUNDS} rounds in turn, {STEPS} steps each after a warm-up; medians.

| | ours | TRL GRPOTrainer |
|---|---|---|
| seconds a step | {a:.1f} | {b:.1f} |
| peak memory, GB | {memory_a:.2f} | {memory_b:.2f} |
"""
    write("train_step", "One GRPO-shaped training step", claims, body, dict(found.items()))


if __name__ == "__main__":
    if len(sys.argv) > 1 and Path(__file__).is_file():
        child(sys.argv[1])
    else:
        main()
