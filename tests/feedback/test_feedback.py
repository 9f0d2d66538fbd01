from __future__ import annotations

import json
from pathlib import Path

from twoloop.agent.products import product
from twoloop.feedback import detect, import_jsonl, thumbs
from twoloop.records import CallError, Ending, Reward, ToolCall, Trajectory, Turn, missing, scored
from twoloop.store import Store

HARNESS = product("renamed")


def turn(text: str, error: CallError | None = None, start: int = 10) -> Turn:
    name = text.split("\n")[0]
    return Turn(start, start + 5, (0.0,) * 5, text, 0, ToolCall(name, {}), error, "")


def session(
    *turns: Turn, changed: dict[str, str] | None = None, ending: Ending = "finished", reward: Reward | None = None
) -> Trajectory:
    return Trajectory(
        "s1", "t", "c", "k", "renamed", 0, 8, tuple(range(40)), turns, ending, reward or scored(0), changed or {}
    )


def kinds(trajectory: Trajectory) -> list[tuple[str, int | None]]:
    return [(e.kind, e.turn) for e in detect(trajectory, HARNESS)]


def test_a_clean_session_has_no_report() -> None:
    good = session(turn("patch\npath: a"), turn("check"), turn("submit"), changed={"a.py": "x = 1\n"})
    assert kinds(good) == []


def test_failed_calls_are_reported_turn_by_turn_with_their_place() -> None:
    bad = session(turn("edit", "unknown_tool"), turn("Sure!", "malformed_call", 20), changed={"a.py": ""})
    assert kinds(bad) == [("unknown_tool", 0), ("malformed_call", 1)]
    events = detect(bad, HARNESS)
    assert (events[1].attributes["start"], events[1].attributes["end"]) == (20, 25)
    assert events[0].attributes["quote"] == "edit"
    assert [e.idem_key for e in events] == [e.idem_key for e in detect(bad, HARNESS)]


def test_code_that_does_not_parse_is_reported() -> None:
    assert kinds(session(turn("check"), changed={"a.py": "def f(:", "b.txt": "def f(:"})) == [("syntax_error", None)]


def test_a_session_without_an_edit_is_reported() -> None:
    assert kinds(session(turn("check"))) == [("no_edit", None)]


def test_tests_must_run_after_the_last_edit() -> None:
    late = session(turn("patch"), turn("check"), turn("patch"), turn("submit"), changed={"a.py": ""})
    assert kinds(late) == [("tests_never_run", 2)]
    failed = session(turn("patch"), turn("check", "unknown_tool"), changed={"a.py": ""})
    assert ("tests_never_run", 0) in kinds(failed)


def test_a_session_that_did_not_end_by_itself_gave_up() -> None:
    assert ("gave_up", None) in kinds(session(turn("check"), ending="errors"))


def test_only_a_failed_call_that_is_repeated_counts_as_repetition() -> None:
    assert ("repeated_itself", 1) in kinds(session(turn("edit", "unknown_tool"), turn("edit", "unknown_tool")))
    assert not any(k == "repeated_itself" for k, _ in kinds(session(turn("check"), turn("check"))))


def test_a_session_lost_by_the_machine_says_nothing_of_the_model() -> None:
    assert kinds(session(turn("edit", "unknown_tool"), ending="infrastructure", reward=missing("disk"))) == []


def test_thumbs_are_kept_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    thumbs(store, "s1", up=False, text="it loops", actor="ann")
    thumbs(store, "s1", up=False, text="it loops", actor="ann")
    thumbs(store, "s1", up=True)
    assert [e.kind for e in store.events()] == ["thumbs_down", "thumbs_up"]


def test_an_import_takes_the_good_lines_and_keeps_the_bad_ones(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "ws")
    path = tmp_path / "in.jsonl"
    lines = [
        '{"session": "s1", "thumbs": "down", "text": "broke my file", "actor": "ann"}',
        "not json",
        '{"session": "s1"}',
        '{"thumbs": "up"}',
        "[1]",
        "",
        '{"session": "s2", "thumbs": "up", "turn": "three"}',
        '{"session": "s3", "thumbs": "up", "turn": 3, "idem_key": "k"}',
    ]
    path.write_text("\n".join(lines))
    report = import_jsonl(store, path)
    assert (report.accepted, report.unknown_sessions) == (2, 2)
    assert [n for n, _ in report.rejected] == [2, 3, 4, 5, 7]
    assert report.kept_aside is not None
    kept = [json.loads(line) for line in report.kept_aside.read_text().splitlines()]
    assert [k["text"] for k in kept] == [lines[n - 1] for n in (2, 3, 4, 5, 7)]
    again = import_jsonl(store, path)
    assert (again.accepted, again.repeated) == (0, 2)
    assert {e.session: e.turn for e in store.events()} == {"s1": None, "s3": 3}
