"""Honest numbers: paired differences on the same tasks, clustered by the module that a task was cut from.

Standard errors are cluster-robust (Miller, arXiv 2411.00640; small-sample factor G/(G−1)) with a t quantile on G − 1
degrees of freedom, since tasks of one module share code, tests and difficulty. Rollouts of a task are averaged first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from twoloop.records import Estimate, Trajectory

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    mean: float
    low: float
    high: float
    n: int
    clusters: int


def clustered_mean(
    values: Sequence[float], clusters: Sequence[str], bounds: tuple[float, float] = (-1.0, 1.0)
) -> Interval:
    """Mean of values with its 95 % interval, clipped to `bounds`.

    Values that are all the same give no variance to estimate from; the interval is then as wide as the rule of three
    makes it for G independent clusters, 1 − 0.05^(1/G), so that a clean sweep never claims certainty. One cluster says
    nothing about others: its interval is the whole range. Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no values")
    x, names = np.asarray(values, float), sorted(set(clusters))
    mean, groups = float(x.mean()), len(names)
    if groups < 2:
        return Interval(mean, *bounds, len(x), groups)
    residual = x - mean
    label = np.asarray(clusters)
    sums = np.array([residual[label == name].sum() for name in names])
    error = float(np.sqrt(groups / (groups - 1) * (sums**2).sum()) / len(x))
    half = float(stats.t.ppf((1 + LEVEL) / 2, groups - 1)) * error
    if np.ptp(x) == 0.0:
        half = 1.0 - (1.0 - LEVEL) ** (1.0 / groups)
    return Interval(mean, max(bounds[0], mean - half), min(bounds[1], mean + half), len(x), groups)


def paired(
    name: str,
    base: Mapping[str, Sequence[float]],
    candidate: Mapping[str, Sequence[float]],
    cluster_of: Mapping[str, str],
    missing: int = 0,
) -> Estimate:
    """candidate − base over the tasks that both have; each maps a task id to one value per rollout, in [0, 1].

    Raises ValueError when they have no task in common."""
    tasks = sorted(t for t in base if base[t] and candidate.get(t))
    if not tasks:
        raise ValueError(f"{name}: the two sides have no task in common")
    before = [float(np.mean(base[t])) for t in tasks]
    after = [float(np.mean(candidate[t])) for t in tasks]
    interval = clustered_mean([b - a for a, b in zip(before, after, strict=True)], [cluster_of[t] for t in tasks])
    return Estimate(
        name=name,
        base=float(np.mean(before)),
        candidate=float(np.mean(after)),
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        tasks=len(tasks),
        clusters=interval.clusters,
        rollouts=sum(len(base[t]) + len(candidate[t]) for t in tasks),
        missing=missing,
    )


def by_task(sessions: Sequence[Trajectory], measure: str) -> dict[str, list[float]]:
    """Values of the scored sessions by task: "solved", or a call error that at least one turn made.

    Sessions that the infrastructure lost are left out, and counted by the caller."""
    found: dict[str, list[float]] = {}
    for session in sessions:
        if session.reward.status == "missing":
            continue
        value = session.reward.solved if measure == "solved" else any(t.error == measure for t in session.turns)
        found.setdefault(session.task_id, []).append(float(value))
    return found


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
