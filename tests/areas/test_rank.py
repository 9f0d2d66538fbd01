from __future__ import annotations

from twoloop.areas import rank
from twoloop.areas.rank import weigh
from twoloop.records import Event, new_id


def report(session: str, kind: str, quote: str = "q") -> Event:
    return Event(
        new_id(), new_id(), "2026", kind, "CODE", session, turn=0, attributes={"quote": quote, "start": 3, "end": 9}
    )


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
