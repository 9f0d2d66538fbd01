"""Events and checkpoints to JSON and back, exactly. Sessions are kept in an exchange format: see `atif.py`."""

from __future__ import annotations

import json
from dataclasses import asdict

from twoloop.records import Checkpoint, Event


def event_to_json(event: Event) -> str:
    return json.dumps(asdict(event))


def event_from_json(text: str) -> Event:
    document = json.loads(text)
    return Event(**{**document, "consent": tuple(document["consent"])})


def checkpoint_to_json(checkpoint: Checkpoint) -> str:
    return json.dumps(asdict(checkpoint))


def checkpoint_from_json(text: str) -> Checkpoint:
    return Checkpoint(**json.loads(text))
