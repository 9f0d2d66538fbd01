"""The report of a turn: one HTML file that needs nothing else, and the same data as JSON beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from twoloop.errors import StoreError
from twoloop.loop import plot
from twoloop.loop.plain import from_plain, to_plain
from twoloop.loop.types import TurnReport
from twoloop.records import Area, Estimate, Lineage

_DECISIONS = {"promote": "Promoted", "reject": "Rejected", "not_enough_data": "Not enough data"}
_SHOWN_EDGES = 40


def write_report(path: Path, data: TurnReport) -> None:
    """Write `path` (HTML) and the same name ending in .json; each is written aside, synced, then renamed.

    Everything in the data is treated as hostile text. Raises StoreError when the disk refuses.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path.with_suffix(".json"), json.dumps(to_plain(data), ensure_ascii=False, indent=1))
        _write(path, render(data))
    except OSError as error:
        raise StoreError(
            f"The report {path} cannot be written: {error.strerror}.",
            fix="Free some disk space (or mend the folder's rights), then resume; finished steps are kept.",
        ) from error


def read_report(path: Path) -> TurnReport:
    """The data of a report, from its JSON or from the HTML's neighbour of the same name. Raises StoreError."""
    source = path.with_suffix(".json")
    try:
        return from_plain(TurnReport, json.loads(source.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise StoreError(f"There is no report {source}.", fix="Run a turn first: `twoloop turn`.") from None
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"The report {source} is damaged: {error}.", fix="Resume its turn to write it anew."
        ) from error


def latest_report(workspace: Path) -> Path:
    """The newest report of a workspace's turns. Raises StoreError when there is none."""
    found = list((workspace / "turns").glob("*/report.html"))
    if not found:
        raise StoreError(f"There is no report in {workspace} yet.", fix="Run a turn first: `twoloop turn`.")
    return max(found, key=lambda path: path.stat().st_mtime_ns)


def render(data: TurnReport) -> str:
    """The whole page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("twoloop.loop", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=plot.percent, number=plot.number, duration=plot.duration, estimate=_estimate, interval=_interval
    )
    return environment.get_template("report.html").render(**_view(data))


def _view(data: TurnReport) -> dict[str, Any]:
    """What the template shows, with everything computed that is not layout."""
    estimates = data.verdict.estimates
    reach = {one.name: max(abs(one.low), abs(one.high), abs(one.difference), 1e-9) for one in estimates}
    shares = max([reach[one.name] for one in estimates if _is_share(one)] or [1.0])
    seconds = [step.seconds for step in data.steps]
    edges, left_out = _edges(data)
    return {
        "report": data,
        "plot": plot,
        "decision": _DECISIONS[data.verdict.decision],
        "strips": [
            (one, plot.difference_strip(one, shares if _is_share(one) else reach[one.name])) for one in estimates
        ],
        "headline": [one for one in estimates if _is_share(one)][:2],
        "total_seconds": sum(seconds),
        "longest": max(seconds, default=0.0),
        "has_tokens": any(step.sampled_tokens or step.trained_tokens for step in data.steps),
        "edges": edges,
        "left_out": left_out,
        "areas": [(area, plot.share_strip(area.low, area.share, area.high)) for area in data.areas],
        "rates": [(rate, plot.pair_strip(rate)) for rate in data.rates],
        "top": _top(data.areas),
    }


def _edges(data: TurnReport) -> tuple[list[tuple[str, str, str]], int]:
    """(source, relation, destination), and how many were left out. Sources that share the rest stand in one row."""
    grouped: dict[tuple[str, str], list[Lineage]] = {}
    for edge in data.lineage:
        grouped.setdefault((edge.relation, edge.destination), []).append(edge)
    rows: list[tuple[str, str, str]] = []
    for (relation, destination), members in grouped.items():
        nouns = {edge.source.partition(":")[0] for edge in members}
        if len(members) > 3 and len(nouns) == 1:
            rows.append((f"{len(members)} × {nouns.pop()}", relation, destination))
        else:
            rows.extend((edge.source, relation, destination) for edge in members)
    return rows[:_SHOWN_EDGES], max(0, len(rows) - _SHOWN_EDGES)


def _top(areas: tuple[Area, ...]) -> str:
    return areas[0].title if areas else ""


def _is_share(estimate: Estimate) -> bool:
    return estimate.name.lower().endswith(("rate", "share"))


def _estimate(one: Estimate, which: str) -> str:
    """`base`, `candidate` or `difference` of an estimate, in its unit."""
    value, signed = float(getattr(one, which)), which == "difference"
    return plot.percent(value, signed=signed) if _is_share(one) else plot.number(value, signed=signed)


def _interval(one: Estimate) -> str:
    if _is_share(one):
        return f"{plot.percent(one.low, signed=True).removesuffix(' points')} to {plot.percent(one.high, signed=True)}"
    return f"{plot.number(one.low, signed=True)} to {plot.number(one.high, signed=True)}"


def _write(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
