"""What code in the sandbox can and cannot do. Every check runs real processes under the real tier of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from twoloop.errors import NoSandbox, SandboxError
from twoloop.sandbox import Limits, Mount, open_sandbox, sandbox_python, sweep
from twoloop.sandbox.bwrap import BwrapSandbox
from twoloop.sandbox.probe import probe_with


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "a.py").write_text("x = 1\n")
    return folder


@pytest.fixture
def box(tree: Path) -> Iterator[BwrapSandbox]:
    sandbox = open_sandbox(tree)
    yield sandbox
    sandbox.stop()


def shell(box: BwrapSandbox, script: str, limits: Limits | None = None) -> tuple[int, str]:
    done = box.exec(["/bin/sh", "-c", script], limits=limits)
    return done.code, (done.stdout + done.stderr).decode()


def test_commands_run_in_a_private_writable_copy(box: BwrapSandbox, tree: Path) -> None:
    assert shell(box, "pwd; cat pkg/a.py; echo new > pkg/b.py; rm pkg/a.py") == (0, "/workspace\nx = 1\n")
    assert box.changed() == {"pkg/b.py": b"new\n", "pkg/a.py": None}
    assert sorted(p.name for p in (tree / "pkg").iterdir()) == ["a.py"]  # the original is untouched


def test_nothing_of_the_host_can_be_seen(box: BwrapSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    (tmp_path / "secret").write_text("hunter2")
    for path in ("/etc/shadow", "/home", "/var", "/etc/hostname", str(tmp_path)):
        assert shell(box, f"ls {path}")[0] != 0, path
    assert "hunter2" not in shell(box, "env; cat /proc/*/environ")[1]
    own = shell(box, "ls -d /proc/[0-9]* | wc -l")[1]
    assert int(own) < 8  # its own few processes, none of the host's


def test_nothing_outside_the_workspace_and_tmp_can_be_written(box: BwrapSandbox) -> None:
    for path in ("/x", "/usr/x", "/etc/x", "/bin/x", "/root/x", "/driver.py"):
        assert shell(box, f"touch {path}")[0] != 0, path
    assert shell(box, "touch /tmp/x && test -f /tmp/x")[0] == 0
    assert shell(box, "test -f /tmp/x")[0] == 1  # and not the next time


def test_there_is_no_network(box: BwrapSandbox) -> None:
    script = (
        "import socket\n"
        "for family, target in ((socket.AF_INET, ('127.0.0.1', 22)), (socket.AF_INET, ('8.8.8.8', 53))):\n"
        "    s = socket.socket(family); s.settimeout(1)\n"
        "    try: s.connect(target); print('open')\n"
        "    except OSError as e: print('closed')\n"
        "try: socket.getaddrinfo('example.org', 80); print('open')\n"
        "except OSError: print('closed')\n"
    )
    done = box.exec([sandbox_python(), "-I", "-c", script])
    assert done.stdout == b"closed\n" * 3


def test_no_rights_are_left_and_no_namespace_can_be_made_inside(box: BwrapSandbox) -> None:
    status = shell(box, "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")[1].split()
    assert status == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    assert shell(box, "unshare -U true")[0] != 0
    assert shell(box, "mount -t tmpfs none /tmp")[0] != 0


def test_a_command_past_its_time_is_killed_with_all_that_it_started(box: BwrapSandbox) -> None:
    marker = f"sleep 3{os.getpid() % 100000:05d}"
    began = time.monotonic()
    done = box.exec(
        ["/bin/sh", "-c", f"setsid {marker} & (setsid setsid {marker} &) ; {marker}"], limits=Limits(wall_s=1.0)
    )
    assert done.timed_out
    assert time.monotonic() - began < 5
    time.sleep(0.3)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert marker not in [line.strip() for line in running.splitlines()]


def test_daemons_end_with_the_command_that_started_them(box: BwrapSandbox) -> None:
    marker = f"sleep 4{os.getpid() % 100000:05d}"
    box.exec(["/bin/sh", "-c", f"setsid {marker} >/dev/null 2>&1 </dev/null & exit 3"])
    time.sleep(0.3)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert marker not in [line.strip() for line in running.splitlines()]


def test_memory_is_bounded(box: BwrapSandbox) -> None:
    hog = "x = bytearray(900 << 20); x[::4096] = b'1' * len(x[::4096]); print('kept')"
    done = box.exec([sandbox_python(), "-I", "-c", hog], limits=Limits(memory_mb=200))
    assert b"kept" not in done.stdout
    assert done.code != 0


def test_a_fork_bomb_is_held(box: BwrapSandbox) -> None:
    script = (
        "import os, time\n"
        "n = 0\n"
        "for _ in range(400):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "        n += 1\n"
        "    except OSError: break\n"
        "print(n)\n"
    )
    done = box.exec([sandbox_python(), "-I", "-c", script], limits=Limits(processes=40, wall_s=10))
    assert 0 < int(done.stdout or b"1") < 60


def test_output_is_capped_and_a_writer_never_blocks(box: BwrapSandbox) -> None:
    done = box.exec(["/bin/sh", "-c", "head -c 50000000 /dev/zero; echo end >&2"], limits=Limits(output_bytes=1000))
    assert (len(done.stdout), done.stderr, done.truncated, done.timed_out) == (1000, b"end\n", True, False)


def test_large_input_reaches_the_command(box: BwrapSandbox) -> None:
    done = box.exec(["/usr/bin/wc", "-c"], stdin=b"x" * 3_000_000)
    assert done.stdout.strip() == b"3000000"
    assert box.exec(["/bin/true"], stdin=b"x" * 3_000_000).code == 0  # one that does not read


def test_exit_codes_and_signals_are_told(box: BwrapSandbox) -> None:
    assert box.exec(["/bin/sh", "-c", "exit 7"]).code == 7
    assert box.exec(["/bin/sh", "-c", "kill -9 $$"]).code == 137
    assert box.exec(["/nowhere/program"]).code not in (0, 125)


def test_links_that_the_sandbox_plants_lead_nowhere(box: BwrapSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    shell(box, f"ln -s {secret} file; ln -s {tmp_path} folder; mkfifo pipe; ln -s / root")
    for path in ("file", "folder/secret", "pipe", "root/etc/passwd"):
        with pytest.raises(OSError):
            box.get(path)
    box.put("file", b"mine")
    assert secret.read_text() == "host"
    with pytest.raises(OSError):
        box.put("folder/secret", b"mine")
    assert secret.read_text() == "host"
    assert box.changed() == {"file": b"mine"}


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a\0b"])
def test_paths_that_leave_the_workspace_are_refused(box: BwrapSandbox, path: str) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        box.put(path, b"x")
    with pytest.raises(ValueError, match="not a path inside"):
        box.get(path)


def test_mounts_are_read_only(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "f").write_text("hello")
    box = open_sandbox(tree, mounts=[Mount(tmp_path / "given", "/given")])
    assert shell(box, "cat /given/f") == (0, "hello")
    assert shell(box, "echo x > /given/f")[0] != 0
    box.stop()


def test_sixteen_sandboxes_work_side_by_side(tree: Path) -> None:
    def one(i: int) -> bytes:
        box = open_sandbox(tree)
        try:
            box.put("me", str(i).encode())
            return box.exec(["/bin/cat", "me"]).stdout
        finally:
            box.stop()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(16))) == [str(i).encode() for i in range(16)]


def test_workspaces_of_killed_owners_are_swept(tree: Path) -> None:
    code = (
        "import time; from pathlib import Path; from twoloop.sandbox import open_sandbox\n"
        f"box = open_sandbox(Path({str(tree)!r})); print(box._home, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    left = Path(owner.stdout.readline().strip())
    assert left.is_dir()
    sweep()
    assert left.is_dir()  # its owner lives
    owner.kill()
    owner.wait()
    assert sweep() >= 1
    assert not left.exists()


def test_a_machine_without_a_sandbox_is_refused_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(NoSandbox, match="bubblewrap is not installed") as caught:
        probe_with(())
    assert "apt install bubblewrap" in str(caught.value)
    fake = tmp_path / "bwrap"
    fake.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo bubblewrap 0.11.0 && exit 0\necho 'No permissions' >&2; exit 1\n"
    )
    fake.chmod(0o755)
    with pytest.raises(NoSandbox, match="No permissions"):
        probe_with((fake,))
    fake.write_text("#!/bin/sh\necho bubblewrap 0.3.1\n")
    with pytest.raises(NoSandbox, match="too old"):
        probe_with((fake,))


def test_a_tree_with_a_device_or_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "pipe")
    with pytest.raises(SandboxError, match="neither file, folder nor link"):
        open_sandbox(tmp_path / "tree")
