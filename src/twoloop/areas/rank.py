"""What to improve first: reports grouped into areas, ranked by the lower bound of affected share × severity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

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
# A symptom is explained by a failed call of the same session that can have brought it about. The second part says when
# the call must have come for that: "before" the symptom's turn ends, "after" it (an edit was never tested because what
# followed it failed), or at "any" time (the symptom shows only when the session has ended).
CAUSES = ("unknown_tool", "malformed_call")
SYMPTOMS: dict[str, Literal["before", "after", "any"]] = {
    "no_edit": "any",
    "gave_up": "any",
    "repeated_itself": "before",
    "tests_never_run": "after",
}

Sessions = dict[str, list[Event]]  # session -> its reports of one kind


def rank(
    events: Sequence[Event], clusters: Mapping[str, str], severity: Mapping[str, float] = MappingProxyType(SEVERITY)
) -> list[Area]:
    """Areas, the first one first. `clusters` names every session that was looked at and the module it worked in, so
    that silence counts: a share is of all sessions, not of those with reports. Kinds without a `severity` are no areas.
    """
    by_kind: dict[str, Sessions] = defaultdict(lambda: defaultdict(list))
    for event in sorted(events, key=lambda e: (e.session, -1 if e.turn is None else e.turn, e.idem_key)):
        if event.session in clusters and event.kind in severity:
            by_kind[event.kind][event.session].append(event)
    unhappy = {e.session for e in events if e.kind == "thumbs_down"}
    happy = {e.session for e in events if e.kind == "thumbs_up"}
    areas = [
        _area(kind, _unexplained(kind, by_kind), clusters, severity[kind], (unhappy, happy)) for kind in sorted(by_kind)
    ]
    return sorted(areas, key=lambda a: (a.sessions < MIN_SESSIONS, -a.rank, -a.share, a.kind))


def _unexplained(kind: str, by_kind: Mapping[str, Sessions]) -> Sessions:
    """The sessions and reports of a kind that no cause in the same session takes over."""
    when = SYMPTOMS.get(kind)
    if when is None:
        return by_kind[kind]
    left: Sessions = {}
    for session, events in by_kind[kind].items():
        causes = [c for cause in CAUSES if cause in by_kind for c in by_kind[cause].get(session, ())]
        own = [e for e in events if not any(_explains(cause, e, when) for cause in causes)]
        if own:
            left[session] = own
    return left


def _explains(cause: Event, symptom: Event, when: str) -> bool:
    if when == "any" or cause.turn is None or symptom.turn is None:
        return True
    return cause.turn <= symptom.turn if when == "before" else cause.turn > symptom.turn


def _area(
    kind: str, found: Sessions, clusters: Mapping[str, str], severity: float, thumbs: tuple[set[str], set[str]]
) -> Area:
    unhappy, happy = thumbs
    sessions = sorted(clusters)
    interval = clustered_mean([float(s in found) for s in sessions], [clusters[s] for s in sessions], (0.0, 1.0))
    felt = weigh(severity, len(unhappy & found.keys()), len(happy & found.keys()))
    shown = sorted(found, key=lambda s: (s not in unhappy, s))[:MAX_EVIDENCE]
    return Area(
        kind=kind,
        title=TITLES.get(kind, kind.replace("_", " ").capitalize()),
        sessions=len(found),
        of=len(sessions),
        share=interval.mean,
        low=interval.low,
        high=interval.high,
        severity=felt,
        rank=interval.low * felt,
        evidence=tuple(_evidence(found[s][0]) for s in shown),
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
