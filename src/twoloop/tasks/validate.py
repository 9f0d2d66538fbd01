"""One candidate to one draft, or the reason why not."""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from twoloop.errors import TaskError
from twoloop.records import Task
from twoloop.sandbox import open_sandbox
from twoloop.tasks import disk
from twoloop.tasks.candidates import Candidate, Codebase
from twoloop.tasks.cut import file_of, function_of, without
from twoloop.tasks.seal import leaks
from twoloop.tasks.source import is_test
from twoloop.tasks.suite import mounts, run_suite
from twoloop.tasks.units import instruction, stub_source

MAX_PASS_TO_PASS = 12
HIDDEN_SHARE = 0.35  # of the fail-to-pass test functions, where there are at least three


@dataclass(frozen=True)
class Rejected:
    reason: str


def validate(codebase: Codebase, candidate: Candidate, cache: Path, seed: int) -> disk.Draft | Rejected:
    """Delete, run what can be affected, keep the task when it is sound and sealed."""
    began = time.monotonic()
    path = candidate.path
    try:
        stubbed = stub_source(codebase.texts[path], candidate.functions)
    except TaskError:
        return Rejected("the stub does not parse")
    files = {file_of(test) for test in candidate.tests}
    rng = random.Random(f"{seed}/{path}/{candidate.functions[0].qualname}")
    others = sorted(t for t in codebase.stable if file_of(t) in files and t not in candidate.tests)
    bystanders = rng.sample(others, min(MAX_PASS_TO_PASS, len(others)))
    wanted = [*sorted(candidate.tests), *bystanders]
    tests = {p: t for p, t in codebase.texts.items() if p in files or _support(p)}
    code = {p: t for p, t in codebase.texts.items() if not _of_tests(p)}
    before = _outcomes({**code, **tests}, wanted, cache)
    if not all(before.get(t) == "passed" for t in wanted):
        return Rejected("the reference does not pass on the task's own tree")
    after = _outcomes({**code, **tests, path: stubbed}, wanted, cache)
    failing = tuple(t for t in wanted if after.get(t) != "passed")
    passing = tuple(t for t in wanted if after.get(t) == "passed")[:MAX_PASS_TO_PASS]
    if not failing:
        return Rejected("no test notices the deletion")
    if any(t in bystanders for t in failing):
        return Rejected("tests that never ran the code fail without it")
    hidden = _hidden(failing, rng)
    shown = {p: without(t, {function_of(i) for i in hidden if file_of(i) == p}) for p, t in tests.items()}
    tree = {**code, **shown, path: stubbed}
    found = leaks([f.body for f in candidate.functions], tree)
    if found:
        return Rejected("the deleted code stands elsewhere too")
    return disk.Draft(
        task=_task(codebase, candidate, failing, passing, tuple(t for t in (*failing, *passing) if t not in hidden)),
        tree=tree,
        tests=tests,
        solution={path: codebase.texts[path]},
        packages=codebase.source.packages,
        facts={
            "source_sha256": codebase.source.sha256,
            "seal": {"scanned_files": len(tree), "hits": 0, "hidden_tests": len(hidden)},
            "seconds": round(time.monotonic() - began, 2),
            "bodies": [f.body for f in candidate.functions],
        },
    )


def _outcomes(files: dict[str, str], tests: list[str], cache: Path) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="twoloop-task-") as temporary:
        tree = Path(temporary, "tree")
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text, "utf-8")
        sandbox = open_sandbox(tree, mounts=mounts(cache))
        try:
            return run_suite(sandbox, tests, wall_s=30.0).outcomes
        finally:
            sandbox.stop()


def _of_tests(path: str) -> bool:
    return is_test(path.rpartition("/")[2]) or bool({"tests", "test"} & set(path.split("/")[:-1]))


def _support(path: str) -> bool:
    """Files that tests need and that are no tests: conftest.py, packages' __init__.py, data."""
    return _of_tests(path) and not is_test(path.rpartition("/")[2])


def _hidden(failing: tuple[str, ...], rng: random.Random) -> frozenset[str]:
    """The fail-to-pass tests that the agent never sees: whole functions, about a third of three or more."""
    names = sorted({(file_of(t), function_of(t)) for t in failing})
    if len(names) < 3:
        return frozenset()
    gone = set(rng.sample(names, int(HIDDEN_SHARE * len(names))))
    return frozenset(t for t in failing if (file_of(t), function_of(t)) in gone)


def _task(
    codebase: Codebase,
    candidate: Candidate,
    failing: tuple[str, ...],
    passing: tuple[str, ...],
    visible: tuple[str, ...],
) -> Task:
    source = codebase.source.name.partition("==")[0]
    module = candidate.path.removesuffix(".py").replace("/", ".")
    names = "+".join(f.qualname for f in candidate.functions)
    return Task(
        id=f"{module}.{names}" if module.startswith(source) else f"{source}.{module}.{names}",
        source=source,
        cluster=f"{source}:{candidate.path}",
        split="train",
        instruction=instruction(candidate.functions),
        units=tuple(f.unit() for f in candidate.functions),
        fail_to_pass=failing,
        pass_to_pass=passing,
        visible=visible,
        folder="",
    )
