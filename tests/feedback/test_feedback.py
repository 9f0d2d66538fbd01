from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoloop.agent.products import product
from twoloop.feedback import ImportReport, detect, import_jsonl, thumbs
from twoloop.records import CallError, Ending, Event, Reward, ToolCall, Trajectory, Turn, missing, scored
from twoloop.store import Store

HARNESS = product("renamed")


def turn(text: str, error: CallError | None = None, start: int = 10, seen: str = "", path: str = "a.py") -> Turn:
    name = text.split("\n")[0]
    return Turn(start, start + 5, (0.0,) * 5, text, 0, ToolCall(name, {"path": path}), error, seen)


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
    for text in ("x = '\0'", "(" * 5000):
        assert kinds(session(turn("check"), changed={"a.py": text})) == [("syntax_error", None)]


def test_code_that_does_not_parse_is_laid_to_the_turn_that_last_wrote_the_file() -> None:
    turns = [turn("patch", path="./a.py"), turn("save", path="b.py"), turn("patch", "bad_argument"), turn("check")]
    assert kinds(session(*turns, changed={"a.py": "def f(:", "b.py": ""})) == [("syntax_error", 0)]
    both = session(turn("patch"), turn("check"), changed={"c.py": "(", "d.py": "("})
    assert kinds(both) == [("syntax_error", None)], "one report on the session as a whole, not one a file"


def test_a_session_without_an_edit_is_reported() -> None:
    assert kinds(session(turn("check"))) == [("no_edit", None)]


def test_tests_must_run_after_the_last_edit() -> None:
    late = session(turn("patch"), turn("check"), turn("patch"), turn("submit"), changed={"a.py": ""})
    assert kinds(late) == [("tests_never_run", 2)]
    failed = session(turn("patch"), turn("check", "unknown_tool"), changed={"a.py": ""})
    assert ("tests_never_run", 0) in kinds(failed)


def test_a_session_that_did_not_end_by_itself_gave_up() -> None:
    assert ("gave_up", None) in kinds(session(turn("check"), ending="errors"))


def test_a_repeated_call_is_reported_when_it_failed_or_brought_nothing_new() -> None:
    assert ("repeated_itself", 1) in kinds(session(turn("edit", "unknown_tool"), turn("edit", "unknown_tool")))
    assert ("repeated_itself", 1) in kinds(session(turn("view", seen="x = 1"), turn("view", seen="x = 1")))
    news = session(turn("check", seen="0 passed, 1 failed"), turn("check", seen="1 passed, 0 failed"))
    apart = session(turn("check", seen="same"), turn("view"), turn("check", seen="same"))
    assert not any(kind == "repeated_itself" for kind, _ in kinds(news) + kinds(apart))


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(
        st.builds(
            turn,
            st.sampled_from(["patch", "save", "check", "view", "edit", "???"]),
            st.sampled_from([None, None, "unknown_tool", "malformed_call", "bad_argument"]),
        ),
        max_size=6,
    ),
    st.dictionaries(st.sampled_from(["a.py", "b.py"]), st.sampled_from(["x = 1", "def f(:"])),
)
def test_reports_are_the_same_every_time_and_point_into_the_session(turns: list[Turn], changed: dict[str, str]) -> None:
    events = detect(session(*turns, changed=changed), HARNESS)
    assert len({e.idem_key for e in events}) == len(events)
    again = detect(session(*turns, changed=changed), HARNESS)
    assert [(e.idem_key, e.attributes) for e in again] == [(e.idem_key, e.attributes) for e in events]
    for e in events:
        assert e.turn is None or 0 <= e.turn < len(turns)
        assert 0 <= e.attributes["start"] < e.attributes["end"] <= 40


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


def import_(tmp_path: Path, *lines: str | bytes) -> tuple[Store, ImportReport]:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    store = Store.open(tmp_path / "ws")
    return store, import_jsonl(store, path)


def test_a_whole_event_is_imported_as_it_is(tmp_path: Path) -> None:
    one = Event(
        "e1", "k1", "2026-01-31T09:30:00.000Z", "comment", "LLM", "s", "ck", 2, "ann", "né", ("metrics",), {"a": 1}
    )
    store, report = import_(tmp_path, json.dumps(asdict(one)), json.dumps({**asdict(one), "source": "ME"}))
    assert store.events() == [one]
    assert "source" in report.rejected[0][1]


def test_times_are_read_with_their_zone_and_written_as_utc(tmp_path: Path) -> None:
    times = ["2026-01-31T10:30:00+01:00", "2026-01-31T09:30:00.123456Z", "2026-01-31"]
    lines = [json.dumps({"session": str(i), "thumbs": "up", "ts": ts}) for i, ts in enumerate([*times, "soon", 17])]
    store, report = import_(tmp_path, *lines)
    assert {e.session: e.ts for e in store.events()} == {
        "0": "2026-01-31T09:30:00.000Z",
        "1": "2026-01-31T09:30:00.123Z",
        "2": "2026-01-31T00:00:00.000Z",
    }
    assert [number for number, _ in report.rejected] == [4, 5]


def test_what_is_said_does_not_depend_on_the_order_of_keys(tmp_path: Path) -> None:
    store, report = import_(
        tmp_path, '{"session": "s", "thumbs": "up", "text": null}', '{ "thumbs":"up","session":"s" }'
    )
    assert (report.accepted, report.repeated, len(store.events())) == (1, 1, 1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"session": "\xff", "thumbs": "up"}', "utf-8"),
        ('{"session": "s", "thumbs": "up", "text": "\\ud800"}', "surrogates"),
        ('{"session": "s", "thumb": "up"}', "unknown key 'thumb'"),
        ('{"session": "s", "thumbs": "up", "turn": true}', '"turn"'),
        ('{"session": 5, "thumbs": "up"}', '"session" must be text'),
        ("[" * 100_000, ""),
    ],
)
def test_a_bad_line_is_named_and_kept_byte_for_byte(tmp_path: Path, line: str | bytes, reason: str) -> None:
    store, report = import_(tmp_path, '{"session": "good", "thumbs": "up"}', line)
    assert [e.session for e in store.events()] == ["good"]
    ((number, said),) = report.rejected
    assert number == 2 and reason in said
    assert report.kept_aside is not None
    kept = json.loads(report.kept_aside.read_text())["text"].encode("utf-8", "surrogateescape")
    assert kept == (line if isinstance(line, bytes) else line.encode())


def test_rejects_of_two_files_of_one_name_are_both_kept(tmp_path: Path) -> None:
    for text in ("first", "second"):
        import_(tmp_path, text)
    kept = [json.loads(p.read_text())["text"] for p in (tmp_path / "ws" / "rejected").iterdir()]
    assert sorted(kept) == ["first", "second"]
