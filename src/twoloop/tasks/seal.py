"""The seal: nothing in the agent's tree may give the deleted code away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twoloop.tasks.similar import MIN_TOKENS, containment, fingerprints, tokens

LIMIT = 0.5  # share of a body's fingerprints found in one file


def leaks(bodies: Sequence[str], tree: Mapping[str, str]) -> list[str]:
    """Files of the tree that hold a good part of a deleted body. Bodies of a line or so are common property."""
    wanted = [fingerprints(body) for body in bodies if len(tokens(body)) >= MIN_TOKENS]
    if not wanted:
        return []
    found = []
    for path, text in tree.items():
        here = fingerprints(text)
        if any(containment(part, here) > LIMIT for part in wanted):
            found.append(path)
    return found
