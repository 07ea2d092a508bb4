# SPDX-License-Identifier: GPL-2.0-or-later
"""A CPU fault brings a page home, and before it has let go an eviction comes: it moves once.

Before 6.15 the fault gives the page's lock back before its reference, so an eviction can have both
(`hg_vram_leave()` of guest-driver/module/mem/vram.c).
"""

from __future__ import annotations

from pathlib import Path

from work import acc, cpu, delay_points, driver_counters, migrate, mmap, run_ops, set_delays, values

from hmmbench.build import BuildRequest, ensure
from hmmbench.guest.program import MIGRATE_DEVICE, Acc, Op
from hmmbench.model.ops.moving import Evict
from hmmbench.model.ops.processes import Sleep
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).with_name("evicts-what-has-left.patch")
PAGES = 3


def moved_home(vm: Machine) -> set[int]:
    """How many pages came home of PAGES, of which a CPU had just moved one at an eviction."""
    found = set()
    for _ in range(5):
        set_delays(vm, "to_ram_moved until evict_after_setup 1000000 1000 1 1")
        before = driver_counters(vm)["pages_to_system"]
        result = run_ops(vm, [
            mmap(PAGES), cpu(*(acc(Acc.WRITE, page, 7 + page) for page in range(PAGES))),
            migrate(PAGES, MIGRATE_DEVICE),
            cpu(acc(Acc.READ, 0), phase=1),
            # Until the CPU's fault waits, most likely.
            Op(Sleep.number, a=100_000, actor=1, phase=1), Op(Evict.number, actor=1, phase=1),
            cpu(*(acc(Acc.READ, page) for page in range(PAGES)), phase=2),
        ])  # fmt: skip
        assert values(result, 3) == [7]
        assert values(result, 6) == [7 + page for page in range(PAGES)]
        if any(point.met for point in delay_points(vm)):
            found.add(driver_counters(vm)["pages_to_system"] - before)
    assert found, "no eviction came while a CPU had moved a page"
    return found


def test_a_page_that_has_left_is_left_alone(spec: MachineSpec) -> None:
    with Opener(spec) as opener:
        assert moved_home(opener()) == {PAGES}


def test_a_driver_that_moves_it_again_is_found() -> None:
    broken, _ = best_spec(ensure(BuildRequest(driver_patches=(PATCH,))))
    with Opener(broken) as opener:
        assert PAGES + 1 in moved_home(opener())
