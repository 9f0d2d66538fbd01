"""Rows of tokens packed into one flat sequence in which every shared prefix stands once.

Rows of a GRPO group share their prompt. Packed as a tree, the prompt is computed once, forward and backward, and no
position is padding. Attention is exact: a segment attends to its ancestors and, causally, to itself. Any Hugging Face
causal model whose attention goes through the library's attention registry can run on a packing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ATTENTION = "twoloop"  # the name under which `attend` is registered with transformers
MIN_SHARED = 16  # a shared run shorter than this is cheaper to recompute than to split


class Attend(Protocol):
    """Attention of one forward pass. q (H, N, D), k and v (K, N, D) of N flat positions -> (N, H * D)."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


def register_attention() -> None:
    """Make transformers route attention to the `attend` object of each forward call. Idempotent."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, _no_mask)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, *, attend: Attend, **_: Any
) -> tuple[Tensor, None]:
    layer = module.layer_idx
    assert isinstance(layer, int)
    return attend(layer, query[0], key[0], value[0]).unsqueeze(0), None


def _no_mask(*_: Any, **__: Any) -> None:
    """The packing knows who attends to whom; there is no mask to build."""


def hidden_states(model: nn.Module, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
    """Last hidden states (N, D) of N flat tokens at the given positions; the LM head is not applied."""
    body = model.get_submodule(model.base_model_prefix)  # type: ignore[arg-type]
    out = body(input_ids=tokens[None], position_ids=positions[None], use_cache=False, attend=attend)
    states: Tensor = out.last_hidden_state[0]
    return states


@dataclass
class Segment:
    """A run of tokens that all of its rows share. `start` is its place in the flat sequence."""

    parent: int  # index of the segment that precedes it, -1 for a root
    tokens: list[int]
    position: int  # position of its first token within its rows
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass
class Packing:
    """`flat[r]` gives, for row r, the flat index of each of its tokens."""

    segments: list[Segment] = field(default_factory=list)
    flat: list[list[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return self.segments[-1].end if self.segments else 0

    def tokens(self) -> Tensor:
        return torch.tensor([t for segment in self.segments for t in segment.tokens])

    def positions(self) -> Tensor:
        return torch.tensor([s.position + i for s in self.segments for i in range(len(s.tokens))])

    def chain(self, index: int) -> list[Segment]:
        """Ancestors of a segment from the root down, without itself."""
        found: list[Segment] = []
        parent = self.segments[index].parent
        while parent >= 0:
            found.append(self.segments[parent])
            parent = self.segments[parent].parent
        return found[::-1]


def pack(rows: Sequence[Sequence[int]], min_shared: int = MIN_SHARED) -> Packing:
    """Build the prefix tree of the rows. Every row must hold at least one token."""
    packing = Packing(flat=[[] for _ in rows])
    _grow(packing, rows, list(range(len(rows))), 0, -1, min_shared)
    return packing


def _grow(
    packing: Packing, rows: Sequence[Sequence[int]], members: list[int], depth: int, parent: int, min_shared: int
) -> None:
    """Add the segments of `members`, which all share their first `depth` tokens (held by `parent`)."""
    for family in _families(rows, [r for r in members if len(rows[r]) > depth], depth, depth, min_shared):
        shared = _common([rows[r] for r in family])
        index = _add(packing, rows[family[0]][depth:shared], depth, parent, family)
        if len(family) > 1:
            _grow(packing, rows, family, shared, index, min_shared)


def _families(
    rows: Sequence[Sequence[int]], members: list[int], depth: int, at: int, min_shared: int
) -> Iterator[list[int]]:
    """Split rows that agree up to `at` into largest sets that share at least `min_shared` tokens after `depth`."""
    parts: dict[int, list[int]] = {}
    for row in members:
        parts.setdefault(rows[row][at], []).append(row)
    for part in parts.values():
        shared = _common([rows[r] for r in part])
        if len(part) == 1 or shared - depth >= min_shared:
            yield part
            continue
        yield from ([r] for r in part if len(rows[r]) == shared)
        yield from _families(rows, [r for r in part if len(rows[r]) > shared], depth, shared, min_shared)


def _add(packing: Packing, tokens: Sequence[int], position: int, parent: int, rows: list[int]) -> int:
    segment = Segment(parent, list(tokens), position, len(packing))
    packing.segments.append(segment)
    for row in rows:
        packing.flat[row].extend(range(segment.start, segment.end))
    return len(packing.segments) - 1


def _common(rows: Sequence[Sequence[int]]) -> int:
    """Length of the longest common prefix."""
    ordered = sorted(map(list, rows))
    first, last = ordered[0], ordered[-1]
    for i, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return i
    return min(len(first), len(last))


class PackedAttention:
    """Exact attention over a packing; differentiable."""

    def __init__(self, packing: Packing) -> None:
        self._parts: list[tuple[Segment, list[Segment], Tensor | None]] = []
        for i, segment in enumerate(packing.segments):
            chain = packing.chain(i)
            self._parts.append((segment, chain, causal_mask(len(segment.tokens), sum(len(s.tokens) for s in chain))))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = q.shape[0]
        k, v = spread(k, heads), spread(v, heads)
        outs = []
        for segment, chain, mask in self._parts:
            own = slice(segment.start, segment.end)
            keys = torch.cat([k[:, s.start : s.end] for s in chain] + [k[:, own]], dim=1) if chain else k[:, own]
            values = torch.cat([v[:, s.start : s.end] for s in chain] + [v[:, own]], dim=1) if chain else v[:, own]
            out = F.scaled_dot_product_attention(
                q[None, :, own], keys[None], values[None], attn_mask=mask, is_causal=mask is None
            )
            outs.append(out[0])
        return torch.cat(outs, dim=1).transpose(0, 1).reshape(q.shape[1], -1)  # (N, H * D)


def spread(x: Tensor, heads: int) -> Tensor:
    """Repeat grouped key or value heads (K, N, D) to (H, N, D)."""
    return x if x.shape[0] == heads else x.repeat_interleave(heads // x.shape[0], dim=0)


def causal_mask(queries: int, before: int) -> Tensor | None:
    """True where query i may look at key j of `before` earlier tokens and `queries` own ones. None: plain causal."""
    if before == 0:
        return None
    return torch.ones(queries, before + queries, dtype=torch.bool).tril(before)
