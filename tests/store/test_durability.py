"""What is promised of writes, checked with processes that are killed, crowds of them, and a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from twoloop.errors import SandboxError
from twoloop.sandbox.probe import probe
from twoloop.store import Store

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

SESSIONS_WRITER = """
import sys
from pathlib import Path
from twoloop.records import Trajectory, scored
from twoloop.store import Store
store = Store.open(Path(sys.argv[1]))
for i in range(100_000):
    one = Trajectory(f"s{i}", "t", "c", "k", "h", 0, 1, (i,) * 999, (), "finished", scored(0), {"a.py": "x" * 5000})
    store.add_trajectories([one], "p")
    print(i, flush=True)
"""

CROWD = """
import sys
from pathlib import Path
from twoloop.records import Event
from twoloop.store import Store
store = Store.open(Path(sys.argv[1]))
print(sum(store.add_events([Event(f"{sys.argv[2]}-{i}", f"{i}", "2026", "comment", "USER", "s")]) for i in range(50)))
"""

FILLER = """
import sys
from pathlib import Path
from twoloop.errors import StoreError
from twoloop.records import Event, Trajectory, missing
from twoloop.store import Store
store, kept = Store.open(Path("/mnt/ws")), 0
try:
    for i in range(10_000):
        store.add_events([Event(str(i), str(i), "2026", "comment", "USER", "s", text="x" * 20_000)])
        kept += 1
except StoreError as problem:
    print(problem.fix)
assert len(Store.open(Path("/mnt/ws")).events()) == kept
try:
    store.blobs.put(bytes(3_000_000))
except StoreError as problem:
    print(problem.fix)
print(kept)
"""


def test_sessions_that_were_acknowledged_survive_kill_9_whole(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", SESSIONS_WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(25)]
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    kept = {t.id: t for t in Store.open(tmp_path).trajectories("p")}
    for i in acknowledged:
        assert kept[f"s{i}"].tokens == (i,) * 999


def test_many_processes_write_at_once_and_each_event_is_new_to_one_of_them(tmp_path: Path) -> None:
    crowd = [
        subprocess.Popen([sys.executable, "-c", CROWD, str(tmp_path), str(n)], stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    new = [int(child.communicate(timeout=60)[0]) for child in crowd]
    assert sum(new) == 50 == len(Store.open(tmp_path).events())


def test_a_full_disk_is_told_and_loses_nothing_acknowledged() -> None:
    """On a file system of 2 MB, made by bubblewrap."""
    try:
        bwrap = probe().bwrap
    except SandboxError:
        pytest.skip("no bubblewrap, so no small file system")
    small = [str(bwrap), "--dev-bind", "/", "/", "--size", "2000000", "--tmpfs", "/mnt"]
    done = subprocess.run([*small, sys.executable, "-c", FILLER], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *fixes, kept = done.stdout.split("\n")[:-1]
    assert len(fixes) == 2 and all("disk space" in fix for fix in fixes)
    assert int(kept) > 10


def test_acknowledged_events_survive_kill_9(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(40)]
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    kept = {int(e.id) for e in Store.open(tmp_path).events()}
    assert set(acknowledged) <= kept
