"""The shared nouns. Plain frozen records that every room speaks; no behaviour beyond what keeps them true."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

# ---------------------------------------------------------------------------------------------------------------------
# Identity and time


def new_id() -> str:
    """A UUIDv7 (RFC 9562 §5.7): sorts by time of birth, in hex with dashes."""
    millis = int(time.time() * 1000)
    bits = (millis << 80) | int.from_bytes(os.urandom(10))
    bits = (bits & ~(0xF << 76)) | (0x7 << 76)
    bits = (bits & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=bits))


def now() -> str:
    """UTC, ISO 8601 with milliseconds and a Z."""
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


# ---------------------------------------------------------------------------------------------------------------------
# Rewards

Status = Literal["scored", "missing", "tampered"]


@dataclass(frozen=True)
class Reward:
    """What a rollout earned. `missing` (the infrastructure failed) is never a zero; `tampered` is never a success.

    Build one with `scored`, `missing` or `tampered`. `parts` holds the named components of a scored value.
    """

    status: Status
    value: float | None = None
    reason: str = ""
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def solved(self) -> bool:
        """True when every required test passed."""
        return self.status == "scored" and self.parts.get("solved", 0.0) == 1.0


def scored(value: float, **parts: float) -> Reward:
    return Reward("scored", float(value), parts={k: float(v) for k, v in parts.items()})


def missing(reason: str) -> Reward:
    return Reward("missing", reason=reason)


def tampered(evidence: str) -> Reward:
    return Reward("tampered", 0.0, reason=evidence)


# ---------------------------------------------------------------------------------------------------------------------
# Tasks


@dataclass(frozen=True)
class Unit:
    """One deleted function or method: where it stands in the source tree."""

    path: str  # relative to the tree's root, with forward slashes
    qualname: str  # dotted within the file: "first", "LRU.get"
    line: int  # of the `def`, in the stubbed tree
    lines: int  # lines of the reference body


@dataclass(frozen=True)
class Task:
    """A codebase with a feature deleted, an instruction to put it back, and a hidden verifier.

    On disk it is a folder in Harbor's layout; `twoloop.tasks` reads and writes it. `cluster` is the module that was cut
    (source name and path): train and held-out sets are split by it, and statistics are clustered by it.
    """

    id: str
    source: str
    cluster: str
    split: Literal["train", "heldout"]
    instruction: str
    units: tuple[Unit, ...]
    fail_to_pass: tuple[str, ...]  # pytest node ids
    pass_to_pass: tuple[str, ...]
    visible: tuple[str, ...]  # the node ids among both that the agent may run
    folder: str  # absolute path of the task on disk


# ---------------------------------------------------------------------------------------------------------------------
# Trajectories

CallError = Literal[
    "unknown_tool",  # a tool of that name does not exist
    "malformed_call",  # the text is no tool call, or an argument is missing or unknown
    "bad_argument",  # well-formed, but the tool cannot do it: no such file, text not found, path outside
    "time_out",
]
Ending = Literal["finished", "max_turns", "errors", "context_full", "infrastructure"]


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: dict[str, str]


@dataclass(frozen=True)
class Turn:
    """One message of the agent and what came of it. Its sampled tokens are `tokens[start:end]` of the trajectory."""

    start: int
    end: int
    logprobs: tuple[float, ...]  # nats, as drawn by the sampler, one for each sampled token
    text: str
    policy_version: int
    call: ToolCall | None = None
    error: CallError | None = None
    observation: str = ""


@dataclass(frozen=True)
class Trajectory:
    """One session, token-exact: `tokens` is what the sampler saw and drew, in order. Text is a view of it.

    Everything outside the turns' spans (prompt, observations) was never sampled and is never trained.
    """

    id: str
    task_id: str
    cluster: str
    checkpoint: str
    harness: str
    seed: int
    prompt_tokens: int  # tokens[:prompt_tokens] is the prompt before the first turn
    tokens: tuple[int, ...]
    turns: tuple[Turn, ...]
    ending: Ending
    reward: Reward
    changed: dict[str, str] = field(default_factory=dict)  # path -> new text of each file that the agent changed
    instruction: str = ""  # what the agent was asked, as text
    tier: str = ""  # isolation tier of the sandbox
    seconds: float = 0.0
    started: str = ""

    @property
    def sampled(self) -> int:
        """How many tokens the policy drew."""
        return sum(turn.end - turn.start for turn in self.turns)


# ---------------------------------------------------------------------------------------------------------------------
# Feedback and areas

SCOPES = ("metrics", "debug", "eval", "train")


@dataclass(frozen=True)
class Event:
    """One append-only fact from use. `idem_key` makes a repeated delivery harmless.

    `kind` is a report kind of a detector ("unknown_tool", "no_edit"…), "thumbs_down", "thumbs_up" or "comment".
    """

    id: str
    idem_key: str
    ts: str
    kind: str
    source: Literal["USER", "HUMAN", "LLM", "CODE", "IMPLICIT"]
    session: str
    checkpoint: str = ""
    turn: int | None = None
    actor: str = ""
    text: str = ""
    consent: tuple[str, ...] = ("metrics", "debug", "eval", "train")
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """Where a report can be seen: session, turn, and the sampled token span [start, end) in its trajectory."""

    session: str
    turn: int | None
    start: int
    end: int
    quote: str


@dataclass(frozen=True)
class Area:
    """Something to improve. Ranked by `rank`, the lower bound of affected share × severity."""

    kind: str
    title: str
    sessions: int  # sessions affected
    of: int  # sessions seen
    share: float
    low: float  # 95 % interval of the share
    high: float
    severity: float  # in [0, 1]
    rank: float
    evidence: tuple[Evidence, ...] = ()


# ---------------------------------------------------------------------------------------------------------------------
# Training


@dataclass(frozen=True)
class HintSpan:
    """Turn-local textual feedback on the sampled tokens [start, end) of a datum.

    The teacher reads `tokens[:at] + hint_tokens + tokens[at:start]`, where `at` is a message boundary just before the
    turn's generation prompt, and scores the same sampled tokens.
    """

    at: int
    start: int
    end: int
    hint_tokens: tuple[int, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class Datum:
    """All that a loss needs for one row. Per-token lists have the length of `tokens`; entry i speaks of *predicting*
    tokens[i] from tokens[:i]. `mask[i] = 0` means that the token is context only.
    """

    tokens: tuple[int, ...]  # T
    mask: tuple[float, ...]  # T, weight of each token in the loss
    logprobs: tuple[float, ...] = ()  # T, the sampler's; 0 where not sampled
    advantages: tuple[float, ...] = ()  # T
    hints: tuple[HintSpan, ...] = ()
    group: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """An immutable set of weights. `base` is the model folder; `adapter` the LoRA file, or "" for the base itself."""

    name: str
    base: str
    adapter: str
    parent: str | None
    recipe: str  # sha256 of the recipe that made it
    data: str  # sha256 of what it was trained on
    weights: str  # sha256 of the adapter's or base's tensors
    policy_version: int
    created: str = ""


@dataclass(frozen=True)
class Estimate:
    """A paired, clustered estimate with its 95 % interval and its denominators.

    `lost_low` and `lost_high`, where known, are the differences that the worst and the best values of every rollout
    that the infrastructure lost would have made of it.
    """

    name: str
    base: float
    candidate: float
    difference: float
    low: float
    high: float
    tasks: int
    clusters: int
    rollouts: int
    missing: int = 0
    lost_low: float | None = None
    lost_high: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The gate's answer with the numbers behind it. `sentence` can be quoted alone."""

    decision: Literal["promote", "reject", "not_enough_data"]
    sentence: str
    area: str
    base: str
    candidate: str
    estimates: tuple[Estimate, ...] = ()


@dataclass(frozen=True)
class Lineage:
    """`destination` was made from `source`. Both are "noun:id", e.g. "event:0190…", "checkpoint:seed"."""

    source: str
    destination: str
    relation: str
