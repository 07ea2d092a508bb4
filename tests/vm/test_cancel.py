# SPDX-License-Identifier: GPL-2.0-or-later
"""A fault is cancelled only if what it asks for is refused when the cancel is written.

A cancel names an address and ends whoever waits there.  A copy that is refused at both ends
needs one only; when the second comes, a job of after the first may wait at that address.  And who
was sent again by a replay does not wait, so his fault of before is no use to cancel him.
"""

from __future__ import annotations

from errno import EFAULT
from pathlib import Path

from work import acc, gpu, mmap, no_violation, run_ops, set_delays, statuses

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import F_CTX1, PAGE, PROT_READ, PROT_RW, Acc, Op, Program
from hmmbench.model.ops.jobs import GpuCopy
from hmmbench.model.ops.mapping import Mprotect
from hmmbench.model.ops.processes import Sleep
from hmmbench.oracle.violation import Violation
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec, exact_spec

MUTANTS = Path(__file__).parent.parent / "mutants"
PATCH = MUTANTS / "cancel-unchecked.patch"
REPLAYS_OLD = MUTANTS / "replays-old-faults.patch"
ROUNDS = 5

#: What makes the replay late, and the walk slow.
SLOW = Environment(("fault_before_replay 20000 1000 1",), ("walk delay=5000000",))
#: Between the faults of others and the job that is refused (microseconds).
BEFORE_US = (8_000, 10_000, 12_000, 14_000, 16_000)


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
            Op(GpuCopy.number, phase=phase + 1, len=PAGE, arg=1, a=2 * k * PAGE),
            Op(Mprotect.number, phase=phase + 2, len=PAGE, a=PROT_RW, **page),
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


def refused_beside_others(spec: MachineSpec) -> list[list[Violation]]:
    """What is wrong with a job that is refused while another's faults are served, each time.

    The replay after those is 20 ms late, so it also meets the fault that is refused.  The job's
    walk takes 5 ms from then on: longer than the driver to cancel it, and less than a replay.
    In an exact machine, where it comes so whatever the host does.
    """
    found = []
    with Opener(exact_spec(spec, 2)) as opener, ExactTarget(opener) as target:
        for us in BEFORE_US:
            target.renew()
            done = target.execute(_refused(us), SLOW)
            found.append(judge(done).violations)
            assert found[-1] or statuses(done.result) == [0] * 6 + [-EFAULT]
    return found


def _refused(us: int) -> Program:
    pages = 6
    ops = [
        mmap(pages), mmap(2, region=1),
        # The walk is only slow where there is a table to look into.
        gpu(acc(Acc.WRITE, 0, 5, region=1), acc(Acc.WRITE, 1, 5, region=1)),
        Op(Mprotect.number, region=1, len=PAGE),
        gpu(*(acc(Acc.ADD, page, 1) for page in range(pages)), phase=1),
        Op(Sleep.number, a=us, actor=1, phase=1),
        gpu(acc(Acc.WRITE, 0, 6, region=1), flags=F_CTX1, actor=1, phase=1),
    ]  # fmt: skip
    return Program(ops, timeout_ms=3000)


def test_what_is_refused_does_not_go_round(spec: MachineSpec) -> None:
    assert refused_beside_others(spec) == [[]] * len(BEFORE_US)


def test_it_goes_round_if_old_faults_are_replayed(artifacts: Artifacts) -> None:
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(REPLAYS_OLD,)))
    )
    for found in refused_beside_others(broken):
        assert {violation.oracle for violation in found} == {"progress"}
