"""A whole turn on the tiny model, for real: sandboxes, tasks, training, gate, report. Then the same under SIGKILL."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from twoloop.errors import StoreError
from twoloop.loop.journal import read_journal
from twoloop.loop.settle import why
from twoloop.loop.turn import turn
from twoloop.loop.workspace import Workspace
from twoloop.models.hub import pull
from twoloop.tasks import build

CHILD = Path(__file__).with_name("turn_child.py")
KILLS = 10

MODULE = '''\
def double(x):
    """Twice x."""
    return x + x


def last(items):
    """The last of some items, or None."""
    return items[-1] if items else None
'''
TESTS = """\
from lib.{name} import double, last


def test_double():
    assert double(2) == 4


def test_last():
    assert last([1, 2]) == 2
    assert last([]) is None
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of eight small modules."""
    root = tmp_path_factory.mktemp("source") / "lib-1.0"
    (root / "lib").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "lib" / "__init__.py").write_text("")
    for i, name in enumerate("abcdefgh"):
        # Bodies differ, so that no module is a near-duplicate of another.
        (root / "lib" / f"{name}.py").write_text(MODULE.replace("x + x", f"(x + x) * {i + 1} // {i + 1} - {i} + {i}"))
        (root / "tests" / f"test_{name}.py").write_text(TESTS.format(name=name))
    return root


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    pull("tiny-random", cache=folder)
    return folder


@pytest.fixture(scope="module")
def prepared(source: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two workspaces whose tasks are built: `straight` and `killed`."""
    root = tmp_path_factory.mktemp("workspaces")
    for name in ("straight", "killed"):
        build([str(source)], root / name / "tasks", cache=cache)
    return root


def start(root: Path, source: Path, cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TWOLOOP_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(root), str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.fixture(scope="module")
def straight(prepared: Path, source: Path, cache: Path) -> list[str]:
    """(turn, decision, sentence) of a turn that nobody disturbed."""
    out, err = start(prepared / "straight", source, cache).communicate(timeout=150)
    assert out, err
    found: list[str] = json.loads(out)
    return found


@pytest.mark.timeout(400)
def test_a_turn_ends_in_a_verdict_with_its_evidence(straight: list[str], prepared: Path) -> None:
    name, decision, sentence = straight
    workspace = Workspace.open(prepared / "straight")
    assert decision in ("reject", "not_enough_data")  # a random model learns nothing in two steps
    assert "held-out tasks" in sentence
    assert (workspace.store.verdict(name) or {})["sentence"] == sentence
    sessions = workspace.store.trajectories(f"{name}/gate/base")
    assert sessions
    assert all(s.tier.startswith("bwrap") for s in sessions)
    train = {s.cluster for s in workspace.store.trajectories(f"{name}/climb")}
    assert train.isdisjoint(s.cluster for s in sessions)
    assert workspace.unfinished() is None
    assert (workspace.turns / name / "report.html").stat().st_size > 5_000
    story = "\n".join(why(workspace.store, f"{name}-candidate"))
    assert "trained from checkpoint:seed" in story
    assert "evidence of event:" in story
    assert "practised on task:" in story


@pytest.mark.timeout(600)
def test_kill_9_anywhere_loses_nothing_and_repeats_no_recorded_step(
    straight: list[str], prepared: Path, source: Path, cache: Path
) -> None:
    root = prepared / "killed"
    rng = random.Random(7)
    journal = root / "turns" / "turn-1" / "steps.jsonl"
    for target in sorted(rng.sample(range(1, 28), KILLS)):
        child = start(root, source, cache)
        deadline = time.monotonic() + 90
        while child.poll() is None and len(read_journal(journal)) < target and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(rng.random() * 0.3)
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    out, err = start(root, source, cache).communicate(timeout=150)
    assert out, err
    assert json.loads(out) == straight
    happened: dict[str, list[str]] = {}
    for entry in read_journal(journal):
        happened.setdefault(entry.step, []).append(entry.happening)
    for step, what in happened.items():
        assert "started" not in what[what.index("finished") :], step
    store = Workspace.open(root).store
    ids = Counter(s.id for phase in ("dogfood", "climb", "gate/base") for s in store.trajectories(f"turn-1/{phase}"))
    assert set(ids.values()) == {1}


def test_what_cannot_be_resumed_or_begun_is_told(tmp_path: Path, source: Path, cache: Path) -> None:
    from twoloop.config import load

    settings = load(None, {"model.name": "tiny-random", "tasks.sources": str(source), "model.cache": str(cache)})
    with pytest.raises(StoreError, match="no interrupted turn"):
        turn(settings, tmp_path / "ws", resume=True)
    Workspace.open(tmp_path / "ws").begin({"model": {}})
    with pytest.raises(StoreError, match="--resume"):
        turn(settings, tmp_path / "ws")
    with pytest.raises(StoreError, match="other settings"):
        turn(settings, tmp_path / "ws", resume=True)
