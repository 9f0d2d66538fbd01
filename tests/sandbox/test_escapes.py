"""Ways out that namespaces alone leave open, tried from inside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twoloop.sandbox import open_sandbox, sandbox_python, sweep
from twoloop.sandbox.bwrap import BwrapSandbox
from twoloop.sandbox.homes import make_home
from twoloop.sandbox.python import package_folders

# As raw numbers on x86-64 and aarch64, so that no library stands between the test and the filter.
CALLS = {
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "unshare": (272, 97),
    "open_by_handle_at": (304, 265),
    "syslog": (103, 116),
}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[BwrapSandbox]:
    sandbox = open_sandbox(tmp_path)
    yield sandbox
    sandbox.stop()


def inside(box: BwrapSandbox, code: str) -> list[str]:
    done = box.exec([sandbox_python(), "-I", "-S", "-c", code])
    assert done.code == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def test_kernel_settings_cannot_be_changed_even_by_root(box: BwrapSandbox) -> None:
    """As root the code inside still has the host's uid 0, for which files below /proc/sys open without capabilities."""
    code = (
        "import os\n"
        "for folder, _, names in os.walk('/proc/sys'):\n"
        "    for name in names:\n"
        "        try: os.close(os.open(os.path.join(folder, name), os.O_WRONLY)); print(folder, name)\n"
        "        except OSError: pass\n"
        "for name in ('sysrq-trigger', 'self/oom_score_adj', 'self/uid_map', 'irq', 'kmsg', 'kcore'):\n"
        "    try: os.close(os.open('/proc/' + name, os.O_WRONLY)); print(name)\n"
        "    except OSError: pass\n"
    )
    assert inside(box, code) == []


def test_only_ordinary_socket_families_exist(box: BwrapSandbox) -> None:
    """AF_VSOCK (40) reaches the hypervisor from any network namespace; AF_ALG (38) and AF_PACKET (17) the kernel."""
    code = (
        "import errno, socket\n"
        "for family in (1, 2, 10, 16, 17, 31, 38, 40, 44):\n"
        "    try: socket.socket(family, 3 if family == 16 else 1).close(); print(family)\n"
        "    except OSError as e: print(family, errno.errorcode[e.errno])\n"
    )
    refused = [f"{family} EAFNOSUPPORT" for family in (17, 31, 38, 40, 44)]
    assert inside(box, code) == ["1", "2", "10", "16", *refused]


def test_system_calls_that_reach_the_kernel_s_own_state_are_refused(box: BwrapSandbox) -> None:
    numbers = [pair[os.uname().machine == "aarch64"] for pair in CALLS.values()]
    code = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"for number in {numbers}: print(libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno())\n"
    )
    assert inside(box, code) == ["-1 1"] * len(numbers)


def test_processes_threads_and_pipes_work_as_usual(box: BwrapSandbox) -> None:
    code = (
        "import multiprocessing as m, socket, threading, subprocess, os\n"
        "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1).decode())\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "print(subprocess.run(['id', '-un'], capture_output=True, text=True).stdout.strip())\n"
        "with m.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))\n"
        "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); print('loopback')\n"
    )
    assert inside(box, code) == ["x", "thread", "user", "[1, 2]", "loopback"]


def test_installed_packages_of_the_host_are_not_there(box: BwrapSandbox) -> None:
    code = f"import os; print([len(os.listdir(p)) for p in {[str(p) for p in package_folders()]}])"
    assert inside(box, code) == [str([0] * len(package_folders()))]
    assert box.exec([sandbox_python(), "-c", "import pip"]).code == 1


def test_other_workspaces_and_the_host_s_paths_are_out_of_sight(box: BwrapSandbox) -> None:
    home = make_home()
    (home / "secret").write_text("hunter2")
    told = box.exec(["/bin/sh", "-c", "cat /tmp/*/*/secret /proc/*/cmdline /proc/*/environ"])
    home.joinpath("secret").unlink()
    home.rmdir()
    assert b"hunter2" not in told.stdout
    assert str(home.parent).encode() not in told.stdout
    assert home.parent.stat().st_mode & 0o777 == 0o700


def test_a_killed_owner_leaves_nothing_running_and_nothing_behind(tmp_path: Path) -> None:
    marker = f"5{os.getpid():07d}"
    code = (
        "import sys; from pathlib import Path; from twoloop.sandbox import open_sandbox\n"
        "b = open_sandbox(Path(sys.argv[1])); print(b._home, flush=True)\n"
        "b.exec(['/bin/sh', '-c', 'setsid sleep ' + sys.argv[2] + ' & echo > started; sleep ' + sys.argv[2]])\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, tmp_path, marker], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    home = Path(owner.stdout.readline().strip())
    until(lambda: (home / "tree" / "started").exists())
    assert running(f"sleep\0{marker}\0")
    groups = [Path(line) for line in (home / "groups").read_text().split()] if (home / "groups").exists() else []
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until(lambda: not running(f"sleep\0{marker}\0"))
    until(lambda: sweep() >= 0 and not home.exists())
    assert not any(group.exists() for group in groups)


def running(command: str) -> bool:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text())
        except OSError:
            continue
    return command in found


def until(true: object, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
