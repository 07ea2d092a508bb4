# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent's GPU operations, libhmmgpu, reproducers and BENCH on the real device and driver."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import work
from work import acc, cpu, flags, gpu, migrate, mmap, query, run_ops, statuses, values

from hmmbench.gpu import build
from hmmbench.guest import program as p
from hmmbench.guest import splat
from hmmbench.guest.program import Acc, Access, Ast, MapKind, Op, Program, Result
from hmmbench.model.ops.advice import Advice, Madvise
from hmmbench.model.ops.jobs import CloseGpu, GpuCopy, GpuFill, GpuSpin, WaitGpu
from hmmbench.model.ops.mapping import Mprotect, Mremap
from hmmbench.model.ops.moving import Evict, Policy
from hmmbench.model.ops.processes import Exit, Fork, Kill, Nop, Sleep, Spawn
from hmmbench.suites import driver_life
from hmmbench.vm.agent import AgentError, ExecResult
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

EFAULT, ETIME = -14, -62
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def machine(spec: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    """One machine for this file, with the kernel's test module for BENCH."""
    spec = replace(spec, cmdline=(*spec.cmdline, "hmmbench.testhmm"))
    with snapshots.open(spec) as vm:
        yield vm


@pytest.fixture
def vm(machine: Machine) -> Iterator[Machine]:
    """The machine; a splat during the test fails the test."""
    machine.console.take()
    yield machine
    machine.check()
    assert splat.scan(machine.console.take()) == []


def read(page: int, **k: int) -> Access:
    return acc(Acc.READ, page, **k)


def write(page: int, value: int, **k: int) -> Access:
    return acc(Acc.WRITE, page, value, **k)


def test_hello_knows_the_gpu(vm: Machine) -> None:
    hello = vm.agent.hello()
    assert hello["driver"] is True
    assert hello["lanes"] == 32
    assert hello["thread_slots"] == hello["sms"] * hello["warps"] * 32
    assert hello["vram_pages"] > 0
    assert hello["coherent"] == 0
    assert hello["debugfs"].startswith("/sys/kernel/debug/dri/")


def test_every_access_kind(vm: Machine) -> None:
    big = 0x1122334455667788
    result = run_ops(vm, [
        mmap(2),
        gpu(
            read(0), write(0, big), read(0), acc(Acc.ADD, 0, 3), acc(Acc.XCHG, 0, 9),
            acc(Acc.CAS, 0, 20, expect=8), acc(Acc.CAS, 0, 20, expect=9), read(0),
            acc(Acc.WRITE32, 0, 0xFFFFFFFFAABBCCDD, byte=4), read(0),
            acc(Acc.READ32, 0, byte=4), acc(Acc.DELAY, 0, 100), acc(Acc.ADD, 0, 2**64 - 1),
        ),
        cpu(read(0), read(1)),
    ])  # fmt: skip
    assert values(result, 1) == [
        0, 0, big, big, big + 3, 9, 9, 20, 0, 0xAABBCCDD00000014, 0xAABBCCDD, 0,
        0xAABBCCDD00000014,
    ]  # fmt: skip
    assert values(result, 2) == [0xAABBCCDD00000013, 0]


@pytest.mark.parametrize("block", [1, 7, 32, 64, 256])
def test_many_lanes_in_any_grouping(vm: Machine, block: int) -> None:
    """A lane's accesses run in order, whatever block its thread is in."""
    pages, lanes = 40, 200
    accesses = []
    for n in range(3):
        for lane in range(lanes):
            slot = {"byte": 8 * (lane // pages), "lane": lane}
            if n != 1:
                accesses.append(read(lane % pages, **slot))
            accesses.append(write(lane % pages, 1000 * n + lane + 1, **slot))
    random.Random(block).shuffle(order := list(range(lanes)))
    result = run_ops(
        vm,
        [
            mmap(pages),
            gpu(*accesses, block=block),
            cpu(*[read(lane % pages, byte=8 * (lane // pages)) for lane in order]),
        ],
    )
    got = values(result, 1)
    assert statuses(result) == [0, 0, 0]
    assert [v for v, a in zip(got, accesses, strict=True) if a[0] == Acc.READ] == (
        [0] * lanes + [1000 + lane + 1 for lane in range(lanes)]
    )
    assert values(result, 2) == [2000 + lane + 1 for lane in order]


def test_fault_ends_the_job_and_says_where(vm: Machine) -> None:
    result = run_ops(vm, [
        mmap(4), mmap(1, prot=p.PROT_READ, region=2),
        gpu(write(0, 1), read(0), read(6), read(1)),
        gpu(write(0, 2), write(0, 3, region=2)),
        gpu(read(0, region=2), read(0)),
        Op(Mprotect.number, off=p.PAGE, len=p.PAGE, a=p.PROT_NONE),
        gpu(acc(Acc.ADD, 0, 1), acc(Acc.ADD, 1, 1, byte=16)),
        cpu(read(0)),
    ])  # fmt: skip
    assert statuses(result) == [0, 0, EFAULT, EFAULT, 0, 0, EFAULT, 0]
    hole, readonly, none = result.ops[2], result.ops[3], result.ops[6]
    assert [a[1] for a in hole.acc] == [Ast.DONE, Ast.DONE, Ast.NOT_DONE, Ast.NOT_DONE]
    assert (hole.gpu_status, hole.fault_region, hole.fault_addr) == (p.ERR_FAULT, 0, 6 * p.PAGE)
    assert [a[1] for a in readonly.acc] == [Ast.DONE, Ast.NOT_DONE]
    assert (readonly.fault_region, readonly.fault_addr) == (2, 0)
    assert [a[1] for a in none.acc] == [Ast.DONE, Ast.NOT_DONE]
    assert (none.fault_region, none.fault_addr & ~0xFFF) == (0, p.PAGE)
    assert values(result, 4) == [0, 2]
    assert values(result, 7) == [3]


@pytest.mark.parametrize(
    "kind",
    [MapKind.ANON_PRIVATE, MapKind.ANON_SHARED, MapKind.FILE_PRIVATE, MapKind.FILE_SHARED,
     MapKind.STACK, MapKind.GLOBAL, MapKind.HUGETLB_PRIVATE, MapKind.HUGETLB_SHARED],
)  # fmt: skip
def test_every_kind_of_memory(vm: Machine, kind: MapKind) -> None:
    pages = 512 if "HUGETLB" in kind.name else 8
    result = run_ops(vm, [
        mmap(pages, kind), cpu(write(1, 11)),
        gpu(read(1), write(2, 22), acc(Acc.ADD, 1, 1), read(3, lane=40)),
        cpu(read(1), read(2), write(3, 33)), gpu(read(3)),
    ], file_pages=(8, 0, 0, 0))  # fmt: skip
    assert statuses(result) == [0] * 5
    assert values(result, 2) == [11, 0, 11, 0]
    assert values(result, 3) == [12, 22, 0]
    assert values(result, 4) == [33]


def test_migrate_query_evict(vm: Machine) -> None:
    device = p.Q_CPU_DEVICE
    n = 16
    result = run_ops(vm, [
        mmap(n), cpu(*[write(i, i + 1) for i in range(n)]),
        migrate(n, p.MIGRATE_DEVICE),
        query(n),
        gpu(*[acc(Acc.ADD, i, 100, lane=i) for i in range(n)]),
        query(n),
        Op(Evict.number),
        query(n),
        cpu(*[read(i) for i in range(n)]),
        migrate(n, p.MIGRATE_DEVICE, a=p.MIGRATE_MAP),
        query(n),
        migrate(n, p.MIGRATE_SYSTEM),
        query(n),
        migrate(1, p.MIGRATE_DEVICE, region=9),
    ])  # fmt: skip
    assert statuses(result) == [0] * 13 + [EFAULT]
    assert (result.ops[2].aux0, result.ops[2].aux1) == (n, 0)
    assert [q & device for q in flags(result, 3)] == [device] * n
    assert all(q & p.Q_GPU_VALID and q & p.Q_GPU_VRAM for q in flags(result, 5))
    assert [q & (device | p.Q_GPU_VRAM) for q in flags(result, 7)] == [0] * n
    assert values(result, 8) == [i + 101 for i in range(n)]
    assert all(q & p.Q_GPU_VALID and q & p.Q_GPU_VRAM for q in flags(result, 10))
    assert [q & device for q in flags(result, 12)] == [0] * n


def test_policy_migrates_on_fault(vm: Machine) -> None:
    result = run_ops(vm, [
        mmap(4), cpu(write(0, 5)), Op(Policy.number, arg=p.POLICY_MIGRATE),
        gpu(read(0)), query(),
        Op(Policy.number, arg=p.POLICY_MAP), cpu(write(1, 6)), gpu(read(1)),
        query(off=p.PAGE),
    ])  # fmt: skip
    assert flags(result, 4)[0] & p.Q_CPU_DEVICE
    assert not flags(result, 8)[0] & p.Q_CPU_DEVICE


def test_agents_own_pages_never_migrate(vm: Machine) -> None:
    """Else what is left of them in VRAM after a program would look like a leak."""
    result = run_ops(vm, [
        mmap(4), Op(Policy.number, arg=p.POLICY_MIGRATE), gpu(read(0), read(7)),
        Op(Evict.number), gpu(write(0, 1)),
    ], flags=p.PF_COUNTERS, settle_ms=300)  # fmt: skip
    assert statuses(result) == [0, 0, EFAULT, 0, 0]
    assert values(result, 4) == [0]


def test_copy_and_fill(vm: Machine) -> None:
    result = run_ops(vm, [
        mmap(8), mmap(8, region=1),
        Op(GpuFill.number, off=0, len=2 * p.PAGE, a=0xABCD),
        Op(GpuCopy.number, off=0, len=2 * p.PAGE, arg=1, a=p.PAGE + 8),
        cpu(read(1), read(1, region=1), read(1, region=1, byte=8), read(3, region=1),
            read(3, region=1, byte=8)),
        Op(GpuCopy.number, off=0, len=p.PAGE, arg=1, a=20 * p.PAGE),
        Op(GpuCopy.number, off=20 * p.PAGE, len=p.PAGE, arg=1, a=0, flags=p.F_CTX1),
        Op(GpuFill.number, off=p.PAGE, len=p.PAGE, a=1, flags=p.F_CTX1),
        cpu(read(0), read(1)),
    ])  # fmt: skip
    assert statuses(result) == [0, 0, 0, 0, 0, EFAULT, EFAULT, 0, 0]
    assert values(result, 4) == [0xABCD, 0, 0xABCD, 0xABCD, 0]
    assert values(result, 8) == [0xABCD, 1]
    assert (result.ops[5].fault_region, result.ops[5].fault_addr & ~0xFFF) == (1, 20 * p.PAGE)


def test_jobs_not_waited_for(vm: Machine) -> None:
    result = run_ops(vm, [
        mmap(4),
        gpu(write(0, 1), flags=p.F_NOWAIT), gpu(read(9), flags=p.F_NOWAIT | p.F_CTX1),
        Op(GpuSpin.number, a=10000, flags=p.F_NOWAIT),
        Op(WaitGpu.number), cpu(read(0)), Op(CloseGpu.number), gpu(read(0)),
    ])  # fmt: skip
    assert statuses(result) == [0, 0, EFAULT, ETIME, 0, 0, 0, 0]
    assert values(result, 5) == [1]
    assert values(result, 7) == [1]


def test_jobs_behind_are_left_alone(vm: Machine) -> None:
    """The newest, which does not end, is not waited for; what is before it is."""
    endless = Op(GpuSpin.number, a=1 << 40, flags=p.F_NOWAIT)
    result = run_ops(vm, [
        mmap(4), gpu(acc(Acc.DELAY, 0, 30000), write(0, 1), flags=p.F_NOWAIT),
        gpu(read(9), flags=p.F_NOWAIT), endless, Op(WaitGpu.number, a=1), cpu(read(0)),
        Op(WaitGpu.number, a=1), Op(WaitGpu.number, a=7), Op(CloseGpu.number), gpu(read(0)),
    ])  # fmt: skip
    assert not result.timeout
    assert statuses(result) == [0, 0, EFAULT, 0, 0, 0, 0, 0, 0, 0]
    assert values(result, 5) == [1]
    assert values(result, 9) == [1]


def test_budget_ends_a_launch(vm: Machine) -> None:
    result = run_ops(vm, [mmap(1), gpu(acc(Acc.DELAY, 0, 10**12), a=5000), gpu(write(0, 1))])
    assert statuses(result) == [0, ETIME, 0]
    assert [a[1] for a in result.ops[1].acc] == [Ast.NOT_DONE]


@pytest.mark.parametrize("how", ["exit", "kill", "timeout"])
def test_process_ends_with_the_gpu_running(vm: Machine, how: str) -> None:
    ops = [
        mmap(8), Op(Spawn.number, arg=1), mmap(8, proc=1),
        migrate(8, p.MIGRATE_DEVICE, proc=1, phase=1),
        gpu(write(0, 5), read(0), proc=1, phase=1),
        Op(GpuSpin.number, proc=1, phase=1, flags=p.F_NOWAIT),
    ]  # fmt: skip
    if how == "exit":
        ops.append(Op(Exit.number, proc=1, phase=2))
    elif how == "kill":
        ops.append(Op(Kill.number, arg=1, phase=2))
    else:
        ops.append(Op(WaitGpu.number, proc=1, phase=2))
    ops += [gpu(write(0, 6), read(0), phase=3)]
    start = time.monotonic()
    result = run_ops(vm, ops, timeout_ms=3000)
    assert time.monotonic() - start < 30
    assert result.died == 0
    assert values(result, 4) == [0, 5]
    assert result.timeout == (how == "timeout")
    if how != "timeout":
        assert statuses(result) == [0] * len(ops)
        assert values(result, 7) == [0, 6]


def test_fork_with_gpu_open(vm: Machine) -> None:
    """Parent and child each have their own view; neither sees the other's writes."""
    result = run_ops(vm, [
        mmap(4), cpu(write(0, 1), write(1, 1)),
        migrate(2, p.MIGRATE_DEVICE), gpu(read(0)),
        Op(Fork.number, arg=1, phase=1),
        gpu(read(0), write(0, 2), proc=1, phase=2), gpu(write(1, 3), phase=2),
        gpu(read(0), read(1), phase=3), gpu(read(0), read(1), proc=1, phase=3),
        cpu(read(0), read(1), phase=4), cpu(read(0), read(1), proc=1, phase=4),
    ])  # fmt: skip
    assert statuses(result) == [0] * 11
    assert values(result, 5) == [1, 0]
    assert values(result, 7) == values(result, 9) == [1, 3]
    assert values(result, 8) == values(result, 10) == [2, 1]


def test_cpu_and_gpu_atomics_lose_nothing(vm: Machine) -> None:
    per_actor, lanes = 300, 64
    result = run_ops(vm, [
        mmap(1),
        cpu(*[acc(Acc.ADD, 0, 1)] * per_actor, phase=1, arg=2000),
        gpu(*[acc(Acc.ADD, 0, 1, lane=n % lanes) for n in range(5 * lanes)], actor=1, phase=1),
        gpu(*[acc(Acc.ADD, 0, 1, lane=n % lanes) for n in range(5 * lanes)], actor=2, phase=1,
            flags=p.F_CTX1),
        *[migrate(1, n % 2, actor=3, phase=1) for n in range(10)],
        cpu(read(0), phase=2),
    ])  # fmt: skip
    total = per_actor + 10 * lanes
    assert values(result, len(result.ops) - 1) == [total]
    olds = sorted(v for op in (1, 2, 3) for v in values(result, op))
    assert olds == list(range(total))


def test_madvise_and_remap_are_seen_by_the_gpu(vm: Machine) -> None:
    result = run_ops(vm, [
        mmap(8), gpu(*[write(i, i + 1) for i in range(8)]),
        Op(Madvise.number, off=0, len=p.PAGE, a=Advice.DONTNEED),
        Op(Mremap.number, off=p.PAGE, len=2 * p.PAGE, arg=2, a=0, b=2 * p.PAGE),
        Op(Madvise.number, off=3 * p.PAGE, len=p.PAGE, a=Advice.PAGEOUT),
        gpu(read(0), read(0, region=2), read(1, region=2), read(3)), gpu(read(1)),
    ])  # fmt: skip
    assert values(result, 5) == [0, 2, 3, 4]
    assert result.ops[6].status == EFAULT


def test_counters_show_the_work(vm: Machine) -> None:
    result = run_ops(vm, [mmap(4), gpu(*[write(i, 1) for i in range(4)])], flags=p.PF_COUNTERS)
    before, after = work.counts(result.counters_before), work.counts(result.counters_after)
    assert after["faults"] >= before["faults"] + 4 if "faults" in after else after["dev_faults"]
    assert after["jobs_done"] == before["jobs_done"] + 1
    assert not any(v for k, v in after.items() if k.startswith("live_"))


def test_live_counter_that_stays_is_reported(vm: Machine) -> None:
    """A process outside the program keeps the GPU open: exactly what a leak looks like."""
    node = vm.agent.execute("ls /dev/dri/renderD*").output.split()[0]
    pid = vm.agent.start(f"exec 3<>{node}; sleep 60")
    program = Program([Op(Nop.number)], settle_ms=300, flags=p.PF_COUNTERS)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        result = Result.decode(vm.agent.program(program.encode(), 30), program)
        if result.live_nonzero:
            break
    vm.agent.kill(pid)
    assert result.live_nonzero
    assert run_ops(vm, [Op(Nop.number)]).live_nonzero is False


def test_simple_programs_are_fast_enough_to_be_many(vm: Machine) -> None:
    """No timing is checked; 300 programs must just fit a test's patience and leave nothing."""
    for n in range(300):
        result = run_ops(vm, [mmap(2), cpu(write(0, n)), gpu(read(0), write(1, n)), cpu(read(1))])
        assert values(result, 2) == [n, 0]
        assert values(result, 3) == [n]


# ---- library and reproducers ----


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lib")
    driver_life.build_library(out)
    return out


#: Ways to break the library that the program must notice: file, text that is there once, new text.
BROKEN = {
    "arguments are written over while jobs use them": (
        "args.c", "return ret == 0 || ret == -ENODATA;", "return ret != 1 || ret == -ENODATA;"),
    "a stamp is used again while its job is to come": (
        "event.c", "if (s->users || !is_over(gpu, s))", "if (s->users)"),
    "a cancelled event counts as reached": (
        "event.c", "ret = -ECANCELED;", "*time = 0;"),
    "a fill begins at the word": (
        "memory.c", "odd = (uintptr_t)to & 7;", "odd = 0; to -= (uintptr_t)to & 7;"),
    "jobs are not counted": (
        "stats.c", "ctx->collected.job++;", "ctx->collected.job = last;"),
}  # fmt: skip


@pytest.fixture(scope="module")
def gpu_kernels() -> bytes:
    """libhmmgpu_kernels.c, linked."""
    return build.kernels(HERE / "libhmmgpu_kernels.c")


def libhmmgpu_test(vm: Machine, library: Path, kernels: bytes, out: Path) -> ExecResult:
    """Run libhmmgpu_test.c with this build of the library."""
    vm.agent.write_file("/tmp/k.elf", kernels)
    test = driver_life.compile_c(HERE / "libhmmgpu_test.c", library, out, work.WARNINGS)
    vm.agent.write_file("/tmp/t", test, 0o755)
    return vm.agent.execute("/tmp/t /tmp/k.elf 2>&1", timeout=60)


def test_libhmmgpu(vm: Machine, library: Path, gpu_kernels: bytes, tmp_path: Path) -> None:
    """libhmmgpu_test.c: contexts, kernels with stack, barrier, floating point and shared memory,
    fences, errors, attributes, arguments by value, events, copies, statistics, fork."""
    result = libhmmgpu_test(vm, library, gpu_kernels, tmp_path / "t")
    assert result.status == 0, result.output
    assert "all passed" in result.output


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_libhmmgpu_is_noticed(
    vm: Machine, gpu_kernels: bytes, tmp_path: Path, name: str
) -> None:
    work.broken_library(tmp_path, *BROKEN[name])
    result = libhmmgpu_test(vm, tmp_path, gpu_kernels, tmp_path / "t")
    assert result.status == 1, result.output


REPRODUCER = """
#include "repro.h"
#define RW (PROT_READ | PROT_WRITE)

static const struct repro_op ops[] = {
    { OP(0, 0, 0, "mmap"), .len = 0x4000, .a = RW, WANT(0) },
    { OP(0, 0, 0, "mmap"), .region = 3, .len = 0x1000, .arg = HB_MAP_STACK, .a = RW, WANT(0) },
    { OP(0, 0, 0, "cpu_access"), ACCESSES({ WRITE(0, 0, 7) }) },
    { OP(0, 0, 0, "gpu_access"), .arg = 32, ACCESSES(
        { ADD(0, 0, 1, 7) }, { WRITE(0, 0x1000, 4), .lane = 40 },
        { READ(0, 0x1000, 4), .lane = 40 }, { READ(3, 0, 0), .lane = 2 }), WANT(0) },
    { OP(0, 0, 0, "gpu_access"), .flags = HB_F_CTX1, ACCESSES({ READ(0, 0x8000) }), WANT(-EFAULT) },
    { OP(0, 0, 0, "migrate"), .len = 0x4000, .arg = HMM_GPU_MIGRATE_DEVICE, WANT(0) },
    { OP(0, 0, 0, "query"), .len = 0x4000,
      PAGES({ 0, 1, HMM_GPU_Q_CPU_DEVICE, HMM_GPU_Q_CPU_DEVICE },
            { 1, 3, HMM_GPU_Q_CPU_ERROR, WORSE 0 }),
      WANT(0) },
    { OP(0, 0, 0, "gpu_spin"), .a = 1000, WANT(-ETIME) },
    { OP(0, 0, 0, "wait_gpu"), WANT(0) },
    { OP(0, 0, 0, "gpu_access"), .flags = HB_F_NOWAIT, ACCESSES({ WRITE(0, 0x1008, 6) }) },
    { OP(0, 0, 0, "gpu_spin"), .a = 1ull << 40, WANT(0) },
    { OP(0, 0, 0, "wait_gpu"), .a = 1, WANT(0) },
    { OP(0, 0, 0, "cpu_access"), ACCESSES({ READ(0, 0x1008, 6) }) },
    { OP(0, 0, 0, "close_gpu"), WANT(0) },
    { OP(0, 0, 0, "gpu_fill"), .off = 0x2000, .len = 0x1000, .a = 5, WANT(0) },
    { OP(0, 0, 0, "gpu_copy"), .off = 0x2000, .len = 8, .arg = 0, .a = 0x3000, WANT(0) },
    { OP(0, 0, 0, "cpu_access"), ACCESSES({ READ(0, 0x3000, 5) }) },
    { OP(0, 0, 0, "evict"), WANT(0) },
    { OP(1, 0, 0, "fork"), .arg = 1, WANT(0) },
    { OP(2, 0, 0, "gpu_access"), .flags = HB_F_CTX1 | HB_F_NOWAIT, ACCESSES({ ADD(0, 0, 1) }) },
    { OP(2, 0, 0, "wait_gpu"), WANT(0) },
    { OP(2, 1, 0, "gpu_access"), ACCESSES({ WRITE(0, 0, 10) }, { READ(0, 0, 10) }), WANT(0) },
    { OP(3, 0, 0, "cpu_access"), ACCESSES({ READ(0, 0, WRONG 9) }) },
    { OP(3, 1, 0, "exit") },
};
REPRO_MAIN(ops)
"""

@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", ""),
        ("WRONG", "actor 0 phase 3: CPU access 0, region 0 offset 0x0: 0x9, not 0xa"),
        ("WORSE", "query, page 1: 0x0, not 0x1 under 0x800"),
    ],
)  # fmt: skip
def test_reproducer(
    vm: Machine, library: Path, tmp_path: Path, wrong: str, message: str
) -> None:
    source = REPRODUCER
    for place in ("WRONG", "WORSE"):
        source = source.replace(place, "1 +" if place == wrong else "")
    (tmp_path / "r.c").write_text(source)
    program = driver_life.compile_c(
        tmp_path / "r.c", library, tmp_path / "r", work.WARNINGS, driver_life.ENGINE
    )
    vm.agent.write_file("/tmp/r", program, 0o755)
    result = vm.agent.execute("/tmp/r 5", timeout=120)
    assert result.status == (1 if wrong else 0), result.output
    assert message in result.output


# ---- BENCH ----


@pytest.mark.parametrize(
    "request_",
    [
        {"measure": "bulk_fault"}, {"measure": "bulk_fault", "populated": 0, "write": 1},
        {"measure": "single_fault"}, {"measure": "migrate_to_device", "thp": 1},
        {"measure": "cpu_fault_back", "random": 1}, {"measure": "touch_round"},
        {"measure": "launch"},
    ],
)  # fmt: skip
def test_bench(vm: Machine, request_: dict[str, Any]) -> None:
    """The agent checks the data of every round, so an answer means it worked."""
    pages = 512 if request_.get("thp") else 64
    answer = vm.agent.bench({**request_, "pages": pages, "rounds": 3}, 120)
    assert answer["ours_us"] >= answer["ours_us_min"] > 0
    if request_["measure"] != "launch":
        ratio = answer["ours_us"] / answer["test_hmm_us"]
        assert answer["ratio"] == pytest.approx(ratio, rel=1e-2)
    assert answer.get("ours_p99_us", 1) >= answer.get("ours_p50_us", 0)


def test_bench_refuses_nonsense(vm: Machine) -> None:
    for request_, reason in (
        ({"measure": "nothing"}, "no measurement"),
        ({}, "no measurement"),
        ({"measure": "launch", "pages": 0}, "pages 1.."),
        ({"measure": "launch", "rounds": 10**9}, "rounds 1.."),
        ({"measure": "launch", "pages": -5}, "pages 1.."),
    ):
        with pytest.raises(AgentError, match=reason):
            vm.agent.bench(request_)


def test_a_query_beside_a_fault(vm: Machine) -> None:
    """A page comes between the query's look at the CPU's table and that at the GPU's: what the GPU
    has, the CPU is seen to have as well."""
    work.set_delays(vm, "query_after_walk until fault_before_replay 3000000 1000 1 1")
    ops = [
        mmap(2), gpu(write(1, 3)), query(phase=1, actor=1),
        Op(Sleep.number, phase=1, a=100_000), gpu(write(0, 3), phase=1),
    ]  # fmt: skip
    try:
        result = run_ops(vm, ops)
        point = next(one for one in work.delay_points(vm) if one.name == "query_after_walk")
    finally:
        work.set_delays(vm)
    assert statuses(result) == [0] * len(ops)
    assert point.hits == 1
    (seen,) = flags(result, 2)
    both = p.Q_GPU_VALID | p.Q_GPU_WRITE | p.Q_CPU_READ | p.Q_CPU_WRITE
    assert seen & both == both
