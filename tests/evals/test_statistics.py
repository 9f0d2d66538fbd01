from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import linalg, stats

from twoloop.evals import SolveRate, by_task, clustered_mean, gate, paired, pass_at_k, with_lost
from twoloop.records import CallError, Estimate, Reward, Trajectory, Turn, missing, scored

values = st.lists(st.floats(0, 1), min_size=3, max_size=30)
grids = st.lists(
    st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=6), min_size=2, max_size=9
)


def flat(grid: list[list[float]]) -> tuple[list[float], list[str]]:
    return [v for row in grid for v in row], [f"c{i}" for i, row in enumerate(grid) for _ in row]


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.floats(0, 1), min_size=3, max_size=30, unique_by=lambda v: round(v, 6)))
def test_one_value_a_cluster_gives_the_textbook_t_interval(x: list[float]) -> None:
    found = clustered_mean(x, [str(i) for i in range(len(x))], (-100, 100))
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, len(x) - 1, np.mean(x), stats.sem(x)))


@settings(deadline=None)  # a busy machine is no failure
@given(grids)
def test_the_variance_and_its_degrees_are_cr2s_by_matrix_algebra(grid: list[list[float]]) -> None:
    """V = Σ_g X_g' A_g e_g e_g' A_g X_g / N² and df = (tr Ω)²/tr Ω², written out with projection matrices."""
    x, names = flat(grid)
    n = len(x)
    residual_maker = np.eye(n) - np.full((n, n), 1 / n)
    rows = []
    for name in sorted(set(names)):
        mine = np.array([c == name for c in names])
        block = residual_maker[np.ix_(mine, mine)]
        root = linalg.fractional_matrix_power(block, -0.5).real
        rows.append(np.ones(mine.sum()) @ root @ residual_maker[mine] / n)
    p = np.array(rows)  # (G, N): the part of each cluster in the estimate's error
    variance, omega = ((p @ np.array(x)) ** 2).sum(), p @ p.T
    degrees = np.trace(omega) ** 2 / np.trace(omega @ omega)
    textbook = stats.t.ppf(0.975, degrees) * np.sqrt(variance)
    means = [round(float(np.mean(row)), 9) for row in grid]
    agreement = (max(means.count(m) for m in means) - 1) / (len(grid) - 1)
    floor = agreement**2 * (1 - 0.05 ** (1 / len(grid)))
    found = clustered_mean(x, names, (-100, 100))
    assert found.high - found.mean == pytest.approx(max(textbook, floor), abs=1e-7)
    assert found.mean - found.low == pytest.approx(max(textbook, floor), abs=1e-7)


@settings(deadline=None)  # a busy machine is no failure
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
    with pytest.raises(ValueError, match="no values"):
        clustered_mean([], [])


def test_clusters_that_agree_although_their_tasks_do_not_claim_no_certainty() -> None:
    found = clustered_mean([0.0, 1.0] * 6, [f"c{i // 2}" for i in range(12)], (0.0, 1.0))
    assert (found.low, found.high) == pytest.approx((0.5 - (1 - 0.05 ** (1 / 6)), 0.5 + (1 - 0.05 ** (1 / 6))))


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(4, 20))
def test_one_small_exception_takes_little_of_a_clean_sweeps_doubt(clusters: int) -> None:
    sweep = clustered_mean([0.0] * clusters, [str(i) for i in range(clusters)])
    nearly = clustered_mean([0.0] * (clusters - 1) + [0.01], [str(i) for i in range(clusters)])
    assert 0.3 * sweep.high < nearly.high < sweep.high + 0.01


@settings(deadline=None)  # a busy machine is no failure
@given(grids)
def test_names_of_clusters_do_not_matter_and_the_sign_mirrors(grid: list[list[float]]) -> None:
    x, names = flat(grid)
    found = clustered_mean(x, names)
    renamed = clustered_mean(x, [f"z{99 - int(name[1:])}" for name in names])
    mirrored = clustered_mean([-v for v in x], names)
    assert (found.low, found.high) == pytest.approx((renamed.low, renamed.high))
    assert (found.low, found.high) == pytest.approx((-mirrored.high, -mirrored.low))
    assert found.low <= found.mean <= found.high


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


lossy = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=3), min_size=1
)


@settings(deadline=None)  # a busy machine is no failure
@given(lossy, lossy)
def test_what_lost_rollouts_could_have_made_of_it_is_what_trying_every_way_gives(
    base: dict[str, list[float | None]], candidate: dict[str, list[float | None]]
) -> None:
    clusters = {t: t for t in "abcd"}
    holes = [(side, t, i) for side in (base, candidate) for t in side for i, v in enumerate(side[t]) if v is None]
    assume(len(holes) <= 8)
    try:
        found = paired("x", base, candidate, clusters)
    except ValueError:
        return
    assert found.missing == len(holes)
    if not holes:
        assert found.lost_low is None and found.lost_high is None
        return
    seen = []
    for filling in itertools.product((0.0, 1.0), repeat=len(holes)):
        full = [{t: list(v) for t, v in side.items()} for side in (base, candidate)]
        for (side, t, i), value in zip(holes, filling, strict=True):
            full[side is candidate][t][i] = value
        seen.append(paired("x", full[0], full[1], clusters).difference)
    assert (found.lost_low, found.lost_high) == pytest.approx((min(seen), max(seen)))


def session(task: str, reward: Reward, *errors: CallError | None) -> Trajectory:
    turns = tuple(Turn(0, 1, (0.0,), "", 0, None, error, "") for error in errors)
    return Trajectory(task, task, "c", "k", "h", 0, 0, (1,), turns, "finished", reward)


def test_sessions_become_values_by_task_and_lost_ones_are_no_zero() -> None:
    sessions = [
        session("a", scored(1, solved=1), None, "unknown_tool"),
        session("a", scored(0.5, solved=0), None),
        session("a", missing("disk"), "unknown_tool"),
        session("b", missing("disk")),
    ]
    assert with_lost(sessions, "solved") == {"a": [1.0, 0.0, None], "b": [None]}
    assert by_task(sessions, "solved") == {"a": [1.0, 0.0]}
    assert by_task(sessions, "unknown_tool") == {"a": [1.0, 0.0]}


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_success(n: int, data: st.DataObject) -> None:
    successes, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(itertools.combinations([1] * successes + [0] * (n - successes), k))
    assert pass_at_k(successes, n, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    with pytest.raises(ValueError, match="rollouts"):
        pass_at_k(successes, n, n + 1)


@settings(deadline=None)  # a busy machine is no failure
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


def test_lost_sessions_keep_the_gate_shut() -> None:
    good = estimate("f", -0.8, 0.1), estimate("s", 0.1, 0.05)

    def decide(failure: Estimate, solve: Estimate) -> tuple[str, str]:
        verdict = gate("unknown_tool", failure, solve, base="a", candidate="b")
        return verdict.decision, verdict.sentence

    decision, sentence = decide(*(replace(e, missing=6) for e in good))
    assert decision == "promote" and "60 sessions, 6 more lost" in sentence
    decision, sentence = decide(*(replace(e, missing=7) for e in good))
    assert decision == "not_enough_data" and "more than 10%" in sentence
    for failure, solve in (
        (replace(good[0], missing=3, lost_high=0.0), good[1]),
        (good[0], replace(good[1], missing=3, lost_low=-0.03)),
    ):
        decision, sentence = decide(failure, solve)
        assert decision == "not_enough_data" and "lost sessions could undo it" in sentence
    assert decide(good[0], replace(good[1], missing=3, lost_low=0.0))[0] == "promote"


@pytest.mark.parametrize("clusters", [6, 10, 20])
def test_intervals_cover_rare_successes_in_few_clusters_of_unequal_size(clusters: int) -> None:
    """0 → 10 % where some modules are easy and most hopeless; 1,200 draws, so 93 % is three standard errors below."""
    rng = np.random.default_rng(clusters)
    hits = 0
    for _ in range(1200):
        sizes = rng.choice([1, 1, 2, 2, 3, 4, 6, 10], clusters)
        rates = rng.beta(0.1 * 7 / 3, 0.9 * 7 / 3, clusters)
        x = [float(rng.binomial(3, r)) / 3 for r, n in zip(rates, sizes, strict=True) for _ in range(n)]
        found = clustered_mean(x, [str(i) for i, n in enumerate(sizes) for _ in range(n)])
        hits += found.low <= 0.1 <= found.high
    assert hits / 1200 > 0.93
