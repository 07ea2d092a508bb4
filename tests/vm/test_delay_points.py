# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver's delay points as the schedules use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from work import plain

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.campaign.runner import Campaign
from hmmbench.example.delays import Point
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest.program import F_NOWAIT, PAGE, PROT_RW, Acc, Op, Program
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.jobs import GpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec

#: Two launches, one after the other, the first not waited for.
TWO = Program(
    [
        Op(Mmap.number, region=1, len=PAGE, a=PROT_RW),
        Op(GpuAccess.number, phase=1, flags=F_NOWAIT, acc=[(int(Acc.READ), 1, 0, 0, 0, 0)]),
        Op(GpuAccess.number, phase=2, acc=[(int(Acc.READ), 1, 0, 0, 0, 0)]),
    ],
    FILE_PAGES,
)


def _point(target: VmTarget, program: Program, environment: Environment) -> Point:
    """The point that was set, after an execution without violations."""
    execution = target.execute(program, environment)
    assert not judge(execution).violations
    name = environment.delays[0].split()[0]
    return next(p for p in execution.points if p.name == name)


def test_points(spec: MachineSpec) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        program = plain().program
        for _ in range(2):
            # Counted afresh for each execution: a replay waits at the same passage again.
            once = _point(target, program, Environment(("svm_after_range_fault at 1 2000",)))
            assert (once.hits, once.met) == (1, 0)
        # So often and no more, each time.
        for _ in range(2):
            few = _point(target, program, Environment(("svm_before_invalidate 100 1000 1 2",)))
            assert few.hits == 2 < few.passed
        never = Environment(("fault_before_replay until evict_after_setup 2000",))
        alone = _point(target, program, never)
        assert alone.hits
        assert not alone.met
        # The first launch's fence comes half a second late, while the second one waits.
        late = Environment(
            ("sched_before_doorbell until dev_fences 1000000",), ("fence delay=500000000",)
        )
        assert _point(target, TWO, late).met == 1


@pytest.mark.parametrize(
    "line",
    [
        "nothing_of_this_name 5", "svm_after_range_fault", "svm_after_range_fault at",
        "svm_after_range_fault at 0 5", "svm_after_range_fault at 1",
        "svm_after_range_fault until nothing 5", "svm_after_range_fault until dev_ 5",
        "svm_after_range_fault until dev_faults", "svm_after_range_fault until",
    ],
)  # fmt: skip
def test_what_is_no_setting_is_refused(line: str, refusing: VmTarget) -> None:
    with pytest.raises(EnvironmentFailure, match="delays"):
        refusing.execute(plain().program, Environment((line,)))


@pytest.fixture(scope="module")
def refusing(spec: MachineSpec) -> Iterator[VmTarget]:
    with Opener(spec) as opener, VmTarget(opener) as target:
        yield target


@pytest.mark.parametrize("schedule", ["delay-pct", "delay-pairs"])
def test_a_sound_driver_survives(schedule: str, spec: MachineSpec, tmp_path: Path) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        campaign = Campaign(
            target, tmp_path, seed=5, examples=60, delays=target.delay_points(),
            schedule=schedule, audit="fill",
        )  # fmt: skip
        tally = campaign.run()
    assert not tally.findings
    assert tally.delayed
    if schedule == "delay-pairs":
        coverage = campaign.schedule.coverage()
        assert 0 <= coverage["pairs_met"] <= coverage["pairs_tried"] <= tally.examples
        assert coverage["pairs_tried"]
