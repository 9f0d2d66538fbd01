from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoloop.areas import SEVERITY, rank
from twoloop.areas.rank import weigh
from twoloop.records import Event, new_id


def report(session: str, kind: str, quote: str = "q", turn: int | None = 0) -> Event:
    about = {"quote": quote, "start": 3, "end": 9}
    return Event(new_id(), f"{session}:{kind}:{turn}", "2026", kind, "CODE", session, turn=turn, attributes=about)


SESSIONS = {f"s{i}": f"m{i % 6}" for i in range(24)}


def test_silence_counts() -> None:
    (area,) = rank([report(f"s{i}", "syntax_error") for i in range(6)], SESSIONS)
    assert (area.sessions, area.of, area.share) == (6, 24, 0.25)
    assert area.low <= area.share <= area.high
    assert area.rank == area.low * area.severity


def test_many_reports_of_one_session_count_once() -> None:
    (area,) = rank([report("s1", "syntax_error") for _ in range(9)], SESSIONS)
    assert area.sessions == 1


def test_the_commoner_of_equal_severity_comes_first_and_a_rarity_never_leads() -> None:
    events = [report(f"s{i}", "malformed_call") for i in range(18)]
    events += [report(f"s{i}", "syntax_error") for i in range(18, 24)]
    assert [a.kind for a in rank(events, SESSIONS)] == ["malformed_call", "syntax_error"]
    rare = [report("s0", "unknown_tool"), report("s1", "unknown_tool")]
    common = [report(f"s{i}", "tests_never_run") for i in range(5, 10)]
    assert [a.kind for a in rank(rare + common, SESSIONS)] == ["tests_never_run", "unknown_tool"]


def test_a_symptom_is_explained_by_its_cause_in_the_same_session() -> None:
    events = [report(f"s{i}", kind) for i in range(20) for kind in ("unknown_tool", "no_edit", "gave_up")]
    events += [report(f"s{i}", "no_edit") for i in range(20, 23)]
    found = {a.kind: a for a in rank(events, SESSIONS)}
    assert found["unknown_tool"].sessions == 20
    assert found["no_edit"].sessions == 3
    assert found["gave_up"].sessions == 0
    assert rank(events, SESSIONS)[0].kind == "unknown_tool"


@pytest.mark.parametrize(
    ("symptom", "at", "cause", "explained"),
    [
        ("repeated_itself", 3, 2, True),
        ("repeated_itself", 3, 3, True),  # the repeated call failed itself
        ("repeated_itself", 3, 4, False),
        ("tests_never_run", 1, 2, True),  # it called for the tests by a name that is gone
        ("tests_never_run", 1, 0, False),  # it had got over that failure: it edited afterwards
        ("no_edit", None, 0, True),
        ("gave_up", None, 5, True),
        ("syntax_error", 2, 1, False),  # a cause itself
    ],
)
def test_a_cause_takes_a_symptom_over_only_when_it_can_have_brought_it_about(
    symptom: str, at: int | None, cause: int, explained: bool
) -> None:
    events = [report(f"s{i}", symptom, turn=at) for i in range(6)]
    events += [report(f"s{i}", "unknown_tool", turn=cause) for i in range(6)]
    found = {a.kind: a.sessions for a in rank(events, SESSIONS)}
    assert found == {symptom: 0 if explained else 6, "unknown_tool": 6}


def test_a_cause_that_came_too_late_leaves_the_later_symptom_explained_and_the_earlier_one_not() -> None:
    events = [report("s0", "repeated_itself", "early", 1), report("s0", "repeated_itself", "late", 5)]
    events.append(report("s0", "malformed_call", turn=4))
    found = {a.kind: a for a in rank(events, SESSIONS)}
    assert [e.quote for e in found["repeated_itself"].evidence] == ["early"]


def test_a_team_may_weigh_kinds_in_its_own_way() -> None:
    events = [report(f"s{i}", kind) for i in range(9) for kind in ("syntax_error", "slow")]
    first, second = rank(events, SESSIONS, {"syntax_error": 0.2, "slow": 0.9})
    assert (first.kind, first.title, first.severity, second.severity) == ("slow", "Slow", 0.9, 0.2)
    assert [a.kind for a in rank(events, SESSIONS)] == ["syntax_error"]


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.tuples(st.integers(0, 23), st.sampled_from(sorted(SEVERITY)), st.integers(0, 3))), st.randoms())
def test_the_order_of_reports_and_their_repetition_change_nothing(
    found: list[tuple[int, str, int]], random: Random
) -> None:
    events = [report(f"s{i}", kind, f"{i}{kind}{turn}", turn) for i, kind, turn in found]
    shuffled = events * 2
    random.shuffle(shuffled)
    areas = rank(events, SESSIONS)
    assert rank(shuffled, SESSIONS) == areas
    for area in areas:
        assert 0 <= area.low <= area.share <= area.high <= 1 and 0 <= area.rank <= area.severity <= 1
        assert len(area.evidence) == min(5, area.sessions)
    assert not any(a.sessions < 3 <= b.sessions for a, b in itertools.pairwise(areas))


def test_people_move_severity_and_their_sessions_come_first_as_evidence() -> None:
    events = [report(f"s{i}", "syntax_error", f"quote {i}") for i in range(8)]
    down = [Event(new_id(), new_id(), "2026", "thumbs_down", "USER", "s7")]
    (plain,), (moved,) = rank(events, SESSIONS), rank(events + down, SESSIONS)
    assert moved.severity > plain.severity
    assert moved.evidence[0].session == "s7"
    assert (moved.evidence[0].quote, moved.evidence[0].start, moved.evidence[0].end) == ("quote 7", 3, 9)
    assert weigh(0.5, 0, 5) < weigh(0.5, 2, 2) == 0.5 < weigh(0.5, 5, 0) < 0.8


def test_reports_of_other_sessions_are_left_out() -> None:
    assert rank([report("elsewhere", "unknown_tool")], SESSIONS) == []
