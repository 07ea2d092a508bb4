# SPDX-License-Identifier: GPL-2.0-or-later
"""The page: complete, escaped, small, and nothing in it comes from elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hmmbench.example.portrait import Portrait
from hmmbench.guest.program import Op, OpResult
from hmmbench.model.belief import Residency
from hmmbench.model.cells import MAPPINGS, ROWS, impossible
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Munmap
from hmmbench.model.ops.processes import Nop
from hmmbench.oracle.violation import Violation
from hmmbench.report.page import render
from hmmbench.report.page.heat import heat, short
from hmmbench.report.page.timeline import timeline
from hmmbench.report.result import Report
from hmmbench.report.tally import Tally

EVIL = "<script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>'\"&\x1b[31m"


class Reader(HTMLParser):
    """Tags, their attributes, and the text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.cells: Counter[str] = Counter()
        self.words = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._inside = tag
        self.attributes += [(tag, n, v or "") for n, v in attrs]
        if tag == "td":
            self.cells[dict(attrs).get("class") or ""] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.words += data


def outside(page: str) -> list[str]:
    """What of the page would make a browser ask for something."""
    reader = Reader(page)
    loads = {"src", "srcset", "href", "data", "action", "poster", "background", "xlink:href"}
    found = [f"{t} {n}={v}" for t, n, v in reader.attributes if n in loads]
    found += [t for t in ("link", "iframe", "object", "embed", "base", "img") if reader.tags[t]]
    found += re.findall(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", page)
    return found


def test_a_passing_page(passing: tuple[Report, Tally]) -> None:
    page = render(*passing, {"dev_faults": 12})
    assert "No violation" in Reader(page).words
    assert 'id="violations"' not in page
    assert outside(page) == []


def test_a_failing_page_says_everything(failing: tuple[Report, Tally]) -> None:
    page = render(*failing, {})
    words = Reader(page).words
    finding = failing[1].findings[0]
    assert finding.portrait is not None
    assert finding.violation.oracle in words
    assert "steps that cause it" in words
    assert "Process 0: maps" in words
    assert f"./hmmbench replay {finding.recipe}" in words
    assert "--export-c" in words
    patched = Reader(render(replace(failing[0], options=["--driver-patch", "a b"]), failing[1], {}))
    assert f"./hmmbench replay {finding.recipe} --driver-patch 'a b' --trace" in patched.words
    assert "Both page tables" in words
    assert "Who did what when" in words
    assert page.index('id="violations"') < page.index('id="coverage"')
    assert outside(page) == []


@pytest.mark.parametrize(
    "text", ['<img src="http://x/y">', "<style>@import 'x'</style>", "<link rel=x>"]
)
def test_the_check_for_requests_sees_them(text: str) -> None:
    assert outside(text)


def test_what_comes_from_the_guest_is_escaped(failing: tuple[Report, Tally]) -> None:
    report, tally = failing
    finding = tally.findings[0]
    clean = Reader(render(report, tally, {}))
    evil = Violation("values", f"found {EVIL}, expected {EVIL}", finding.violation.op, EVIL)
    assert finding.portrait is not None
    portrait = replace(finding.portrait, violation=evil, details=[EVIL])
    dirty = Tally(
        findings=[replace(finding, violation=evil, portrait=portrait)], coverage=tally.coverage,
        pace=tally.pace, injected=Counter({EVIL: 1}), delayed=Counter({EVIL: 1}),
    )  # fmt: skip
    page = render(replace(report, kernel=EVIL, error=EVIL, versions={EVIL: EVIL}), dirty, {})
    reader = Reader(page)
    assert "<script>alert" in reader.words
    assert reader.tags["script"] == clean.tags["script"] == 1
    assert reader.tags["img"] == 0
    assert "\x1b" not in page.replace(EVIL, "")
    assert not [a for a in reader.attributes if a[1].startswith("on")]
    assert outside(page) == []


def test_a_long_run_stays_small(failing: tuple[Report, Tally]) -> None:
    report, tally = failing
    finding = tally.findings[0]
    assert finding.portrait is not None
    huge = Violation("kernel", "splat " * 5000, 0, "line of a console\n" * 200_000)
    portrait: Portrait = replace(finding.portrait, violation=huge)
    coverage = tally.coverage
    for row in ROWS:
        for kind in MAPPINGS:
            for at in Residency:
                coverage.cells[row, kind, int(at)] += 10**9
    many = Tally(
        findings=[replace(finding, violation=huge, portrait=portrait)] * 8,
        coverage=coverage, pace=[(float(i), i * 70, i) for i in range(1, 250)],
    )  # fmt: skip
    try:
        page = render(replace(report, examples=30000), many, {"dev_faults": 10**12})
    finally:
        for key in list(coverage.cells):
            coverage.cells[key] -= 10**9
            if not coverage.cells[key]:
                del coverage.cells[key]
    assert len(page.encode()) < 2_000_000


def test_empty_cells_can_be_told_from_impossible_ones(passing: tuple[Report, Tally]) -> None:
    table = heat(passing[1].coverage)
    reader = Reader(render(*passing, {}))
    styles = Counter(c.style for row in table.rows for c in (*row.cells, *row.oracles))
    assert styles["empty"] > 0
    assert styles["never"] > 0
    assert sum(styles[f"m{n}"] for n in range(1, 6)) > 0
    assert all(reader.cells[style] == n for style, n in styles.items())
    assert {row.name for row in table.rows} == set(ROWS)
    assert 0 < table.met < table.possible
    assert table.possible == sum(
        not impossible(r, k, a) for r in ROWS for k in MAPPINGS for a in Residency
    )


def test_counts_are_short() -> None:
    assert [short(n) for n in (0, 999, 1000, 9960, 123456, 10**7)] == [
        "0", "999", "1.0k", "10k", "123k", "10M",
    ]  # fmt: skip


def test_the_timeline_keeps_order_and_overlap() -> None:
    ops = [
        Op(CpuAccess.number), Op(GpuAccess.number, actor=1), Op(Munmap.number, len=4096),
    ]  # fmt: skip
    results = [
        OpResult(start_ns=1000, time_ns=500_000), OpResult(start_ns=2000, time_ns=9_000_000),
        OpResult(start_ns=600_000, time_ns=1000),
    ]  # fmt: skip
    drawn = timeline(ops, results, hot=2)
    assert drawn is not None
    bars = {b.label: b for b in drawn.bars if b.label}
    assert bars["1"].x < bars["2"].x < bars["1"].x + bars["1"].width
    assert bars["3"].x > bars["1"].x + bars["1"].width
    assert bars["3"].x + bars["3"].width < bars["2"].x + bars["2"].width
    assert bars["3"].hot
    assert not bars["2"].hot
    assert len({bars["1"].y, bars["2"].y}) == 2
    assert any(b.kind == "wait" for b in drawn.bars)


def test_no_start_times_no_timeline() -> None:
    assert timeline([Op(Nop.number)], [OpResult(time_ns=5)]) is None
