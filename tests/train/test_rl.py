from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from twoloop.agent.products import product
from twoloop.models.chat import ChatMLRenderer
from twoloop.records import Reward, Trajectory, Turn, missing, scored
from twoloop.train.hints import available_tools, flagged_turns
from twoloop.train.rl import ClimbConfig, advantages, anneal, choose, deal, to_data, value_of

HARNESS = product("renamed")
CONFIG = ClimbConfig(kind="unknown_tool", failed_call_penalty=0.0)


def session(
    renderer: ChatMLRenderer, task: str, reward: Reward, errors: tuple[bool, ...] = (True, False)
) -> Trajectory:
    tokens = renderer.message("user", "do it")
    prompt, turns = len(tokens), []
    for failed in errors:
        tokens += renderer.generation_prompt()
        said = renderer.turn("edit")
        kind = "unknown_tool" if failed else None
        turns.append(Turn(len(tokens), len(tokens) + len(said), (-0.5,) * len(said), "edit", 0, None, kind))  # type: ignore[arg-type]
        tokens += [*said, *renderer.after_turn(said), *renderer.message("tool", "ok")]
    return Trajectory("s", task, "c", "k", "renamed", 0, prompt, tuple(tokens), tuple(turns), "finished", reward)


def test_advantage_is_reward_less_the_groups_mean_without_its_spread(renderer: ChatMLRenderer) -> None:
    group = [session(renderer, "a", scored(r)) for r in (1, 0, 0, 0)] + [session(renderer, "b", scored(1))]
    assert advantages(group, 0.0) == pytest.approx([0.75, -0.25, -0.25, -0.25, 0.0])


def test_a_lost_session_moves_no_mean_and_is_not_trained(renderer: ChatMLRenderer) -> None:
    group = [session(renderer, "a", r) for r in (scored(1), scored(0), missing("disk"))]
    assert advantages(group, 0.0) == [0.5, -0.5, None]
    assert len(to_data(group, HARNESS, renderer, CONFIG)) == 2


def test_failed_calls_cost(renderer: ChatMLRenderer) -> None:
    assert value_of(session(renderer, "a", scored(1), (True, False)), 0.2) == pytest.approx(0.9)
    assert value_of(session(renderer, "a", missing("x")), 0.2) is None


def test_arms_differ_in_what_they_train_on(renderer: ChatMLRenderer) -> None:
    same = [session(renderer, "a", scored(0)) for _ in range(2)]
    mixed = [session(renderer, "a", scored(r)) for r in (0, 1)]
    assert to_data(same, HARNESS, renderer, replace(CONFIG, arm="rl")) == []  # no signal, no step
    assert all(not d.hints for d in to_data(mixed, HARNESS, renderer, replace(CONFIG, arm="rl")))
    for d in to_data(mixed, HARNESS, renderer, replace(CONFIG, arm="hint_only")):
        assert d.hints
        assert not any(d.advantages)
    right = to_data(same, HARNESS, renderer, CONFIG)[0].hints[0].hint_tokens
    wrong = to_data(same, HARNESS, renderer, replace(CONFIG, arm="irrelevant"))[0].hints[0].hint_tokens
    assert renderer.decode(right) != renderer.decode(wrong)
    assert available_tools(HARNESS) in renderer.decode(right)
    assert not any(t.name in renderer.decode(wrong).replace("(path)", "") for t in HARNESS.tools)


def test_a_hint_joins_on_message_boundaries_and_leaves_the_students_row_alone(renderer: ChatMLRenderer) -> None:
    one = session(renderer, "a", scored(0))
    (datum,) = to_data([one], HARNESS, renderer, CONFIG)
    assert datum.tokens == one.tokens
    (hint,) = datum.hints
    opening = renderer.generation_prompt()
    assert list(datum.tokens[hint.at : hint.start]) == opening
    assert datum.tokens[hint.start : hint.end] == one.tokens[one.turns[0].start : one.turns[0].end]
    spliced = [*datum.tokens[: hint.at], *hint.hint_tokens, *datum.tokens[hint.at : hint.end]]
    expected = renderer.message("user", "do it") + renderer.message("user", available_tools(HARNESS)) + opening
    assert spliced[: len(expected)] == expected


def test_only_sampled_tokens_carry_weight(renderer: ChatMLRenderer) -> None:
    group = [session(renderer, "a", scored(r)) for r in (0, 1)]
    for datum, one in zip(to_data(group, HARNESS, renderer, CONFIG), group, strict=True):
        sampled = {i for t in one.turns for i in range(t.start, t.end)}
        assert {i for i, m in enumerate(datum.mask) if m} == sampled
        assert {i for i, a in enumerate(datum.advantages) if a} == sampled


@pytest.mark.parametrize(
    ("which", "errors", "expected"),
    [
        ("decisive", (False, True, True), [0, 1]),
        ("decisive", (True, True), [0]),
        ("decisive", (False, False), [0]),
        ("failed", (False, True, True), [1, 2]),
        ("failed", (False,), []),
        ("all", (False, True), [0, 1]),
    ],
)
def test_flagged_turns(renderer: ChatMLRenderer, which: str, errors: tuple[bool, ...], expected: list[int]) -> None:
    assert flagged_turns(session(renderer, "a", scored(0), errors), "unknown_tool", which) == expected  # type: ignore[arg-type]


def test_tasks_are_drawn_by_weight_and_without_repeats(renderer: ChatMLRenderer) -> None:
    tasks = [object() for _ in range(4)]
    counts: Counter[int] = Counter()
    for i in range(3000):
        drawn = choose(tasks, [0.0, 1.0, 1.0, 6.0], 1, random.Random(i))  # type: ignore[arg-type]
        counts[tasks.index(drawn[0])] += 1
    assert counts[0] == 0
    assert counts[3] / 3000 == pytest.approx(0.75, abs=0.04)
    assert len(set(map(id, choose(tasks, [1.0] * 4, 4, random.Random(0))))) == 4  # type: ignore[arg-type]


def test_lambda_moves_in_a_line() -> None:
    config = ClimbConfig(kind="x", steps=5, hint_weight=1.0, hint_final=0.2)
    assert [anneal(config, i) for i in range(5)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_every_row_is_dealt_once_and_groups_are_spread(renderer: ChatMLRenderer) -> None:
    group = [session(renderer, task, scored(r)) for task in "ab" for r in (0, 1, 0, 1)]
    data = to_data(group, HARNESS, renderer, CONFIG)
    piles = deal(data, 2)
    assert sorted(map(id, data)) == sorted(id(d) for pile in piles for d in pile)
    assert [Counter(d.group for d in pile) for pile in piles] == [Counter("aabb")] * 2
    assert len(deal(data[:1], 3)) == 1
