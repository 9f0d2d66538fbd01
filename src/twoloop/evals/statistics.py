"""Honest numbers: paired differences on the same tasks, clustered by the module that a task was cut from.

Tasks of one module share code, tests and difficulty, so a module counts as one draw (Miller, arXiv 2411.00640). With
few modules of unequal size and rare successes the usual intervals are too narrow; `clustered_mean` says what is done
about it, and `benchmarks/paired_coverage.py` measures it against the alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from twoloop.records import Estimate, Trajectory

LEVEL = 0.95
FADE = 2  # power of the agreement with which the rule of three fades; 3 was seen to cover too little
TIE = 9  # decimals to which the means of two clusters must agree to count as the same

Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean of `n` values in `clusters` clusters with its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int
    clusters: int


def clustered_mean(
    values: Sequence[float], clusters: Sequence[str], bounds: tuple[float, float] = (-1.0, 1.0)
) -> Interval:
    """Mean of values with its 95 % interval, clipped to `bounds`; a share is a mean with bounds (0, 1).

    The variance is cluster-robust with the CR2 correction, the t quantile has Bell and McCaffrey's degrees of freedom
    (Pustejovsky and Tipton 2018, arXiv 1601.01981). Clusters that all agree give no variance, and a clean sweep must
    not claim certainty: then the interval reaches as far as the rule of three for G clusters, 1 − 0.05^(1/G). Where
    many but not all agree, as with rare successes, the variance rests on the few that do not and is too small; so the
    interval never reaches less far than that bound times q², where q is the share of the other clusters that a cluster
    with the commonest mean agrees with. When all differ, q is 0 and this is the textbook interval.

    One cluster says nothing about others: its interval is the whole range. Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no values")
    x = np.asarray(values, float)
    sizes, sums = _by_cluster(x, clusters)
    mean, groups = float(x.mean()), len(sizes)
    if groups < 2:
        return Interval(mean, *bounds, len(x), groups)
    _, agreeing = np.unique(np.round(sums / sizes, TIE), return_counts=True)
    agreement = (agreeing.max() - 1) / (groups - 1)
    half = max(_cr2_reach(sizes, sums), float(agreement**FADE * (1.0 - (1.0 - LEVEL) ** (1.0 / groups))))
    return Interval(mean, max(bounds[0], mean - half), min(bounds[1], mean + half), len(x), groups)


def _by_cluster(x: Numbers, clusters: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Size and sum of each cluster. # (G,), (G,)"""
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    return np.bincount(index).astype(float), np.bincount(index, x).astype(float)


def _cr2_reach(sizes: Numbers, sums: Numbers) -> float:
    """Half the width of the CR2 interval of a mean."""
    share = sizes / sizes.sum()
    residual = sums - sizes * (sums.sum() / sizes.sum())
    error = math.sqrt(float((residual**2 / (1.0 - share)).sum())) / float(sizes.sum())
    return float(stats.t.ppf((1.0 + LEVEL) / 2.0, _degrees(share))) * error


def _degrees(share: Numbers) -> float:
    """Bell and McCaffrey's degrees of freedom of the CR2 variance of a mean; `share` is each cluster's part of n.

    (trace B)² / trace(B²) with B_gh = a_g a_h (share_g [g = h] − share_g share_h) and a_g = (1 − share_g)^−½.
    For G clusters of one size this is G − 1.
    """
    a = 1.0 / np.sqrt(1.0 - share)
    b = np.diag(a * a * share) - np.outer(a * share, a * share)
    return float(np.trace(b) ** 2 / (b * b).sum())


def paired(
    name: str,
    base: Mapping[str, Sequence[float | None]],
    candidate: Mapping[str, Sequence[float | None]],
    cluster_of: Mapping[str, str],
    missing: int = 0,
) -> Estimate:
    """candidate − base over the tasks that both have; each maps a task id to one value per rollout, in [0, 1].

    None is a rollout that the infrastructure lost. It has no part in the estimate; `lost_low` and `lost_high` say what
    the difference could have been had every lost rollout been the worst or the best. `missing` counts further lost
    rollouts that stand in neither mapping. Raises ValueError when the two sides have no task in common."""
    there = {t: (_known(base[t]), _known(candidate[t])) for t in sorted(base.keys() & candidate.keys())}
    tasks = [t for t, (b, c) in there.items() if b and c]
    if not tasks:
        raise ValueError(f"{name}: the two sides have no task in common")
    before = [float(np.mean(there[t][0])) for t in tasks]
    after = [float(np.mean(there[t][1])) for t in tasks]
    interval = clustered_mean([b - a for a, b in zip(before, after, strict=True)], [cluster_of[t] for t in tasks])
    lost = sum(v is None for side in (base, candidate) for values in side.values() for v in values)
    low, high = _either_way(base, candidate) if lost else (None, None)
    return Estimate(
        name=name,
        base=float(np.mean(before)),
        candidate=float(np.mean(after)),
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        tasks=len(tasks),
        clusters=interval.clusters,
        rollouts=sum(len(there[t][0]) + len(there[t][1]) for t in tasks),
        missing=missing + lost,
        lost_low=low,
        lost_high=high,
    )


def _known(values: Sequence[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _either_way(
    base: Mapping[str, Sequence[float | None]], candidate: Mapping[str, Sequence[float | None]]
) -> tuple[float, float]:
    """The least and the greatest mean difference over all values that the lost rollouts could have had."""

    def mean(values: Sequence[float | None], lost: float) -> float:
        return sum(lost if v is None else v for v in values) / len(values)

    tasks = [t for t in sorted(base.keys() & candidate.keys()) if base[t] and candidate[t]]
    low = [mean(candidate[t], 0.0) - mean(base[t], 1.0) for t in tasks]
    high = [mean(candidate[t], 1.0) - mean(base[t], 0.0) for t in tasks]
    return float(np.mean(low)), float(np.mean(high))


def with_lost(sessions: Sequence[Trajectory], measure: str) -> dict[str, list[float | None]]:
    """Values of sessions by task: "solved", or a call error that at least one turn made; None where the
    infrastructure lost the session."""
    found: dict[str, list[float | None]] = {}
    for session in sessions:
        value = session.reward.solved if measure == "solved" else any(t.error == measure for t in session.turns)
        lost = session.reward.status == "missing"
        found.setdefault(session.task_id, []).append(None if lost else float(value))
    return found


def by_task(sessions: Sequence[Trajectory], measure: str) -> dict[str, list[float]]:
    """The same without the lost sessions; a task that has no others is left out."""
    known = {task: _known(values) for task, values in with_lost(sessions, measure).items()}
    return {task: values for task, values in known.items() if values}


def pass_at_k(successes: int, n: int, k: int) -> float:
    """Chance that at least one of k rollouts succeeds, unbiased from n ≥ k rollouts of one task: 1 − C(n−c, k)/C(n, k)
    (Chen et al. 2021, arXiv 2107.03374). Raises ValueError when k > n."""
    if not 0 <= successes <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} rollouts; there are {n}, {successes} of them successes")
    return 1.0 - math.comb(n - successes, k) / math.comb(n, k)


@dataclass(frozen=True)
class SolveRate:
    """Posterior of a task's solve rate under a uniform prior: Beta(1 + successes, 1 + failures)."""

    successes: int
    n: int

    @property
    def mean(self) -> float:
        return (1 + self.successes) / (2 + self.n)

    def interval(self) -> tuple[float, float]:
        posterior = stats.beta(1 + self.successes, 1 + self.n - self.successes)
        return float(posterior.ppf((1 - LEVEL) / 2)), float(posterior.ppf((1 + LEVEL) / 2))
