# SPDX-License-Identifier: GPL-2.0-or-later
"""A fault is cancelled only if what it asks for is refused when the cancel is written.

A cancel names an address and ends whoever waits there.  A copy that is refused at both ends
needs one only; when the second comes, a job of after the first may wait at that address.
"""

from __future__ import annotations

from errno import EFAULT
from pathlib import Path

from work import acc, gpu, mmap, no_violation, run_ops, set_delays, statuses

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.guest.protocol import PAGE, PROT_READ, PROT_RW, Acc, Op, OpKind
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).parent.parent / "mutants" / "cancel-unchecked.patch"
ROUNDS = 5


def jobs_after_a_refused_copy(machine: Machine) -> list[int]:
    """How jobs ended that write where the copy before them was not allowed to."""
    set_delays(machine, "fault_after_drain 3000 1000", "fault_before_cancel 40000 1000")
    ops = []
    for k in range(ROUNDS):
        page = {"region": 1, "off": 2 * k * PAGE}
        phase = 4 * k
        ops += [
            mmap(1, prot=PROT_READ, phase=phase, **page),
            # from a hole, whose address is lower: it is cancelled first
            Op(OpKind.GPU_COPY, phase=phase + 1, len=PAGE, arg=1, a=2 * k * PAGE),
            Op(OpKind.MPROTECT, phase=phase + 2, len=PAGE, a=PROT_RW, **page),
            gpu(acc(Acc.WRITE, 2 * k, 5, region=1), phase=phase + 3),
        ]
    ended = statuses(run_ops(machine, ops))
    assert [ended[4 * k : 4 * k + 3] for k in range(ROUNDS)] == [[0, -EFAULT, 0]] * ROUNDS
    return [ended[4 * k + 3] for k in range(ROUNDS)]


def test_a_job_that_is_allowed_to_goes_on(vm: Machine) -> None:
    assert jobs_after_a_refused_copy(vm) == [0] * ROUNDS
    no_violation(vm)


def test_the_job_would_end_if_the_driver_did_not_look_again(artifacts: Artifacts) -> None:
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(PATCH,)))
    )
    with Opener(broken) as opener:
        assert -EFAULT in jobs_after_a_refused_copy(opener())
