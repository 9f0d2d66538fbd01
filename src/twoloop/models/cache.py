"""Key/value memory of the sampler: prefixes that rows share, and one growing tail for each row.

A row's keys are its prefix's keys followed by its tail's. A prefix is stored once however many rows hang on it, so a
group of samples costs one prefill, and a session that goes on costs only its new tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from twoloop.models.packed import causal_mask, spread


@dataclass(frozen=True)
class Shape:
    """What one token's keys look like."""

    layers: int
    kv_heads: int
    head_dim: int


@dataclass(eq=False)
class Prefix:
    """Keys and values of a prompt without its last token; (layers, kv_heads, length, head_dim) each."""

    tokens: tuple[int, ...]
    keys: Tensor
    values: Tensor
    used: int = 0  # clock of its last use


@dataclass(eq=False)
class Row:
    """One sequence: a prefix and a tail. `tail` lists the tokens whose keys are in the arena."""

    prefix: Prefix
    slot: int
    tail: list[int] = field(default_factory=list)
    used: int = 0

    def __len__(self) -> int:
        return len(self.prefix.tokens) + len(self.tail)


class Arena:
    """Tails of all rows: per layer (slots, kv_heads, capacity, head_dim). Grows by doubling."""

    def __init__(self, shape: Shape, slots: int, capacity: int = 128) -> None:
        self._shape, self._slots, self.capacity = shape, slots, capacity
        self.keys = [self._empty(capacity) for _ in range(shape.layers)]
        self.values = [self._empty(capacity) for _ in range(shape.layers)]

    def _empty(self, capacity: int) -> Tensor:
        return torch.zeros(self._slots, self._shape.kv_heads, capacity, self._shape.head_dim)

    def reserve(self, capacity: int) -> None:
        if capacity <= self.capacity:
            return
        self.capacity = max(capacity, 2 * self.capacity)
        for store in (self.keys, self.values):
            for layer, old in enumerate(store):
                store[layer] = self._empty(self.capacity)
                store[layer][:, :, : old.shape[2]] = old

    def permute(self, order: list[int], used: int) -> None:
        """Slot i takes what slot order[i] held, for the first `used` tail positions."""
        moved = [i for i, source in enumerate(order) if i != source]
        if not moved:
            return
        sources = torch.tensor([order[i] for i in moved])
        targets = torch.tensor(moved)
        for store in (self.keys, self.values):
            for tensor in store:
                tensor[targets, :, :used] = tensor[sources, :, :used]


@dataclass
class Prefill:
    """New tokens of one sequence in a packed forward pass: flat positions [start, end), after `past` keys."""

    start: int
    end: int
    past: list[tuple[Tensor, Tensor]]  # (layers, kv_heads, n, head_dim) pieces, oldest first
    into: tuple[list[Tensor], list[Tensor]]  # per layer (kv_heads, end - start, head_dim) views to fill


class PrefillAttention:
    """Packed forward pass that writes the new keys where they belong."""

    def __init__(self, jobs: list[Prefill]) -> None:
        self._jobs = [(j, causal_mask(j.end - j.start, sum(p[0].shape[2] for p in j.past))) for j in jobs]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        outs = []
        for job, mask in self._jobs:
            own_k, own_v = k[:, job.start : job.end], v[:, job.start : job.end]
            job.into[0][layer].copy_(own_k)
            job.into[1][layer].copy_(own_v)
            keys = torch.cat([p[0][layer] for p in job.past] + [own_k], dim=1)
            values = torch.cat([p[1][layer] for p in job.past] + [own_v], dim=1)
            heads = q.shape[0]
            out = F.scaled_dot_product_attention(
                q[None, :, job.start : job.end],
                spread(keys, heads)[None],
                spread(values, heads)[None],
                attn_mask=mask,
                is_causal=mask is None,
            )
            outs.append(out[0])
        return torch.cat(outs, dim=1).transpose(0, 1).reshape(q.shape[1], -1)


class DecodeAttention:
    """One new token for each of the rows in slots 0..A-1, rows of one prefix side by side.

    The prefix's keys meet the queries of all of its rows in one product; tails are one ragged batch.
    """

    def __init__(self, rows: list[Row], arena: Arena, scale: float) -> None:
        self._arena, self._scale = arena, scale
        lengths = torch.tensor([len(row.tail) for row in rows])  # where the new key goes
        self._where = lengths
        self._index = torch.arange(len(rows))
        self._tail = int(lengths.max()) + 1
        self._bias = torch.where(torch.arange(self._tail)[None] <= lengths[:, None], 0.0, -torch.inf)[:, None, None]
        self._groups: list[tuple[Prefix, int, int]] = []
        for i, row in enumerate(rows):
            if self._groups and self._groups[-1][0] is row.prefix:
                self._groups[-1] = (row.prefix, self._groups[-1][1], i + 1)
            else:
                self._groups.append((row.prefix, i, i + 1))
        self._longest = max(len(p.tokens) for p, _, _ in self._groups)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, rows, dim = q.shape
        kv = k.shape[0]
        group = heads // kv
        keys, values = self._arena.keys[layer], self._arena.values[layer]
        keys[self._index, :, self._where] = k.transpose(0, 1)
        values[self._index, :, self._where] = v.transpose(0, 1)

        grouped = (q * self._scale).view(kv, group, rows, dim).permute(2, 0, 1, 3)  # (A, K, G, D)
        scores = torch.full((rows, kv, group, self._longest + self._tail), -torch.inf)
        torch.add(
            torch.matmul(grouped, keys[:rows, :, : self._tail].transpose(2, 3)),
            self._bias,
            out=scores[..., self._longest :],
        )
        for prefix, first, last in self._groups:
            together = grouped[first:last].permute(1, 0, 2, 3).reshape(kv, -1, dim)  # (K, R * G, D)
            part = torch.matmul(together, prefix.keys[layer].transpose(1, 2))
            scores[first:last, ..., : len(prefix.tokens)] = part.view(kv, last - first, group, -1).transpose(0, 1)
        weights = scores.softmax(-1)
        out = torch.matmul(weights[..., self._longest :], values[:rows, :, : self._tail])  # (A, K, G, D)
        for prefix, first, last in self._groups:
            part = weights[first:last, ..., : len(prefix.tokens)].transpose(0, 1).reshape(kv, -1, len(prefix.tokens))
            mixed = torch.matmul(part, prefix.values[layer])
            out[first:last] += mixed.view(kv, last - first, group, dim).transpose(0, 1)
        return out.reshape(rows, heads * dim)
