"""Sessions in the Agent Trajectory Interchange Format (ATIF v1.8), token-exact, and back without loss.

What ATIF has a field for stands there, token ids and log-probabilities included; the rest is under `extra.twoloop`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from twoloop import __version__
from twoloop.records import Reward, ToolCall, Trajectory, Turn

VERSION = "ATIF-v1.8"
_OURS = ("task_id", "cluster", "seed", "prompt_tokens", "ending", "changed", "tier", "seconds")


def to_document(trajectory: Trajectory) -> dict[str, Any]:
    """One ATIF document."""
    user = {"step_id": 1, "timestamp": trajectory.started or None, "source": "user", "message": trajectory.instruction}
    agent_steps = [_step(trajectory, i) for i in range(len(trajectory.turns))]
    end = trajectory.turns[-1].end if trajectory.turns else 0
    ours = {key: getattr(trajectory, key) for key in _OURS}
    return {
        "schema_version": VERSION,
        "session_id": trajectory.id,
        "trajectory_id": trajectory.id,
        "agent": {
            "name": "twoloop",
            "version": __version__,
            "model_name": trajectory.checkpoint,
            "extra": {"harness": trajectory.harness},
        },
        "steps": [{k: v for k, v in user.items() if v is not None}, *agent_steps],
        "final_metrics": {
            "total_prompt_tokens": sum(t.start for t in trajectory.turns),
            "total_completion_tokens": trajectory.sampled,
            "total_steps": len(agent_steps) + 1,
        },
        "extra": {
            "twoloop": {**ours, "reward": asdict(trajectory.reward), "tail_token_ids": list(trajectory.tokens[end:])}
        },
    }


def _step(trajectory: Trajectory, i: int) -> dict[str, Any]:
    turn = trajectory.turns[i]
    step: dict[str, Any] = {
        "step_id": i + 2,
        "source": "agent",
        "message": turn.text,
        "llm_call_count": 1,
        "metrics": {
            "prompt_tokens": turn.start,
            "completion_tokens": turn.end - turn.start,
            "prompt_token_ids": list(trajectory.tokens[: turn.start]),
            "completion_token_ids": list(trajectory.tokens[turn.start : turn.end]),
            "logprobs": list(turn.logprobs),
        },
        "extra": {"policy_version": turn.policy_version, "error": turn.error},
    }
    result: dict[str, Any] = {"content": turn.observation}
    if turn.call is not None:
        call = {"tool_call_id": f"call-{i}", "function_name": turn.call.name, "arguments": dict(turn.call.arguments)}
        step["tool_calls"] = [call]
        result["source_call_id"] = call["tool_call_id"]
    step["observation"] = {"results": [result]}
    return step


def from_document(document: Mapping[str, Any]) -> Trajectory:
    """The inverse of `to_document`; reads only documents that we wrote."""
    ours = document["extra"]["twoloop"]
    user, *agent = document["steps"]
    tokens: list[int] = []
    if agent:
        last = agent[-1]["metrics"]
        tokens = [*last["prompt_token_ids"], *last["completion_token_ids"]]
    return Trajectory(
        id=document["trajectory_id"],
        checkpoint=document["agent"]["model_name"],
        harness=document["agent"]["extra"]["harness"],
        tokens=(*tokens, *ours["tail_token_ids"]),
        turns=tuple(_turn(step) for step in agent),
        reward=Reward(**ours["reward"]),
        instruction=user["message"],
        started=user.get("timestamp", ""),
        **{key: ours[key] for key in _OURS},
    )


def _turn(step: Mapping[str, Any]) -> Turn:
    metrics, calls = step["metrics"], step.get("tool_calls")
    call = ToolCall(calls[0]["function_name"], calls[0]["arguments"]) if calls else None
    return Turn(
        start=metrics["prompt_tokens"],
        end=metrics["prompt_tokens"] + metrics["completion_tokens"],
        logprobs=tuple(metrics["logprobs"]),
        text=step["message"],
        policy_version=step["extra"]["policy_version"],
        call=call,
        error=step["extra"]["error"],
        observation=step["observation"]["results"][0]["content"],
    )


def dumps(trajectory: Trajectory) -> str:
    return json.dumps(to_document(trajectory), ensure_ascii=False, separators=(",", ":"))


def loads(text: str) -> Trajectory:
    return from_document(json.loads(text))
