# SPDX-License-Identifier: GPL-2.0-or-later
"""What KSM has merged stays in system memory, where the kernel can part it again.

The kernel does so before mremap() moves pages, and passes over those in VRAM
(`may_go_to_vram()` of guest-driver/module/mem/migrate.c; docs/kernel-bugs.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from work import acc, cpu, flags, gpu, migrate, mmap, query, run_ops, statuses, values

from hmmbench.build import BuildRequest, ensure
from hmmbench.guest.program import MIGRATE_DEVICE, MIGRATE_SYSTEM, PAGE, Q_CPU_DEVICE, Acc, Op
from hmmbench.guest.splat import scan
from hmmbench.model.ops.advice import Advice, Ksm, Madvise
from hmmbench.model.ops.mapping import Mremap
from hmmbench.vm.errors import VmDied
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).parents[1] / "mutants" / "merged-page-to-vram.patch"
PAGES = 4

#: Pages alike are merged, and go where the driver lets them; then the kernel moves them.
MERGED = [
    mmap(PAGES), cpu(*(acc(Acc.WRITE, page, 7) for page in range(PAGES))),
    Op(Madvise.number, len=PAGES * PAGE, a=Advice.MERGEABLE), Op(Ksm.number, a=1),
    migrate(PAGES, MIGRATE_DEVICE), query(PAGES),
    Op(Mremap.number, len=PAGES * PAGE, arg=1, b=PAGES * PAGE),
]  # fmt: skip
MOVED, ASKED = 6, 5


def test_merged_pages_stay_and_are_moved_and_written(vm: Machine) -> None:
    result = run_ops(vm, [
        *MERGED[:MOVED], gpu(acc(Acc.ADD, 1, 1)), query(PAGES),
        MERGED[MOVED], migrate(PAGES, MIGRATE_DEVICE, region=1), query(PAGES, region=1),
        gpu(*(acc(Acc.ADD, page, 10, region=1) for page in range(PAGES))),
        cpu(*(acc(Acc.READ, page, region=1) for page in range(PAGES))),
    ])  # fmt: skip
    assert statuses(result) == [0] * len(result.ops)
    assert not any(flag & Q_CPU_DEVICE for flag in flags(result, ASKED))
    assert values(result, len(result.ops) - 1) == [17, 18, 17, 17]
    # Parted by the kernel, they are pages like others.
    assert all(flag & Q_CPU_DEVICE for flag in flags(result, 10))
    assert scan(vm.console.take()) == []


def test_a_driver_that_takes_them_to_vram_is_found() -> None:
    broken, _ = best_spec(ensure(BuildRequest(driver_patches=(PATCH,))))
    with Opener(broken) as opener:
        vm = opener()
        assert any(flag & Q_CPU_DEVICE for flag in flags(run_ops(vm, MERGED), ASKED))
        with pytest.raises(VmDied, match="in migration_entry_wait_on_locked"):
            run_ops(vm, [
                *MERGED, migrate(PAGES, MIGRATE_SYSTEM, region=1), cpu(acc(Acc.READ, 0, region=1)),
            ])  # fmt: skip
