from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st

from twoloop.errors import StoreError
from twoloop.records import (
    Checkpoint,
    Event,
    Lineage,
    Reward,
    ToolCall,
    Trajectory,
    Turn,
    Verdict,
    missing,
    new_id,
    scored,
    tampered,
)
from twoloop.store import Store

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


def event(session: str = "s", kind: str = "thumbs_down", key: str = "") -> Event:
    return Event(new_id(), key or new_id(), "2026-01-01T00:00:00.000Z", kind, "HUMAN", session, text="né")


def test_a_repeated_delivery_is_harmless(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    first = event(key="k")
    assert store.add_events([first, event()]) == 2
    assert store.add_events([event(key="k"), event()]) == 1
    found = store.events()
    assert len(found) == 3
    assert first in found


def test_what_was_written_is_read_by_another_opening(tmp_path: Path) -> None:
    checkpoint = Checkpoint("a", "/m", "", None, "r", "d", "w", 0)
    first = Store.open(tmp_path)
    first.add_checkpoint(checkpoint)
    first.set_serving("a")
    first.add_verdict("turn-1", Verdict("reject", "No.", "unknown_tool", "a", "b"))
    again = Store.open(tmp_path)
    assert again.serving() == checkpoint
    assert (again.verdict("turn-1") or {})["sentence"] == "No."
    assert again.verdict("turn-2") is None


def test_a_checkpoints_name_is_given_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.add_checkpoint(Checkpoint("a", "/m", "", None, "r", "d", "w1", 0))
    store.add_checkpoint(Checkpoint("a", "/m", "", None, "r", "d", "w1", 0))
    with pytest.raises(StoreError, match="exists with other weights"):
        store.add_checkpoint(Checkpoint("a", "/m", "", None, "r", "d", "w2", 0))


def test_serving_goes_forward_and_a_repeat_changes_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for name in "ab":
        store.add_checkpoint(Checkpoint(name, "/m", "", None, "", "", name, 0))
    for name in "aabb":
        store.set_serving(name)
    assert store.count("serving") == 2
    assert (store.serving() or event()).__class__ is Checkpoint


def test_lineage_is_a_set(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    rows = [Lineage("report:1", "area:x", "evidence of"), Lineage("area:x", "checkpoint:a", "trained to fix")]
    store.add_lineage(rows)
    store.add_lineage(rows)
    assert store.parents("checkpoint:a") == [rows[1]]
    assert store.count("lineage") == 2


def test_a_damaged_blob_is_told_and_not_returned(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    digest = store.blobs.put(b"hello")
    (path,) = [p for p in (tmp_path / "blobs").rglob("*") if p.is_file()]
    path.write_bytes(b"hellx")
    with pytest.raises(StoreError, match="damaged"):
        store.blobs.get(digest)


def test_a_place_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="--workspace"):
        Store.open(tmp_path / "file" / "ws")


def test_a_file_that_is_no_record_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "record.sqlite").write_bytes(b"not a database, but precious" * 100)
    with pytest.raises(StoreError):
        Store.open(tmp_path)
    assert (tmp_path / "record.sqlite").read_bytes().startswith(b"not a database")


WRITER = """
import sys
from pathlib import Path
from twoloop.records import Event
from twoloop.store import Store
store = Store.open(Path(sys.argv[1]))
for i in range(100_000):
    store.add_events([Event(str(i), str(i), "2026", "comment", "USER", "s")])
    print(i, flush=True)
"""


def test_acknowledged_events_survive_kill_9(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(40)]
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    kept = {int(e.id) for e in Store.open(tmp_path).events()}
    assert set(acknowledged) <= kept


def test_rewards_keep_their_meaning() -> None:
    assert scored(1, solved=1).solved
    assert not scored(1).solved
    assert missing("x").value is None
    assert (tampered("x").value, tampered("x").solved) == (0.0, False)
    assert Reward("scored", 0.5).status == "scored"


def test_ids_sort_by_time_and_are_version_7() -> None:
    ids = [new_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert all(i[14] == "7" and i[19] in "89ab" for i in ids)
    assert ids[0][:13] <= ids[-1][:13]
