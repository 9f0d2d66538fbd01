"""Loss values against formulas and against TRL's code, which is written by others."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twoloop.train import losses


def logps(rows: int, vocabulary: int, seed: int) -> torch.Tensor:
    return (2 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["forward", "reverse"]))
def test_hint_kl_over_all_tokens_equals_trls_jsd_at_its_ends(seed: int, direction: str) -> None:
    from trl.experimental.gkd import GKDTrainer

    student, teacher = logps(5, 40, seed), logps(5, 40, seed + 1)
    beta = 0.0 if direction == "forward" else 1.0  # TRL: 0 is KL(teacher ‖ student), 1 is KL(student ‖ teacher)
    oracle = GKDTrainer.generalized_jsd_loss(student[None], teacher[None], beta=beta, reduction="sum")
    ours = losses.hint_kl(student, teacher, 40, direction).sum()
    assert float(ours) == pytest.approx(float(oracle), abs=1e-5, rel=1e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 39), st.sampled_from(["forward", "reverse"]))
def test_the_tail_bucket_bounds_the_divergence_from_below_and_reaches_it(seed: int, k: int, direction: str) -> None:
    student, teacher = logps(4, 40, seed), logps(4, 40, seed + 1)
    coarse = losses.hint_kl(student, teacher, k, direction)
    exact = losses.hint_kl(student, teacher, 40, direction)
    assert bool((coarse >= -1e-6).all())
    assert bool((coarse <= exact + 1e-5).all())  # merging outcomes never raises a divergence
    assert float(losses.hint_kl(student, student.clone(), k, direction).abs().max()) < 1e-5


def test_a_token_that_only_the_teacher_thinks_of_is_what_is_learned() -> None:
    """The student gives the right token less than its top-k; its probability must rise, and not that of all others."""
    logits = torch.arange(50, dtype=torch.float32).flip(0)[None].clone().requires_grad_()  # token 49 is the last
    taught = torch.full((1, 50), -20.0)
    taught[0, 49] = 0.0
    losses.hint_kl(logits.log_softmax(-1), taught.log_softmax(-1), 5, "forward").sum().backward()
    assert logits.grad is not None
    assert float(logits.grad[0, 49]) < -0.9
    assert float(logits.grad[0, 10:49].abs().max()) < 1e-3


def test_hint_kl_pulls_the_student_toward_the_teacher_and_leaves_the_teacher_alone() -> None:
    logits = torch.zeros(1, 8, requires_grad=True)
    taught = torch.tensor([[4.0, 0, 0, 0, 0, 0, 0, 0]], requires_grad=True)
    losses.hint_kl(logits.log_softmax(-1), taught.log_softmax(-1), 4, "forward").sum().backward()
    assert logits.grad is not None
    assert float(logits.grad[0, 0]) < 0 < float(logits.grad[0, 1:].max())
    assert taught.grad is None


def test_next_token_is_the_librarys_cross_entropy() -> None:
    scores = torch.randn(7, 30, generator=torch.Generator().manual_seed(0))
    target = torch.arange(7)
    mine = losses.next_token(scores.log_softmax(-1).gather(1, target[:, None])[:, 0], torch.full((7,), 1 / 7))
    assert float(mine) == pytest.approx(float(torch.nn.functional.cross_entropy(scores, target)), abs=1e-6)


def test_the_importance_ratio_is_capped_and_carries_no_gradient() -> None:
    logp = torch.tensor([-1.0, -0.1], requires_grad=True)
    value = losses.policy_gradient(logp, torch.tensor([-1.2, -3.0]), torch.tensor([2.0, 1.0]), torch.ones(2), cap=2.0)
    value.backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([-2.0 * math.exp(0.2), -2.0 * 1.0])


def test_k1_lowers_the_advantage_of_tokens_that_left_the_reference() -> None:
    shifted = losses.k1_penalised(torch.zeros(2), torch.tensor([-0.5, -2.0]), torch.tensor([-1.0, -1.0]), 0.1)
    assert shifted.tolist() == pytest.approx([-0.05, 0.1])
