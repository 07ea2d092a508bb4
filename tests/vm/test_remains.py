# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory of processes that are gone, for which one forgotten reference is enough (remains.h)."""

from __future__ import annotations

from pathlib import Path

import pytest
from work import acc, cpu, gpu, mmap, values

from hmmbench.build import BuildRequest, ensure
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest.program import POLICY_EXCLUSIVE, Acc, Op, Program
from hmmbench.model.ops.moving import Policy
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

PAGES = 8


def program() -> Program:
    """Atomics on pages that the GPU has to have alone."""
    ops = [
        mmap(PAGES),
        Op(Policy.number, arg=POLICY_EXCLUSIVE),
        cpu(*(acc(Acc.WRITE, page, 5 + page) for page in range(PAGES))),
        gpu(*(acc(Acc.ADD, page, 100, lane=page) for page in range(PAGES))),
        cpu(*(acc(Acc.READ, page) for page in range(PAGES))),
    ]
    for phase, op in enumerate(ops):
        op.phase = phase
    return Program(ops, (0, 0, 0, 0))


def told(target: VmTarget) -> list[str]:
    """What three executions are accused of."""
    found = []
    for _ in range(3):
        done = target.execute(program(), Environment())
        assert done.result is not None
        assert values(done.result, 4) == [105 + page for page in range(PAGES)]
        found += [f"{v.oracle}: {v.message}" for v in judge(done).violations]
    return found


def test_nothing_remains(spec: MachineSpec) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        assert told(target) == []


@pytest.mark.parametrize(("name", "what"), [
    ("keeps-a-page-once", "1 pages that nobody maps"),
    ("keeps-a-process-once", "pages of page tables"),
])  # fmt: skip
def test_one_reference_is_enough(name: str, what: str) -> None:
    patch = Path(__file__).with_name(f"{name}.patch")
    broken, _ = best_spec(ensure(BuildRequest(driver_patches=(patch,))))
    with Opener(broken) as opener, VmTarget(opener) as target:
        (found,) = told(target)
    assert found.startswith("leak: left of processes that are gone:")
    assert what in found
