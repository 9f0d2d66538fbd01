"""Plots as inline SVG and HTML, drawn by hand: no script, no network, and the page's own colours in light and dark.

Strips lay their marks out in percent, so that they take any width while their text keeps its size. All text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from twoloop.loop.types import Curve, KindRate, Share, StepCost, TokenRatio
from twoloop.records import Estimate

_BAR, _GAP = 14, 5  # pixels
_EMPTY = Markup("")


def percent(value: float, *, signed: bool = False) -> str:
    """A share as readers write it: 87 %, 6.3 %, −81 points when signed."""
    if not math.isfinite(value):
        return "–"
    scaled = value * 100
    digits = 0 if abs(scaled) >= 10 or abs(scaled) < 0.05 or abs(scaled - round(scaled)) < 0.05 else 1
    text = f"{abs(scaled):.{digits}f}"
    sign = ("−" if scaled < 0 else "+") if signed and float(text) != 0 else ""
    return f"{sign}{text} {'points' if signed else '%'}"


def number(value: float, *, signed: bool = False, digits: int = 3) -> str:
    """A few significant digits, with a true minus."""
    if not math.isfinite(value):
        return "–"
    text = f"{abs(value):,.0f}" if abs(value) >= 1000 else f"{abs(value):.{digits}g}"
    sign = "−" if value < 0 else ("+" if signed and value > 0 else "")
    return sign + text


def duration(seconds: float) -> str:
    """7.2 s, 48 s, 12 min 05 s, 1 h 04 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


# ---------------------------------------------------------------------------------------------------------------------
# Strips: marks on a horizontal axis


def pair_strip(rate: KindRate) -> Markup:
    """Two bars from 0 to 100 %, before over after, each with its interval."""
    height = 2 * _BAR + _GAP
    bars = _bar(rate.before, 0, "before") + _bar(rate.after, _BAR + _GAP, "after")
    label = f"{rate.title}: {percent(rate.before.value)} before, {percent(rate.after.value)} after"
    return _strip(height, _grid((0, 25, 50, 75, 100), height) + bars, label)


def _bar(share: Share, top: float, name: str) -> Markup:
    low, value, high = (100 * _clip(one) for one in (share.low, share.value, share.high))
    middle = top + _BAR / 2
    return Markup(
        '<rect class="track" x="0" y="{}" width="100%" height="{}" rx="3"/>'
        '<rect class="{}" x="0" y="{}" width="{:.2f}%" height="{}" rx="3"/>{}'
    ).format(top, _BAR, name, top, value, _BAR, _whisker(low, high, middle))


def _whisker(low: float, high: float, middle: float, reach: float = 4) -> Markup:
    line = Markup('<line class="whisker" x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>')
    top, bottom = middle - reach, middle + reach
    return (
        line.format(low, high, middle, middle)
        + line.format(low, low, top, bottom)
        + line.format(high, high, top, bottom)
    )


def difference_strip(estimate: Estimate, reach: float) -> Markup:
    """A point with its interval on an axis from −reach to +reach, zero in the middle."""

    def place(value: float) -> float:
        return 50 + 50 * max(-1.0, min(1.0, value / reach if reach > 0 and math.isfinite(value) else 0.0))

    clear = "clear" if estimate.low > 0 or estimate.high < 0 else "unclear"
    low, point, high = place(estimate.low), place(estimate.difference), place(estimate.high)
    marks = Markup(
        '<line class="zero" x1="50%" x2="50%" y1="0" y2="22"/>'
        '<g class="{}">{}<circle cx="{:.2f}%" cy="11" r="4.5"/></g>'
    ).format(clear, _whisker(low, high, 11), point)
    return _strip(
        22, marks, f"difference of {estimate.name}, interval {number(estimate.low)} to {number(estimate.high)}"
    )


def share_strip(low: float, value: float, high: float) -> Markup:
    """One share from 0 to 100 % with its interval."""
    return _strip(_BAR, _bar(Share(value, low, high, 0), 0, "before"), f"{percent(value)}")


def time_strip(step: StepCost, longest: float) -> Markup:
    width = 100 * step.seconds / longest if longest > 0 else 0.0
    bar = Markup('<rect class="after" x="0" y="2" width="{:.2f}%" height="8" rx="3"/>').format(max(width, 0.3))
    return _strip(12, bar, f"{step.step}: {duration(step.seconds)}")


def _grid(places: Sequence[int], height: float) -> Markup:
    line = Markup('<line class="grid" x1="{}%" x2="{}%" y1="0" y2="{}"/>')
    return _EMPTY.join(line.format(place, place, height) for place in places)


def _strip(height: float, marks: Markup, label: str) -> Markup:
    return Markup('<svg class="strip" width="100%" height="{}" role="img" aria-label="{}">{}</svg>').format(
        height, label, marks
    )


# ---------------------------------------------------------------------------------------------------------------------
# Curves

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 300, 150, 52, 8, 10, 22


def curve(data: Curve) -> Markup:
    """One quantity over steps: a line that breaks where a value is missing, and the last value as a dot."""
    known = [value for value in data.values if _known(value)]
    if not known:
        return Markup('<p class="quiet">no step had a value</p>')
    low, high = (0.0, 1.0) if data.share else _bounds(known)

    def at(index: int, value: float) -> tuple[float, float]:
        across = (index / (len(data.values) - 1)) if len(data.values) > 1 else 0.5
        up = (value - low) / (high - low)
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    runs = _runs([at(i, v) if v is not None and _known(v) else None for i, v in enumerate(data.values)])
    lines = _EMPTY.join(
        Markup('<polyline class="line" points="{}"/>').format(" ".join(f"{x:.1f},{y:.1f}" for x, y in run))
        for run in runs
    )
    x, y = runs[-1][-1]
    dots = [run[0] for run in runs if len(run) == 1]
    points = _EMPTY.join(Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="1.8"/>').format(*dot) for dot in dots)
    last = Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="3.2"/>').format(x, y)
    frame = _frame(low, high, len(data.values), data.share)
    return Markup('<svg class="curve" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}{}</svg>').format(
        _WIDTH, _HEIGHT, f"{data.title} over {len(data.values)} steps", frame, lines, points, last
    )


def last_value(data: Curve) -> str:
    """The last known value, as text."""
    known = [value for value in data.values if value is not None and _known(value)]
    if not known:
        return "–"
    return percent(known[-1]) if data.share else f"{number(known[-1])} {data.unit}".strip()


def _frame(low: float, high: float, steps: int, share: bool) -> Markup:
    """Three horizontal lines with their values, and the first and last step."""
    parts = []
    for part in (0.0, 0.5, 1.0):
        y = _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)
        value = low + part * (high - low)
        text = f"{value:.0%}" if share else number(value, digits=2)
        parts.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format(_LEFT, _WIDTH - _RIGHT, y, y, _LEFT - 6, y + 3.5, text)
        )
    foot = Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>')
    parts.append(foot.format(_LEFT, _HEIGHT - 6, "start", "step 1"))
    if steps > 1:
        parts.append(foot.format(_WIDTH - _RIGHT, _HEIGHT - 6, "end", steps))
    return _EMPTY.join(parts)


def _bounds(values: Sequence[float | None]) -> tuple[float, float]:
    """Limits with room around the values; from zero when that is near."""
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    bottom = 0.0 if 0 <= low <= 0.4 * high else low - room
    return bottom, high + room


def _runs(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Cut a line where points are missing."""
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is not None:
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _clip(share: float) -> float:
    return max(0.0, min(1.0, share)) if math.isfinite(share) else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Tokens


def tokens(ratios: Sequence[TokenRatio]) -> Markup:
    """Tokens in reading order, each under its bar: up where the hinted teacher finds it likelier, else down."""
    reach = max([abs(one.log_ratio) for one in ratios if math.isfinite(one.log_ratio)] or [1.0]) or 1.0
    return _EMPTY.join(_token(one, reach) for one in ratios)


def _token(one: TokenRatio, reach: float) -> Markup:
    size = min(1.0, abs(one.log_ratio) / reach) if math.isfinite(one.log_ratio) else 0.0
    side = "up" if one.log_ratio > 0 else "down"
    shown = one.text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣") or "∅"
    value = number(one.log_ratio, signed=True) if abs(one.log_ratio) >= 0.05 else "0"
    return Markup(
        '<span class="token {}"><svg width="100%" height="40" aria-hidden="true">'
        '<line class="grid" x1="0" x2="100%" y1="20" y2="20"/>'
        '<rect x="15%" width="70%" y="{:.1f}" height="{:.1f}" rx="1.5"/></svg><code>{}</code><small>{}</small></span>'
    ).format(side, 20 - 19 * size if side == "up" else 20, max(19 * size, 0.6), shown, value)
