"""The command line, as real processes where it matters: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from twoloop.cli import main
from twoloop.loop.report import write_report
from twoloop.loop.types import TurnReport
from twoloop.records import Area, Checkpoint, Event, Evidence, Lineage, Verdict
from twoloop.store import Store

COMMANDS = (
    "turn",
    "doctor",
    "models pull",
    "models list",
    "models show",
    "tasks build",
    "tasks list",
    "feedback add",
    "feedback import",
    "areas list",
    "checkpoints list",
    "lineage why",
    "report path",
    "report open",
    "train seed",
)


def call(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of one command in this process."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def in_process(arguments: Sequence[str]) -> subprocess.Popen[str]:
    code = "from twoloop.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace in which a turn has ended."""
    root = tmp_path / "space"
    store = Store.open(root)
    event = Event(
        "e-1", "k-1", "2026-01-01T00:00:00.000Z", "unknown_tool", "CODE", "s-1", turn=2, text="no [bold]such[/] tool"
    )
    store.add_events([event])
    for name, parent in (("seed", None), ("turn-1", "seed")):
        store.add_checkpoint(Checkpoint(name, "base", "", parent, "r", "d", f"{name}-weights", 0, "2026-01-01"))
    store.set_serving("turn-1")
    store.add_lineage(
        [
            Lineage("event:e-1", "area:unknown_tool", "shows"),
            *(Lineage(f"event:other-{i}", "area:unknown_tool", "shows") for i in range(9)),
            Lineage("area:unknown_tool", "checkpoint:turn-1", "trained on"),
            Lineage("checkpoint:seed", "checkpoint:turn-1", "parent of"),
        ]
    )
    area = Area("unknown_tool", "Calls tools that do not exist", 9, 10, 0.9, 0.6, 0.98, 0.8, 0.48)
    area = Area(**{**area.__dict__, "evidence": (Evidence("s-1", 2, 3, 9, "write_file [red]\npath: a.py"),)})
    verdict = Verdict("promote", "Better.", "unknown_tool", "seed", "turn-1")
    write_report(root / "turns" / "turn-1" / "report.html", TurnReport("turn-1", "now", "bwrap", verdict, (area,)))
    return root


def test_help_is_fast_and_loads_no_tensors() -> None:
    code = (
        "import sys, time; t = time.perf_counter()\n"
        "try:\n from twoloop.cli import main; main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = [m for m in ('torch', 'transformers', 'dbos', 'sqlalchemy', 'numpy') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
        "assert time.perf_counter() - t < 2.0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "twoloop turn --resume" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call([*command.split(), "--help"], capsys)
    assert status == 0
    assert len(out.splitlines()) > 5 and "Usage: twoloop " + command in out


def test_errors_go_to_stderr_with_their_fix_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(["turn", "--train.learning_rat", "1"], capsys)
    assert (status, out) == (2, "")
    assert "unknown key train.learning_rat; did you mean train.learning_rate?" in err and "fix: " in err
    status, out, err = call(["lineage", "why", "x", "-w", str(tmp_path / "none"), "--json"], capsys)
    error = json.loads(err)["error"]
    assert (status, out, error["kind"]) == (2, "", "StoreError") and error["fix"]
    assert not (tmp_path / "none").exists(), "looking does not create"
    status, _, err = call(["trun"], capsys)
    assert status == 2 and "turn" in err
    assert "Traceback" not in err


def test_an_interrupt_says_how_to_go_on_and_ends_with_130(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    child = in_process(["feedback", "import", str(pipe), "--workspace", str(tmp_path / "space")])
    record, deadline = tmp_path / "space" / "record.sqlite", time.monotonic() + 30
    while not record.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "Run the same command again" in err and "Traceback" not in err


def test_settings_shown_can_be_used_as_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, first, _ = call(["turn", "--show-settings", "--train.steps=3"], capsys)
    file = tmp_path / "mine.toml"
    file.write_text(first)
    status, second, _ = call(["turn", "--show-settings", "--config", str(file)], capsys)
    assert status == 0 and second == first and "steps = 3" in first


def test_feedback_is_recorded_once_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = str(tmp_path)
    for _ in range(2):
        status, out, _ = call(["feedback", "add", "-s", "s-9", "--thumbs", "down", "-t", "bad", "-w", space], capsys)
        assert status == 0 and "thumbs down on session s-9" in out
    assert [(e.kind, e.text) for e in Store.open(tmp_path).events()] == [("thumbs_down", "bad")]
    file = tmp_path / "more.jsonl"
    file.write_text('{"session": "s-9", "thumbs": "up"}\nnot json\n')
    status, out, _ = call(["feedback", "import", str(file), "-w", space], capsys)
    assert status == 0 and "1 new, 0 known already, 1 rejected" in out and "line 2" in out
    status, _, err = call(["feedback", "add", "-s", "s-9", "--thumbs", "sideways", "-w", space], capsys)
    assert status == 2 and "sideways" in err


def test_lineage_walks_back_to_the_reports(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(["lineage", "why", "turn-1", "-w", str(workspace)], capsys)
    assert status == 0
    for shown in (
        "area:unknown_tool",
        "event:e-1",
        "unknown_tool, session s-1, turn 2",
        "no [bold]such[/] tool",
        "5 more of event",
    ):
        assert shown in out, shown
    _, out, _ = call(["lineage", "why", "turn-1", "-w", str(workspace), "--json"], capsys)
    tree = json.loads(out)
    area = next(one for one in tree["from"] if one["noun"] == "area:unknown_tool")
    assert len(area["from"]) == 10 and area["relation"] == "trained on"
    status, _, err = call(["lineage", "why", "turn-7", "-w", str(workspace)], capsys)
    assert status == 2 and "seed, turn-1" in err


def test_lists_say_what_is_there(workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["-w", str(workspace)]
    _, out, _ = call(["checkpoints", "list", *where, "--json"], capsys)
    assert [(one["name"], one["serving"]) for one in json.loads(out)] == [("seed", False), ("turn-1", True)]
    _, out, _ = call(["checkpoints", "list", *where], capsys)
    assert "● serves" in out
    _, out, _ = call(["areas", "list", *where], capsys)
    assert "Calls tools that do not exist" in out and "write_file [red]" in out, "a model's text is never markup"
    _, out, _ = call(["report", "path", *where], capsys)
    assert Path(out.strip()) == workspace / "turns" / "turn-1" / "report.html"
    _, out, _ = call(["tasks", "list", *where], capsys)
    assert "tasks build" in out
    _, out, _ = call(["models", "list", "--cache", str(tmp_path / "empty")], capsys)
    assert "models pull" in out
    status, _, err = call(["models", "show", "absent", "--cache", str(tmp_path / "empty")], capsys)
    assert status == 2 and "models pull absent" in err
    status, _, err = call(["report", "path", "-w", str(tmp_path)], capsys)
    assert status == 2 and "twoloop turn" in err


def test_doctor_tells_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(["doctor", "--json", "-w", str(tmp_path)], capsys)
    told = json.loads(out)
    assert told["ready"] == (status == 0)
    assert {one["what"] for one in told["findings"]} >= {"python", "torch", "memory", "disk", "sandbox", "models"}
    assert all(one["fix"] for one in told["findings"] if one["blocks"])


def test_progress_without_a_terminal_is_one_line_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    from twoloop.cli.progress import Bars

    with Bars() as bars:
        for done in range(1, 4):
            bars("sessions", done, 3)
        bars("unfinished", 1, 2)
    err = capsys.readouterr().err
    assert err.startswith("sessions: 3 of 3 in ") and err.count("\n") == 1
