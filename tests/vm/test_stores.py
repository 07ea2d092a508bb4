# SPDX-License-Identifier: GPL-2.0-or-later
"""Files on the guest's disk and at the agent's server, under the GPU: dirty tracking and
write-back, their ends, two processes; buffers of io_uring.  On a full kernel."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import pytest
import work
from test_files import truncate
from work import acc, cpu, flags, gpu, migrate, mmap, query, run_ops, set_delays, statuses, values

from hmmbench.build import Artifacts
from hmmbench.guest import program as p
from hmmbench.guest import splat
from hmmbench.guest.program import F_CTX1, PAGE, PROT_RW, Acc, Ast, MapKind, Op, Program, Result
from hmmbench.model.admit import normalise
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Advice, Madvise, Zap
from hmmbench.model.ops.files import FileRead, Punch
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.pins import How as Get
from hmmbench.model.ops.pins import Pin, PinIo, Unpin
from hmmbench.model.ops.processes import Fork, Sleep
from hmmbench.model.ops.stores import How, Store, Where, WriteBack
from hmmbench.oracle.values import Checker
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.standard import best_spec

N, WHOLE = 4, FILE_PAGES[0]

pytestmark = [pytest.mark.full("a kernel with ext4, FUSE and io_uring"), pytest.mark.timeout(1800)]

disks = pytest.mark.parametrize("where", [Where.EXT4, Where.FUSE], ids=lambda w: w.name)


@pytest.fixture
def watched(full_artifacts: Artifacts, snapshots: Snapshots) -> Iterator[Machine]:
    """A full machine; a splat or a violation seen by the device fails the test."""
    with snapshots.open(best_spec(full_artifacts)[0]) as machine:
        machine.gpu.set_audit("access")
        yield machine
        machine.check()
        assert splat.scan(machine.console.text()) == []
        work.no_violation(machine)


def store(where: Where) -> Op:
    return Op(Store.number, arg=where)


def back(how: How, pages: int = N, **fields: int) -> Op:
    return Op(WriteBack.number, arg=how, len=pages * PAGE, **fields)  # type: ignore[arg-type]


def lanes(kind: Acc, value: int, pages: int = N, **fields: int) -> Op:
    return gpu(*[acc(kind, i, value + i, lane=i) for i in range(pages)], **fields)


def judged(vm: Machine, ops: list[Op], phased: bool = False) -> Result:
    """What came of operations, each in a phase of its own unless they have theirs; the model
    agrees, and the first of them got its disk."""
    for phase, o in enumerate(ops):
        o.phase = o.phase if phased else phase
    assert len(normalise(ops, FILE_PAGES)) == len(ops)
    result = run_ops(vm, ops, file_pages=FILE_PAGES)
    wrong = Checker(Program(ops, FILE_PAGES), result).run()
    assert wrong is None, wrong
    assert result.ops[0].status == 0
    return result


@disks
@pytest.mark.parametrize("how", [How.FSYNC, How.RANGE, How.START], ids=lambda h: h.name)
def test_what_the_gpu_writes_after_write_back_outlives_a_drop(
    watched: Machine, where: Where, how: How
) -> None:
    """The page was made clean, so the GPU may not write it without asking again."""
    result = judged(watched, [
        store(where), mmap(N, MapKind.FILE_SHARED), cpu(*[acc(Acc.READ, i) for i in range(N)]),
        lanes(Acc.WRITE, 10), back(How.FSYNC), query(N), lanes(Acc.ADD, 100), back(how),
        lanes(Acc.ADD, 1000), Op(Zap.number, len=N * PAGE), back(How.DROP_ALL),
        Op(FileRead.number, len=N * PAGE), lanes(Acc.READ, 0),
    ])  # fmt: skip
    assert [bool(q & p.Q_GPU_WRITE) for q in flags(result, 5)] == [False] * N
    expected = [1110 + 3 * i for i in range(N)]
    assert [struct.unpack_from("<Q", result.ops[11].data, i * PAGE)[0] for i in range(N)] == (
        expected
    )  # fmt: skip
    assert values(result, 12) == expected


@disks
def test_a_clean_page_that_the_gpu_read_is_asked_for_again_when_it_writes(
    watched: Machine, where: Where
) -> None:
    """The file system hears of the write before it is made (page_mkwrite)."""
    result = judged(watched, [
        store(where), mmap(N, MapKind.FILE_SHARED), lanes(Acc.READ, 0), query(N),
        lanes(Acc.WRITE, 7), Op(Zap.number, len=N * PAGE), back(How.DROP),
        back(How.DROP_ALL), Op(FileRead.number, len=N * PAGE),
    ])  # fmt: skip
    assert [bool(q & p.Q_GPU_WRITE) for q in flags(result, 3)] == [False] * N
    assert [struct.unpack_from("<Q", result.ops[8].data, i * PAGE)[0] for i in range(N)] == [
        7, 8, 9, 10,
    ]  # fmt: skip


@disks
@pytest.mark.parametrize("kind", [MapKind.FILE_SHARED, MapKind.FILE_PRIVATE])
def test_behind_the_end_of_a_file_on_a_disk(
    watched: Machine, where: Where, kind: MapKind
) -> None:
    result = judged(watched, [
        store(where), mmap(N, kind), lanes(Acc.WRITE, 1), truncate(2),
        gpu(acc(Acc.READ, 1), acc(Acc.ADD, 2, 5, lane=1)), gpu(acc(Acc.READ, 3)),
        cpu(acc(Acc.READ, 2)), truncate(WHOLE), lanes(Acc.ADD, 10),
        Op(Punch.number, c=PAGE, len=PAGE), cpu(*[acc(Acc.READ, i) for i in range(N)]),
    ])  # fmt: skip
    assert statuses(result)[4:6] == [-errno.EFAULT] * 2
    assert [st for _, st, _ in result.ops[6].acc] == [Ast.SIGBUS]
    assert values(result, 10) == (
        [11, 0, 12, 13] if kind == MapKind.FILE_SHARED else [11, 13, 12, 13]
    )  # fmt: skip


@disks
@pytest.mark.parametrize("turn", range(4))
def test_two_processes_and_copies_while_it_is_written_back(
    watched: Machine, where: Where, turn: int
) -> None:
    beside = Op(Mmap.number, region=1, len=8 * PAGE, arg=MapKind.FILE_PRIVATE, a=PROT_RW)
    ops = [
        store(where), mmap(N, MapKind.FILE_SHARED, phase=1),
        Op(Fork.number, arg=1, phase=2), beside,
        gpu(*[acc(Acc.WRITE, i, 50 + i, region=1) for i in (5, 6)], phase=4),
        # 5
        lanes(Acc.ADD, 100, phase=5, actor=1), lanes(Acc.ADD, 1000, phase=5, proc=1),
        gpu(*[acc(Acc.READ, i, region=1, lane=i) for i in (4, 5, 6, 7)], phase=5, actor=2),
        Op(Sleep.number, a=200 * turn, phase=5), back(How.RANGE, phase=5),
        Op(Madvise.number, len=N * PAGE, a=Advice.PAGEOUT, phase=5), back(How.DROP, phase=5),
        back(How.FSYNC, phase=5),
        lanes(Acc.READ, 0, phase=6), lanes(Acc.READ, 0, phase=7, proc=1),
        Op(FileRead.number, len=N * PAGE, phase=8),
        gpu(*[acc(Acc.READ, i, region=1, lane=i) for i in (5, 6)], phase=9),
    ]  # fmt: skip
    beside.phase = 3
    result = judged(watched, ops, phased=True)
    assert values(result, 13) == values(result, 14) == [1100 + 2 * i for i in range(N)]
    assert values(result, 16) == [55, 56]


@disks
def test_a_file_on_a_disk_ends_and_grows_under_jobs(watched: Machine, where: Where) -> None:
    for turn in range(4):
        ops = [
            store(where), mmap(N, MapKind.FILE_SHARED, phase=1),
            Op(Sleep.number, a=200 * turn, phase=2), back(How.START, phase=2),
            truncate(1, phase=2), back(How.FSYNC, phase=2), truncate(WHOLE, phase=2),
            gpu(*[acc(kind, i, 1, lane=N * k + i) for k, kind in enumerate((Acc.READ, Acc.ADD))
                  for i in range(N)], phase=2, actor=1),
            truncate(WHOLE, phase=3), lanes(Acc.ADD, 1, phase=4),
            Op(FileRead.number, len=N * PAGE, phase=5),
        ]  # fmt: skip
        judged(watched, ops, phased=True)


def test_a_write_without_room_on_the_disk_ends_no_reader(watched: Machine) -> None:
    """A hole can be read, and not be written: the writer's job alone ends, whoever comes when."""
    watched.agent.execute("dd if=/dev/zero of=/run/disk/fill bs=4096 2>/dev/null; sync")
    set_delays(watched, "fault_before_cancel 3000 1000 7")
    for turn in range(6):
        ops = [
            store(Where.EXT4), mmap(N, MapKind.FILE_SHARED, phase=1),
            gpu(acc(Acc.WRITE, 1, 5), phase=2),
            Op(Sleep.number, a=300 * turn, phase=2, actor=1),
            gpu(acc(Acc.READ, 1), phase=2, actor=1, flags=F_CTX1),
            gpu(acc(Acc.READ, 1), phase=3),
        ]  # fmt: skip
        result = run_ops(watched, ops, file_pages=FILE_PAGES)
        assert statuses(result) == [0, 0, -errno.EFAULT, 0, 0, 0]
        assert values(result, 4) == values(result, 5) == [0]
    set_delays(watched)
    watched.agent.check("rm /run/disk/fill")


@pytest.mark.parametrize("kind", [MapKind.ANON_PRIVATE, MapKind.ANON_SHARED])
def test_a_registered_buffer_stays_and_stays_right(watched: Machine, kind: MapKind) -> None:
    result = run_ops(watched, phased([
        mmap(N, kind), lanes(Acc.WRITE, 1), migrate(N, p.MIGRATE_DEVICE),
        Op(Pin.number, off=PAGE, len=2 * PAGE, arg=1), query(N), migrate(N, p.MIGRATE_DEVICE),
        query(N), lanes(Acc.ADD, 10), cpu(*[acc(Acc.ADD, i, 100) for i in range(N)]),
        Op(Unpin.number), migrate(N, p.MIGRATE_DEVICE), query(N), lanes(Acc.READ, 0),
    ]))  # fmt: skip
    assert [result.ops[i].status for i in (3, 9)] == [0, 0]
    for at in (4, 6):
        assert [bool(q & p.Q_CPU_DEVICE) for q in flags(result, at)][1:3] == [False] * 2
    seen = [struct.unpack_from("<Q", result.ops[9].data, i * PAGE)[0] for i in range(2)]
    assert seen == [113, 115]
    if kind == MapKind.ANON_PRIVATE:
        assert [bool(q & p.Q_CPU_DEVICE) for q in flags(result, 11)] == [True] * N
    assert values(result, 12) == [111, 113, 115, 117]


@pytest.mark.parametrize("how", [Get.FIXED_OUT, Get.FIXED_IN], ids=lambda h: h.name)
def test_fixed_buffers_beside_migration(watched: Machine, how: Get) -> None:
    for turn in range(6):
        ops = [
            mmap(N), lanes(Acc.WRITE, 1, phase=1), migrate(N, p.MIGRATE_DEVICE, phase=2),
            Op(PinIo.number, arg=how, len=N * PAGE, a=99, phase=3),
            Op(Sleep.number, a=100 * turn, phase=3, actor=1),
            migrate(N, p.MIGRATE_DEVICE, phase=3, actor=1),
            migrate(N, p.MIGRATE_SYSTEM, phase=3, actor=1),
            lanes(Acc.READ, 0, phase=4), query(N, phase=5),
        ]  # fmt: skip
        assert len(normalise(ops, FILE_PAGES)) == len(ops)
        result = run_ops(watched, ops)
        wrong = Checker(Program(ops), result).run()
        assert wrong is None, wrong
        assert result.ops[3].aux0 == N * PAGE


def phased(ops: list[Op]) -> list[Op]:
    for phase, o in enumerate(ops):
        o.phase = phase
    return ops


def test_a_program_of_an_ordinary_kernel_has_its_files_in_memory(vm: Machine) -> None:
    ops = phased([store(Where.EXT4), mmap(N, MapKind.FILE_SHARED), lanes(Acc.WRITE, 1),
                  back(How.FSYNC), lanes(Acc.READ, 0)])  # fmt: skip
    result = run_ops(vm, ops, file_pages=FILE_PAGES)
    assert Checker(Program(ops, FILE_PAGES), result).run() is None
    assert result.ops[0].status in (0, -errno.EOPNOTSUPP)


def test_a_snapshot_has_the_server(full_artifacts: Artifacts) -> None:
    """It was made before the first program, and goes on where machines are restored."""
    with Opener(best_spec(full_artifacts)[0]) as opener:
        for _ in range(2):
            ops = phased([store(Where.FUSE), mmap(N, MapKind.FILE_SHARED), lanes(Acc.WRITE, 1),
                          back(How.FSYNC)])  # fmt: skip
            result = run_ops(opener(), ops, file_pages=FILE_PAGES)
            assert statuses(result) == [0] * 4
