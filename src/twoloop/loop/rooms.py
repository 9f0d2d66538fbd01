"""The turn's steps, each in terms of one room. Results are plain data; sessions and reports go to the record.

A step that is run again after a kill names its sessions as before, so the record holds each of them once.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from scipy import stats

from twoloop import evals
from twoloop.areas import rank
from twoloop.areas.rank import MIN_SESSIONS
from twoloop.errors import TaskError
from twoloop.feedback import detect
from twoloop.loop.engine import Engine, Progress, Rollouts
from twoloop.loop.plain import to_plain
from twoloop.loop.workspace import Workspace
from twoloop.records import Area, Checkpoint, Task, Trajectory, Verdict
from twoloop.train.hints import TEMPLATES
from twoloop.train.rl import Climb, ClimbConfig
from twoloop.train.seed import seed_checkpoint

BAND = (0.1, 0.8)  # solve rates from which there is something to learn and to measure
PROBES = 2  # sessions on each task to find how hard it is


class Rooms:
    """All that the steps of one turn share."""

    def __init__(
        self, name: str, workspace: Workspace, engine: Engine, tasks: Sequence[Task], progress: Progress
    ) -> None:
        self.name, self.workspace, self.engine, self.progress = name, workspace, engine, progress
        self.store, self.folder = workspace.store, workspace.turns / name
        self.train = [t for t in tasks if t.split == "train"]
        self.heldout = [t for t in tasks if t.split == "heldout"]
        if not self.train or not self.heldout:
            raise TaskError(
                f"{len(self.train)} training and {len(self.heldout)} held-out tasks are too few for a turn",
                fix="Add sources with more than one tested module (tasks.sources).",
            )
        self._climb: Climb | None = None
        self._climbed = -1  # last step whose state is in the trainer

    # -- outer loop --------------------------------------------------------------------------------------------------

    def base(self) -> Any:
        model = self.engine.settings.model.name
        return to_plain(self.workspace.serving(seed_checkpoint(model, self.engine.folder, self.workspace.checkpoints)))

    def dogfood_batches(self) -> list[list[Task]]:
        """Training tasks, drawn anew each turn; never held-out ones, whose sessions would be looked at."""
        rng = random.Random(f"{self.engine.settings.runtime.seed}/{self.name}/dogfood")
        wanted = self.engine.settings.dogfood.sessions
        drawn: list[Task] = []
        while len(drawn) < wanted:
            drawn += rng.sample(self.train, min(len(self.train), wanted - len(drawn)))
        return self._cut(drawn)

    def dogfood(self, base: Checkpoint, i: int, tasks: list[Task]) -> Any:
        with self._shown("dogfooding", i, len(self.dogfood_batches())):
            return self._sessions("dogfood", i, base, tasks, report=True)

    def areas(self) -> Any:
        """Automatic reports of this turn's sessions and what people said of any session that is known."""
        sessions = self._scored("dogfood")
        events = self.store.events(sessions=[s.id for s in sessions])
        return to_plain(tuple(rank(events, {s.id: s.cluster for s in sessions})))

    def worth_a_climb(self, areas: Sequence[Area]) -> bool:
        """True when the first area is large enough and there is a hint for it."""
        return bool(areas) and areas[0].sessions >= MIN_SESSIONS and areas[0].kind in TEMPLATES

    def nothing_to_do(self, base: Checkpoint) -> Verdict:
        sentence = f"Not enough data: no area that can be trained touched {MIN_SESSIONS} sessions; {base.name} stays."
        return Verdict("not_enough_data", sentence, "", base.name, base.name)

    # -- inner loop --------------------------------------------------------------------------------------------------

    def probe_batches(self) -> list[list[Task]]:
        """Tasks of both splits whose difficulty is measured, with the tools listed in the prompt."""
        rng = random.Random(f"{self.engine.settings.runtime.seed}/{self.name}/probe")
        wanted = self.engine.settings.gate.tasks
        chosen = rng.sample(self.train, min(len(self.train), wanted))
        chosen += rng.sample(self.heldout, min(len(self.heldout), 2 * wanted))
        return self._cut([task for task in chosen for _ in range(PROBES)])

    def probe(self, base: Checkpoint, i: int, tasks: list[Task]) -> Any:
        """How hard the tasks are for the base checkpoint once the fault is out of the way."""
        with self._shown("finding tasks of the right difficulty", i, len(self.probe_batches())):
            return self._sessions("probe", i, base, tasks, listing=True)

    def prepare(self) -> Any:
        """Task ids to train on and to gate on: those whose solve rate most probably lies in the band."""
        rates: dict[str, evals.SolveRate] = {}
        for task, values in evals.by_task(self._all("probe"), "solved").items():
            rates[task] = evals.SolveRate(int(sum(values)), len(values))
        train = sorted((t for t in self.train if t.id in rates), key=lambda t: (-fit(rates[t.id]), t.id))
        gate = sorted((t for t in self.heldout if t.id in rates), key=lambda t: (-fit(rates[t.id]), t.id))
        settings = self.engine.settings
        return {
            "train": {t.id: round(fit(rates[t.id]), 4) for t in train},
            "gate": [t.id for t in gate[: settings.gate.tasks]],
            "solve": {task: [r.successes, r.n] for task, r in rates.items()},
        }

    def climb(self, base: Checkpoint, area: Area, weights: dict[str, float], i: int) -> Any:
        """One training step from the state that the step before has left on disk."""
        with self._shown("training", i, self.engine.settings.train.steps):
            return self._climb_step(base, area, weights, i)

    def _climb_step(self, base: Checkpoint, area: Area, weights: dict[str, float], i: int) -> Any:
        climb, trainer = self._climber(base, area, weights)
        if self._climbed != i - 1:
            trainer.load_state(self._state(i - 1))
        sessions: list[Trajectory] = []
        stats_ = climb.step(i, sessions.append)
        self.store.add_trajectories(sessions, f"{self.name}/climb")
        trainer.save_state(self._state(i))
        if i >= 2:
            shutil.rmtree(self._state(i - 2), ignore_errors=True)
        self._climbed = i
        self._remember(i, to_plain(stats_))
        return to_plain(stats_)

    def _remember(self, i: int, step: Any) -> None:
        """Keep a step's figures beside the turn for the report; a step that runs again overwrites its own."""
        folder = self.folder / "climb"
        folder.mkdir(exist_ok=True)
        (folder / f"{i:04d}.part").write_text(json.dumps(step))
        os.replace(folder / f"{i:04d}.part", folder / f"{i:04d}.json")

    def recorded_climb(self) -> list[dict[str, Any]]:
        """Figures of every training step so far."""
        return [json.loads(path.read_text()) for path in sorted((self.folder / "climb").glob("*.json"))]

    def _climber(self, base: Checkpoint, area: Area, weights: dict[str, float]) -> tuple[Climb, Any]:
        if self._climb is None:
            self.engine.serve_nothing()
            trainer = self.engine.trainer(base)
            if not self._state(-1).is_dir():
                trainer.save_state(self._state(-1))
            self._climb = Climb(
                trainer,
                self.engine.sampler,
                self.engine.renderer,
                self.engine.harness,
                [t for t in self.train if t.id in weights],
                self.engine.open,
                self.engine.grade,
                self._config(area),
                lambda task: weights[task.id],
            )
            self._climbed = -1
        return self._climb, self._climb.trainer

    def _config(self, area: Area) -> ClimbConfig:
        train = self.engine.settings.train
        return ClimbConfig(
            kind=area.kind,
            arm=train.arm,  # type: ignore[arg-type]
            steps=train.steps,
            groups=train.groups,
            group_size=train.group_size,
            learning_rate=train.learning_rate,
            hint_weight=train.hint_weight,
            hint_final=train.hint_weight,
            workers=self.engine.cores,
            seed=self.engine.settings.runtime.seed,
            label=f"{self.name}.climb",
        )

    def publish(self, base: Checkpoint) -> Any:
        """Freeze the last state under the turn's name."""
        trainer = self._climb.trainer if self._climb else self.engine.trainer(base)
        last = self.engine.settings.train.steps - 1
        if self._climbed != last:
            trainer.load_state(self._state(last))
        recipe = _digest(self.engine.settings.as_dict())
        data = _digest(sorted(s.id for s in self._all("climb")))
        candidate = trainer.publish(
            f"{self.name}-candidate",
            self.workspace.checkpoints,
            base=Path(base.base),
            parent=base.name,
            recipe=recipe,
            data=data,
        )
        self.store.add_checkpoint(candidate)
        return to_plain(candidate)

    # -- the gate ----------------------------------------------------------------------------------------------------

    def gate_batches(self, chosen: list[str]) -> list[list[Task]]:
        tasks = {t.id: t for t in self.heldout}
        return self._cut([tasks[name] for name in chosen for _ in range(self.engine.settings.gate.rollouts)])

    def gate(self, checkpoint: Checkpoint, side: str, i: int, of: int, tasks: list[Task]) -> Any:
        """Held-out sessions, no hint and no list in the prompt; both sides draw with the same seeds."""
        with self._shown(f"measuring the {side} on held-out tasks", i, of):
            return self._sessions(f"gate/{side}", i, checkpoint, tasks)

    def verdict(self, base: Checkpoint, candidate: Checkpoint, area: Area) -> Verdict:
        before, after = self._all("gate/base"), self._all("gate/candidate")
        clusters = {t.id: t.cluster for t in self.heldout}
        lost = sum(s.reward.status == "missing" for s in [*before, *after])

        def estimate(name: str, measure: str) -> Any:
            return evals.paired(name, evals.by_task(before, measure), evals.by_task(after, measure), clusters, lost)

        return evals.gate(
            area.kind,
            estimate(f"{area.kind} rate", area.kind),
            estimate("solve rate", "solved"),
            base=base.name,
            candidate=candidate.name,
            margin=self.engine.settings.gate.margin,
        )

    def conclude(self, verdict: Verdict) -> None:
        """Mark the turn as ended."""
        shutil.rmtree(self.folder / "states", ignore_errors=True)
        aside = self.folder / ".outcome.json"
        aside.write_text(json.dumps(to_plain(verdict)))
        os.replace(aside, self.folder / "outcome.json")

    # -- sessions ----------------------------------------------------------------------------------------------------

    def _sessions(
        self,
        phase: str,
        i: int,
        checkpoint: Checkpoint,
        tasks: list[Task],
        *,
        listing: bool = False,
        report: bool = False,
    ) -> dict[str, Any]:
        batch = Rollouts(
            tasks,
            label=f"{self.name}.{phase.replace('/', '.')}.{i}",
            seed=self.engine.settings.runtime.seed * 1000 + i,
            harness=self.engine.harness.listing(listing),
        )
        sessions = self.engine.run(batch, checkpoint)
        self.store.add_trajectories(sessions, f"{self.name}/{phase}")
        if report:
            self.store.add_events([e for s in sessions for e in detect(s, batch.harness)])
        return {"sessions": len(sessions), "sampled_tokens": sum(s.sampled for s in sessions)}

    @contextmanager
    def _shown(self, what: str, done: int, of: int) -> Iterator[None]:
        """Tell how far a stage is, before and after one of its steps."""
        self.progress(what, done, of)
        yield
        self.progress(what, done + 1, of)

    def _all(self, phase: str) -> list[Trajectory]:
        return self.store.trajectories(f"{self.name}/{phase}")

    def _scored(self, phase: str) -> list[Trajectory]:
        return [s for s in self._all(phase) if s.reward.status != "missing"]

    def _cut(self, tasks: list[Task]) -> list[list[Task]]:
        size = self.engine.settings.runtime.batch
        return [tasks[i : i + size] for i in range(0, len(tasks), size)]

    def _state(self, i: int) -> Path:
        return self.folder / "states" / f"{i + 1:04d}"

    @cached_property
    def tier(self) -> str:
        sessions = self._all("dogfood")
        return sessions[0].tier if sessions else ""


def fit(rate: evals.SolveRate) -> float:
    """Posterior probability that a task's solve rate lies in the band."""
    posterior = stats.beta(1 + rate.successes, 1 + rate.n - rate.successes)
    return float(posterior.cdf(BAND[1]) - posterior.cdf(BAND[0]))


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(to_plain(document), sort_keys=True).encode()).hexdigest()
