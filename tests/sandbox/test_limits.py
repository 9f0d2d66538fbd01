"""Each ceiling is hit by a real program and reported as what it was, with control groups and without them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twoloop.errors import SandboxError
from twoloop.sandbox import Limits, probe, sandbox_python
from twoloop.sandbox.bwrap import BwrapSandbox
from twoloop.sandbox.cgroups import find_cgroups

HOG = "kept = []\nwhile True: kept.append(bytearray(8 << 20))"
FORKED_HOG = "import os\nfor _ in range(4): os.fork()\nkept = []\nwhile len(kept) < 4: kept.append(bytearray(8 << 20))"
BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"


@pytest.fixture(params=["control groups", "counting"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BwrapSandbox]:
    groups = find_cgroups() if request.param == "control groups" else None
    if request.param == "control groups" and groups is None:
        pytest.skip("this user may not make control groups here")
    sandbox = BwrapSandbox(probe(), tmp_path, (), Limits(wall_s=20), groups)
    yield sandbox
    sandbox.stop()


def python(box: BwrapSandbox, code: str, limits: Limits) -> tuple[int, bool, bool, bool]:
    done = box.exec([sandbox_python(), "-I", "-S", "-c", code], limits=limits)
    return done.code, done.timed_out, done.out_of_memory, done.process_limit


def test_a_memory_hog_is_killed_and_named(box: BwrapSandbox) -> None:
    assert python(box, HOG, Limits(memory_mb=150, wall_s=20)) == (137, False, True, False)


def test_memory_counts_over_all_processes_together(box: BwrapSandbox) -> None:
    code = FORKED_HOG + "\nimport time; time.sleep(5)"  # 16 processes of 32 MB
    done = box.exec([sandbox_python(), "-I", "-S", "-c", code], limits=Limits(memory_mb=200, wall_s=20))
    assert done.out_of_memory and not done.timed_out


def test_memory_outside_of_processes_is_bounded_too(box: BwrapSandbox) -> None:
    code = (
        "import os\n"
        "for place in ('/tmp', '/dev/shm'):\n"
        "    try:\n"
        "        with open(place + '/x', 'wb') as f:\n"
        "            for _ in range(64): f.write(bytes(1 << 20))\n"
        "        print('written')\n"
        "    except OSError as e: print(e.strerror)\n"
        "try:\n"
        "    for i in range(64): os.ftruncate(fd := os.memfd_create(str(i)), 0), os.write(fd, bytes(4 << 20))\n"
        "    print('written')\n"
        "except OSError as e: print(e.strerror)\n"
    )
    limits = Limits(tmp_mb=16, memory_mb=120, wall_s=20)
    done = box.exec([sandbox_python(), "-I", "-S", "-u", "-c", code], limits=limits)
    assert b"written" not in done.stdout
    assert done.stdout.startswith(b"No space left on device\n" * 2)
    assert done.out_of_memory or done.stdout.endswith(b"Operation not permitted\n")


def test_a_fork_bomb_is_held_and_named(box: BwrapSandbox) -> None:
    began = time.monotonic()
    code, _, out_of_memory, process_limit = python(box, BOMB, Limits(processes=30, wall_s=2))
    assert (code, out_of_memory, process_limit) == (137, False, True)
    assert time.monotonic() - began < 12


def test_as_many_processes_as_allowed_can_run(box: BwrapSandbox) -> None:
    code = (
        "import os, time\n"
        "children = [os.fork() or time.sleep(0.3) or os._exit(0) for _ in range(9)]\n"
        "for _ in children: os.wait()\n"
    )
    assert python(box, code, Limits(processes=10))[0] == 0
    assert python(box, code, Limits(processes=8))[0] != 0


def test_a_file_cannot_outgrow_its_limit(box: BwrapSandbox) -> None:
    done = box.exec(["/bin/sh", "-c", "head -c 3000000 /dev/zero > big; echo $?"], limits=Limits(file_mb=2))
    assert done.stdout == b"153\n"  # 128 + SIGXFSZ
    assert len(box.get("big")) == 2 << 20


def test_a_workspace_cannot_outgrow_its_limit(box: BwrapSandbox) -> None:
    script = "for i in $(seq 200); do head -c 1000000 /dev/zero > $i; done; sleep 30"
    done = box.exec(["/bin/sh", "-c", script], limits=Limits(workspace_mb=20, wall_s=20))
    assert (done.code, done.disk_limit, done.timed_out) == (137, True, False)


def test_endless_output_ends_with_the_deadline(box: BwrapSandbox) -> None:
    done = box.exec(["/usr/bin/yes"], limits=Limits(wall_s=0.5, output_bytes=10))
    assert (done.stdout, done.code, done.timed_out, done.truncated) == (b"y\ny\ny\ny\ny\n", 137, True, True)
    assert 0.5 <= done.seconds < 5


def test_no_program_can_pass_its_failure_off_as_the_sandbox_s(box: BwrapSandbox) -> None:
    forged = box.exec(["/bin/sh", "-c", "echo 'bwrap: execvp sh: cannot be built' >&2; exit 1"])
    assert (forged.code, forged.stderr[:7]) == (1, b"bwrap: ")
    assert box.exec(["/bin/sh", "-c", "exit 125"]).code == 125
    assert box.exec(["/bin/sh", "-c", "kill -9 1; kill -9 -1; exit 5"]).code in (5, 137)


def test_a_command_that_cannot_start_is_a_result(box: BwrapSandbox) -> None:
    assert box.exec(["no-such-program"]).code == 127
    assert box.exec(["/bin/true"], cwd="/workspace/gone").code == 127
    with pytest.raises(ValueError, match="NUL"):
        box.exec(["/bin/echo", "a\0b"])


def test_a_sandbox_that_cannot_be_built_is_an_error(box: BwrapSandbox) -> None:
    box.stop()
    with pytest.raises(SandboxError):
        box.exec(["/bin/true"])


def test_nothing_is_left_of_a_command(box: BwrapSandbox) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        box.exec(["/bin/sh", "-c", "sleep 60 & exit 0"], stdin=b"x" * 100_000)
    assert set(os.listdir("/proc/self/fd")) == before
    groups = find_cgroups()
    for parent in (groups.memory, groups.pids) if groups else ():
        assert not list(parent.glob(f"twoloop-{os.getpid()}-*"))
