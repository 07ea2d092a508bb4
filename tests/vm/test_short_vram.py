# SPDX-License-Identifier: GPL-2.0-or-later
"""VRAM with room for fewer pages than one access needs at once: the access is done all the same."""

from __future__ import annotations

from pathlib import Path

from work import acc, cpu, gpu, mmap, values

from hmmbench.build import BuildRequest, ensure
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest.program import POLICY_MIGRATE, Acc, Op, Program
from hmmbench.model.ops.jobs import GpuCopy
from hmmbench.model.ops.moving import Policy
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).parent.parent / "mutants" / "evicts-what-it-needs.patch"
REGIONS = 8


def program(**fields: int) -> Program:
    """Pages that no window of the fault service has together: a copy, and a warp's lanes."""
    every = range(REGIONS)
    ops = [
        *(mmap(1, region=region) for region in every),
        Op(Policy.number, arg=POLICY_MIGRATE),
        cpu(*(acc(Acc.WRITE, 0, 5 + region, region=region) for region in every)),
        Op(GpuCopy.number, region=0, len=8, arg=1, a=8),
        gpu(*(acc(Acc.ADD, 0, 100, region=region, lane=region) for region in every)),
        cpu(acc(Acc.READ, 0, region=1, byte=8), *(acc(Acc.READ, 0, region=r) for r in every)),
    ]  # fmt: skip
    for phase, op in enumerate(ops):
        op.phase = phase
    return Program(ops, (0, 0, 0, 0), **fields)


def test_one_page_of_vram_is_enough(spec: MachineSpec) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        for vram in (1, 2, 0, 7):
            done = target.execute(program(), Environment(vram=vram))
            assert judge(done).violations == []
            assert done.result is not None
            last = len(done.result.ops) - 1
            assert values(done.result, last - 1) == [5 + region for region in range(REGIONS)]
            assert values(done.result, last) == [5, *(105 + region for region in range(REGIONS))]
        counts = target.sample().counts
        assert counts["faults_thrashing"] > 0
        assert counts["pages_evicted"] > 0


def test_a_driver_that_evicts_what_it_needs_is_found() -> None:
    broken = ensure(BuildRequest(driver_patches=(PATCH,)))
    broken_spec, _ = best_spec(broken)
    with Opener(broken_spec) as opener, VmTarget(opener) as target:
        done = target.execute(program(timeout_ms=3000), Environment(vram=1))
        assert [violation.oracle for violation in judge(done).violations] == ["progress"]
