"""The policy gradient against TRL's trainer, run for real on the same model and the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from twoloop.models.hub import load_model, load_tokenizer
from twoloop.records import Datum
from twoloop.train.trainer import LocalTrainer
from twoloop.train.types import LossConfig
from twoloop.train.weights import FullWeights

PROMPT, LENGTH, CAP = 6, 9, 2.0


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(tokens (4, T), sampler logprobs (4, LENGTH), advantages (4,))."""
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(3, 250, (1, PROMPT), generator=generator).repeat(4, 1)
    tokens = torch.cat([prompt, torch.randint(3, 250, (4, LENGTH), generator=generator)], 1)
    return tokens, -5.6 + 0.7 * torch.randn(4, LENGTH, generator=generator), torch.tensor([1.0, -0.5, 0.25, -0.75])


def trl_gradient(tiny: Path, tmp_path: Path, rows: Any) -> tuple[float, dict[str, torch.Tensor]]:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    tokens, sampler, advantages = rows
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            loss_type="cispo",
            epsilon_high=CAP,
            beta=0.0,
            use_cpu=True,
            report_to=[],
            bf16=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["x"] * 8}),
        processing_class=load_tokenizer(tiny),
    )
    trainer.model.eval()
    ones = torch.ones(4, PROMPT + LENGTH, dtype=torch.long)
    inputs = {
        "prompt_ids": tokens[:, :PROMPT],
        "prompt_mask": ones[:, :PROMPT],
        "completion_ids": tokens[:, PROMPT:],
        "completion_mask": ones[:, PROMPT:],
        "advantages": advantages,
        "old_per_token_logps": sampler,
        "num_items_in_batch": torch.tensor(4.0),
    }
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return float(loss), {n: p.grad for n, p in trainer.model.named_parameters() if p.grad is not None}


def test_loss_and_gradient_equal_trls_cispo(tiny: Path, tmp_path: Path, rows: Any) -> None:
    tokens, sampler, advantages = rows
    data = [
        Datum(
            tuple(tokens[i].tolist()),
            (0.0,) * PROMPT + (1.0,) * LENGTH,
            (0.0,) * PROMPT + tuple(sampler[i].tolist()),
            (0.0,) * PROMPT + (float(advantages[i]),) * LENGTH,
            group="g",
        )
        for i in range(4)
    ]
    weights = FullWeights(load_model(tiny))
    stats = LocalTrainer(weights).forward_backward(data, LossConfig(ratio_cap=CAP, divisor=4.0))
    expected, gradients = trl_gradient(tiny, tmp_path, rows)
    assert stats.loss == pytest.approx(expected, abs=1e-5, rel=1e-5)
    for name, parameter in weights.student.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-3)
