"""What is trained: a LoRA adapter on frozen weights, or all weights. Both keep a teacher: the weights at the start, an
exponential moving average, or the live policy itself."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, Protocol

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from twoloop.errors import TrainError
from twoloop.models.checkpoints import hash_folder, merge_adapter, write_adapter

TeacherKind = Literal["frozen", "ema", "live"]
_POLICY, _TEACHER = "policy", "teacher"


class Weights(Protocol):
    """The trainable part of a model."""

    def parameters(self) -> list[nn.Parameter]: ...

    def state(self) -> dict[str, Tensor]:
        """The policy's trainable tensors by name, detached copies."""
        ...

    def load(self, state: dict[str, Tensor], *, teacher: bool = False) -> None: ...

    def teacher_state(self) -> dict[str, Tensor]: ...

    @property
    def student(self) -> nn.Module: ...

    def as_teacher(self) -> AbstractContextManager[nn.Module]:
        """The model with the teacher's weights, for the time of the block."""
        ...

    def follow(self, rate: float) -> None:
        """Move the teacher toward the policy: teacher += rate · (policy − teacher)."""
        ...

    def merge_into(self, target: nn.Module) -> None:
        """Write the policy's effective weights into a plain copy of the base model."""
        ...

    def write(self, folder: Path, name: str) -> tuple[Path, str]:
        """Store the policy: an adapter file, or a model folder when all weights are trained. (path, sha256)"""
        ...


class LoraWeights:
    """Two adapters on one frozen model, "policy" and "teacher", so that the teacher costs no second model."""

    def __init__(self, model: nn.Module, rank: int, alpha: float | None = None, seed: int = 0) -> None:
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        targets = linear_names(model)
        config = LoraConfig(r=rank, lora_alpha=int(alpha or 2 * rank), target_modules=targets)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            inject_adapter_in_model(config, model, adapter_name=_POLICY)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Already found a `peft_config`")  # a second adapter is what we want
            inject_adapter_in_model(config, model, adapter_name=_TEACHER)
        self._model = model
        self.scale = config.lora_alpha / rank
        self._layers = {n: m for n, m in model.named_modules() if isinstance(m, LoraLayer)}
        self._activate(_POLICY)
        self.load(self.state(), teacher=True)

    def _activate(self, name: str) -> None:
        for layer in self._layers.values():
            layer.set_adapter(name)
        for parameter in self._tensors(_TEACHER).values():
            parameter.requires_grad_(False)
        for parameter in self._tensors(_POLICY).values():
            parameter.requires_grad_(name == _POLICY)

    def _tensors(self, adapter: str) -> dict[str, nn.Parameter]:
        found: dict[str, nn.Parameter] = {}
        for name, layer in self._layers.items():
            a, b = layer.lora_A[adapter].weight, layer.lora_B[adapter].weight
            assert isinstance(a, nn.Parameter) and isinstance(b, nn.Parameter)
            found[f"{name}.lora_A"], found[f"{name}.lora_B"] = a, b
        return found

    @property
    def student(self) -> nn.Module:
        return self._model

    @contextmanager
    def as_teacher(self) -> Iterator[nn.Module]:
        self._activate(_TEACHER)
        try:
            yield self._model
        finally:
            self._activate(_POLICY)

    def parameters(self) -> list[nn.Parameter]:
        return list(self._tensors(_POLICY).values())

    def state(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self._tensors(_POLICY).items()}

    def teacher_state(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self._tensors(_TEACHER).items()}

    @torch.no_grad()
    def load(self, state: dict[str, Tensor], *, teacher: bool = False) -> None:
        copy_state(state, self._tensors(_TEACHER if teacher else _POLICY))

    @torch.no_grad()
    def follow(self, rate: float) -> None:
        policy = self._tensors(_POLICY)
        for name, parameter in self._tensors(_TEACHER).items():
            parameter.lerp_(policy[name], rate)

    @torch.no_grad()
    def merge_into(self, target: nn.Module) -> None:
        modules = dict(target.named_modules())
        for name, layer in self._layers.items():
            modules[name].weight.copy_(layer.base_layer.weight)
        merge_adapter(target, self.state(), self.scale)

    def write(self, folder: Path, name: str) -> tuple[Path, str]:
        path = folder / f"{name}.safetensors"
        return path, write_adapter(path, self.state(), self.scale)


class FullWeights:
    """All weights are trained; the teacher is a copy of the model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._teacher = copy.deepcopy(model).requires_grad_(False)
        model.requires_grad_(True)

    @property
    def student(self) -> nn.Module:
        return self._model

    @contextmanager
    def as_teacher(self) -> Iterator[nn.Module]:
        yield self._teacher

    def parameters(self) -> list[nn.Parameter]:
        return list(self._model.parameters())

    def state(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self._model.named_parameters()}

    def teacher_state(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self._teacher.named_parameters()}

    @torch.no_grad()
    def load(self, state: dict[str, Tensor], *, teacher: bool = False) -> None:
        copy_state(state, dict((self._teacher if teacher else self._model).named_parameters()))

    @torch.no_grad()
    def follow(self, rate: float) -> None:
        for mine, theirs in zip(self._teacher.parameters(), self._model.parameters(), strict=True):
            mine.lerp_(theirs, rate)

    @torch.no_grad()
    def merge_into(self, target: nn.Module) -> None:
        copy_state(self.state(), dict(target.named_parameters()))

    def write(self, folder: Path, name: str) -> tuple[Path, str]:
        path = folder / name
        aside = folder / f"{name}.part"
        self._model.save_pretrained(aside)  # type: ignore[operator]
        os.replace(aside, path)
        return path, hash_folder(path)


def linear_names(model: nn.Module) -> list[str]:
    """Last name parts of all linear layers but the LM head: what LoRA adapts."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    return sorted(
        {n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, nn.Linear) and m is not head}
    )


@torch.no_grad()
def copy_state(state: dict[str, Tensor], into: dict[str, nn.Parameter]) -> None:
    if state.keys() != into.keys():
        odd = sorted(state.keys() ^ into.keys())[:3]
        raise TrainError(
            f"the weights do not fit the model: {', '.join(odd)}",
            fix="Use the base model and rank that they came from.",
        )
    for name, tensor in state.items():
        if tensor.shape != into[name].shape:
            raise TrainError(f"the weights do not fit the model: {name} is {tuple(tensor.shape)}")
        into[name].copy_(tensor.to(into[name].dtype))
