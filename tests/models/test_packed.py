from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twoloop.models.packed import PackedAttention, hidden_states, pack

rows_of_tokens = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8)


@given(rows_of_tokens, st.integers(1, 6))
def test_every_row_can_be_read_back_from_its_flat_places(rows: list[list[int]], min_shared: int) -> None:
    packing = pack(rows, min_shared)
    flat, positions = packing.tokens().tolist(), packing.positions().tolist()
    for row, places in zip(rows, packing.flat, strict=True):
        assert [flat[i] for i in places] == row
        assert [positions[i] for i in places] == list(range(len(row)))


@given(rows_of_tokens, st.integers(1, 6))
def test_a_packing_is_never_longer_than_its_rows_and_holds_long_shared_starts_once(
    rows: list[list[int]], min_shared: int
) -> None:
    packing = pack(rows, min_shared)
    assert len(packing) <= sum(map(len, rows))
    for a, first in enumerate(rows):
        for b, second in enumerate(rows):
            if first == second and len(first) >= min_shared:
                sure = len(first) - min_shared + 1  # what is left after a split may be too short to share again
                assert packing.flat[a][:sure] == packing.flat[b][:sure]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(0, 30))
def test_hidden_states_equal_those_of_each_row_alone(
    model_and_reference: tuple[Any, Any], seed: int, lengths: list[int], shared: int
) -> None:
    model, reference = model_and_reference
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(3, 250, (shared,), generator=generator).tolist()
    rows = [start + torch.randint(3, 250, (n,), generator=generator).tolist() for n in lengths]
    packing = pack(rows, min_shared=4)
    with torch.no_grad():
        hidden = hidden_states(model, packing.tokens(), packing.positions(), PackedAttention(packing))
        for row, places in zip(rows, packing.flat, strict=True):
            alone = reference.model(torch.tensor([row])).last_hidden_state[0]
            torch.testing.assert_close(hidden[places], alone, atol=2e-5, rtol=1e-4)


def test_gradients_of_shared_positions_add_up(model: Any, reference: Any) -> None:
    rows = [list(range(10, 40)) + [50, 51], list(range(10, 40)) + [60]]
    packing = pack(rows)
    hidden = hidden_states(model, packing.tokens(), packing.positions(), PackedAttention(packing))
    sum(hidden[places].sum() for places in packing.flat).backward()
    reference.zero_grad()
    for row in rows:
        reference.model(torch.tensor([row])).last_hidden_state.sum().backward()
    expected = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and "layers" in name:
            torch.testing.assert_close(parameter.grad, expected[name].grad, atol=1e-3, rtol=1e-3)
    reference.zero_grad()
