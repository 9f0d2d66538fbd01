"""Objectives on one chunk of positions. Everything is in nats and fp32; B positions, V vocabulary entries, K of top-k.

`policy_gradient` is the form that the Composer 2 report describes (arXiv 2603.24477): advantage = reward − group mean,
no division by the standard deviation, no length normalisation, a detached and capped importance ratio, and a k1 KL.
`hint_kl` is on-policy distillation toward the same model reading a hint (SDPO, arXiv 2601.20802; SDFT, 2601.19897),
restricted to the sampled tokens of one turn.
"""

from __future__ import annotations

import torch
from torch import Tensor


def next_token(logp: Tensor, weights: Tensor) -> Tensor:
    """−Σ w · log p(token). `logp` (B,) of the target tokens."""
    return -(weights * logp).sum()


def policy_gradient(logp: Tensor, sampler_logp: Tensor, advantages: Tensor, weights: Tensor, cap: float) -> Tensor:
    """−Σ w · min(r, cap) · A · log π with r = exp(log π − log π_sampler), detached. All (B,)."""
    ratio = (logp.detach() - sampler_logp).exp().clamp(max=cap)
    return -(weights * ratio * advantages * logp).sum()


def k1_penalised(advantages: Tensor, logp: Tensor, reference_logp: Tensor, weight: float) -> Tensor:
    """Advantages less the k1 estimate of KL(π ‖ reference), log π − log ref on the sampled token, detached.

    k1 is unbiased and its variance stays bounded where k3's explodes once the policies part.
    """
    return advantages - weight * (logp.detach() - reference_logp)


def hint_kl(student: Tensor, teacher: Tensor, top_k: int, direction: str) -> Tensor:
    """KL between the hinted teacher and the student at each position (B,), in nats. `student` and `teacher` are
    log-probabilities (B, V); the teacher carries no gradient. "forward" is KL(teacher ‖ student), "reverse" is
    KL(student ‖ teacher).

    top_k = 0 is exact. Otherwise it is taken over the top-k tokens of *both* plus one bucket for the rest. The
    student's own top-k would not do: a hint matters most where the right token is not among them, and then all that
    a forward KL asks for is a heavier bucket, which the student fills with anything at all (measured: the failing
    tool name gave way to hundreds of random ones, entropy 0.9 → 1.9 nats).
    """
    teacher = teacher.detach()
    if 0 < top_k < student.shape[1]:
        chosen = torch.zeros_like(student, dtype=torch.bool)
        chosen.scatter_(1, student.detach().topk(top_k, dim=-1).indices, True)
        chosen.scatter_(1, teacher.topk(top_k, dim=-1).indices, True)
        student, teacher = _with_bucket(student, chosen), _with_bucket(teacher, chosen)
    left, right = (teacher, student) if direction == "forward" else (student, teacher)
    return (left.exp() * (left - right)).sum(-1)


_NONE = -1e4  # stands for log 0 on both sides, where it adds nothing and keeps gradients finite


def _with_bucket(logp: Tensor, chosen: Tensor) -> Tensor:
    """The chosen entries, and the log of the sum of all others: (B, V), (B, V) -> (B, V + 1).

    The rest is summed, not taken as 1 − Σ chosen: that difference has no digits left where the rest is small."""
    rest = logp.masked_fill(chosen, _NONE).logsumexp(-1, keepdim=True)
    return torch.cat([logp.masked_fill(~chosen, _NONE), rest], dim=-1)
