# SPDX-License-Identifier: GPL-2.0-or-later
"""What threads have found is looked for in exact machines, on the fake one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import fake
import pytest
from fake import FakeTarget
from rich.console import Console

from hmmbench.campaign.fresh import Fresh
from hmmbench.campaign.replay import replay
from hmmbench.campaign.second_look import look
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.example.schedules import Points, reseeded
from hmmbench.example.target import Execution
from hmmbench.guest.program import PAGE, PROT_RW, Acc, Op, Program
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.oracle.violation import Violation
from hmmbench.report.page import render
from hmmbench.report.result import Report
from hmmbench.report.tally import Finding, Tally

POINTS = Points((0x1000, 0x1010), (0x2000, 0x2010, 0x2020))
AROUND = Environment(("a 100 10",), ("irq.message duplicate",), "access", True, 3)


@pytest.fixture(autouse=True)
def own_time() -> Iterator[None]:
    with fake.own_time():
        yield


class Sound(FakeTarget):
    """An exact machine that answers nothing, so that nothing is judged."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        fake.CLOCK.spend(fake.CLOCK.EXECUTION_S)
        self.programs.append(program.encode())
        self.environments.append(environment)
        done = Execution(program)
        self.look(done, environment)
        return done

    def look(self, done: Execution, environment: Environment) -> None:
        """For one that finds something."""


class ShowsTheWhole(Sound):
    """Held at a point, if the program still has enough operations."""

    def look(self, done: Execution, environment: Environment) -> None:
        if "2010" in environment.schedule and len(done.program.ops) > 4:
            done.violations.append(Violation("mirror", "stale"))


def made_of(operations: int) -> Program:
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW),
        *(Op(CpuAccess.number, acc=[(int(Acc.ADD), 0, 0, 0, 1, 0)]) for _ in range(operations)),
    ]
    for n, o in enumerate(ops):
        o.phase = n
    return Program(ops, (24, 600, 0, 0))


@pytest.fixture
def finding(tmp_path: Path) -> Finding:
    """As a campaign on machines with threads leaves it: a small recipe and the whole one."""
    folder = tmp_path / "violation-1"
    folder.mkdir()
    small = Recipe(made_of(2), AROUND, "values", "wrong", "6.12", 7, 1_000_003, repeat=90)
    small.write(folder / "recipe.json")
    replace(small, program=made_of(20)).write(folder / "original.json")
    return Finding(Violation("values", "wrong"), folder / "recipe.json", folder, 3, 0.1)


def test_what_an_exact_machine_shows_has_its_recipe(finding: Finding) -> None:
    before = finding.recipe.read_bytes()
    target = ShowsTheWhole()
    look(finding, [target], POINTS, cpus=4)
    recipe = Recipe.read(finding.recipe)
    assert (recipe.cpus, recipe.repeat, recipe.oracle, recipe.seed) == (4, 1, "mirror", 7)
    assert "2010" in recipe.environment.schedule
    assert len(recipe.program.ops) == finding.operations == 5
    assert replay(Fresh(ShowsTheWhole(), recipe.chain), recipe).executions == 1
    assert replay(Fresh(ShowsTheWhole(), recipe.chain), recipe).found
    # What threads had is beside it, and still what they had.
    assert (finding.folder / "threads.json").read_bytes() == before
    assert Recipe.read(finding.folder / "original.json").cpus == 0
    said = finding.to_json()
    assert said["shown_by"] == ["threads", "exact"]
    assert (said["oracle"], said["rate"]) == ("mirror", 1.0)


def test_only_threads_showed_it(
    finding: Finding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = finding.recipe.read_bytes()
    targets = [Sound(), Sound()]
    begun = fake.CLOCK.now
    look(finding, targets, POINTS, cpus=4, limit_s=2.0)
    # Two machines share the clock: all of the budget, and little more.
    assert 2.0 <= fake.CLOCK.now - begun < 2.3
    assert finding.looked_for == sum(len(target.programs) for target in targets) >= 400
    assert finding.recipe.read_bytes() == before
    assert not (finding.folder / "threads.json").exists()
    said = finding.to_json()
    assert (said["shown_by"], said["looked_for"]) == (["threads"], finding.looked_for)
    many = f"{finding.looked_for} executions"
    told = f"(seen with threads only; looked for in {many} of exact machines)"
    assert everywhere(said, finding, tmp_path, capsys) == [told] * 4


def test_nobody_looked_for_it(
    finding: Finding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of threads alone."""
    told = "(seen with threads only; not looked for in exact machines)"
    assert everywhere(finding.to_json(), finding, tmp_path, capsys) == [told] * 4


@pytest.mark.parametrize("shown_by", [("exact",), ("threads", "exact")])
def test_what_an_exact_machine_showed_is_not_threads_alone(
    shown_by: tuple[str, ...], finding: Finding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = replace(finding, shown_by=shown_by, looked_for=5)
    told = everywhere(shown.to_json(), shown, tmp_path, capsys)
    both = "(found by machines with threads (threads.json); the recipe is an exact machine's)"
    assert told == [both if len(shown_by) > 1 else ""] * 4


def everywhere(
    said: dict[str, Any], finding: Finding, out: Path, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """What stands behind the message: in text, KTAP, JUnit and on the page."""
    report = Report(verdict="fail", violations=[said])
    capsys.readouterr()
    report.show(Console(width=200))
    text = capsys.readouterr().out
    report.write_ktap(out / "ktap")
    report.write_junit(out / "junit")
    failure = ElementTree.parse(out / "junit").getroot().find(".//failure")
    assert failure is not None
    (line,) = [one for one in (out / "ktap").read_text().splitlines() if "# wrong" in one]
    page = render(report, Tally(findings=[finding]), {})
    seen = re.search(r'<p class="message">wrong(?: <span[^>]*>(.*)</span>)?</p>', page)
    assert seen is not None
    shown = re.search(r"^  (\(.*\))$", text, re.M)
    return [
        shown[1] if shown else "", line.removeprefix("# wrong").strip(),
        failure.attrib["message"].removeprefix("wrong").strip(), unescape(seen[1] or ""),
    ]  # fmt: skip


def test_only_schedules_differ(finding: Finding) -> None:
    target = Sound()
    look(finding, [target], POINTS, cpus=4, limit_s=0.5)
    # The small program and the whole one in turn.
    small, whole = made_of(2).encode(), made_of(20).encode()
    assert target.programs[:4] == [small, whole, small, whole]
    assert all(replace(one, schedule="") == AROUND for one in target.environments)
    schedules = [one.schedule for one in target.environments]
    assert all(schedules)
    assert len({reseeded(one, 1) for one in schedules}) > len(schedules) / 3
    assert len(set(schedules)) == len(schedules)


def test_a_finding_that_did_not_get_smaller_is_one_program(finding: Finding) -> None:
    (finding.folder / "original.json").write_bytes(finding.recipe.read_bytes())
    target = Sound()
    look(finding, [target], POINTS, cpus=4, limit_s=0.2)
    assert set(target.programs) == {made_of(2).encode()}
