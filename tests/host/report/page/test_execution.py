# SPDX-License-Identifier: GPL-2.0-or-later
"""The drawing of an exact machine's failing execution."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import decided as made
import pytest
from browser import Browser
from test_report_page import EVIL, Reader, outside

from hmmbench.device.events import Happened, Kind
from hmmbench.example.portrait import Decided, PageEntry, Portrait
from hmmbench.guest.program import Program, Result
from hmmbench.report.page import render
from hmmbench.report.page.execution import LISTED, TOLD, Drawing, execution
from hmmbench.report.result import Report
from hmmbench.report.tally import Tally
from hmmbench.vm.decisions import What


def drawing(one: Decided, hot: int = 3) -> Drawing:
    found = execution(made.OPS, made.results(), hot, one)
    assert found is not None
    return found


def test_each_has_its_lane() -> None:
    out = drawing(made.decided())
    assert [name for name, _, _ in out.lanes] == [
        "process 0, thread 0", "process 0, thread 1", "CPU 0", "CPU 1", "CPU 2", "SM 0",
        "front end", "interrupts",
    ]  # fmt: skip
    y = {name: at for name, at, _ in out.lanes}
    assert list(y.values()) == sorted(y.values())
    bars = {b.label: b for b in out.bars if b.label}
    assert {n: b.y for n, b in bars.items()} == {
        "1": y["process 0, thread 0"], "2": y["process 0, thread 0"],
        "3": y["process 0, thread 1"], "4": y["process 0, thread 0"],
    }  # fmt: skip
    assert bars["4"].hot
    # Order and overlap are those of the machine's clock.
    assert bars["1"].x + bars["1"].width < bars["2"].x < bars["3"].x
    assert bars["3"].x + bars["3"].width < bars["2"].x + bars["2"].width < bars["4"].x
    (held,) = [b for b in out.bars if b.kind == "held"]
    assert held.y == y["CPU 0"]
    assert bars["2"].x < held.x
    assert held.x + held.width < bars["2"].x + bars["2"].width
    assert out.violation == pytest.approx(bars["4"].x + bars["4"].width, abs=0.2)
    (arrives,) = [m for m in out.marks if m.kind == "arrives"]
    assert arrives.y == y["interrupts"]
    assert {m.y for m in out.marks} == {y["SM 0"], y["front end"], y["interrupts"]}


def test_the_decision_is_the_hold() -> None:
    out = drawing(made.decided())
    (row,) = out.decisions
    assert (row.number, row.text) == (1, "CPU 0 is held for 600 \N{MICRO SIGN}s")
    assert row.where == "function_2 (mm/hmm.c:7)"
    (number,) = out.numbers
    (held,) = [b for b in out.bars if b.kind == "held"]
    assert number == (held.x, held.y, 1)


def test_switches_of_the_racing_phase() -> None:
    """From the last phase with two threads, though a later one shows the violation."""
    out = drawing(made.decided())
    texts = [row.text for row in out.switches]
    assert texts[0] == "CPU 0 is held for 600 \N{MICRO SIGN}s"
    assert "CPU 1 is stopped after 20 instructions, CPU 2 goes on" in texts
    assert "CPU 1 has nothing more to do after 500 instructions, CPU 0 goes on" in texts
    # That of the first phase is none of them.
    assert not any("15000" in text for text in texts)
    assert [row.number for row in out.switches if row.number] == [1]
    halted = next(row for row in out.switches if "nothing more" in row.text)
    assert halted.where == ""


def test_without_holds_who_was_stopped() -> None:
    one = made.decided()
    log = one.log[one.log["what"] != int(What.HELD)]
    out = drawing(replace(one, log=log))
    assert [row.text for row in out.decisions] == [
        "CPU 1 is stopped after 20 instructions, CPU 2 goes on",
        "CPU 2 is stopped after 20 instructions, CPU 1 goes on",
        "CPU 0 is stopped after 9000 instructions, CPU 1 goes on",
    ]
    assert not out.held


def test_of_many_holds_the_latest() -> None:
    one = made.decided()
    holds = [(6_120_000 + n, made.KERNEL, 1000 + n, What.HELD, 0) for n in range(9)]
    out = drawing(replace(one, log=made.log(*holds, *made.rows())))
    assert len(out.decisions) == TOLD


def test_a_long_log_is_what_a_person_can_read() -> None:
    out = drawing(made.decided(100_000))
    assert len(out.bars) < 1500
    assert len(out.switches) == LISTED
    # None of its time is lost, and lanes do not overlap.
    for lane in ("CPU 1", "CPU 2"):
        y = next(at for name, at, _ in out.lanes if name == lane)
        bars = sorted((b.x, b.x + b.width) for b in out.bars if b.y == y)
        assert all(a[1] <= b[0] + 1.3 for a, b in pairwise(bars))
    many = [Happened(6_100_000 + n, Kind.FAULT, "SM 0", "fault") for n in range(5000)]
    assert len(drawing(replace(made.decided(), happened=many)).marks) < 200


def test_what_came_after_the_violation_is_left_out() -> None:
    out = drawing(made.decided(moment=6_500_000))
    assert [b.label for b in out.bars if b.label] == ["1", "2", "3"]
    assert out.violation is not None
    assert "6.5" not in out.violation_at
    assert out.violation_at == "+500 \N{MICRO SIGN}s"


def test_without_a_moment_and_without_times() -> None:
    assert drawing(made.decided(moment=None)).violation is None
    dead = replace(made.decided(), clock=None)
    out = execution(made.OPS, [], -1, dead)
    assert out is not None
    assert not [b for b in out.bars if b.label]
    assert out.violation is not None
    assert execution(made.OPS, [], -1, replace(dead, moment=None)) is None


def test_a_clock_without_results() -> None:
    """The agent said that all had ended, and its answer was never read."""
    out = execution(made.OPS, [], 3, made.decided())
    assert out is not None
    assert [b for b in out.bars if not b.label]
    assert not [b for b in out.bars if b.label]
    assert (out.violation is not None, out.left_out) == (True, 0)
    assert execution(made.OPS, [], 3, made.decided(moment=None)) is None


def page_of(failing: tuple[Report, Tally], one: Decided) -> str:
    report, tally = failing
    finding = tally.findings[0]
    portrait = Portrait(
        Program(made.OPS), Result(made.results()), replace(finding.violation, op=3),
        pages=[PageEntry("the process, region 0, page 0", "nothing", "frame 0x1000")],
        when="at the violation: operation 4 has ended", decided=one,
    )  # fmt: skip
    shown = Tally(findings=[replace(finding, portrait=portrait)], coverage=tally.coverage)
    return render(report, shown, {})


def test_the_page_has_it(failing: tuple[Report, Tally]) -> None:
    page = page_of(failing, made.decided())
    words = Reader(page).words
    assert "The decision that makes it fail" in words
    assert "function_2 (mm/hmm.c:7)" in words
    assert "As they were at the violation: operation 4 has ended." in words
    assert outside(page) == []
    assert len(page_of(failing, made.decided(100_000)).encode()) < 1_000_000


def test_a_page_of_a_finding_without_results(failing: tuple[Report, Tally]) -> None:
    report, tally = failing
    finding = tally.findings[0]
    for moment in (None, 6_980_000):
        portrait = Portrait(
            Program(made.OPS), None, finding.violation, decided=made.decided(moment=moment)
        )
        shown = Tally(findings=[replace(finding, portrait=portrait)], coverage=tally.coverage)
        assert str(finding.folder) in Reader(render(report, shown, {})).words


def test_names_are_escaped(failing: tuple[Report, Tally]) -> None:
    one = made.decided()
    evil = replace(
        one, names=lambda addresses, source=True: {a: made.Place(EVIL, EVIL) for a in addresses},
        happened=[Happened(6_130_000, Kind.FAULT, "SM 0", EVIL)],
    )  # fmt: skip
    page = page_of(failing, evil)
    assert Reader(page).tags["script"] == 1
    assert Reader(page).tags["img"] == 0


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (1280, "dark")])
def test_a_browser_shows_it(
    chromium: str, failing: tuple[Report, Tally], tmp_path: Path, width: int, scheme: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page_of(failing, made.decided(300)))
    with Browser(chromium) as browser:
        browser.open(file, width, scheme=scheme)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        seen = browser.ask(
            "['.held', '.violated line', '.number circle', '.decisions li', '.kernel', '.steps']"
            ".filter(s => { var b = document.querySelector('.execution ' + s)"
            ".getBoundingClientRect(); return b.height > 0 })"
        )
        assert len(seen) == 6
        # A held CPU does not look like one that runs.
        colours = [
            browser.ask(f"getComputedStyle(document.querySelector('.execution {one}')).fill")
            for one in (".held", ".kernel", ".user")
        ]
        assert len(set(colours)) == 3
        browser.ask("document.querySelector('.execution summary').click()")
        assert browser.ask("document.querySelector('.switches').offsetHeight") > 50
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.errors == []
