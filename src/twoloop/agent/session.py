"""The turn loop. Many sessions go in step: all sample one message, then all tools run, until each has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from twoloop.agent.calls import parse
from twoloop.agent.products import system_prompt
from twoloop.agent.tools import Observation, run_tool
from twoloop.agent.types import Environment, Harness
from twoloop.errors import SandboxError
from twoloop.models.types import Renderer, Sampled, Sampler, SamplingParams
from twoloop.records import Ending, Reward, Task, Trajectory, Turn, missing, now

Opener = Callable[[Task], Environment]
Grader = Callable[[Task, Mapping[str, bytes | None]], Reward]  # task, changed files -> reward


@dataclass(frozen=True)
class Run:
    """What a batch of sessions runs with. `temperature` 1 and `top_p` 1 keep samples on-policy for training."""

    sampler: Sampler
    renderer: Renderer
    harness: Harness
    checkpoint: str
    grade: Grader
    label: str = "session"  # sessions are named LABEL.0, LABEL.1…, so that running them again names them the same
    seed: int = 0
    temperature: float = 1.0
    workers: int = 2


@dataclass
class _Session:
    """A session in progress."""

    id: str
    task: Task
    environment: Environment
    tokens: list[int]
    prompt: int
    seed: int
    started: str
    turns: list[Turn] = field(default_factory=list)
    errors: int = 0  # consecutive failed calls
    ending: Ending | None = None
    trouble: str = ""
    began: float = field(default_factory=time.monotonic)


def prompt_tokens(renderer: Renderer, harness: Harness, instruction: str) -> list[int]:
    """Everything before the first turn's generation prompt."""
    return renderer.message("system", system_prompt(harness)) + renderer.message("user", instruction)


def rollout(
    tasks: Sequence[Task], opener: Opener, run: Run, on_done: Callable[[Trajectory], None] | None = None
) -> list[Trajectory]:
    """One session for each task, in order. Each ends in a graded trajectory; trouble with the machine is `missing`."""
    with ThreadPoolExecutor(run.workers) as pool:
        opened = list(pool.map(lambda task: _open(task, opener), tasks))
        sessions = {
            i: _begin(f"{run.label}.{i}", tasks[i], found, run)
            for i, found in enumerate(opened)
            if not isinstance(found, str)
        }
        for round_ in range(run.harness.max_turns):
            going = [s for s in sessions.values() if s.ending is None]
            if not going:
                break
            _sample_round(going, run, round_)
            list(pool.map(lambda s: _act(s, run), going))
        finished = dict(zip(sessions, pool.map(lambda s: _finish(s, run), sessions.values()), strict=True))
    trajectories = [
        finished[i] if i in finished else _never_opened(f"{run.label}.{i}", task, run, str(opened[i]))
        for i, task in enumerate(tasks)
    ]
    for trajectory in trajectories:
        if on_done is not None:
            on_done(trajectory)
    return trajectories


def _open(task: Task, opener: Opener) -> Environment | str:
    try:
        return opener(task)
    except SandboxError as problem:
        return str(problem)


def _never_opened(name: str, task: Task, run: Run, reason: str) -> Trajectory:
    return Trajectory(
        id=name,
        task_id=task.id,
        cluster=task.cluster,
        checkpoint=run.checkpoint,
        harness=run.harness.name,
        seed=run.seed,
        prompt_tokens=0,
        tokens=(),
        turns=(),
        ending="infrastructure",
        reward=missing(reason),
        instruction=task.instruction,
        started=now(),
    )


def _begin(name: str, task: Task, environment: Environment, run: Run) -> _Session:
    tokens = prompt_tokens(run.renderer, run.harness, environment.instruction)
    return _Session(name, task, environment, tokens, len(tokens), run.seed, now())


def _sample_round(sessions: list[_Session], run: Run, round_: int) -> None:
    """One message from each session, appended to its tokens. Sessions that no longer fit the context end here."""
    room = run.harness.max_context - run.harness.max_turn_tokens
    opening = run.renderer.generation_prompt()
    fitting = []
    for session in sessions:
        if len(session.tokens) + len(opening) > room:
            session.ending = "context_full"
        else:
            session.tokens.extend(opening)
            fitting.append(session)
    if not fitting:
        return
    params = SamplingParams(
        max_tokens=run.harness.max_turn_tokens,
        temperature=run.temperature,
        stop=run.renderer.stop,
        seed=run.seed * 1009 + round_,
    )
    drawn = run.sampler.sample([s.tokens for s in fitting], 1, params)
    for session, (sample,) in zip(fitting, drawn, strict=True):
        _append(session, sample, run)


def _append(session: _Session, sample: Sampled, run: Run) -> None:
    start = len(session.tokens)
    session.tokens.extend(sample.tokens)
    text = run.renderer.decode(sample.tokens)
    turn = Turn(start, len(session.tokens), sample.logprobs, text, sample.policy_version)
    session.turns.append(turn)
    session.tokens.extend(run.renderer.after_turn(sample.tokens))


def _act(session: _Session, run: Run) -> None:
    """Run the call of the session's last message and show the result to the model."""
    if session.ending is not None:
        return
    turn = session.turns[-1]
    parsed = parse(turn.text, run.harness)
    tool = run.harness.tool(parsed.call.name) if parsed.call else None
    if parsed.error is not None or parsed.call is None or tool is None:
        kind = (parsed.error or "malformed_call").replace("_", " ")
        seen = Observation(f"error: {kind}: {parsed.problem}", parsed.error or "malformed_call")
    else:
        try:
            seen = run_tool(tool.action, parsed.call.arguments, session.environment)
        except SandboxError as problem:
            session.ending, session.trouble = "infrastructure", str(problem)
            return
    session.turns[-1] = replace(turn, call=parsed.call, error=seen.error, observation=seen.text)
    session.errors = session.errors + 1 if seen.error else 0
    if seen.ends:
        session.ending = "finished"
    elif session.errors >= run.harness.max_errors:
        session.ending = "errors"
    elif len(session.turns) >= run.harness.max_turns:
        session.ending = "max_turns"
    if not seen.ends:
        session.tokens.extend(run.renderer.message("tool", seen.text))


def _finish(session: _Session, run: Run) -> Trajectory:
    environment = session.environment
    changed: dict[str, bytes | None] = {}
    try:
        if session.ending == "infrastructure":
            reward = missing(session.trouble)
        else:
            changed = environment.sandbox.changed()
            reward = run.grade(session.task, changed)
    except SandboxError as problem:
        reward = missing(str(problem))
    finally:
        environment.close()
    return Trajectory(
        id=session.id,
        task_id=environment.task_id,
        cluster=environment.cluster,
        checkpoint=run.checkpoint,
        harness=run.harness.name,
        seed=session.seed,
        prompt_tokens=session.prompt,
        tokens=tuple(session.tokens),
        turns=tuple(session.turns),
        ending=session.ending or "max_turns",
        reward=reward,
        changed={path: data.decode("utf-8", "replace") for path, data in changed.items() if data is not None},
        instruction=environment.instruction,
        tier=environment.sandbox.tier,
        seconds=round(time.monotonic() - session.began, 3),
        started=session.started,
    )
