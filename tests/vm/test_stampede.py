# SPDX-License-Identifier: GPL-2.0-or-later
"""Many CPUs fault on one page in VRAM, and invalidations are slow: one of them moves it all the
same.

Before 6.15 each of them has a reference that keeps the others from it, as long as its own attempt
lasts (`start_homing` of guest-driver/module/mem/to_ram.c).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from work import acc, cpu, mmap

from hmmbench.build import BuildRequest, ensure
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest.program import MAX_ACTORS, MIGRATE_DEVICE, PAGE, Acc, Op, Program
from hmmbench.model.ops.moving import Migrate
from hmmbench.oracle.violation import Violation
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).parent.parent / "mutants" / "cpu-fault-does-not-give-way.patch"
ROUNDS = 6


def stampede() -> Program:
    phases = [[mmap(1)]]
    for _ in range(ROUNDS):
        phases.append([cpu(acc(Acc.WRITE, 0, 5))])
        phases.append([Op(Migrate.number, len=PAGE, arg=MIGRATE_DEVICE)])
        phases.append([cpu(acc(Acc.ADD, 0, 1)) for _ in range(MAX_ACTORS)])
        for actor, op in enumerate(phases[-1]):
            op.actor = actor
    for phase, ops in enumerate(phases):
        for op in ops:
            op.phase = phase
    return Program([op for ops in phases for op in ops], timeout_ms=4000)


def violations(spec: MachineSpec, waits: str, times: int) -> list[Violation]:
    with Opener(spec) as opener, VmTarget(opener) as target:
        done = (target.execute(stampede(), Environment(delays=(waits,))) for _ in range(times))
        return [violation for execution in done for violation in judge(execution).violations]


@pytest.mark.parametrize("waits", ["svm_before_invalidate 500 1000 1", "to_ram_entry 3000 1000 1"])
def test_one_of_them_wins(spec: MachineSpec, waits: str) -> None:
    assert violations(spec, waits, 5) == []


def test_a_driver_that_lets_none_win_is_found() -> None:
    broken, _ = best_spec(ensure(BuildRequest(driver_patches=(PATCH,))))
    found = violations(broken, "svm_before_invalidate 8000 1000 1", 3)
    assert found
    assert {violation.oracle for violation in found} == {"progress"}
