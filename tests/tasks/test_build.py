from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from twoloop.errors import TaskError
from twoloop.records import Task
from twoloop.tasks import BuildReport, build, load


def names(tasks: list[Task]) -> set[str]:
    return {t.id.rpartition("lib.")[2] for t in tasks}


def test_functions_that_tests_run_become_tasks_and_no_others(built: tuple[BuildReport, list[Task]]) -> None:
    report, tasks = built
    found = names(tasks)
    assert {"text.shout", "text.initials", "numbers.clamp", "numbers.Stack.push", "numbers.Stack.top"} <= found
    assert not any("unused" in name or "register" in name or "__init__" in name for name in found)
    assert any("+" in name for name in found)  # related functions deleted together
    assert report.tasks == len(tasks) == report.train + report.heldout


def test_modules_are_never_shared_between_training_and_held_out(built: tuple[BuildReport, list[Task]]) -> None:
    sides: dict[str, set[str]] = {}
    for task in built[1]:
        sides.setdefault(task.cluster, set()).add(task.split)
    assert all(len(side) == 1 for side in sides.values())
    assert {s for side in sides.values() for s in side} == {"train", "heldout"}


def test_the_agents_tree_holds_the_stub_and_no_trace_of_the_body(initials: Task) -> None:
    tree = Path(initials.folder, "environment/tree")
    text = (tree / "lib/text.py").read_text()
    assert 'raise NotImplementedError("initials")' in text
    assert "word[0] for word" not in text
    assert ">>> initials" in text  # the docstring stays
    paths = {p.relative_to(tree).as_posix() for p in tree.rglob("*")}
    assert not any(part in path for path in paths for part in (".git", "__pycache__", "build", "README"))


def test_some_tests_that_fail_are_hidden_and_absent_from_the_tree(initials: Task) -> None:
    hidden = set(initials.fail_to_pass) - set(initials.visible)
    assert len(initials.fail_to_pass) == 3
    assert len(hidden) == 1
    name = next(iter(hidden)).rpartition("::")[2]
    folder = Path(initials.folder)
    assert name not in (folder / "environment/tree/tests/test_text.py").read_text()
    assert name in (folder / "tests/files/tests/test_text.py").read_text()


def test_the_folder_is_in_harbors_layout_and_tells_its_story(initials: Task) -> None:
    folder = Path(initials.folder)
    document = tomllib.loads((folder / "task.toml").read_text())
    assert document["verifier"]["environment_mode"] == "separate"
    assert document["metadata"]["twoloop"]["fail_to_pass"] == list(initials.fail_to_pass)
    assert document["metadata"]["twoloop"]["seal"]["hits"] == 0
    for path in ("instruction.md", "environment/Dockerfile", "tests/test.sh", "solution/solve.sh"):
        assert (folder / path).is_file()
    assert initials.instruction.startswith("Implement `initials` in `lib/text.py`.")


def test_a_finished_build_is_kept(library: Path, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "tasks"
    first = build([str(library)], out, cache=cache)
    marks = {p: p.stat().st_ino for p in out.rglob("task.toml")}
    assert build([str(library)], out, cache=cache) == first
    assert {p: p.stat().st_ino for p in out.rglob("task.toml")} == marks


def test_a_damaged_task_is_named(built: tuple[BuildReport, list[Task]], tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "task.toml").write_text("[metadata]\n")
    with pytest.raises(TaskError, match="odd is no whole task"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"lib/__init__.py": "", "lib/a.py": "def f():\n    return 1\n"}, "has no tests"),
        ({"test_a.py": "def test_a():\n    assert True\n"}, "has no Python package"),
        ({"lib/__init__.py": "", "tests/test_a.py": "def test_a():\n    assert False\n"}, "no test of .* passes twice"),
        ({"lib/__init__.py": "", "tests/test_a.py": "import nowhere\n"}, "do not run"),
        ({"lib/__init__.py": "", "tests/test_a.py": "import os\nos._exit(0)\n"}, "no report from the tests"),
    ],
)
def test_a_source_that_gives_no_task_says_why(files: dict[str, str], said: str, cache: Path, tmp_path: Path) -> None:
    for path, text in files.items():
        (tmp_path / "src" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / path).write_text(text)
    with pytest.raises(TaskError, match=said):
        build([str(tmp_path / "src")], tmp_path / "out", cache=cache)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("source", ["./nowhere", "not a source", "file:///nowhere.git"])
def test_a_source_that_is_not_there_is_refused(source: str, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"is no source|could not clone"):
        build([source], tmp_path / "out", cache=cache)
