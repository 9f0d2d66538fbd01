"""Which functions could be deleted: those that stable tests exercise and that nothing runs at import."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twoloop.errors import TaskError
from twoloop.sandbox import open_sandbox
from twoloop.tasks.source import Source, is_test
from twoloop.tasks.suite import SuiteResult, mounts, run_suite
from twoloop.tasks.units import Function, functions, instruction

MAX_LINES, MAX_INSTRUCTION, MAX_TESTS, SLOW_S = 15, 1100, 40, 1.0
SUITE_S = 300.0


@dataclass(frozen=True)
class Codebase:
    """A source whose tests were run: the stable ones, and which of them run which line."""

    source: Source
    texts: dict[str, str]  # every text file of the tree
    stable: frozenset[str]  # node ids that passed both times, quickly
    lines: dict[str, dict[int, list[str]]]

    def tests_of(self, function: Function) -> frozenset[str]:
        """Stable tests that run the body."""
        found = self.lines.get(function.path, {})
        return frozenset(
            test for n in range(function.first, function.last + 1) for test in found.get(n, ()) if test in self.stable
        )

    def at_import(self, function: Function) -> bool:
        """True when the body runs while the package is imported: without it nothing would even load."""
        found = self.lines.get(function.path, {})
        return any("" in found.get(n, ()) for n in range(function.first, function.last + 1))


@dataclass(frozen=True)
class Candidate:
    """Functions of one module to be deleted together, and the tests that run them."""

    functions: tuple[Function, ...]
    tests: frozenset[str]

    @property
    def path(self) -> str:
        return self.functions[0].path


def map_codebase(source: Source, cache: Path, seed: int) -> Codebase:
    """Run the suite twice, in file order with coverage and shuffled without. Raises TaskError when nothing passes."""
    first = _run(source, cache, source.packages, None)
    if not first.outcomes:
        reason = first.crashed or (first.errors[0] if first.errors else "no test was found")
        raise TaskError(
            f"the tests of {source.name} do not run: {reason}", fix="Make its suite pass with plain pytest."
        )
    second = _run(source, cache, (), seed)
    stable = frozenset(
        i
        for i, outcome in first.outcomes.items()
        if outcome == "passed" and second.outcomes.get(i) == "passed" and second.seconds.get(i, 0.0) <= SLOW_S
    )
    if not stable:
        raise TaskError(f"no test of {source.name} passes twice", fix="Make its suite pass with plain pytest.")
    return Codebase(source, _texts(source.tree), stable, first.lines)


def _run(source: Source, cache: Path, contexts_of: Sequence[str], order: int | None) -> SuiteResult:
    sandbox = open_sandbox(source.tree, mounts=mounts(cache))
    try:
        return run_suite(sandbox, source.tests, wall_s=SUITE_S, contexts_of=contexts_of, order=order)
    finally:
        sandbox.stop()


def _texts(tree: Path) -> dict[str, str]:
    texts = {}
    for path in sorted(p for p in tree.rglob("*") if p.is_file()):
        try:
            texts[path.relative_to(tree).as_posix()] = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # binary files play no part in a task
    return texts


def candidates(codebase: Codebase, per_module: int, seed: int) -> list[Candidate]:
    """At most `per_module` for each module: single functions, short bodies first, and some related groups."""
    rng = random.Random(seed)
    modules: dict[str, list[Candidate]] = defaultdict(list)
    for path, text in codebase.texts.items():
        if path.endswith(".py") and not is_test(path.rpartition("/")[2]) and _inside(path, codebase.source.packages):
            modules[path] = [c for f in functions(path, text) if (c := _single(codebase, f)) is not None]
    chosen: list[Candidate] = []
    for _, singles in sorted(modules.items()):
        rng.shuffle(singles)
        short_first = sorted(singles, key=lambda c: c.functions[0].last - c.functions[0].first)
        groups = _related(singles, rng)[: max(1, per_module // 6)]
        chosen += short_first[: per_module - len(groups)] + groups
    return chosen


def _inside(path: str, packages: Sequence[str]) -> bool:
    parts = path.split("/")
    return any(path.startswith(f"{p}/") for p in packages) and not {"tests", "test"} & set(parts)


def _single(codebase: Codebase, function: Function) -> Candidate | None:
    name = function.qualname.rpartition(".")[2]
    if name.startswith("__") or function.last - function.first + 1 > MAX_LINES or function.stub in function.body:
        return None
    tests = codebase.tests_of(function)
    too_central = len(tests) > MAX_TESTS
    if not tests or too_central or codebase.at_import(function) or len(instruction([function])) > MAX_INSTRUCTION:
        return None
    return Candidate((function,), tests)


def _related(singles: Sequence[Candidate], rng: random.Random) -> list[Candidate]:
    """Pairs and triples whose tests overlap by at least a third (Jaccard)."""
    found = []
    for i, left in enumerate(singles):
        kin = [
            right for right in singles[i + 1 :] if 3 * len(left.tests & right.tests) >= len(left.tests | right.tests)
        ]
        for size in (1, 2):
            group = (left, *kin[:size])
            joined = tuple(sorted((c.functions[0] for c in group), key=lambda f: f.first))
            if len(group) == size + 1 and len(instruction(joined)) <= MAX_INSTRUCTION:
                found.append(Candidate(joined, frozenset().union(*(c.tests for c in group))))
    rng.shuffle(found)
    return found
