# SPDX-License-Identifier: GPL-2.0-or-later
"""An address space number gets its next owner while faults of the last one are on their way."""

from __future__ import annotations

from collections.abc import Iterator
from errno import EFAULT
from pathlib import Path

import pytest
import work
from work import acc, flags, gpu, mmap, query, run_ops, set_delays, statuses, values

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.guest import program as p
from hmmbench.guest import splat
from hmmbench.guest.program import F_NOWAIT, Acc, Op
from hmmbench.model.ops.jobs import CloseGpu
from hmmbench.model.ops.processes import Sleep
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

#: A driver that has an answer for those who are gone, and does not leave out who has ended.
CANCELS_FOR_NOBODY = """\
--- a/guest-driver/module/mem/fault.c
+++ b/guest-driver/module/mem/fault.c
@@ -1,3 +1,3 @@
-	if (!svm)
-		return;
-	if (!mmget_not_zero(svm->vm.mm)) {
+	if (!svm) { hg_delay(fault_before_cancel);
+		hg_fault_cancel(hdev, f->asid, 0, HG_CANCEL_GLOBAL | HG_CANCEL_SCOPE_ALL); return; }
+	if (!mmget_not_zero(svm->vm.mm)) {
@@ -100,3 +100,3 @@
 \t\thg_delay(fault_after_drain);
-\t\tm = drop_ended(hdev, buf->batch, n);
+\t\tm = n ?: drop_ended(hdev, buf->batch, n);
 \t\tm = dedupe(hdev, buf->batch, m);
"""


@pytest.fixture
def vm(spec: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    with snapshots.open(spec) as machine:
        yield machine
        machine.check()
        assert splat.scan(machine.console.text()) == []
        work.no_violation(machine)


def jobs_of_the_next_owner(vm: Machine) -> list[int]:
    """How jobs ended while the worker had a fault whose owner it did not find any more."""
    set_delays(
        vm, "fault_after_drain 3000 1000", "release_before_asid_free 10000 1000",
        "fault_before_cancel 40000 1000",
    )  # fmt: skip
    rounds = 6
    ops = [mmap(rounds)]
    for k in range(rounds):
        phase = 4 * k
        ops += [
            gpu(acc(Acc.WRITE, k, 1), flags=F_NOWAIT, phase=phase + 1),
            Op(Sleep.number, a=1000, phase=phase + 2),
            Op(CloseGpu.number, phase=phase + 3),
            gpu(acc(Acc.WRITE, k, 2), phase=phase + 4),
        ]
    ended = statuses(run_ops(vm, ops))
    return [ended[4 * k + 4] for k in range(rounds)]


def test_a_fault_of_nobody_ends_no_job(vm: Machine) -> None:
    assert jobs_of_the_next_owner(vm) == [0] * 6


def test_a_job_would_end_if_the_driver_cancelled_for_nobody(
    artifacts: Artifacts, tmp_path: Path
) -> None:
    patch = tmp_path / "cancels-for-nobody.patch"
    patch.write_text(CANCELS_FOR_NOBODY)
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(patch,)))
    )
    with Opener(broken) as opener:
        assert -EFAULT in jobs_of_the_next_owner(opener())


def test_a_fault_of_the_last_owner_is_not_served_for_the_next(vm: Machine) -> None:
    """What the last owner's job would have touched stays untouched."""
    sleeps = (5_000, 20_000, 35_000, 50_000)
    set_delays(vm, "fault_after_drain 30000 1000")
    ops = [mmap(len(sleeps) + 1)]
    for k, sleep in enumerate(sleeps):
        phase = 5 * k
        ops += [
            gpu(acc(Acc.READ, 0), phase=phase + 1),
            gpu(acc(Acc.WRITE, k + 1, 1), flags=F_NOWAIT, phase=phase + 2),
            Op(Sleep.number, a=sleep, phase=phase + 3),
            Op(CloseGpu.number, phase=phase + 4),
            gpu(acc(Acc.READ, 0), phase=phase + 5),
            query(len(sleeps) + 1, phase=phase + 5),
        ]
    result = run_ops(vm, ops)
    for k in range(len(sleeps)):
        assert values(result, 6 * k + 5) == [0]
        assert flags(result, 6 * k + 6)[0] & p.Q_GPU_VALID
        assert not flags(result, 6 * k + 6)[k + 1] & p.Q_GPU_VALID
