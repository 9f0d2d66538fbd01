"""The report: true to its data, alone on the page, and deaf to what hostile text asks of it."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoloop.errors import StoreError
from twoloop.loop import plot
from twoloop.loop.plain import from_plain, to_plain
from twoloop.loop.report import read_report, render, write_report
from twoloop.loop.types import Curve, TokenRatio, TurnReport
from twoloop.records import Estimate, Lineage, Verdict

HOSTILE = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(2)></pre></style><style>*{display:none}</style>{{ 7*7 }}"
)


def sample() -> TurnReport:
    spec = importlib.util.spec_from_file_location("sample_report", Path(__file__).with_name("sample_report.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    report: TurnReport = module.sample()
    return report


class Page(HTMLParser):
    """Tags, attributes and visible text; fails on tags that do not nest."""

    VOID = ("meta", "br", "img")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data


def poisoned(value: Any) -> Any:
    """The same data with every text replaced by a hostile one."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, tuple):
        return tuple(poisoned(one) for one in value)
    if isinstance(value, dict):
        return {f"{HOSTILE}{key}": poisoned(one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: poisoned(getattr(value, item.name)) for item in fields(value)})
    return value


def test_hostile_text_stays_text_wherever_it_stands() -> None:
    data = poisoned(sample())
    data = replace(data, verdict=replace(data.verdict, decision="reject"))
    page, clean = Page(render(data)), Page(render(sample()))
    assert "script" not in page.tags and "img" not in page.tags
    assert page.tags.count("style") == clean.tags.count("style") == 1
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("<script>alert(1)</script>") > 30, "it is shown, as what it is"
    assert "{{ 7*7 }}" in page.text


def test_the_page_needs_nothing_from_outside() -> None:
    html = render(sample())
    page = Page(html)
    assert not [one for one in page.attributes if one[0] in ("src", "href", "xlink:href", "action", "data")]
    assert not re.search(r"https?://|url\(|@import", html)
    assert "default-src 'none'" in html


def test_every_number_that_decides_is_on_the_page() -> None:
    text = " ".join(Page(render(sample())).text.split())
    for shown in (
        "Promoted",
        sample().verdict.sentence,
        "94 % → 4 %",
        "−90 points, 95 % interval −96 to −82 points",
        "40 tasks, 11 modules, 160 sessions, 1 missing",
        "45 of 48 sessions (94 %, 83 % to 98 %)",
        "write_file path: toolz/itertoolz.py",
        "session s-0041, turn 2, tokens 310–342",
        "10 min 12 s",
        "54,100",
        "45 × event",
        "bwrap+userns",
        "One seed and one product.",
    ):
        assert shown in text, shown


def test_the_json_beside_it_tells_the_same(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"
    write_report(path, sample())
    assert read_report(path) == sample()
    assert sorted(one.name for one in path.parent.iterdir()) == ["report.html", "report.json"]
    assert path.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("decision", ["promote", "reject", "not_enough_data"])
def test_a_turn_with_nothing_to_show_still_has_its_verdict(decision: Any) -> None:
    bare = TurnReport("r", "", "bwrap+userns", Verdict(decision, "Not enough data: 3 tasks.", "", "seed", "turn-1"))
    assert "Not enough data: 3 tasks." in Page(render(bare)).text


def test_values_that_are_missing_or_endless_do_not_break_the_page(tmp_path: Path) -> None:
    estimate = Estimate("solve rate", math.nan, 0.2, math.nan, -math.inf, math.inf, 2, 1, 4)
    ratios = (TokenRatio("x", math.nan), TokenRatio("", 0.0), TokenRatio("y", math.inf))
    hinted = sample().hinted
    assert hinted is not None
    data = replace(
        sample(),
        verdict=replace(sample().verdict, estimates=(estimate,)),
        curves=(Curve("Reward", (None, None)), Curve("Loss", (math.nan, 1.0)), Curve("One", (3.0,)), Curve("None", ())),
        hinted=replace(hinted, tokens=ratios),
    )
    html = render(data)
    Page(html)
    assert "no step had a value" in html
    assert not re.search(r'="[^"]*\b(nan|inf)\b', html)
    write_report(tmp_path / "r.html", data)
    json.loads((tmp_path / "r.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_damaged_or_absent_report_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no report") as caught:
        read_report(tmp_path / "r.html")
    assert "twoloop turn" in str(caught.value.fix)
    (tmp_path / "r.json").write_text('{"run_id": 3}')
    with pytest.raises(StoreError, match="damaged"):
        read_report(tmp_path / "r.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_report(tmp_path / "file" / "r.html", sample())


def test_long_lineage_is_summed_up_not_dropped_in_silence() -> None:
    edges = tuple(Lineage(f"a:{i}", f"b:{i}", "made") for i in range(60))
    assert "and 20 more" in Page(render(replace(sample(), lineage=edges))).text


# ---------------------------------------------------------------------------------------------------------------------
# Plots and plain data


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [
        (0.94, False, "94 %"),
        (0.0625, False, "6.2 %"),
        (0.05, False, "5 %"),
        (0.0, False, "0 %"),
        (-0.9, True, "−90 points"),
        (0.004, True, "+0.4 points"),
        (-0.0001, True, "0 points"),
        (math.nan, False, "–"),
    ],
)
def test_shares_are_written_as_readers_write_them(value: float, signed: bool, text: str) -> None:
    assert plot.percent(value, signed=signed) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (7.21, "7.2 s"), (59.6, "1 min 00 s"), (725, "12 min 05 s"), (3840, "1 h 04 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert plot.duration(seconds) == text


def test_a_bar_is_as_long_as_its_share_and_its_whisker_spans_the_interval() -> None:
    strip = str(plot.pair_strip(sample().rates[0]))
    assert re.findall(r'class="(before|after)" x="0" y="\d+" width="([\d.]+)%"', strip) == [
        ("before", "94.00"),
        ("after", "4.00"),
    ]
    assert 'x1="86.00%" x2="98.00%"' in strip and 'x1="1.00%" x2="11.00%"' in strip


def test_a_curve_rises_with_its_values_and_breaks_where_one_is_missing() -> None:
    drawn = str(plot.curve(Curve("Solve rate", (0.0, 0.5, None, 1.0, 0.25), share=True)))
    runs = [
        [tuple(map(float, xy.split(","))) for xy in line.split()] for line in re.findall(r'points="([^"]*)"', drawn)
    ]
    assert [len(run) for run in runs] == [2, 2]
    (first, second), (third, fourth) = runs
    assert third[1] < second[1] < fourth[1] < first[1], "up is less y: 1 > ½ > ¼ > 0"
    assert [one[0] for run in runs for one in run] == sorted(one[0] for run in runs for one in run)
    assert second[1] == pytest.approx((first[1] + third[1]) / 2)


finite = st.floats(-1e6, 1e6)


@settings(max_examples=60)
@given(st.text(), st.tuples(finite, finite, finite), st.dictionaries(st.text(), st.dictionaries(st.text(), finite)))
def test_reports_survive_json(
    text: str, numbers: tuple[float, float, float], table: dict[str, dict[str, float]]
) -> None:
    report = TurnReport(
        run_id=text,
        created=text,
        tier=text,
        verdict=Verdict("reject", text, text, text, text, (Estimate(text, *numbers, *numbers[:2], 1, 2, 3),)),
        curves=(Curve(text, (None, *numbers)),),
        facts=((text, text),),
        settings=table,
    )
    assert from_plain(TurnReport, json.loads(json.dumps(to_plain(report)))) == report


@pytest.mark.parametrize(
    ("data", "kind"),
    [({"text": 1, "log_ratio": 0.5}, TokenRatio), ({"text": "a", "unknown": 1}, TokenRatio), ([1], TokenRatio)],
)
def test_plain_data_of_another_shape_are_refused(data: Any, kind: type) -> None:
    with pytest.raises(TypeError):
        from_plain(kind, data)
    with pytest.raises(TypeError, match="not plain data"):
        to_plain({"a": b"bytes"})
