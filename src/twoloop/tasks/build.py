"""From codebases to sealed, validated tasks on disk: map tests to functions, delete, validate, seal, split, write."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from twoloop.errors import TaskError
from twoloop.records import Task
from twoloop.tasks import disk
from twoloop.tasks.candidates import Candidate, Codebase, candidates, map_codebase
from twoloop.tasks.similar import resemblance
from twoloop.tasks.source import PINNED, fetch
from twoloop.tasks.validate import Rejected, validate

Progress = Callable[[str, int, int], None]  # what, done, of
FORMAT = 3  # raise it when built tasks change
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class BuildReport:
    """What a build made and what it threw away, by reason."""

    tasks: int
    train: int
    heldout: int
    clusters: int
    rejected: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)  # source -> why it gave nothing


def silent(_what: str, _done: int, _of: int) -> None:
    """No progress."""


def build(
    sources: Sequence[str],
    out: Path,
    *,
    cache: Path,
    seed: int = 0,
    per_module: int = 12,
    workers: int = 2,
    progress: Progress = silent,
) -> BuildReport:
    """Build tasks from all sources into `out`. A build with the same inputs is made once for all workspaces: it is kept
    in the cache and linked from there. Folders and git URLs may change, so tasks from them are built every time that
    `out` does not hold them.

    Raises TaskError when no source gives a task."""
    inputs = {"sources": list(sources), "seed": seed, "per_module": per_module, "format": FORMAT}
    known = _report_of(out, inputs)
    if known is not None:
        return known
    pinned = all(PINNED.fullmatch(source) for source in sources)
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
    kept = cache / "tasks" / digest if pinned else out
    report = _report_of(kept, inputs)
    if report is None:
        report = _build(sources, kept, cache, seed, per_module, workers, progress)
        aside = kept / ".manifest.part"
        aside.write_text(json.dumps({"inputs": inputs, "report": asdict(report)}, indent=1))
        os.replace(aside, kept / _MANIFEST)
    if kept != out:
        _link(kept, out)
    return report


def _report_of(folder: Path, inputs: dict[str, Any]) -> BuildReport | None:
    """The report of a finished build with these inputs; None when the folder holds none."""
    manifest = folder / _MANIFEST
    found = json.loads(manifest.read_text()) if manifest.is_file() else {}
    return BuildReport(**found["report"]) if found.get("inputs") == inputs else None


def _link(kept: Path, out: Path) -> None:
    """`out` becomes a copy that shares the files' content on disk where it can."""
    aside = out.with_name(f".{out.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        shutil.copytree(kept, aside, copy_function=_link_or_copy)
        shutil.rmtree(out, ignore_errors=True)
        os.replace(aside, out)
    except (OSError, shutil.Error) as problem:
        raise TaskError(f"cannot place the tasks in {out}: {problem}", fix="Free some disk space.") from problem


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _build(
    sources: Sequence[str],
    out: Path,
    cache: Path,
    seed: int,
    per_module: int,
    workers: int,
    progress: Progress,
) -> BuildReport:
    rejected: Counter[str] = Counter()
    skipped: dict[str, str] = {}
    drafts: list[disk.Draft] = []
    for source in sources:
        try:
            progress(f"running the tests of {source}", 0, 1)
            codebase = map_codebase(fetch(source, cache), cache, seed)
            progress(f"running the tests of {source}", 1, 1)
            drafts += _drafts(codebase, cache, seed, per_module, workers, rejected, progress)
        except TaskError as problem:
            skipped[source] = str(problem)
    if not drafts:
        raise TaskError("no task could be built: " + "; ".join(f"{k}: {v}" for k, v in skipped.items()))
    kept = split(drafts, seed, rejected)
    _write_all(kept, out)
    return BuildReport(
        tasks=len(kept),
        train=sum(d.task.split == "train" for d in kept),
        heldout=sum(d.task.split == "heldout" for d in kept),
        clusters=len({d.task.cluster for d in kept}),
        rejected=dict(rejected),
        skipped=skipped,
    )


def _drafts(
    codebase: Codebase,
    cache: Path,
    seed: int,
    per_module: int,
    workers: int,
    rejected: Counter[str],
    progress: Progress,
) -> list[disk.Draft]:
    wanted = candidates(codebase, per_module, seed)
    label = f"validating tasks from {codebase.source.name}"
    done: list[disk.Draft] = []

    def one(candidate: Candidate) -> disk.Draft | Rejected:
        return validate(codebase, candidate, cache, seed)

    with ThreadPoolExecutor(workers) as pool:
        for i, outcome in enumerate(pool.map(one, wanted)):
            progress(label, i + 1, len(wanted))
            if isinstance(outcome, Rejected):
                rejected[outcome.reason] += 1
            else:
                done.append(outcome)
    return done


def split(drafts: Sequence[disk.Draft], seed: int, rejected: Counter[str]) -> list[disk.Draft]:
    """Train and held-out by module, about half of the tasks each within every source. A training task whose reference
    resembles a held-out one is dropped: what is measured must not have been practised under another name."""
    rng = random.Random(seed)
    sides: dict[str, str] = {}
    for source in sorted({d.task.source for d in drafts}):
        sizes = Counter(d.task.cluster for d in drafts if d.task.source == source)
        clusters = sorted(sizes)
        rng.shuffle(clusters)
        counts = {"train": 0, "heldout": 0}
        for cluster in sorted(clusters, key=lambda c: -sizes[c]):
            side = min(("heldout", "train"), key=lambda s: counts[s])
            sides[cluster] = side
            counts[side] += sizes[cluster]
    placed = [replace(d, task=replace(d.task, split=sides[d.task.cluster])) for d in drafts]  # type: ignore[arg-type]
    heldout = [body for d in placed if d.task.split == "heldout" for body in d.facts["bodies"]]
    kept = []
    for draft in placed:
        bodies = draft.facts["bodies"]
        if draft.task.split == "train" and any(resemblance(a, b) > 0.5 for a in bodies for b in heldout):
            rejected["resembles a held-out task"] += 1
            continue
        kept.append(replace(draft, facts={k: v for k, v in draft.facts.items() if k != "bodies"}))
    return kept


def _write_all(drafts: Sequence[disk.Draft], out: Path) -> list[Task]:
    """Replace the folder's tasks as a whole."""
    aside = out.with_name(f".{out.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    tasks = [disk.write(draft, aside) for draft in drafts]
    shutil.rmtree(out, ignore_errors=True)
    os.replace(aside, out)
    return tasks
