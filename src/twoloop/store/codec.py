"""Records to JSON and back, exactly."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from twoloop.records import Checkpoint, Event, Reward, ToolCall, Trajectory, Turn


def trajectory_to_json(trajectory: Trajectory) -> str:
    return json.dumps(asdict(trajectory), ensure_ascii=False, separators=(",", ":"))


def trajectory_from_json(text: str) -> Trajectory:
    document: dict[str, Any] = json.loads(text)
    turns = tuple(
        Turn(**{**t, "logprobs": tuple(t["logprobs"]), "call": ToolCall(**t["call"]) if t["call"] else None})
        for t in document["turns"]
    )
    tokens, reward = tuple(document["tokens"]), Reward(**document["reward"])
    return Trajectory(**{**document, "turns": turns, "tokens": tokens, "reward": reward})


def event_to_json(event: Event) -> str:
    return json.dumps(asdict(event), ensure_ascii=False)


def event_from_json(text: str) -> Event:
    document = json.loads(text)
    return Event(**{**document, "consent": tuple(document["consent"])})


def checkpoint_to_json(checkpoint: Checkpoint) -> str:
    return json.dumps(asdict(checkpoint))


def checkpoint_from_json(text: str) -> Checkpoint:
    return Checkpoint(**json.loads(text))
