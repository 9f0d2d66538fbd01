"""Shared fixtures: the tiny random model, made once a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from twoloop.models.chat import ChatMLRenderer
from twoloop.models.hub import load_model, load_tokenizer
from twoloop.models.tiny import write_tiny

# The same examples every time, so that a failure is the change's; no deadline, since shared machines are slow at times.
settings.register_profile("shared", deadline=None, derandomize=True)
settings.load_profile("shared")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny(folder)
    return folder


@pytest.fixture
def model(tiny: Path) -> torch.nn.Module:
    return load_model(tiny)


@pytest.fixture(scope="session")
def reference(tiny: Path) -> Any:
    """The same weights with the library's own attention: the oracle."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.fixture(scope="session")
def renderer(tiny: Path) -> ChatMLRenderer:
    return ChatMLRenderer(load_tokenizer(tiny))
