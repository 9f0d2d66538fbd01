"""Sessions as ATIF documents: exact round trip, and documents that the format's own models accept."""

from __future__ import annotations

import atif as oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from twoloop.records import ToolCall, Trajectory, Turn, missing, scored, tampered
from twoloop.store import atif

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
calls = st.none() | st.builds(ToolCall, st.text(max_size=5), st.dictionaries(st.text(max_size=3), st.text(max_size=5)))
rewards = st.one_of(
    st.builds(missing, st.text(max_size=9)), st.builds(tampered, st.text(max_size=9)), finite.map(scored)
)
token = st.integers(0, 50_000)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    tokens = draw(st.lists(token, max_size=6))
    turns = []
    for _ in range(draw(st.integers(0, 3))):
        drawn = draw(st.lists(token, min_size=1, max_size=4))
        turns.append(
            Turn(
                len(tokens),
                len(tokens) + len(drawn),
                tuple(draw(finite) for _ in drawn),
                draw(st.text(max_size=20)),
                draw(st.integers(0, 9)),
                draw(calls),
                draw(st.sampled_from([None, "unknown_tool"])),
                draw(st.text(max_size=20)),
            )
        )
        tokens += drawn + draw(st.lists(token, max_size=3))
    return Trajectory(
        id=draw(st.uuids().map(str)),
        task_id="t",
        cluster="c",
        checkpoint="k",
        harness="h",
        seed=draw(st.integers(0, 2**40)),
        prompt_tokens=1,
        tokens=tuple(tokens),
        turns=tuple(turns),
        ending="finished",
        reward=draw(rewards),
        changed=draw(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=2)),
        instruction=draw(st.text(max_size=9)),
        started=draw(st.sampled_from(["", "2026-01-01T00:00:00.000Z"])),
    )


@settings(deadline=None)  # a busy machine is no failure
@given(trajectories())
def test_a_session_comes_back_exactly(trajectory: Trajectory) -> None:
    assert atif.loads(atif.dumps(trajectory)) == trajectory


@settings(deadline=None)  # a busy machine is no failure
@given(trajectories())
def test_the_formats_own_models_accept_the_document_and_find_every_sampled_token(trajectory: Trajectory) -> None:
    document = oracle.Trajectory.model_validate(atif.to_document(trajectory))
    steps = [step.metrics for step in document.steps if step.source == "agent" and step.metrics is not None]
    drawn = [trajectory.tokens[turn.start : turn.end] for turn in trajectory.turns]
    assert [tuple(step.completion_token_ids or ()) for step in steps] == drawn
    assert [tuple(step.logprobs or ()) for step in steps] == [turn.logprobs for turn in trajectory.turns]
