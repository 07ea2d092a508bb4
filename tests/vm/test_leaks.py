# SPDX-License-Identifier: GPL-2.0-or-later
"""Nothing leaks: many short lives of contexts, and unloading with pages in device memory."""

from __future__ import annotations

import work
from work import live

from hmmbench.guest.program import (
    MIGRATE_DEVICE,
    PAGE,
    PROT_RW,
    Acc,
    Access,
    MapKind,
    Op,
    Program,
)
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Migrate
from hmmbench.model.ops.processes import Sleep
from hmmbench.vm.machine import Machine

CYCLES = 1000
CYCLES_A_PROGRAM = 50
PAGES = 8192  # 32 MiB, moved to the device before each unload


def available_kib(machine: Machine) -> int:
    """Free memory when caches are dropped and what is freed late is freed.

    Pages on per-CPU lists do not count as free in meminfo, and tens of MiB come and go there:
    zoneinfo knows how many they are.  The most of a few looks; a leak is missing from each.
    """
    text = machine.agent.check(
        "for i in 1 2 3 4; do echo 3 >/proc/sys/vm/drop_caches; sleep 0.3;"
        " awk '/MemFree/ { kib += $2 } $1 == \"count:\" { kib += 4 * $2 } END { print kib }'"
        " /proc/meminfo /proc/zoneinfo; done"
    )
    return max(int(line) for line in text.split())


def test_open_launch_close(vm: Machine) -> None:
    """1,000 times: open the device, launch on a page in VRAM and on one that is not, close."""
    before, device_before = live(vm), vm.gpu.counters()
    launches = 0
    for start in range(0, CYCLES, CYCLES_A_PROGRAM):
        ops = [
            Op(Mmap.number, len=4 * PAGE, arg=MapKind.ANON_PRIVATE, a=PROT_RW),
            Op(CpuAccess.number, acc=[(Acc.WRITE, 0, 0, 0, start, 0)]),
        ]
        expected = [0]
        for cycle in range(CYCLES_A_PROGRAM):
            adds: list[Access] = [
                (Acc.ADD, 0, 0, 0, 1, 0),
                (Acc.ADD, 0, 0, PAGE, 1, 0),
            ]
            ops += [
                Op(Migrate.number, len=PAGE, arg=MIGRATE_DEVICE),
                Op(GpuAccess.number, acc=adds),
                Op(CloseGpu.number),
            ]
            expected += [start + cycle, cycle]
            launches += 1
        for phase, op in enumerate(ops):
            op.phase = phase
        work.Work(Program(ops, timeout_ms=60000), expected).check(
            work.run(vm, Program(ops, timeout_ms=60000))
        )
    assert launches == CYCLES
    after, device_after = live(vm), vm.gpu.counters()
    assert after == before
    assert all(count == 0 for count in after.values()), after
    assert device_after["launches"] - device_before["launches"] >= CYCLES
    for gauge in ("active_ctxs", "pending_faults", "stalled_warps"):
        assert device_after[gauge] == device_before[gauge]


def resident_program(seed: int) -> tuple[Program, list[int]]:
    """Pages move to the device, the device is closed, and later the CPU reads them."""
    values = [(seed << 32) + page for page in range(PAGES)]
    write: list[Access] = [(Acc.WRITE, 0, 0, i * PAGE, v, 0) for i, v in enumerate(values)]
    read: list[Access] = [(Acc.READ, 0, 0, i * PAGE, 0, 0) for i in range(PAGES)]
    ops = [
        Op(Mmap.number, len=PAGES * PAGE, arg=MapKind.ANON_PRIVATE, a=PROT_RW),
        Op(CpuAccess.number, phase=1, acc=write),
        Op(Migrate.number, phase=2, len=PAGES * PAGE, arg=MIGRATE_DEVICE),
        Op(CloseGpu.number, phase=3),
        Op(Sleep.number, phase=4, a=1_500_000),
        Op(CpuAccess.number, phase=5, acc=read),
    ]
    return Program(ops, timeout_ms=60000), [0] * PAGES + values


def test_unload_with_resident_pages(vm: Machine) -> None:
    """The module goes while a process has its data in VRAM; the data comes back, nothing stays.

    Several times over: what one round keeps could hide in noise, what five keep cannot.
    """
    vm.agent.check("rmmod hmm_gpu")
    before = available_kib(vm)
    rounds = 5
    for seed in range(rounds):
        vm.agent.check("insmod /lib/modules/hmm_gpu.ko")
        program, expected = resident_program(seed)
        vm.agent.check("rm -f /tmp/resident /tmp/gone")
        # Not before all is there; after that, as soon as the process has closed the device.
        vm.agent.start(
            f"c=/sys/kernel/debug/dri/0/counters; until grep -q '^live_vram_pages {PAGES}$' $c;"
            " do sleep 0.05; done;"
            " until grep ^live_vram_pages $c >/tmp/resident; rmmod hmm_gpu 2>/dev/null;"
            " do sleep 0.05; done; cat /proc/uptime >/tmp/gone"
        )
        result = work.run(vm, program)
        migrated = result.ops[2].aux0
        assert migrated == PAGES
        work.Work(program, expected).check(result)
        assert vm.agent.check("cat /tmp/resident") == f"live_vram_pages {PAGES}\n"
        assert vm.agent.check("cat /tmp/gone")
        assert "hmm_gpu" not in vm.agent.check("cat /proc/modules")
    after = available_kib(vm)
    # The pages of one round alone would be 32 MiB.
    assert before - after < 2048, f"{before - after} KiB are missing after {rounds} rounds"
    vm.agent.check("insmod /lib/modules/hmm_gpu.ko")
    small = work.mixed(1)
    small.check(work.run(vm, small.program))
