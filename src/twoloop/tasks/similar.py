"""Near-duplicate code by winnowing (Schleimer, Wilkerson and Aiken, 2003) over Python tokens."""

from __future__ import annotations

import hashlib
import re

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|\S")
_COMMENT = re.compile(r"#[^\n]*")
GRAM, WINDOW = 8, 4
MIN_TOKENS = 14  # a shorter body is common property: finding it elsewhere proves nothing


def tokens(code: str) -> list[str]:
    return _TOKEN.findall(_COMMENT.sub("", code))


def fingerprints(code: str, gram: int = GRAM, window: int = WINDOW) -> frozenset[int]:
    """The winnowed hashes of all token n-grams: any shared run of gram + window − 1 tokens shares a hash."""
    words = tokens(code)
    hashes = [_hash(" ".join(words[i : i + gram])) for i in range(len(words) - gram + 1)]
    if len(hashes) <= window:
        return frozenset(hashes)
    return frozenset(min(hashes[i : i + window]) for i in range(len(hashes) - window + 1))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def containment(part: frozenset[int], whole: frozenset[int]) -> float:
    """Share of `part` that stands in `whole`."""
    return len(part & whole) / len(part) if part else 0.0


def resemblance(a: str, b: str) -> float:
    """Jaccard similarity of two bodies, by 3-grams, so that short ones can be compared too."""
    left, right = fingerprints(a, 3, 1), fingerprints(b, 3, 1)
    union = left | right
    return len(left & right) / len(union) if union else float(tokens(a) == tokens(b))
