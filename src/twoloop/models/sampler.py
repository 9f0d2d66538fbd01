"""The local sampler: batched, token-level, on torch. See `cache.py` for how prompts share their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from twoloop.errors import ModelError
from twoloop.models.cache import Arena, DecodeAttention, Prefill, PrefillAttention, Prefix, Row, Shape
from twoloop.models.packed import PackedAttention, hidden_states, pack
from twoloop.models.types import Sampled, SamplingParams

_REUSE = 16  # a prefix is copied from another when they share at least this many tokens
_HEAD_CHUNK = 128  # positions whose logits exist at one time


class TorchSampler:
    """Samples from one Hugging Face causal model (see `packed.register_attention`) with merged weights.

    `batch` rows are decoded together; prompts beyond that wait. `max_context` bounds prompt + sample, in tokens.
    Prefixes and tails of earlier calls are kept until `clear`, so a session pays for its new tokens only.
    """

    def __init__(self, model: Any, *, policy_version: int = 0, batch: int = 32, max_context: int = 2048) -> None:
        config = model.config
        heads = config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self._shape = Shape(config.num_hidden_layers, getattr(config, "num_key_value_heads", None) or heads, dim)
        self._scale = dim**-0.5
        self.model, self._version, self._batch, self._max_context = model, policy_version, batch, max_context
        self.clear()

    @property
    def policy_version(self) -> int:
        return self._version

    def serve(self, policy_version: int) -> None:
        """The weights have been changed in place: drop every cached key and serve the new version."""
        self._version = policy_version
        self.clear()

    def clear(self) -> None:
        self._arena = Arena(self._shape, self._batch)
        self._rows: list[Row] = []
        self._prefixes: list[Prefix] = []
        self._clock = 0

    # -- sampling ----------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def sample(self, prompts: Sequence[Sequence[int]], n: int, params: SamplingParams) -> list[list[Sampled]]:
        jobs = [(i, tuple(prompt)) for i, prompt in enumerate(prompts) for _ in range(n)]
        for _, prompt in jobs:
            self._check(prompt)
        generator = torch.Generator().manual_seed(params.seed)
        done: list[list[Sampled]] = [[] for _ in prompts]
        for first in range(0, len(jobs), self._batch):
            part = jobs[first : first + self._batch]
            for (i, _), sampled in zip(part, self._sample_batch([p for _, p in part], params, generator), strict=True):
                done[i].append(sampled)
        return done

    def _check(self, prompt: tuple[int, ...]) -> None:
        if not prompt:
            raise ModelError("cannot sample from an empty prompt")
        if len(prompt) > self._max_context:
            raise ModelError(
                f"the prompt has {len(prompt)} tokens, the sampler's limit is {self._max_context}",
                fix="Shorten the prompt or raise max_context.",
            )

    def _sample_batch(
        self, prompts: list[tuple[int, ...]], params: SamplingParams, generator: torch.Generator
    ) -> list[Sampled]:
        self._clock += 1
        rows = self._claim(prompts)
        drawn: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        reasons: list[Literal["stop", "length", "context"]] = ["length"] * len(prompts)
        feed = [prompt[-1] for prompt in prompts]
        active = list(range(len(prompts))) if params.max_tokens > 0 else []
        while active:
            active = self._arrange(rows, active)
            logits = self._decode([rows[i] for i in active], [feed[i] for i in active])
            tokens, lps = draw(logits, params, generator)
            going = []
            for i, token, lp in zip(active, tokens, lps, strict=True):
                drawn[i].append(token)
                logprobs[i].append(lp)
                feed[i] = token
                if token in params.stop:
                    reasons[i] = "stop"
                elif len(prompts[i]) + len(drawn[i]) >= self._max_context:
                    reasons[i] = "context"
                elif len(drawn[i]) < params.max_tokens:
                    going.append(i)
            active = going
        return [
            Sampled(tuple(t), tuple(lp), reason, self._version)
            for t, lp, reason in zip(drawn, logprobs, reasons, strict=True)
        ]

    def _decode(self, rows: list[Row], tokens: list[int]) -> Tensor:
        """One step for rows in slots 0..A-1: logits (A, vocabulary). Appends the fed tokens to the tails."""
        self._arena.reserve(max(len(row.tail) for row in rows) + 1)
        attend = DecodeAttention(rows, self._arena, self._scale)
        positions = torch.tensor([len(row) for row in rows])
        hidden = hidden_states(self.model, torch.tensor(tokens), positions, attend)
        for row, token in zip(rows, tokens, strict=True):
            row.tail.append(token)
        logits: Tensor = self.model.get_output_embeddings()(hidden)
        return logits

    # -- rows and prefixes -------------------------------------------------------------------------------------------

    def _claim(self, prompts: list[tuple[int, ...]]) -> list[Row]:
        """A row for each prompt with the keys of all of its tokens but the last."""
        free = list(self._rows)
        claimed: list[Row | None] = []
        for prompt in prompts:
            best = max((r for r in free if _continues(r, prompt)), key=len, default=None)
            if best is not None:
                free.remove(best)
            claimed.append(best)
        fresh = {p[:-1] for p, row in zip(prompts, claimed, strict=True) if row is None}
        prefixes = self._prefixes_for(sorted(fresh))
        for row in claimed:
            if row is not None:
                row.used = self._clock  # before new rows look for an idle one to evict
        rows = [
            row if row is not None else self._new_row(prefixes[prompt[:-1]])
            for prompt, row in zip(prompts, claimed, strict=True)
        ]
        for row in rows:
            row.used = row.prefix.used = self._clock
        self._extend(rows, prompts)
        self._forget(rows)
        return rows

    def _new_row(self, prefix: Prefix) -> Row:
        if len(self._rows) >= self._batch:
            idle = [row for row in self._rows if row.used < self._clock]
            victim = min(idle, key=lambda row: row.used)
            self._rows.remove(victim)
        taken = {row.slot for row in self._rows}
        row = Row(prefix, next(s for s in range(self._batch) if s not in taken), used=self._clock)
        self._rows.append(row)
        return row

    def _prefixes_for(self, wanted: list[tuple[int, ...]]) -> dict[tuple[int, ...], Prefix]:
        """Prefixes with exactly these tokens; the part that they have in common with a kept one is copied."""
        known = {p.tokens: p for p in self._prefixes}
        missing = [tokens for tokens in wanted if tokens not in known]
        if len(missing) > 1:
            shared = _shared(missing[0], missing[-1])  # sorted, so this is common to all
            if shared >= _REUSE and not any(_shared(p.tokens, missing[0]) >= shared for p in self._prefixes):
                known[missing[0][:shared]] = self._compute([missing[0][:shared]])[0]
        for prefix in self._compute([tokens for tokens in missing if tokens not in known]):
            known[prefix.tokens] = prefix
        return known

    def _compute(self, wanted: list[tuple[int, ...]]) -> list[Prefix]:
        """Prefill new prefixes in one packed pass, each from the longest start that a kept one can lend."""
        made: list[Prefix] = []
        jobs: list[Prefill] = []
        flat: list[int] = []
        positions: list[int] = []
        for tokens in wanted:
            keys, values = self._prefix_memory(len(tokens)), self._prefix_memory(len(tokens))
            lender = max(self._prefixes, key=lambda p: _shared(p.tokens, tokens), default=None)
            have = _shared(lender.tokens, tokens) if lender is not None else 0
            if lender is None or have < _REUSE:
                have = 0
            else:
                keys[:, :, :have], values[:, :, :have] = lender.keys[:, :, :have], lender.values[:, :, :have]
            made.append(Prefix(tokens, keys, values, self._clock))
            if have < len(tokens):
                into = (list(keys[:, :, have:]), list(values[:, :, have:]))
                past = [(keys[:, :, :have], values[:, :, :have])] if have else []
                jobs.append(Prefill(len(flat), len(flat) + len(tokens) - have, past, into))
                flat.extend(tokens[have:])
                positions.extend(range(have, len(tokens)))
        self._prefill(jobs, flat, positions)
        self._prefixes.extend(made)
        return made

    def _extend(self, rows: list[Row], prompts: list[tuple[int, ...]]) -> None:
        """Prefill what a continued session's prompt holds beyond the row's keys, but for the last token."""
        jobs: list[Prefill] = []
        flat: list[int] = []
        positions: list[int] = []
        wanted = [prompt[len(row.prefix.tokens) : -1] for row, prompt in zip(rows, prompts, strict=True)]
        self._arena.reserve(max(len(tail) for tail in wanted) + 1)
        for row, tail in zip(rows, wanted, strict=True):
            have = len(row.tail)
            new = tail[have:]
            if not new:
                continue
            keys = torch.stack([k[row.slot] for k in self._arena.keys]) if have else None
            values = torch.stack([v[row.slot] for v in self._arena.values]) if have else None
            past = [(row.prefix.keys, row.prefix.values)] if row.prefix.tokens else []
            if keys is not None and values is not None:
                past.append((keys[:, :, :have], values[:, :, :have]))
            into = (
                [k[row.slot, :, have : have + len(new)] for k in self._arena.keys],
                [v[row.slot, :, have : have + len(new)] for v in self._arena.values],
            )
            jobs.append(Prefill(len(flat), len(flat) + len(new), past, into))
            flat.extend(new)
            positions.extend(range(len(row), len(row) + len(new)))
            row.tail.extend(new)
        self._prefill(jobs, flat, positions)

    def _prefill(self, jobs: list[Prefill], flat: list[int], positions: list[int]) -> None:
        if jobs:
            hidden_states(self.model, torch.tensor(flat), torch.tensor(positions), PrefillAttention(jobs))

    def _arrange(self, rows: list[Row], active: list[int]) -> list[int]:
        """Move the active rows to slots 0..A-1, rows of one prefix side by side. Returns them in slot order."""
        if sorted(rows[i].slot for i in active) == list(range(len(active))) and _grouped([rows[i] for i in active]):
            return sorted(active, key=lambda i: rows[i].slot)
        rank = {id(p): i for i, p in enumerate(self._prefixes)}
        order = sorted(active, key=lambda i: (rank.get(id(rows[i].prefix), -1), rows[i].slot))
        slots = [rows[i].slot for i in order]
        slots += [s for s in range(self._batch) if s not in set(slots)]
        self._arena.permute(slots, max((len(r.tail) for r in self._rows), default=0))
        target = {source: i for i, source in enumerate(slots)}
        for row in self._rows:
            row.slot = target[row.slot]
        return order

    def _prefix_memory(self, length: int) -> Tensor:
        return torch.empty(self._shape.layers, self._shape.kv_heads, length, self._shape.head_dim)

    def _forget(self, rows: list[Row]) -> None:
        """Keep the prefixes in use and the most recent others, at most four batches of them."""
        held = {id(row.prefix) for row in self._rows}
        idle = sorted((p for p in self._prefixes if id(p) not in held), key=lambda p: -p.used)
        keep = held | {id(p) for p in idle[: 4 * self._batch]}
        self._prefixes = [p for p in self._prefixes if id(p) in keep]

    # -- scoring -----------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def logprobs(self, sequences: Sequence[Sequence[int]], last_n: Sequence[int]) -> list[list[float]]:
        packing = pack(sequences)
        hidden = hidden_states(self.model, packing.tokens(), packing.positions(), PackedAttention(packing))
        head = self.model.get_output_embeddings()
        result = []
        for tokens, flat, last in zip(sequences, packing.flat, last_n, strict=True):
            if last >= len(tokens):
                raise ModelError("a sequence's first token has nothing before it to be predicted from")
            sources, targets = flat[-last - 1 : -1], tokens[-last:]
            scores: list[float] = []
            for first in range(0, last, _HEAD_CHUNK):
                part = slice(first, min(first + _HEAD_CHUNK, last))
                logits = head(hidden[sources[part]]).log_softmax(-1)
                scores.extend(logits.gather(1, torch.tensor(targets[part])[:, None])[:, 0].tolist())
            result.append(scores)
        return result


def draw(logits: Tensor, params: SamplingParams, generator: torch.Generator) -> tuple[list[int], list[float]]:
    """One token a row of logits (A, V), with the log of the probability with which it was drawn.

    By inversion of the cumulative distribution in float64: one uniform number a row, where `torch.multinomial` draws
    one for each entry of the vocabulary.
    """
    if params.temperature == 0.0:
        best = logits.argmax(-1, keepdim=True)
        chosen = logits.log_softmax(-1).gather(1, best)[:, 0]
        return best[:, 0].tolist(), chosen.tolist()
    scaled = logits / params.temperature if params.temperature != 1.0 else logits
    logp = scaled.log_softmax(-1)
    if params.top_p < 1.0:
        logp = _nucleus(logp, params.top_p)
    cumulative = logp.exp().to(torch.float64).cumsum(-1)
    point = torch.rand(len(logits), 1, generator=generator, dtype=torch.float64) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, point, right=True).clamp_(max=logits.shape[1] - 1)
    return tokens[:, 0].tolist(), logp.gather(1, tokens)[:, 0].tolist()


def _nucleus(logp: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of tokens whose probability reaches top_p, renormalised; log-probabilities (A, V)."""
    ordered, index = logp.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    kept = torch.full_like(logp, -torch.inf).scatter(1, index, ordered.masked_fill(before >= top_p, -torch.inf))
    return kept.log_softmax(-1)


def _continues(row: Row, prompt: tuple[int, ...]) -> bool:
    """True when the row's keys are a proper start of the prompt."""
    return (
        len(row) < len(prompt)
        and prompt[: len(row.prefix.tokens)] == row.prefix.tokens
        and (list(prompt[len(row.prefix.tokens) : len(row)]) == row.tail)
    )


def _grouped(rows: list[Row]) -> bool:
    ordered = sorted(rows, key=lambda r: r.slot)
    changes = sum(a.prefix is not b.prefix for a, b in zip(ordered, ordered[1:], strict=False))
    return changes == len({id(r.prefix) for r in rows}) - 1


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
