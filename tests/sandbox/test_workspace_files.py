"""Files of a workspace seen from outside, whatever code inside made of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoloop.errors import SandboxError
from twoloop.sandbox import Mount, open_sandbox, sandbox_python
from twoloop.sandbox.bwrap import BwrapSandbox
from twoloop.sandbox.files import copy_tree, difference, read, remove_tree, write

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)
TREES = st.dictionaries(st.tuples(st.sampled_from("ab"), NAMES).map("/".join), st.binary(max_size=50), max_size=6)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[BwrapSandbox]:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "kept.py").write_text("kept\n")
    (tmp_path / "tree" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "tree" / "run.sh").chmod(0o6755)
    (tmp_path / "tree" / "link").symlink_to("kept.py")
    sandbox = open_sandbox(tmp_path / "tree")
    yield sandbox
    sandbox.stop()


@settings(max_examples=60, deadline=None)
@given(before=TREES, after=TREES)
def test_the_difference_is_what_a_comparison_of_the_two_trees_says(
    before: dict[str, bytes], after: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("trees")
    for path, data in before.items():
        (place / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "source" / path).write_bytes(data)
    (place / "source").mkdir(exist_ok=True)
    start = copy_tree(place / "source", place / "copy")
    for path in before.keys() - after.keys():
        (place / "copy" / path).unlink()
    for path, data in after.items():
        write(place / "copy", path, data)
        assert read(place / "copy", path) == data
    expected: dict[str, bytes | None] = {path: data for path, data in after.items() if before.get(path) != data}
    expected.update(dict.fromkeys(before.keys() - after.keys()))
    assert difference(place / "copy", start, 1 << 20) == expected
    remove_tree(place / "copy")
    assert not (place / "copy").exists()


def test_modes_and_links_are_copied_but_no_set_id_bits(box: BwrapSandbox) -> None:
    done = box.exec(["/bin/sh", "-c", "./run.sh; stat -c %a run.sh; readlink link; cat link"])
    assert done.stdout == b"ran\n755\nkept.py\nkept\n"
    box.put("run.sh", b"#!/bin/sh\necho again\n")
    assert box.exec(["./run.sh"]).stdout == b"again\n"  # still a program


def test_a_file_that_turned_into_something_else_counts_as_deleted(box: BwrapSandbox) -> None:
    box.exec(["/bin/sh", "-c", "rm kept.py run.sh; mkdir kept.py; ln -s /etc/passwd run.sh; mkfifo pipe"])
    assert box.changed() == {"kept.py": None, "run.sh": None}


def test_files_cannot_be_hidden_by_taking_rights_away(box: BwrapSandbox) -> None:
    box.exec(["/bin/sh", "-c", "mkdir d; echo new > d/new; echo other > kept.py; chmod 0 d/new kept.py d"])
    assert box.changed() == {"d/new": b"new\n", "kept.py": b"other\n"}
    assert box.get("d/new") == b"new\n"


def test_a_folder_swapped_for_a_link_while_we_look_leads_nowhere(box: BwrapSandbox, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "f").write_text("secret")
    swap = f"while :; do mkdir -p d; echo mine > d/f; rm -r d; ln -s {tmp_path}/host d; rm d; done"
    thread = threading.Thread(target=box.exec, args=(["/usr/bin/timeout", "1.5", "/bin/sh", "-c", swap],))
    thread.start()
    seen = set()
    while thread.is_alive():
        try:
            seen.add(box.get("d/f"))
            box.put("d/g", b"mine")
        except OSError:
            continue
    thread.join()
    assert seen <= {b"mine\n", b"", b"mine"}
    assert os.listdir(tmp_path / "host") == ["f"]


def test_a_workspace_of_any_shape_can_be_looked_at_and_removed(box: BwrapSandbox) -> None:
    code = "import os\nfor _ in range(3000): os.mkdir('d'), os.chdir('d')\nopen('f', 'w').close(); os.chmod('.', 0)"
    assert box.exec([sandbox_python(), "-I", "-S", "-c", code]).code == 0
    assert box.changed() == {}
    home = box._home
    box.stop()
    assert not home.exists()
    box.stop()


def test_a_tree_that_holds_the_temporary_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with pytest.raises(SandboxError, match="set TMPDIR"):
        open_sandbox(tmp_path)


def test_more_change_than_memory_should_hold_is_refused(box: BwrapSandbox) -> None:
    box.exec(["/bin/sh", "-c", "for i in 1 2 3 4 5; do truncate -s 60M $i; done"])  # sparse: no disk, all of the memory
    with pytest.raises(SandboxError, match="hold more than 256 MB"):
        box.changed()


@pytest.mark.parametrize("inside", ["/", "/usr/lib/x", "/workspace/x", "/proc/x", "relative", "/a/../etc"])
def test_mounts_cannot_cover_the_sandbox_s_own_places(tmp_path: Path, inside: str) -> None:
    (tmp_path / "tree").mkdir()
    with pytest.raises(SandboxError, match="cannot be mounted"):
        open_sandbox(tmp_path / "tree", mounts=[Mount(tmp_path, inside)])
