"""ChatML rendering: messages to tokens on clean boundaries, so that sequences are joined and never re-tokenised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_OPEN, _CLOSE = "<|im_start|>", "<|im_end|>"


class ChatMLRenderer:
    """Renders with the tokenizer's own ChatML marks; where it has none, the open mark is plain text and the end-of-text
    token closes a message, so any causal model can be trained into the format."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        close = tokenizer.convert_tokens_to_ids(_CLOSE)
        known = close is not None and close != tokenizer.unk_token_id
        self._end: int = close if known else tokenizer.eos_token_id
        self._newline = self._encode("\n")

    @property
    def stop(self) -> tuple[int, ...]:
        return (self._end,)

    def message(self, role: str, text: str) -> list[int]:
        return self._encode(f"{_OPEN}{role}\n") + self._encode_text(text) + [self._end, *self._newline]

    def generation_prompt(self) -> list[int]:
        return self._encode(f"{_OPEN}assistant\n")

    def after_turn(self, sampled: Sequence[int]) -> list[int]:
        ended = bool(sampled) and sampled[-1] == self._end
        return self._newline if ended else [self._end, *self._newline]

    def turn(self, text: str) -> list[int]:
        """The tokens of an assistant's message as a sampler would have drawn them, end mark included."""
        return [*self._encode_text(text), self._end]

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _encode_text(self, text: str) -> list[int]:
        """Text from outside may not smuggle in control marks: they are encoded as the characters they are made of."""
        for mark in self._tokenizer.all_special_tokens:
            if mark in text:
                text = text.replace(mark, mark[:1] + "\u200b" + mark[1:])
        return self._encode(text)
