"""Durable runs: what was acknowledged is never lost and never repeated, whatever happens to the process."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from twoloop.errors import StoreError
from twoloop.loop.durable import Durable
from twoloop.loop.journal import Entry, Journal, read_journal

CHILD = Path(__file__).with_name("durable_child.py")
STEPS = 12  # of the child


def expected() -> list[int]:
    values: list[int] = []
    for index in range(STEPS):
        values.append(sum(values) + index + 1)
    return values


def start_child(root: Path, marks: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILD), str(root), str(marks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_run_killed_at_ten_random_points_ends_as_if_it_never_was(tmp_path: Path) -> None:
    """A kill is aimed at a random moment after each process has shown its first sign of work."""
    marks, moments = tmp_path / "marks", random.Random(7)
    for _ in range(10):
        child, before = start_child(tmp_path, marks), len(lines(marks))
        while len(lines(marks)) == before and child.poll() is None:
            time.sleep(0.002)
        time.sleep(moments.uniform(0.0, 0.08))
        child.kill()
        child.communicate()
    out, err = start_child(tmp_path, marks).communicate(timeout=60)

    assert json.loads(out) == expected()
    assert err == ""
    acknowledged: set[str] = set()
    for line in lines(marks):
        mark, index = line.split()
        assert not (mark == "begin" and index in acknowledged), f"step {index} ran again after it was acknowledged"
        if mark == "acknowledged":
            acknowledged.add(index)
    finished = [e.step for e in read_journal(tmp_path / "killed" / "steps.jsonl") if e.happening == "finished"]
    assert finished == [f"step-{index}" for index in range(STEPS)]


def test_a_failed_step_surfaces_and_runs_again_on_resume(tmp_path: Path) -> None:
    calls: list[str] = []

    def body(broken: bool, durable: Durable) -> Any:
        def second() -> str:
            calls.append("second")
            if broken:
                raise FileNotFoundError("no such shelf")
            return "done"

        return [durable.step("first", lambda: calls.append("first")), durable.step("second", second)]

    with pytest.raises(FileNotFoundError, match="no such shelf"):
        Durable(tmp_path, "run").run(lambda durable: body(True, durable))
    assert Durable(tmp_path, "run").run(lambda durable: body(False, durable)) == [None, "done"]
    assert calls == ["first", "second", "second"]
    story = [(e.step, e.happening) for e in read_journal(tmp_path / "run" / "steps.jsonl")]
    assert story == [
        ("first", "started"),
        ("first", "finished"),
        ("second", "started"),
        ("second", "failed"),
        ("second", "started"),
        ("second", "finished"),
    ]


def test_a_finished_run_gives_its_result_again_without_work(tmp_path: Path) -> None:
    calls: list[int] = []

    def body(durable: Durable) -> Any:
        return durable.step("only", lambda: (calls.append(1), {"pair": (1, 2)})[1])

    first = Durable(tmp_path, "run").run(body)
    assert first == {"pair": [1, 2]}, "the first run must see what a resumed one sees"
    assert Durable(tmp_path, "run").run(body) == first
    assert calls == [1]


def test_other_steps_on_resume_are_refused_and_the_right_ones_still_work(tmp_path: Path) -> None:
    def right(durable: Durable) -> int:
        one = durable.step("one", lambda: 1)
        if not ready:
            raise RuntimeError("stop here")
        return one + durable.step("two", lambda: 2)

    ready = False
    with pytest.raises(RuntimeError, match="stop here"):
        Durable(tmp_path, "run").run(right)
    with pytest.raises(StoreError, match="has 'one' where 'zero' comes now") as caught:
        Durable(tmp_path, "run").run(lambda durable: durable.step("zero", lambda: 0))
    assert caught.value.fix
    ready = True
    assert Durable(tmp_path, "run").run(right) == 3


def test_misuse_is_named(tmp_path: Path) -> None:
    def twice(durable: Durable) -> None:
        durable.step("same", lambda: 1)
        durable.step("same", lambda: 2)

    def elsewhere(durable: Durable) -> None:
        errors: list[Exception] = []

        def call() -> None:
            try:
                durable.step("lost", lambda: 1)
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        raise errors[0]

    with pytest.raises(ValueError, match="called twice"):
        Durable(tmp_path, "twice").run(twice)
    with pytest.raises(RuntimeError, match="outside the body's thread"):
        Durable(tmp_path, "elsewhere").run(elsewhere)
    with pytest.raises(TypeError, match="JSON"):
        Durable(tmp_path, "bytes").run(lambda durable: durable.step("bytes", lambda: b"raw"))
    with pytest.raises(ValueError, match="a run id is"):
        Durable(tmp_path, "../up")


def test_two_processes_never_share_a_run(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    child = start_child(tmp_path, marks)
    try:
        while not lines(marks) and child.poll() is None:
            time.sleep(0.002)
        with pytest.raises(StoreError, match="Another process is working on run killed"):
            Durable(tmp_path, "killed").run(lambda durable: None)
        out, _ = child.communicate(timeout=60)
        assert json.loads(out) == expected()
    finally:
        child.kill()


def test_ctrl_c_finishes_the_step_in_flight_and_starts_no_other(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    child = start_child(tmp_path, marks)
    while not lines(marks) and child.poll() is None:
        time.sleep(0.002)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    assert len(lines(marks)) <= 3 * 2, "the step in flight, and at most one that had begun before the signal arrived"
    out, _ = start_child(tmp_path, marks).communicate(timeout=60)
    assert json.loads(out) == expected()
    assert lines(marks).count("begin 0") == 1, "what was in flight was recorded when it ended"


def test_a_torn_line_of_the_journal_is_dropped_and_whole_ones_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    Journal(path).append(Entry("one", "finished", "2026-01-01T00:00:00.000Z", 1.5))
    with path.open("a") as file:
        file.write('{"step": "two", "happ')
    journal = Journal(path)
    journal.append(Entry("two", "started", "2026-01-01T00:00:01.000Z"))
    assert [entry.step for entry in read_journal(path)] == ["one", "two"]
