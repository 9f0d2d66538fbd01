"""Promote or drop, and write down where everything came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twoloop.loop.workspace import Workspace
from twoloop.records import Area, Lineage, Verdict
from twoloop.store import Store


def settle(turn: str, workspace: Workspace, verdict: Verdict, areas: Sequence[Area]) -> None:
    """Serve the candidate when it was promoted. May be run again."""
    store = workspace.store
    store.add_verdict(turn, verdict)
    store.add_lineage(list(_lineage(turn, store, verdict, areas)))
    if verdict.decision == "promote":
        store.set_serving(verdict.candidate)


def _lineage(turn: str, store: Store, verdict: Verdict, areas: Sequence[Area]) -> Iterator[Lineage]:
    """report -> area -> checkpoint -> verdict, with the sessions that it was trained and judged on."""
    yield Lineage(f"checkpoint:{verdict.base}", f"turn:{turn}", "served when it began")
    if verdict.candidate == verdict.base:
        return
    area = f"area:{turn}/{verdict.area}"
    candidate = f"checkpoint:{verdict.candidate}"
    yield Lineage(f"checkpoint:{verdict.base}", candidate, "trained from")
    yield Lineage(area, candidate, "trained to fix")
    yield Lineage(candidate, f"verdict:{turn}", f"judged: {verdict.decision}")
    sessions = {s.id for s in store.trajectories(f"{turn}/dogfood")}
    for event in store.events(sessions=sorted(sessions)):
        if event.kind == verdict.area or event.source in ("USER", "HUMAN"):
            yield Lineage(f"event:{event.id}", area, "evidence of")
            yield Lineage(f"session:{event.session}", f"event:{event.id}", "reported on")
    for task in sorted({s.task_id for s in store.trajectories(f"{turn}/climb")}):
        yield Lineage(f"task:{task}", candidate, "practised on")


def why(store: Store, checkpoint: str, limit: int = 12) -> list[str]:
    """The story of a checkpoint, walked back to the reports and sessions that led to it; indented lines.

    At most `limit` nouns of one relation are named; the rest are counted."""
    lines: list[str] = []
    seen: set[str] = set()

    def walk(noun: str, depth: int) -> None:
        if noun in seen:
            return
        seen.add(noun)
        by_relation: dict[str, list[str]] = {}
        for row in store.parents(noun):
            by_relation.setdefault(row.relation, []).append(row.source)
        for relation, sources in by_relation.items():
            for source in sources[:limit]:
                lines.append(f"{'  ' * depth}{relation} {source}")
                walk(source, depth + 1)
            if len(sources) > limit:
                lines.append(f"{'  ' * depth}{relation} {len(sources) - limit} more")

    lines.append(f"checkpoint:{checkpoint}")
    walk(f"checkpoint:{checkpoint}", 1)
    return lines
