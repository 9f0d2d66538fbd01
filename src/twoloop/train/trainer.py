"""The local trainer: Tinker's verbs on torch. Shared prefixes are computed once, the LM head only where needed."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from twoloop.errors import TrainError
from twoloop.models.packed import PackedAttention, hidden_states, pack
from twoloop.records import Checkpoint, Datum, now
from twoloop.train import losses
from twoloop.train.types import LossConfig, OptimStats, StepStats
from twoloop.train.weights import TeacherKind, Weights

HEAD_CHUNK = 128  # positions whose logits exist at one time: memory stays flat in length × vocabulary
MAX_PACKED = 1024  # flat tokens in one forward pass; about 2 MB of activations each for a 135M model


@dataclass
class _Targets:
    """The positions of one packed batch at which something is learned. Lists run in parallel."""

    source: list[int] = field(default_factory=list)  # flat index of the hidden state that predicts the token
    token: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    sampler: list[float] = field(default_factory=list)
    advantage: list[float] = field(default_factory=list)
    hinted: list[int] = field(default_factory=list)  # flat index in the teacher's packing, -1 without a hint
    hint_weight: list[float] = field(default_factory=list)


@dataclass
class _Sums:
    """Totals over a forward_backward."""

    loss: float = 0.0
    tokens: int = 0
    entropy: float = 0.0
    gap: float = 0.0
    ratio: float = 0.0
    kl: float = 0.0
    hinted: int = 0
    gain: float = 0.0


class LocalTrainer:
    """One policy, one optimizer (AdamW), one process. See `train.types.Trainer` for the contract."""

    def __init__(
        self,
        weights: Weights,
        *,
        teacher: TeacherKind = "frozen",
        ema_rate: float = 0.05,
        clip: float = 1.0,
        max_packed: int = MAX_PACKED,
    ) -> None:
        self.weights = weights
        self._teacher, self._ema_rate, self._clip, self._max_packed = teacher, ema_rate, clip, max_packed
        self._optimizer = torch.optim.AdamW(weights.parameters(), lr=0.0, betas=(0.9, 0.99), weight_decay=0.0)
        self._version = 0
        self._pending = 0  # trained positions since the last step

    @property
    def policy_version(self) -> int:
        return self._version

    # -- verbs -------------------------------------------------------------------------------------------------------

    def forward_backward(self, data: Sequence[Datum], loss: LossConfig) -> StepStats:
        sums = _Sums()
        for batch in self._batches([trimmed for d in data if (trimmed := trim(d)) is not None]):
            self._backward(batch, loss, sums)
        if sums.tokens + sums.hinted == 0:
            raise TrainError(
                f"nothing was trained: none of {len(data)} rows holds a position with a weight",
                fix="Check masks, advantages (all equal in a group?) and hint spans.",
            )
        self._pending += sums.tokens + sums.hinted
        n, h = max(sums.tokens, 1), max(sums.hinted, 1)
        return StepStats(
            loss=sums.loss,
            tokens=sums.tokens,
            entropy=sums.entropy / n,
            sampler_gap=sums.gap / n,
            ratio_mean=sums.ratio / n,
            hint_kl=sums.kl / h,
            hint_tokens=sums.hinted,
            hint_gain=sums.gain / h,
        )

    def optim_step(self, lr: float) -> OptimStats:
        if self._pending == 0:
            raise TrainError("optim_step without a forward_backward before it", fix="Call forward_backward first.")
        parameters = self.weights.parameters()
        before = [p.detach().clone() for p in parameters]
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self._clip))
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            raise TrainError(f"the gradient is not finite ({norm})", fix="Lower the learning rate.")
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._pending = 0
        change = math.sqrt(sum(float((p.detach() - b).square().sum()) for p, b in zip(parameters, before, strict=True)))
        if change == 0.0:
            raise TrainError("the weights did not change in this step", fix="Check the learning rate and the data.")
        self._version += 1
        if self._teacher == "ema":
            self.weights.follow(self._ema_rate)
        return OptimStats(norm, change)

    def save_state(self, folder: Path) -> None:
        aside = folder.with_name(folder.name + ".part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        save_file(self.weights.state(), aside / "policy.safetensors")
        save_file(self.weights.teacher_state(), aside / "teacher.safetensors")
        torch.save(self._optimizer.state_dict(), aside / "optimizer.pt")
        (aside / "trainer.json").write_text(json.dumps({"policy_version": self._version}))
        for path in aside.iterdir():
            _sync(path)
        _sync(aside)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(aside, folder)
        _sync(folder.parent)

    def load_state(self, folder: Path) -> None:
        self.weights.load(load_file(folder / "policy.safetensors"))
        self.weights.load(load_file(folder / "teacher.safetensors"), teacher=True)
        self._optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
        self._version = json.loads((folder / "trainer.json").read_text())["policy_version"]

    def publish(self, name: str, folder: Path, *, base: Path, parent: str | None, recipe: str, data: str) -> Checkpoint:
        path, digest = self.weights.write(folder, name)
        model, adapter = (str(base), str(path)) if path.is_file() else (str(path), "")
        return Checkpoint(name, model, adapter, parent, recipe, data, digest, self._version, now())

    # -- one packed batch --------------------------------------------------------------------------------------------

    def _batches(self, data: list[Datum]) -> list[list[Datum]]:
        """Rows of a group stay together as long as their packing fits; order is otherwise kept."""
        ordered = sorted(data, key=lambda d: d.group)
        batches: list[list[Datum]] = []
        for datum in ordered:
            if batches and len(pack([d.tokens for d in [*batches[-1], datum]])) <= self._max_packed:
                batches[-1].append(datum)
            else:
                batches.append([datum])
        return batches

    def _backward(self, data: list[Datum], loss: LossConfig, sums: _Sums) -> None:
        targets, teacher_rows = _targets(data, loss)
        student = self.weights.student
        packing = pack([d.tokens for d in data])
        hidden = hidden_states(student, packing.tokens(), packing.positions(), PackedAttention(packing))
        reference = self._teacher_hidden([list(d.tokens) for d in data]) if loss.kl_reference > 0 else None
        hinted = self._teacher_hidden(teacher_rows) if teacher_rows else None
        gradient = torch.zeros_like(hidden)
        for first in range(0, len(targets.source), HEAD_CHUNK):
            part = slice(first, first + HEAD_CHUNK)
            source = torch.tensor(targets.source[part])
            states = hidden.detach()[source].requires_grad_()
            value = self._chunk(states, part, targets, loss, sums, hinted, reference)
            value.backward()
            assert states.grad is not None
            gradient.index_add_(0, source, states.grad)
            sums.loss += float(value.detach())
        hidden.backward(gradient)

    @torch.no_grad()
    def _teacher_hidden(self, rows: list[list[int]]) -> Tensor:
        packing = pack(rows)
        if self._teacher == "live":
            return hidden_states(self.weights.student, packing.tokens(), packing.positions(), PackedAttention(packing))
        with self.weights.as_teacher() as teacher:
            return hidden_states(teacher, packing.tokens(), packing.positions(), PackedAttention(packing))

    def _chunk(
        self,
        states: Tensor,
        part: slice,
        targets: _Targets,
        loss: LossConfig,
        sums: _Sums,
        hinted: Tensor | None,
        reference: Tensor | None,
    ) -> Tensor:
        """The loss of up to HEAD_CHUNK positions; adds to `sums` what was seen."""
        head = _head(self.weights.student)
        full = head(states).log_softmax(-1)  # (B, V)
        token = torch.tensor(targets.token[part])[:, None]
        logp = full.gather(1, token)[:, 0]
        weight = torch.tensor(targets.weight[part])
        trained = weight > 0
        sampler = torch.tensor(targets.sampler[part])
        if loss.name == "next_token":
            value = losses.next_token(logp, weight)
        else:
            advantage = torch.tensor(targets.advantage[part])
            if reference is not None:
                with torch.no_grad():
                    scored = head(reference[torch.tensor(targets.source[part])]).log_softmax(-1).gather(1, token)[:, 0]
                advantage = losses.k1_penalised(advantage, logp, scored, loss.kl_reference)
            value = losses.policy_gradient(logp, sampler, advantage, weight, loss.ratio_cap)
            sums.gap += float((logp.detach() - sampler).abs()[trained].sum())
            sums.ratio += float((logp.detach() - sampler).exp()[trained].sum())
        sums.tokens += int(trained.sum())
        sums.entropy += float(-(full.detach().exp() * full.detach()).sum(-1)[trained].sum())
        if hinted is not None:
            value = value + self._hint_loss(full, part, targets, loss, sums, hinted)
        return value / loss.divisor

    def _hint_loss(
        self, full: Tensor, part: slice, targets: _Targets, loss: LossConfig, sums: _Sums, hinted: Tensor
    ) -> Tensor:
        where = torch.tensor([i for i, h in enumerate(targets.hinted[part]) if h >= 0], dtype=torch.long)
        if len(where) == 0:
            return full.sum() * 0.0
        source = torch.tensor([h for h in targets.hinted[part] if h >= 0])
        with torch.no_grad(), self.weights.as_teacher() as teacher:
            head = _head(self.weights.student if self._teacher == "live" else teacher)
            taught = head(hinted[source]).log_softmax(-1)
        mine = full[where]
        kl = losses.hint_kl(mine, taught, loss.hint_top_k, loss.hint_direction)
        token = torch.tensor(targets.token[part])[where][:, None]
        sums.kl += float(kl.detach().sum())
        sums.hinted += len(where)
        sums.gain += float((taught.gather(1, token) - mine.detach().gather(1, token)).sum())
        return loss.hint_weight * (torch.tensor(targets.hint_weight[part])[where] * kl).sum()


def trim(datum: Datum) -> Datum | None:
    """The row up to its last position that is learned from; None when there is none."""
    useful = [i + 1 for i, m in enumerate(datum.mask) if m and (not datum.advantages or datum.advantages[i])]
    end = max([0, *useful, *(hint.end for hint in datum.hints)])
    if end == 0:
        return None
    return Datum(
        datum.tokens[:end], datum.mask[:end], datum.logprobs[:end], datum.advantages[:end], datum.hints, datum.group
    )


def _targets(data: list[Datum], loss: LossConfig) -> tuple[_Targets, list[list[int]]]:
    """Flat positions to learn at, and the hinted rows that the teacher reads (one for each hint span)."""
    packing = pack([d.tokens for d in data])
    hints = [(r, hint) for r, d in enumerate(data) for hint in d.hints] if loss.hint_weight > 0 else []
    rows = [[*data[r].tokens[: h.at], *h.hint_tokens, *data[r].tokens[h.at : h.end]] for r, h in hints]
    flat = pack(rows).flat if rows else []
    taught: dict[tuple[int, int], tuple[int, float]] = {}
    for (r, hint), places in zip(hints, flat, strict=True):
        for i in range(hint.start, hint.end):
            share = hint.weight / (hint.end - hint.start)
            taught[r, i] = (places[i + len(hint.hint_tokens) - 1], share)
    targets = _Targets()
    for r, datum in enumerate(data):
        for i in range(1, len(datum.tokens)):
            place, share = taught.get((r, i), (-1, 0.0))
            if not datum.mask[i] and place < 0:
                continue
            targets.source.append(packing.flat[r][i - 1])
            targets.token.append(datum.tokens[i])
            targets.weight.append(datum.mask[i])
            targets.sampler.append(datum.logprobs[i] if datum.logprobs else 0.0)
            targets.advantage.append(datum.advantages[i] if datum.advantages else 0.0)
            targets.hinted.append(place)
            targets.hint_weight.append(share)
    return targets, rows


def _head(model: nn.Module) -> nn.Module:
    head: nn.Module = model.get_output_embeddings()  # type: ignore[operator]
    return head


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
