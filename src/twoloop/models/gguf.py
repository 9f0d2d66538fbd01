"""Read a Llama-family GGUF file into Hugging Face tensors and a tokenizer, past transformers' slow vocabulary path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, PreTrainedTokenizerFast

from twoloop.errors import ModelError

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL = 3  # gguf token type of a special token


class GGUFModel:
    """One GGUF file, opened once. `config`, `tokenizer` and `tensors` are what a Hugging Face folder holds."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)
        architecture = self._field("general.architecture")
        if architecture != "llama":
            raise ModelError(
                f"{path.name} holds a {architecture!r} model; only 'llama' can be converted",
                fix="Point `model` at a Hugging Face folder of that model instead.",
            )

    def __len__(self) -> int:
        return len(self._reader.tensors)

    def _field(self, key: str) -> Any:
        return self._reader.fields[key].contents()

    def config(self) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=self._field("llama.vocab_size"),
            hidden_size=self._field("llama.embedding_length"),
            intermediate_size=self._field("llama.feed_forward_length"),
            num_hidden_layers=self._field("llama.block_count"),
            num_attention_heads=self._field("llama.attention.head_count"),
            num_key_value_heads=self._field("llama.attention.head_count_kv"),
            max_position_embeddings=self._field("llama.context_length"),
            rms_norm_eps=self._field("llama.attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": self._field("llama.rope.freq_base")},
            bos_token_id=self._field("tokenizer.ggml.bos_token_id"),
            eos_token_id=self._field("tokenizer.ggml.eos_token_id"),
            pad_token_id=self._field("tokenizer.ggml.padding_token_id"),
            tie_word_embeddings=not any(t.name == "output.weight" for t in self._reader.tensors),
            dtype="float32",
        )

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each weight under its Hugging Face name, dequantised to fp32."""
        heads = self._field("llama.attention.head_count")
        kv_heads = self._field("llama.attention.head_count_kv")
        for tensor in self._reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            weight = torch.from_numpy(values.copy())
            if ".attn_q." in tensor.name:
                weight = _unpermute(weight, heads)
            elif ".attn_k." in tensor.name:
                weight = _unpermute(weight, kv_heads)
            yield _hf_name(tensor.name), weight

    def tokenizer(self) -> PreTrainedTokenizerFast:
        tokens = self._field("tokenizer.ggml.tokens")
        merges = [tuple(merge.split(" ", 1)) for merge in self._field("tokenizer.ggml.merges")]
        kinds = self._field("tokenizer.ggml.token_type")
        core = Tokenizer(BPE({t: i for i, t in enumerate(tokens)}, merges, fuse_unk=False))
        core.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        core.decoder = decoders.ByteLevel()
        core.add_special_tokens(
            [AddedToken(t, special=True) for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
        )
        end = tokens[self._field("tokenizer.ggml.eos_token_id")]
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=core,
            bos_token=tokens[self._field("tokenizer.ggml.bos_token_id")],
            eos_token=end,
            pad_token=end,
            unk_token=tokens[self._field("tokenizer.ggml.unknown_token_id")],
            clean_up_tokenization_spaces=False,
        )
        tokenizer.chat_template = self._field("tokenizer.chat_template")
        return tokenizer


def _hf_name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{suffix}"
    _, layer, part = stem.split(".", 2)
    return f"model.layers.{layer}.{_LAYER[part]}.{suffix}"


def _unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the interleaving of rotary halves that the GGUF converter applies to Q and K (rows, per head)."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
