"""The seed checkpoint: a short supervised start that teaches a base model the harness's format.

The adapter for the embedded model ships with the package; `twoloop train seed` makes it again from nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path

import torch

from twoloop.errors import TrainError
from twoloop.models.chat import ChatMLRenderer
from twoloop.models.checkpoints import hash_folder, read_adapter, write_adapter
from twoloop.models.hub import EMBEDDED, load_model, load_tokenizer
from twoloop.records import Checkpoint, Datum, now
from twoloop.train.scripts import Scripts, harvest
from twoloop.train.trainer import LocalTrainer
from twoloop.train.types import LossConfig
from twoloop.train.weights import LoraWeights

SEED = "seed"


@dataclass(frozen=True)
class SeedConfig:
    """Supervised fine-tuning on scripted sessions."""

    steps: int = 60
    rows: int = 12  # sessions a step
    learning_rate: float = 1e-3
    rank: int = 16
    max_tokens: int = 420  # longer sessions are left out
    seed: int = 1


def build_seed(
    folder: Path,
    out: Path,
    config: SeedConfig | None = None,
    progress: Callable[[int, int, float], None] = lambda _done, _of, _loss: None,
) -> str:
    """Train the seed adapter for the model in `folder` and write it to `out` in half precision. Returns its sha256.

    `progress` gets (steps done, steps in all, loss)."""
    config = config or SeedConfig()
    renderer = ChatMLRenderer(load_tokenizer(folder))
    functions = harvest()
    if len(functions) < 100:
        raise TrainError(
            f"only {len(functions)} functions were found in the standard library",
            fix="Use a Python whose standard library is installed as source.",
        )
    scripts = Scripts(renderer, functions, config.seed)
    weights = LoraWeights(load_model(folder), config.rank, seed=config.seed)
    trainer = LocalTrainer(weights)
    for step in range(config.steps):
        rows = _rows(scripts, config)
        total = sum(sum(row.mask) for row in rows)
        stats = trainer.forward_backward(rows, LossConfig(name="next_token", divisor=total))
        trainer.optim_step(config.learning_rate * schedule(step, config.steps))
        progress(step + 1, config.steps, stats.loss)
    return write_adapter(out, weights.state(), weights.scale, torch.float16)


def _rows(scripts: Scripts, config: SeedConfig) -> list[Datum]:
    rows: list[Datum] = []
    while len(rows) < config.rows:
        row = scripts.row()
        if len(row.tokens) <= config.max_tokens:
            rows.append(row)
    return rows


def schedule(step: int, steps: int) -> float:
    """Warm-up over five steps, full for a third of the run, then down in a line to a twentieth."""
    return min(1.0, (step + 1) / 5, max(0.05, 1.5 * (1 - step / steps)))


def seed_checkpoint(model: str, folder: Path, store: Path) -> Checkpoint:
    """What the first turn starts from: the shipped adapter for the embedded model, else the base model itself."""
    if model != EMBEDDED:
        weights = hash_folder(folder)
        return Checkpoint(SEED, str(folder), "", None, "base model", "", weights, 0, now())
    target = store / f"{SEED}.safetensors"
    shipped = files("twoloop.train") / "data" / "seed-smollm2-135m.safetensors"
    with as_file(shipped) as source:
        if not source.is_file():
            raise TrainError("the seed adapter is missing", fix="Make it with `twoloop train seed`.")
        state, scale = read_adapter(source)
    digest = write_adapter(target, state, scale)
    recipe = hashlib.sha256(json.dumps(asdict(SeedConfig()), sort_keys=True).encode()).hexdigest()
    return Checkpoint(SEED, str(folder), str(target), None, recipe, "standard library", digest, 0, now())
