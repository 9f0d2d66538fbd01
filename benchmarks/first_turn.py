"""Does the hint do it? Four arms on three seeds: RL only, RL + right hint, RL + irrelevant hint, hints only.

    python benchmarks/first_turn.py [--work DIR] [--seeds 3] [--steps 10]

Every arm climbs from the seed checkpoint on the same training tasks, draws rollouts with the same seeds, and is
measured on the same held-out tasks without any hint or list in the prompt. What is done is kept in DIR (default
.twoloop/first_turn) and not done again, so the run can be stopped and started. The page reports what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from results import Claim, write

from twoloop.config import load as load_settings
from twoloop.evals import by_task, paired
from twoloop.loop.engine import Engine, Rollouts
from twoloop.records import Checkpoint, Estimate, Task, Trajectory
from twoloop.tasks import build, load
from twoloop.train.rl import Arm, Climb, ClimbConfig, sync
from twoloop.train.seed import seed_checkpoint

ARMS: tuple[Arm, ...] = ("rl", "hint", "irrelevant", "hint_only")
NAMES = {"rl": "RL only", "hint": "RL + right hint", "irrelevant": "RL + irrelevant hint", "hint_only": "hints only"}
KIND, HELDOUT, ROLLOUTS, MEASURE_SEED = "unknown_tool", 32, 2, 4242


class Bench:
    """The engine, the tasks and the folder of finished pieces."""

    def __init__(self, work: Path, steps: int) -> None:
        self.work, self.steps = work, steps
        work.mkdir(parents=True, exist_ok=True)
        self.settings = load_settings(overrides={"train.steps": str(steps)})
        self.engine = Engine(self.settings, lambda *_: None)
        tasks_folder = work / "tasks"
        build(self.settings.tasks.sources, tasks_folder, cache=self.engine.cache, progress=_say)
        tasks = load(tasks_folder)
        self.train = [t for t in tasks if t.split == "train"]
        heldout = [t for t in tasks if t.split == "heldout" and len(t.units) == 1]
        self.heldout = random.Random(0).sample(heldout, HELDOUT)
        self.base = seed_checkpoint(self.settings.model.name, self.engine.folder, work / "checkpoints")

    def once(self, name: str, make: Any) -> Any:
        """A finished piece, from disk when it is there."""
        path = self.work / f"{name}.json"
        if not path.is_file():
            path.with_suffix(".part").write_text(json.dumps(make()))
            os.replace(path.with_suffix(".part"), path)
        return json.loads(path.read_text())

    def measure(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Held-out sessions of a checkpoint, batch by batch."""
        wanted = [t for t in self.heldout for _ in range(ROLLOUTS)]
        size = self.settings.runtime.batch
        sessions: list[Trajectory] = []
        for i in range(0, len(wanted), size):
            batch = Rollouts(wanted[i : i + size], f"measure.{i}", MEASURE_SEED + i, self.engine.harness)
            sessions += self.engine.run(batch, checkpoint)
        return {
            "failure": by_task(sessions, KIND),
            "solved": by_task(sessions, "solved"),
            "length": statistics.mean(s.sampled for s in sessions),
            "nats": -statistics.mean(lp for s in sessions for t in s.turns for lp in t.logprobs),
            "missing": sum(s.reward.status == "missing" for s in sessions),
        }

    def arm(self, arm: Arm, seed: int) -> dict[str, Any]:
        """Climb, then measure."""
        trainer = self.engine.trainer(self.base)
        self.engine.serve_nothing()
        config = ClimbConfig(
            KIND,
            arm=arm,
            steps=self.steps,
            groups=self.settings.train.groups,
            group_size=self.settings.train.group_size,
            learning_rate=self.settings.train.learning_rate,
            hint_weight=self.settings.train.hint_weight,
            hint_final=self.settings.train.hint_weight,
            workers=self.engine.cores,
            seed=seed,
        )
        climb = Climb(
            trainer,
            self.engine.sampler,
            self.engine.renderer,
            self.engine.harness,
            self.train,
            self.engine.open,
            self.engine.grade,
            config,
        )
        curve = []
        for i in range(self.steps):
            curve.append(asdict(climb.step(i)))
            print(f"{arm} seed {seed} step {i + 1}/{self.steps}: {curve[-1]['failure_rate']:.2f}", flush=True)
        sync(trainer, self.engine.sampler)
        name = f"{arm}-{seed}"
        candidate = trainer.publish(
            name, self.work / "checkpoints", base=Path(self.base.base), parent="seed", recipe="", data=""
        )
        return {"curve": curve, **self.measure(candidate)}


def _say(what: str, done: int, of: int) -> None:
    print(what, done, of, flush=True)


def estimate(before: dict[str, Any], runs: Sequence[dict[str, Any]], measure: str, tasks: Sequence[Task]) -> Estimate:
    """All seeds of an arm against the base, paired by task."""
    clusters = {t.id: t.cluster for t in tasks}
    after: dict[str, list[float]] = {}
    for run in runs:
        for task, values in run[measure].items():
            after.setdefault(task, []).extend(values)
    return paired(measure, before[measure], after, clusters, sum(r["missing"] for r in runs))


def report(bench: Bench, before: dict[str, Any], runs: dict[str, list[dict[str, Any]]]) -> None:
    rows, found = [], {}
    for arm, done in runs.items():
        if not done:
            continue
        failure = estimate(before, done, "failure", bench.heldout)
        solved = estimate(before, done, "solved", bench.heldout)
        found[arm] = (failure, solved)
        entropy = [s["entropy"] for r in done for s in r["curve"][-2:] if s["learned"]]
        by_seed = ", ".join(f"{statistics.mean(v[0] for v in run['failure'].values()):.0%}" for run in done)
        rows.append(
            f"| {NAMES[arm]} | {len(done)} | {failure.candidate:.1%} ({failure.low:+.1%} to {failure.high:+.1%}) "
            f"| {solved.candidate:.1%} ({solved.low:+.1%} to {solved.high:+.1%}) "
            f"| {statistics.mean(r['length'] for r in done):.0f} "
            f"| {f'{statistics.mean(entropy):.2f}' if entropy else 'no step taken'} | {by_seed} |"
        )
    claims = []
    if {"hint", "rl", "irrelevant"} <= found.keys():
        hint = found["hint"][0]
        for other in ("rl", "irrelevant"):
            gap = found[other][0].candidate - hint.candidate
            holds = hint.high < found[other][0].low
            claims.append(
                Claim(
                    f"right_hint_beats_{other}",
                    f"held-out failure rate: {NAMES[other]} − RL + right hint",
                    "intervals apart",
                    gap,
                    "share",
                    hint.rollouts,
                    holds,
                )
            )
    base_failure = statistics.mean(v for values in before["failure"].values() for v in values)
    base_solved = statistics.mean(v for values in before["solved"].values() for v in values)
    modules = len({t.cluster for t in bench.heldout})
    train = bench.settings.train
    body = f"""
{HELDOUT} held-out tasks of {modules} modules, {ROLLOUTS} sessions each, no hint and no list of tools in the prompt.
{bench.steps} steps of {train.groups} tasks × {train.group_size} sessions. Intervals are 95 %, of the paired difference
from the seed checkpoint, clustered by module. Entropy is of the policy on trained positions, in nats, over the last
two steps.

Seed checkpoint: failure {base_failure:.1%}, solved {base_solved:.1%}, {before["length"]:.0f} sampled tokens a session.

| arm | seeds | failure rate (change) | solve rate (change) | tokens a session | entropy | failure by seed |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""
    figures = {arm: {"failure": asdict(f), "solved": asdict(s)} for arm, (f, s) in found.items()}
    write("first_turn", "Four arms of the first turn", claims, body, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(".twoloop/first_turn"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    bench = Bench(options.work.absolute(), options.steps)
    before = bench.once("base", lambda: bench.measure(bench.base))
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
    for seed in range(options.seeds):
        for arm in ARMS:
            runs[arm].append(bench.once(f"{arm}-{seed}", lambda a=arm, s=seed: bench.arm(a, s)))
            report(bench, before, runs)


if __name__ == "__main__":
    main()
