"""A task as a folder in Harbor's layout, and back.

task.toml        limits, and ours under [metadata.twoloop]
instruction.md   what the agent is asked
environment/     Dockerfile and tree/: the stubbed codebase with the visible tests
tests/           test.sh and files/: all tests of the task, for the grader alone
solution/        solve.sh and files/: the reference
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twoloop.errors import TaskError
from twoloop.records import Task, Unit

TREE, TESTS, SOLUTION = "environment/tree", "tests/files", "solution/files"


@dataclass(frozen=True)
class Draft:
    """A validated task before it is written. File maps go from relative path to content."""

    task: Task
    tree: dict[str, str]
    tests: dict[str, str]
    solution: dict[str, str]
    packages: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)  # provenance, seal report, timings


def write(draft: Draft, out: Path) -> Task:
    """Write one task folder aside and rename it into place."""
    target = out / draft.task.id.replace("/", "--")
    aside = out / f".{target.name}.part"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        for part, files in ((TREE, draft.tree), (TESTS, draft.tests), (SOLUTION, draft.solution)):
            for path, text in files.items():
                (aside / part / path).parent.mkdir(parents=True, exist_ok=True)
                (aside / part / path).write_text(text, "utf-8")
        (aside / "instruction.md").write_text(draft.task.instruction + "\n", "utf-8")
        (aside / "environment/Dockerfile").write_text(_DOCKERFILE)
        _script(aside / "tests/test.sh", _TEST_SH.format(ids=" ".join(map(_quote, _all_ids(draft.task)))))
        _script(aside / "solution/solve.sh", _SOLVE_SH)
        (aside / "task.toml").write_text(to_toml(_document(draft)), "utf-8")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(aside, target)
    except OSError as problem:
        shutil.rmtree(aside, ignore_errors=True)
        raise TaskError(f"cannot write task {draft.task.id}: {problem}", fix="Free some disk space.") from problem
    return read(target)


def read(folder: Path) -> Task:
    """Raises TaskError for a folder that holds no whole task."""
    try:
        document = tomllib.loads((folder / "task.toml").read_text("utf-8"))
        ours = document["metadata"]["twoloop"]
        return Task(
            id=ours["id"],
            source=ours["source"],
            cluster=ours["cluster"],
            split=ours["split"],
            instruction=(folder / "instruction.md").read_text("utf-8").rstrip("\n"),
            units=tuple(Unit(**unit) for unit in ours["units"]),
            fail_to_pass=tuple(ours["fail_to_pass"]),
            pass_to_pass=tuple(ours["pass_to_pass"]),
            visible=tuple(ours["visible"]),
            folder=str(folder.resolve()),
        )
    except (OSError, KeyError, TypeError, tomllib.TOMLDecodeError) as problem:
        raise TaskError(
            f"{folder} is no whole task: {problem!r}", fix="Remove it and build the tasks again."
        ) from problem


def packages_of(task: Task) -> tuple[str, ...]:
    """Folders whose .py files a patch may touch."""
    document = tomllib.loads(Path(task.folder, "task.toml").read_text("utf-8"))
    return tuple(document["metadata"]["twoloop"]["packages"])


def load(folder: Path, split: str | None = None) -> list[Task]:
    """All tasks under a folder, by id."""
    if not folder.is_dir():
        raise TaskError(f"there are no tasks in {folder}", fix="Build some: `twoloop tasks build`.")
    tasks = [read(path) for path in sorted(folder.iterdir()) if (path / "task.toml").is_file()]
    return [task for task in tasks if split is None or task.split == split]


def _all_ids(task: Task) -> tuple[str, ...]:
    return task.fail_to_pass + task.pass_to_pass


def _document(draft: Draft) -> dict[str, Any]:
    ours = {k: v for k, v in asdict(draft.task).items() if k not in ("folder", "instruction")}
    return {
        "schema_version": "1.4",
        "task": {"name": f"twoloop/{draft.task.id.replace('/', '-')}", "version": "1", "description": draft.task.id},
        "agent": {"timeout_sec": 600.0, "network_mode": "no-network"},
        "verifier": {"timeout_sec": 120.0, "environment_mode": "separate"},
        "environment": {"cpus": 1, "memory_mb": 1500, "network_mode": "no-network"},
        "metadata": {"twoloop": {**ours, "packages": list(draft.packages), **draft.facts}},
    }


def to_toml(document: Mapping[str, Any]) -> str:
    """TOML of nested mappings. JSON's strings, numbers and lists are valid TOML; tables inside lists go inline."""
    lines: list[str] = []
    _table(document, "", lines)
    return "\n".join(lines).strip() + "\n"


def _table(table: Mapping[str, Any], name: str, lines: list[str]) -> None:
    scalars = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
    if name and (scalars or not table):
        lines += ["", f"[{name}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in scalars.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            _table(value, f"{name}.{_key(key)}" if name else _key(key), lines)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return _string(value)
    return json.dumps(value)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _script(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)


_DOCKERFILE = """\
FROM python:3.11-slim
RUN pip install --no-cache-dir pytest==8.4.2
COPY tree /workspace
WORKDIR /workspace
"""
_TEST_SH = """\
#!/bin/sh
# Runs in the verifier's own container: the tests replace whatever stands in their place.
cp -r /tests/files/. /workspace/
cd /workspace && python -m pytest -q -p no:cacheprovider -c /dev/null --rootdir /workspace --import-mode=importlib {ids}
status=$?
mkdir -p /logs/verifier
if [ "$status" -eq 0 ]; then reward=1; else reward=0; fi
echo "{{\\"reward\\": $reward}}" > /logs/verifier/reward.json
"""
_SOLVE_SH = """\
#!/bin/sh
cp -r /solution/files/. /workspace/
"""
