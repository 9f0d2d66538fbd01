from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from twoloop.errors import StoreError
from twoloop.records import (
    Checkpoint,
    Event,
    Lineage,
    Reward,
    Verdict,
    missing,
    new_id,
    scored,
    tampered,
)
from twoloop.store import Store


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


def test_another_events_id_is_refused_with_all_that_came_with_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    first = event(key="k")
    store.add_events([first])
    with pytest.raises(StoreError, match="another event's id"):
        store.add_events([event(), replace(first, idem_key="other")])
    assert store.events() == [first]


def test_events_of_very_many_sessions_are_found_in_one_question(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.add_events([event(session=f"s{i}") for i in range(5)])
    names = [f"s{i}" for i in range(1, 40_000)]
    assert sorted(e.session for e in store.events(sessions=names)) == ["s1", "s2", "s3", "s4"]
    assert store.events(sessions=[]) == []
    assert store.events(sessions=names, kind="thumbs_up") == []


def test_a_name_without_a_checkpoint_is_not_served(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match="no checkpoint ghost"):
        store.set_serving("ghost")
    assert store.serving() is None


def test_text_that_is_no_unicode_is_an_error_with_its_fix_or_kept_exactly(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    odd = replace(event(), text="half a pair: \ud800")
    store.add_events([odd])
    assert store.events() == [odd]
    with pytest.raises(StoreError, match="Unicode"):
        store.add_events([event(session="\ud800")])


def test_a_record_of_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    Store.open(tmp_path).add_events([event()])
    with sqlite3.connect(tmp_path / "record.sqlite") as raw:
        raw.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="version 99"):
        Store.open(tmp_path)


def test_looking_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    Store.open(tmp_path).add_events([event()])
    with sqlite3.connect(tmp_path / "record.sqlite", isolation_level=None) as raw:
        raw.execute("BEGIN IMMEDIATE")
        assert len(Store.open(tmp_path).events()) == 1


def test_threads_may_store_the_same_content_at_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: store.blobs.put(b"same" * 1000), range(64)))) == 1
    assert [p.name for p in (tmp_path / "blobs").rglob(".*")] == []


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
