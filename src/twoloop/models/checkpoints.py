"""Checkpoints on disk: a base model folder and, most often, a LoRA adapter beside it. Immutable once written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from twoloop.errors import ModelError
from twoloop.records import Checkpoint


def write_adapter(path: Path, state: dict[str, Tensor], scale: float, dtype: torch.dtype = torch.float32) -> str:
    """Store an adapter: for each adapted layer `NAME.lora_A` (r, in) and `NAME.lora_B` (out, r); the layer's weight
    becomes W + scale · B A. Written aside, synced, renamed. Returns the sha256 of the file."""
    data = save({k: v.to(dtype).contiguous() for k, v in state.items()}, {"format": "pt", "scale": repr(scale)})
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    return hashlib.sha256(data).hexdigest()


def read_adapter(path: Path) -> tuple[dict[str, Tensor], float]:
    """(state in fp32, scale). Raises ModelError when the file is missing or no adapter."""
    try:
        with safe_open(path, "pt") as file:
            scale = float(file.metadata()["scale"])
            return {key: file.get_tensor(key).float() for key in file.keys()}, scale  # noqa: SIM118 - not a mapping
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise ModelError(f"cannot read the adapter {path}: {problem}", fix="Train the checkpoint again.") from problem


@torch.no_grad()
def merge_adapter(model: nn.Module, state: dict[str, Tensor], scale: float) -> None:
    """Add an adapter to a plain model's weights, in place."""
    modules = dict(model.named_modules())
    for key in state:
        name, _, part = key.rpartition(".")
        if part != "lora_A":
            continue
        if name not in modules:
            raise ModelError(f"the adapter does not fit this model: it has no layer {name}")
        weight = modules[name].weight
        assert isinstance(weight, Tensor)
        weight += scale * (state[f"{name}.lora_B"] @ state[key])


def load_checkpoint(checkpoint: Checkpoint) -> nn.Module:
    """The checkpoint's weights as one plain model in fp32, its adapter merged."""
    from twoloop.models.hub import load_model

    model = load_model(Path(checkpoint.base))
    if checkpoint.adapter:
        merge_adapter(model, *read_adapter(Path(checkpoint.adapter)))
    return model


def hash_folder(folder: Path) -> str:
    """sha256 over the names and contents of a model folder's weight files."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()
