# SPDX-License-Identifier: GPL-2.0-or-later
"""The device is taken away beside jobs, copies and migrations, in machines of both kinds; and what
the device loses, a driver that looks again by itself brings back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from work import acc, cpu, gpu, migrate, mmap

from hmmbench.device import injection
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest import program as p
from hmmbench.guest.program import PAGE, Acc, Op, OpResult, Program
from hmmbench.model.ops.device import Away, ReopenGpu, TakeGpu
from hmmbench.model.ops.jobs import CloseGpu, GpuFill, GpuSpin
from hmmbench.model.ops.processes import Spawn
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

PAGES = 16


@pytest.fixture(params=["threads", "exact"])
def target(
    spec: MachineSpec, snapshots: Snapshots, request: pytest.FixtureRequest
) -> Iterator[VmTarget]:
    if request.param == "exact":
        exact = replace(spec, accel="tcg", exact=True, cpus=2)
        with Opener(exact, snapshots) as opener, ExactTarget(opener) as one:
            yield one
    else:
        with Opener(spec, snapshots) as opener, VmTarget(opener) as other:
            yield other


def execute(target: VmTarget, ops: list[Op], **env: object) -> list[OpResult]:
    """Without a violation; the results."""
    done = target.execute(Program(ops), Environment(audit="access", **env))  # type: ignore[arg-type]
    assert [v.message for v in judge(done).violations] == []
    assert done.result is not None
    return done.result.ops


def phased(*phases: Op | list[Op]) -> list[Op]:
    out = []
    for n, ops in enumerate(phases):
        for o in ops if isinstance(ops, list) else [ops]:
            o.phase = n
            out.append(o)
    return out


def under_load(how: Away) -> list[Op]:
    """Two processes use the GPU, one has all of its memory there, while it goes."""
    adds = [acc(Acc.ADD, page, 1, lane=page) for page in range(PAGES)]
    reads = [acc(Acc.READ, page) for page in range(PAGES)]
    writes = [acc(Acc.WRITE, page, 7) for page in range(PAGES)]
    return phased(
        mmap(PAGES), cpu(*writes), migrate(PAGES, p.MIGRATE_DEVICE), gpu(*adds),
        Op(Spawn.number, arg=1), mmap(PAGES, proc=1), cpu(*writes, proc=1), gpu(*adds, proc=1),
        [
            gpu(*adds, actor=1), gpu(*adds, actor=1), migrate(PAGES, p.MIGRATE_DEVICE, actor=2),
            migrate(PAGES, p.MIGRATE_DEVICE, actor=2), gpu(*adds, proc=1, actor=1),
            cpu(*reads, proc=1, actor=2), Op(TakeGpu.number, arg=int(how), actor=3),
        ],
        Op(ReopenGpu.number, arg=int(how)), Op(ReopenGpu.number, arg=int(how), proc=1),
        gpu(*adds), gpu(*adds, proc=1), cpu(*reads), cpu(*reads, proc=1),
    )  # fmt: skip


@pytest.mark.parametrize("how", [Away.UNBIND, Away.RESET, Away.REMOVE])
def test_the_device_goes_under_load_and_comes_back(target: VmTarget, how: Away) -> None:
    """Again and again, in one machine: nothing of it is left, and its number is what it was."""
    for _ in range(3):
        results = execute(target, under_load(how))
        assert results[-1].status == 0
    assert target.delay_points()
    assert target.sample().machines == 1


@pytest.mark.parametrize("how", [Away.UNBIND, Away.RESET, Away.REMOVE])
def test_a_program_that_does_not_end_ends_by_it(target: VmTarget, how: Away) -> None:
    listed = phased(
        mmap(1), cpu(acc(Acc.WRITE, 0, 1)), Op(GpuSpin.number, flags=p.F_NOWAIT, a=1 << 40),
        Op(TakeGpu.number, arg=int(how)), Op(ReopenGpu.number, arg=int(how)),
        gpu(acc(Acc.ADD, 0, 1)), cpu(acc(Acc.READ, 0)),
    )  # fmt: skip
    execute(target, listed)


def test_the_module_goes_if_nobody_has_it(target: VmTarget) -> None:
    listed = under_load(Away.RELOAD)
    assert execute(target, listed)[listed.index(_taken(listed))].aux0 == 0
    listed = phased(
        mmap(PAGES), migrate(PAGES, p.MIGRATE_DEVICE), Op(CloseGpu.number),
        Op(TakeGpu.number, arg=int(Away.RELOAD)), Op(ReopenGpu.number),
        gpu(acc(Acc.ADD, 0, 1)), cpu(acc(Acc.READ, 0)),
    )  # fmt: skip
    assert execute(target, listed)[3].aux0 == 1
    # Its machine is of no use for another, and the next is a fresh one.
    execute(target, under_load(Away.UNBIND))
    assert target.sample().machines == 2


def _taken(listed: list[Op]) -> Op:
    return next(o for o in listed if o.op == TakeGpu.number)


def busy() -> list[Op]:
    adds = [acc(Acc.ADD, page, 1, lane=page) for page in range(PAGES)]
    fill = Op(GpuFill.number, off=PAGES * PAGE, len=PAGE, a=5)
    rounds = [
        [gpu(*adds), migrate(PAGES, p.MIGRATE_DEVICE), replace(fill),
         cpu(*(acc(Acc.READ, page) for page in range(PAGES)))]
        for _ in range(6)
    ]  # fmt: skip
    return phased(mmap(PAGES + 1), *(o for one in rounds for o in one))


@pytest.mark.parametrize("rule", dict.fromkeys(injection.RULES))
def test_a_sound_driver_survives_what_the_table_says(target: VmTarget, rule: str) -> None:
    target.execute(Program(busy()), Environment())
    execute(target, busy(), inject=(rule,))
    # And nothing of it stays.
    execute(target, busy())


@pytest.mark.parametrize(
    "rule",
    ["irq.message match=0 count=1 lost", "irq.message match=1 count=1 lost",
     "fault.replay nth=1 lost", "ring.doorbell match=1 count=1 lost"],
)  # fmt: skip
def test_each_loss_hangs_a_driver_that_does_not_look_again(
    spec: MachineSpec, snapshots: Snapshots, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As does ours, if it is not asked to: nothing else brings it back."""
    monkeypatch.setattr(Environment, "watch_ms", 0)
    exact = replace(spec, accel="tcg", exact=True, cpus=2)
    listed = phased(mmap(1), cpu(acc(Acc.WRITE, 0, 1)), gpu(acc(Acc.ADD, 0, 1)))
    with Opener(exact, snapshots) as opener, ExactTarget(opener) as target:
        done = target.execute(Program(listed, timeout_ms=1000), Environment(inject=(rule,)))
    assert [v.oracle for v in judge(done).violations][:1] == ["progress"]
