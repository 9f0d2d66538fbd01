"""What a turn keeps in memory: one model to sample from, and one to train, loaded when they are first needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from twoloop.agent.products import product
from twoloop.agent.session import Run, rollout
from twoloop.agent.types import Environment, Harness
from twoloop.config import Settings
from twoloop.models.chat import ChatMLRenderer
from twoloop.models.checkpoints import load_checkpoint, read_adapter
from twoloop.models.fast import speed_up
from twoloop.models.hub import cache_root, load_model, load_tokenizer, pull
from twoloop.models.sampler import TorchSampler
from twoloop.records import Checkpoint, Reward, Task, Trajectory
from twoloop.tasks import grade, open_environment
from twoloop.train.trainer import LocalTrainer
from twoloop.train.weights import LoraWeights

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Rollouts:
    """A batch of sessions to run."""

    tasks: Sequence[Task]
    label: str
    seed: int
    harness: Harness


class Engine:
    """Loads lazily, so that resuming a turn near its end does not load what it no longer needs."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self.settings = settings
        self.cache = Path(settings.model.cache) if settings.model.cache else cache_root()
        self._progress = progress
        self._served: str | None = None
        self.cores = settings.runtime.threads or len(os.sched_getaffinity(0))
        torch.set_num_threads(self.cores)
        self.harness = product(settings.harness.name)

    @cached_property
    def folder(self) -> Path:
        return pull(self.settings.model.name, cache=self.cache, progress=self._progress)

    @cached_property
    def renderer(self) -> ChatMLRenderer:
        return ChatMLRenderer(load_tokenizer(self.folder))

    @cached_property
    def sampler(self) -> TorchSampler:
        model = speed_up(load_model(self.folder))
        return TorchSampler(model, batch=self.settings.runtime.batch, max_context=self.harness.max_context)

    def serve(self, checkpoint: Checkpoint) -> None:
        """Make the sampler serve this checkpoint."""
        if self._served == checkpoint.name:
            return
        source = load_checkpoint(checkpoint)
        with torch.no_grad():
            for mine, theirs in zip(self.sampler.model.parameters(), source.parameters(), strict=True):
                mine.copy_(theirs)
        self.sampler.serve(checkpoint.policy_version)
        self._served = checkpoint.name

    def serve_nothing(self) -> None:
        """Someone else (the climb) writes the sampler's weights from now on."""
        self._served = None

    def trainer(self, base: Checkpoint) -> LocalTrainer:
        """A trainer that starts from this checkpoint, which is its teacher too."""
        model = load_model(Path(base.base))
        rank = self.settings.train.lora_rank
        if base.adapter:
            state, scale = read_adapter(Path(base.adapter))
            rank = next(t.shape[0] for name, t in state.items() if name.endswith("lora_A"))
            weights = LoraWeights(model, rank, alpha=scale * rank)
            weights.load(state)
            weights.load(state, teacher=True)
        else:
            weights = LoraWeights(model, rank, seed=self.settings.runtime.seed)
        return LocalTrainer(weights)

    def open(self, task: Task) -> Environment:
        return open_environment(task, self.cache)

    def grade(self, task: Task, changed: Mapping[str, bytes | None]) -> Reward:
        return grade(task, changed, self.cache)

    def run(self, batch: Rollouts, checkpoint: Checkpoint) -> list[Trajectory]:
        """Sessions of a checkpoint, at the product's own temperature."""
        self.serve(checkpoint)
        run = Run(
            self.sampler,
            self.renderer,
            batch.harness,
            checkpoint=checkpoint.name,
            grade=self.grade,
            label=batch.label,
            seed=batch.seed,
            temperature=self.settings.dogfood.temperature,
            workers=self.cores,
        )
        return rollout(batch.tasks, self.open, run)
