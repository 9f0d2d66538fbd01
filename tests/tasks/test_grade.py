"""The grader against honest patches and against forgeries that beat other graders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from twoloop.records import Reward, Task
from twoloop.tasks import BuildReport, grade, open_environment
from twoloop.tasks.grade import accepted


def solution(task: Task) -> dict[str, bytes | None]:
    root = Path(task.folder, "solution/files")
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def stubbed(task: Task) -> str:
    return Path(task.folder, "environment/tree", task.units[0].path).read_text()


def test_every_reference_solves_its_task_and_an_empty_patch_none(
    built: tuple[BuildReport, list[Task]], cache: Path
) -> None:
    for task in built[1]:
        assert grade(task, solution(task), cache).solved, task.id
        empty = grade(task, {}, cache)
        assert (empty.status, empty.value) == ("scored", 0.0)
        noise: dict[str, bytes | None] = {task.units[0].path: stubbed(task).encode() + b"\n# nothing\n"}
        assert grade(task, noise, cache).value == 0.0


def attempt(task: Task, cache: Path, body: str, **more: bytes) -> Reward:
    """Grade a patch that puts `body` in place of the stub, with more files."""
    text = stubbed(task).replace('raise NotImplementedError("initials")', body)
    changed: dict[str, bytes | None] = {"lib/text.py": text.encode()}
    changed.update({path.replace("__", "/"): data for path, data in more.items()})
    return grade(task, changed, cache)


def test_a_patch_that_passes_only_what_it_saw_is_not_solved(initials: Task, cache: Path) -> None:
    seen = attempt(initials, cache, 'return {"ab cd": "ac"}.get(text, "")')
    assert not seen.solved
    assert 0 < seen.parts["f2p"] < 1


ATTACKS = {
    "exit at import": "return 1\n\nimport os\nos._exit(0)",
    "raise at import": "return 1\n\nraise SystemExit(0)",
    "patch the runner": (
        "return 1\n\nimport _pytest.runner, _pytest.python\n"
        "_pytest.python.Function.runtest = lambda self: None\n"
        "_pytest.runner.call_and_report = lambda *a, **k: None"
    ),
    "never ends": "return 1\n\nwhile True: pass",
    "skip": "import pytest; pytest.skip('x')",
}


@pytest.mark.parametrize("name", [n for n in ATTACKS if n not in ("patch the runner", "never ends")])
def test_forgeries_in_the_source_do_not_pass(initials: Task, cache: Path, name: str) -> None:
    assert not attempt(initials, cache, ATTACKS[name]).solved


def test_a_patch_that_never_ends_is_a_zero_and_not_missing(
    initials: Task, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["twoloop.tasks.grade"], "WALL_S", 2.0)
    reward = attempt(initials, cache, ATTACKS["never ends"])
    assert (reward.status, reward.value, reward.parts["timed_out"]) == ("scored", 0.0, 1.0)


def test_files_that_could_forge_a_result_are_dropped(initials: Task, cache: Path) -> None:
    conftest = b"def pytest_runtest_makereport(item, call):\n    raise SystemExit(0)\n"
    for path in ("conftest.py", "lib__conftest.py", "pytest.py", "tests__test_text.py", "sitecustomize.py"):
        reward = attempt(initials, cache, "return ''", **{path: conftest})
        assert not reward.solved
        assert reward.parts["dropped"] == 1, path


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("lib/text.py", True),
        ("lib/new/helper.py", True),
        ("lib/tests/test_x.py", False),
        ("lib/test_x.py", False),
        ("lib/conftest.py", False),
        ("lib/data.json", False),
        ("other/text.py", False),
        ("lib/../tests/x.py", False),
        ("lib.py", False),
    ],
)
def test_only_source_files_count(path: str, kept: bool) -> None:
    assert bool(accepted({path: b"x = 1\n"}, ("lib",))) is kept


def test_the_agents_own_test_run_sees_visible_tests_only(initials: Task, cache: Path) -> None:
    environment = open_environment(initials, cache)
    try:
        before = environment.run_tests()
        assert (before.passed, before.failed) == (len(initials.visible) - 2, 2)
        environment.sandbox.put("lib/text.py", solution(initials)["lib/text.py"] or b"")
        after = environment.run_tests()
        assert (after.passed, after.failed, after.error) == (len(initials.visible), 0, "")
        environment.sandbox.put("lib/text.py", b"def (")
        broken = environment.run_tests()
        assert broken.passed == 0
        assert broken.failed == len(initials.visible)
    finally:
        environment.close()
