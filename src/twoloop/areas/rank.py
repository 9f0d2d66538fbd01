"""What to improve first: reports grouped into areas, ranked by the lower bound of affected share × severity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from twoloop.evals.statistics import clustered_mean
from twoloop.records import Area, Event, Evidence

MIN_SESSIONS = 3  # an area with fewer affected sessions is listed, but never leads
MAX_EVIDENCE = 5
THUMBS_WEIGHT = 0.5

# How much a report of this kind costs the user, in [0, 1]: 1 = the session is lost.
SEVERITY: dict[str, float] = {
    "unknown_tool": 0.8,  # the model works against its own product; nothing it does takes effect
    "malformed_call": 0.7,
    "syntax_error": 0.7,  # the code base is broken when the session ends
    "no_edit": 0.6,
    "gave_up": 0.6,
    "repeated_itself": 0.4,
    "tests_never_run": 0.3,
}
TITLES: dict[str, str] = {
    "unknown_tool": "Calls tools that do not exist",
    "malformed_call": "Writes calls that cannot be read",
    "syntax_error": "Leaves code that does not parse",
    "no_edit": "Ends without an edit",
    "gave_up": "Does not reach its own end",
    "repeated_itself": "Repeats a call that failed",
    "tests_never_run": "Edits and never runs the tests",
}
# A symptom is explained by a cause that was seen in the same session.
CAUSES: dict[str, tuple[str, ...]] = {
    "no_edit": ("unknown_tool", "malformed_call"),
    "gave_up": ("unknown_tool", "malformed_call"),
    "repeated_itself": ("unknown_tool", "malformed_call"),
    "tests_never_run": ("unknown_tool", "malformed_call"),
}


def rank(events: Sequence[Event], clusters: Mapping[str, str]) -> list[Area]:
    """Areas, the first one first. `clusters` names every session that was looked at and the module it worked in, so
    that silence counts: a share is of all sessions, not of those with reports."""
    by_kind: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event.session in clusters and event.kind in SEVERITY:
            by_kind[event.kind][event.session].append(event)
    unhappy = {e.session for e in events if e.kind == "thumbs_down"}
    happy = {e.session for e in events if e.kind == "thumbs_up"}
    areas = [
        _area(kind, _unexplained(kind, found, by_kind), clusters, unhappy, happy) for kind, found in by_kind.items()
    ]
    return sorted(areas, key=lambda a: (a.sessions < MIN_SESSIONS, -a.rank, -a.share, a.kind))


def _unexplained(
    kind: str, found: Mapping[str, list[Event]], by_kind: Mapping[str, Mapping[str, list[Event]]]
) -> dict[str, list[Event]]:
    causes = [by_kind[cause] for cause in CAUSES.get(kind, ()) if cause in by_kind]
    return {session: events for session, events in found.items() if not any(session in c for c in causes)}


def _area(
    kind: str, found: Mapping[str, list[Event]], clusters: Mapping[str, str], unhappy: set[str], happy: set[str]
) -> Area:
    sessions = sorted(clusters)
    hit = [float(session in found) for session in sessions]
    interval = clustered_mean(hit, [clusters[s] for s in sessions], (0.0, 1.0))
    severity = weigh(SEVERITY[kind], len(unhappy & found.keys()), len(happy & found.keys()))
    return Area(
        kind=kind,
        title=TITLES[kind],
        sessions=len(found),
        of=len(sessions),
        share=interval.mean,
        low=interval.low,
        high=interval.high,
        severity=severity,
        rank=interval.low * severity,
        evidence=tuple(
            _evidence(found[s][0]) for s in sorted(found, key=lambda s: (s not in unhappy, s))[:MAX_EVIDENCE]
        ),
    )


def weigh(severity: float, down: int, up: int) -> float:
    """Severity moved by the thumbs on affected sessions: toward 1 by their share of downs, toward 0 by that of ups,
    at most half of the way and less when there are few (one pseudo-vote for each side)."""
    balance = (down - up) / (down + up + 2)
    target = 1.0 if balance > 0 else 0.0
    return severity + THUMBS_WEIGHT * abs(balance) * (target - severity)


def _evidence(event: Event) -> Evidence:
    about = event.attributes
    return Evidence(
        event.session, event.turn, about.get("start", 0), about.get("end", 0), about.get("quote", event.text)
    )
