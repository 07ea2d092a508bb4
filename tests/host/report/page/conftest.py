# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages of campaigns on the fake machine: one that passes, one that fails."""

from __future__ import annotations

from pathlib import Path

import fake
import pytest
from browser import find

from hmmbench.campaign.runner import Campaign
from hmmbench.example.event import TimedEvent
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Execution
from hmmbench.guest.program import Program, Result
from hmmbench.report.page import render
from hmmbench.report.result import Report
from hmmbench.report.tally import Tally

START = 5_000_000_000


class TimedTarget:
    """The fake machine, with the times an agent would give."""

    def __init__(self, bug: str = "") -> None:
        self.machine = fake.Fake(bug, 1)

    def execute(self, program: Program, environment: Environment) -> Execution:
        result = Result.decode(self.machine.run(program.encode()), program)
        for i, r in enumerate(result.ops):
            r.start_ns, r.time_ns = START + 50_000 * i, 40_000
        return Execution(program, result)

    def renew(self) -> None:
        pass

    def end(self) -> None:
        pass

    def keep(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def watch(self) -> None:
        pass

    def watched(self) -> list[TimedEvent]:
        return [TimedEvent(START + 30_000, "driver", "map asid=1 addr=0x1000")]


def campaign(bug: str, out: Path, examples: int = 60) -> tuple[Report, Tally]:
    with fake.own_time():
        tally = Campaign(
            TimedTarget(bug), out, seed=1, grammar=2, examples=examples, delays=["a"], shrink_s=15
        ).run()
    report = Report(
        verdict="fail" if tally.findings else "pass", seed=1, profile="quick", kernel="6.12.0",
        accel="tcg", examples=tally.examples, operations=tally.operations, wall_s=12.5,
        violations=[f.to_json() for f in tally.findings], versions={"qemu": "10.0"},
        stages={"examples": 3.0}, coverage=tally.coverage.to_json(),
    )  # fmt: skip
    return report, tally


@pytest.fixture(scope="session")
def passing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Tally]:
    return campaign("", tmp_path_factory.mktemp("passing"))


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Tally]:
    return campaign("stale_tlb", tmp_path_factory.mktemp("failing"), 300)


@pytest.fixture(scope="session")
def failing_page(
    failing: tuple[Report, Tally], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(*failing, {"dev_faults": 12345, "pages_to_device": 7}))
    return path


@pytest.fixture(scope="session")
def chromium() -> str:
    program = find()
    if program is None:
        pytest.fail("no Chromium: apt-get install --no-install-recommends chromium-headless-shell")
    return program
