"""Do the gate's 95 % intervals cover? Few modules of unequal size, rare successes, several methods side by side.

    python benchmarks/paired_coverage.py

A module has a size and a solve rate on each side; a task draws ROLLOUTS on each side. An interval covers when it holds
the difference of the two mean rates. The bootstraps are dear, so they get the first BOOTSTRAPPED draws only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from results import Claim, write
from scipy import stats

from twoloop.evals import clustered_mean

Numbers: TypeAlias = NDArray[np.float64]
Method: TypeAlias = Callable[[Numbers, Numbers], tuple[float, float]]  # sizes, sums of the clusters -> interval

DRAWS, BOOTSTRAPPED, RESAMPLES, ROLLOUTS = 3000, 300, 399, 3
CLUSTERS = (6, 8, 10, 14, 20)
UNEQUAL, EQUAL, LARGE = np.array([1, 1, 2, 2, 3, 4, 6, 10]), np.array([3]), np.array([8])
TARGET = 0.94


@dataclass(frozen=True)
class Setting:
    """`alike` is the correlation of tasks within a module; `same` keeps a module's difficulty on both sides."""

    name: str
    base: float
    candidate: float
    alike: float
    same: bool
    sizes: NDArray[np.int64]
    rare: bool


SETTINGS = (
    Setting("0 → 10 %, modules alike", 0.0, 0.1, 0.1, False, UNEQUAL, True),
    Setting("0 → 10 %, modules differ", 0.0, 0.1, 0.3, False, UNEQUAL, True),
    Setting("0 → 10 %, modules all or nothing", 0.0, 0.1, 0.6, False, UNEQUAL, True),
    Setting("0 → 10 %, modules of one size", 0.0, 0.1, 0.3, False, EQUAL, True),
    Setting("0 → 10 %, large modules", 0.0, 0.1, 0.3, False, LARGE, True),
    Setting("0 → 5 %", 0.0, 0.05, 0.2, False, UNEQUAL, True),
    Setting("100 → 8 %", 1.0, 0.08, 0.2, False, UNEQUAL, True),
    Setting("10 → 10 %", 0.1, 0.1, 0.2, True, UNEQUAL, False),
    Setting("20 → 30 %", 0.2, 0.3, 0.2, True, UNEQUAL, False),
    Setting("50 → 70 %", 0.5, 0.7, 0.2, True, UNEQUAL, False),
)


def draw(setting: Setting, clusters: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """One data set, as the size and the sum of differences of each module."""
    sizes = rng.choice(setting.sizes, clusters)
    u, v = rng.random(clusters), rng.random(clusters)
    before = _rates(setting.base, setting.alike, u)
    after = _rates(setting.candidate, setting.alike, u if setting.same else v)
    trials = sizes * ROLLOUTS
    return sizes.astype(float), (rng.binomial(trials, after) - rng.binomial(trials, before)) / ROLLOUTS


def _rates(mean: float, alike: float, quantile: Numbers) -> Numbers:
    if mean in (0.0, 1.0):
        return np.full(len(quantile), mean)
    spread = 1.0 / alike - 1.0
    rates: Numbers = stats.beta.ppf(quantile, mean * spread, (1.0 - mean) * spread)
    return rates


def ours(sizes: Numbers, sums: Numbers) -> tuple[float, float]:
    """`clustered_mean`, which sees the clusters only through their sizes and sums."""
    names = [str(i) for i, n in enumerate(sizes) for _ in range(int(n))]
    found = clustered_mean([s / n for n, s in zip(sizes, sums, strict=True) for _ in range(int(n))], names)
    return found.low, found.high


def _parts(sizes: Numbers, sums: Numbers) -> tuple[float, Numbers, Numbers]:
    """Mean, residual sum of each cluster, each cluster's share."""
    mean = sums.sum() / sizes.sum()
    return mean, sums - sizes * mean, sizes / sizes.sum()


def cr1(sizes: Numbers, sums: Numbers) -> tuple[float, float]:
    """CR1 with t on G − 1 degrees."""
    mean, residual, _ = _parts(sizes, sums)
    groups = len(sizes)
    half = stats.t.ppf(0.975, groups - 1) * math.sqrt(groups / (groups - 1) * (residual**2).sum()) / sizes.sum()
    return mean - half, mean + half


def cr2(sizes: Numbers, sums: Numbers) -> tuple[float, float]:
    """CR2 with Bell and McCaffrey's degrees."""
    mean, residual, share = _parts(sizes, sums)
    root = np.sqrt(1.0 - share)
    b = np.eye(len(sizes)) * share / root**2 - np.outer(share / root, share / root)
    half = stats.t.ppf(0.975, np.trace(b) ** 2 / (b**2).sum()) * math.sqrt(((residual / root) ** 2).sum()) / sizes.sum()
    return mean - half, mean + half


def percentile(sizes: Numbers, sums: Numbers) -> tuple[float, float]:
    """Percentiles of a bootstrap over clusters."""
    _, means, _ = _resampled(sizes, sums)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def bootstrap_t(sizes: Numbers, sums: Numbers) -> tuple[float, float]:
    """Studentised bootstrap over clusters; resamples without variance are left out."""
    (mean, error), means, errors = _resampled(sizes, sums)
    usable = errors > 1e-12
    if not usable.any():
        return mean, mean
    low, high = np.quantile((means[usable] - mean) / errors[usable], (0.025, 0.975))
    return mean - float(high) * error, mean - float(low) * error


def _resampled(sizes: Numbers, sums: Numbers) -> tuple[tuple[float, float], Numbers, Numbers]:
    chosen = np.random.default_rng(0).integers(0, len(sizes), (RESAMPLES + 1, len(sizes)))
    chosen[0] = np.arange(len(sizes))
    n, s = sizes[chosen], sums[chosen]  # (B + 1, G)
    means = s.sum(1) / n.sum(1)
    errors = np.sqrt(((s - n * means[:, None]) ** 2).sum(1)) / n.sum(1)
    return (float(means[0]), float(errors[0])), means[1:], errors[1:]


METHODS: dict[str, Method] = {
    "ours": ours,
    "CR2, Bell–McCaffrey t": cr2,
    "CR1, t(G − 1)": cr1,
    "bootstrap-t": bootstrap_t,
    "percentile bootstrap": percentile,
}


def measure(setting: Setting, clusters: int) -> dict[str, dict[str, float]]:
    """Coverage, mean width and the chance that zero is excluded, by method."""
    rng = np.random.default_rng(clusters)
    data = [draw(setting, clusters, rng) for _ in range(DRAWS)]
    truth = setting.candidate - setting.base
    found: dict[str, dict[str, float]] = {}
    for name, method in METHODS.items():
        used = data[:BOOTSTRAPPED] if "bootstrap" in name else data
        ends = np.clip([method(*one) for one in used], -1.0, 1.0)
        low, high = ends[:, 0] - 1e-12, ends[:, 1] + 1e-12
        found[name] = {
            "coverage": float(((low <= truth) & (truth <= high)).mean()),
            "width": float((high - low).mean()),
            "excludes_zero": float(((low > 0) | (high < 0)).mean()),
        }
    return found


def main() -> None:
    began = time.monotonic()
    figures: dict[str, Any] = {s.name: {str(g): measure(s, g) for g in CLUSTERS} for s in SETTINGS}

    def least(method: str, rare: Sequence[bool]) -> float:
        return min(figures[s.name][str(g)][method]["coverage"] for s in SETTINGS if s.rare in rare for g in CLUSTERS)

    def width(method: str) -> float:
        common = [figures[s.name][str(g)][method]["width"] for s in SETTINGS if not s.rare for g in CLUSTERS]
        return float(np.mean(common))

    widening = width("ours") / width("CR2, Bell–McCaffrey t")
    cells = len(SETTINGS) * len(CLUSTERS) * DRAWS
    lowest = least("ours", (True, False))
    claims = [
        Claim(
            "paired_coverage", "Least coverage over all settings", f"≥ {TARGET}", lowest, "", cells, lowest >= TARGET
        ),
        Claim(
            "paired_width",
            "Mean width over CR2's where successes are not rare",
            "≤ 1.15",
            widening,
            "×",
            cells,
            widening <= 1.15,
        ),
    ]
    summary = "\n".join(
        f"| {m} | {least(m, (True,)):.1%} | {least(m, (False,)):.1%} | {width(m):.3f} |" for m in METHODS
    )
    write("paired_coverage", "Coverage of the paired, clustered intervals", claims, _body(summary, figures), figures)
    print(f"{time.monotonic() - began:.0f} s")


def _body(summary: str, figures: dict[str, Any]) -> str:
    head = " | ".join(METHODS)
    rows = "\n".join(
        f"| {setting} | {clusters} | "
        + " | ".join(f"{found[m]['coverage']:.1%} ({found[m]['width']:.2f})" for m in METHODS)
        + f" | {found['ours']['excludes_zero']:.0%} |"
        for setting, by_clusters in figures.items()
        for clusters, found in by_clusters.items()
    )
    return f"""
A module has {", ".join(map(str, UNEQUAL))} tasks with equal chance ({EQUAL[0]} in the setting of one size, {LARGE[0]}
in that of large ones), a task {ROLLOUTS} rollouts a side. {DRAWS} draws a cell, {BOOTSTRAPPED} for the bootstraps; the
standard error of a coverage of 95 % is {math.sqrt(0.95 * 0.05 / DRAWS):.1%} and
{math.sqrt(0.95 * 0.05 / BOOTSTRAPPED):.1%}. How fast our floor fades (`FADE`) was chosen on draws of these kinds with
other seeds.

| method | least coverage, rare | least coverage, others | mean width, others |
|---|---|---|---|
{summary}

Coverage (mean width) by setting and number of modules; the last column is how often our interval excludes zero.

| setting | modules | {head} | excludes zero |
|---|---|{"---|" * len(METHODS)}---|
{rows}

What this says: where successes are rare the usual intervals, bootstraps among them, miss far more often than one time
in twenty, since a small sample of modules has mostly not met the ones that differ. Ours holds about its level in every
cell, is conservative in most of the rare ones, and little wider elsewhere. What it does not say: with six or eight
modules a rise from 0 to 10 % can seldom be told from nothing by any honest interval (last column).
"""


if __name__ == "__main__":
    main()
