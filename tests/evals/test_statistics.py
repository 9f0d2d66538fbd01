from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from twoloop.evals import SolveRate, clustered_mean, gate, paired
from twoloop.records import Estimate

values = st.lists(st.floats(0, 1), min_size=3, max_size=30)


@given(values)
def test_one_value_a_cluster_gives_the_textbook_t_interval(x: list[float]) -> None:
    found = clustered_mean(x, [str(i) for i in range(len(x))], (-100, 100))
    if np.ptp(x) > 1e-9:
        low, high = stats.t.interval(0.95, len(x) - 1, np.mean(x), stats.sem(x))
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


@given(values, st.randoms())
def test_order_does_not_matter(x: list[float], random: object) -> None:
    names = [f"c{i % 4}" for i in range(len(x))]
    order = list(range(len(x)))
    random.shuffle(order)  # type: ignore[attr-defined]
    a = clustered_mean(x, names)
    b = clustered_mean([x[i] for i in order], [names[i] for i in order])
    assert (a.low, a.high) == pytest.approx((b.low, b.high))


def test_values_that_move_together_within_clusters_widen_the_interval() -> None:
    x = [0.0] * 10 + [1.0] * 10
    together = clustered_mean(x, ["a"] * 5 + ["b"] * 5 + ["c"] * 5 + ["d"] * 5)
    apart = clustered_mean(x, [str(i) for i in range(20)])
    assert together.high - together.low > apart.high - apart.low


def test_a_clean_sweep_claims_no_certainty() -> None:
    found = clustered_mean([-1.0] * 12, [f"c{i}" for i in range(12)])
    assert (found.low, found.high) == pytest.approx((-1.0, -1.0 + 1 - 0.05 ** (1 / 12)))
    assert clustered_mean([0.3, 0.4], ["a", "a"]).high == 1.0  # one cluster says nothing of others


def test_swapping_the_sides_mirrors_the_estimate() -> None:
    base = {f"t{i}": [0.0, float(i % 2)] for i in range(9)}
    other = {f"t{i}": [1.0, float(i % 3 == 0)] for i in range(9)}
    clusters = {f"t{i}": f"c{i % 3}" for i in range(9)}
    a, b = paired("x", base, other, clusters), paired("x", other, base, clusters)
    assert (a.difference, a.low, a.high) == pytest.approx((-b.difference, -b.high, -b.low))
    assert (a.tasks, a.clusters, a.rollouts) == (9, 3, 36)


def test_only_tasks_of_both_sides_are_compared() -> None:
    found = paired("x", {"a": [1.0], "b": [0.0]}, {"b": [1.0], "c": [1.0], "a": []}, {"a": "m", "b": "m", "c": "m"})
    assert (found.tasks, found.base, found.candidate) == (1, 0.0, 1.0)
    with pytest.raises(ValueError, match="no task in common"):
        paired("x", {"a": [1.0]}, {"b": [1.0]}, {"a": "m", "b": "m"})


@given(st.integers(0, 9), st.integers(0, 9))
def test_solve_rate_is_laplaces_rule(successes: int, failures: int) -> None:
    rate = SolveRate(successes, successes + failures)
    low, high = rate.interval()
    assert rate.mean == pytest.approx((successes + 1) / (successes + failures + 2))
    assert 0 <= low < rate.mean < high <= 1


def estimate(name: str, difference: float, half: float, tasks: int = 30, clusters: int = 10) -> Estimate:
    return Estimate(name, 0.5, 0.5 + difference, difference, difference - half, difference + half, tasks, clusters, 60)


@pytest.mark.parametrize(
    ("failure", "solve", "decision", "said"),
    [
        ((-0.8, 0.1), (0.1, 0.05), "promote", "-80.0%"),
        ((-0.8, 0.1), (-0.2, 0.05), "reject", "solve rate fell"),
        ((0.0, 0.1), (0.1, 0.05), "reject", "did not become rarer"),
        ((-0.1, 0.2), (0.1, 0.05), "not_enough_data", "holds zero"),
        ((-0.8, 0.1), (0.0, 0.1), "not_enough_data", "cannot be ruled out"),
    ],
)
def test_the_gate_opens_only_on_evidence(
    failure: tuple[float, float], solve: tuple[float, float], decision: str, said: str
) -> None:
    verdict = gate("unknown_tool", estimate("f", *failure), estimate("s", *solve), base="a", candidate="b")
    assert verdict.decision == decision
    assert said in verdict.sentence
    assert "10 modules" in verdict.sentence


def test_a_handful_of_tasks_is_never_enough() -> None:
    verdict = gate(
        "unknown_tool",
        estimate("f", -0.8, 0.1, tasks=7),
        estimate("s", 0.1, 0.05, tasks=7),
        base="a",
        candidate="b",
    )
    assert verdict.decision == "not_enough_data"


def test_intervals_cover_rare_successes_in_few_clusters() -> None:
    """Coverage of a mean paired difference of 10 % when whole modules are easy or hard; 1,500 draws."""
    rng = np.random.default_rng(0)
    hits = 0
    draws = 1500
    for _ in range(draws):
        sizes = rng.integers(1, 6, 10)
        rates = rng.choice([0.0, 0.05, 0.35], 10, p=[0.4, 0.3, 0.3])
        x = [float(rng.binomial(3, r)) / 3 for r, n in zip(rates, sizes, strict=True) for _ in range(n)]
        names = [str(i) for i, n in enumerate(sizes) for _ in range(n)]
        found = clustered_mean(x, names)
        hits += found.low <= 0.4 * 0 + 0.3 * 0.05 + 0.3 * 0.35 <= found.high
    assert hits / draws > 0.85
    assert math.isfinite(hits)
