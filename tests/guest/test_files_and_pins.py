# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that change and pages that calls get hold of, without a GPU: agent and model against the
kernel of the host."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from host_agent import HostAgent

from hmmbench.campaign.generate import program, size_of
from hmmbench.guest.program import PAGE, PROT_READ, PROT_RW, Acc, Ast, MapKind, Op, Program, Result
from hmmbench.model import ops
from hmmbench.model.admit import normalise
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.files import FileRead, FileWrite, Msync, Punch, Truncate
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.mapping import Mmap, Mprotect, Replace
from hmmbench.model.ops.pins import WRITES, How, Pin, PinIo, Unpin
from hmmbench.model.ops.processes import Fork
from hmmbench.model.ops.stores import How as Dropping
from hmmbench.model.ops.stores import WriteBack
from hmmbench.model.space import HUGETLB
from hmmbench.oracle.values import Checker

#: Of the whole host, or of swap, which it may not have.
NOT_HERE = (
    "evict", "ksm", "madvise", "mlock", "memcg", "numa_balance", "offline", "poison", "mthp",
    "take_gpu",
)

Run = Callable[[list[Op]], Result]


@pytest.fixture
def run(host_agent: HostAgent) -> Run:
    """Runs operations, each in a phase of its own; what the model says against the answer fails."""
    agent = host_agent.connect()

    def run_ops(listed: list[Op]) -> Result:
        for phase, o in enumerate(listed):
            o.phase = phase
        p = Program(listed, FILE_PAGES, settle_ms=0)
        assert len(normalise(listed, FILE_PAGES)) == len(listed)
        result = Result.decode(agent.program(p.encode(), 30), p)
        wrong = Checker(p, result).run()
        assert wrong is None, wrong
        return result

    return run_ops


def mmap(kind: MapKind, pages: int = 4, region: int = 0, prot: int = PROT_RW) -> Op:
    return Op(Mmap.number, region=region, len=pages * PAGE, arg=kind, a=prot)


def cpu(kind: Acc, *at: int, value: int = 0, region: int = 0, **more: int) -> Op:
    return Op(CpuAccess.number, acc=[(int(kind), region, 0, a, value, 0) for a in at], **more)  # type: ignore[arg-type]


def io(how: How, off: int, length: int, value: int = 0, **more: int) -> Op:
    return Op(PinIo.number, arg=how, off=off, len=length, a=value, **more)  # type: ignore[arg-type]


def seen(r: Result, op: int) -> list[tuple[int, int]]:
    return [(value, status) for value, status, _ in r.ops[op].acc]


def test_what_lies_behind_the_end_is_gone_and_comes_back_empty(run: Run) -> None:
    r = run([
        mmap(MapKind.FILE_SHARED), mmap(MapKind.FILE_PRIVATE, region=1),
        cpu(Acc.WRITE, 0, 3 * PAGE, value=7), cpu(Acc.WRITE, 2 * PAGE, value=8, region=1),
        Op(Truncate.number, c=2 * PAGE),
        cpu(Acc.READ, 0, 3 * PAGE), cpu(Acc.READ, 0, 2 * PAGE, region=1),
        Op(FileRead.number, c=PAGE, len=2 * PAGE),
        Op(Truncate.number, c=24 * PAGE),
        cpu(Acc.READ, 3 * PAGE), cpu(Acc.READ, 2 * PAGE, region=1),
    ])  # fmt: skip
    assert seen(r, 5) == [(7, Ast.DONE), (0, Ast.SIGBUS)]
    assert seen(r, 6) == [(7, Ast.DONE), (0, Ast.SIGBUS)]
    assert len(r.ops[7].data) == PAGE
    assert seen(r, 9) == seen(r, 10) == [(0, Ast.DONE)]


def test_a_hole_takes_what_is_shared_and_leaves_copies(run: Run) -> None:
    at = [0, 8, PAGE, PAGE + 8, 2 * PAGE]
    r = run([
        mmap(MapKind.FILE_SHARED), mmap(MapKind.FILE_PRIVATE, region=1),
        cpu(Acc.WRITE, *at, value=7), cpu(Acc.WRITE, PAGE, value=8, region=1),
        Op(Punch.number, c=8, len=2 * PAGE - 8),
        cpu(Acc.READ, *at), cpu(Acc.READ, *at, region=1),
        Op(FileRead.number, len=3 * PAGE), Op(Msync.number, len=4 * PAGE),
        Op(Msync.number, len=5 * PAGE),
    ])  # fmt: skip
    assert [v for v, _ in seen(r, 5)] == [7, 0, 0, 0, 7]
    assert [v for v, _ in seen(r, 6)] == [7, 0, 8, 7, 7]
    assert [o.status for o in r.ops[8:]] == [0, -errno.ENOMEM]


def test_what_one_writes_by_descriptor_another_reads_in_its_memory(run: Run) -> None:
    r = run([
        mmap(MapKind.FILE_SHARED), Op(Truncate.number, c=PAGE),
        Op(FileWrite.number, c=2 * PAGE - 8, len=8 + PAGE, a=5),
        cpu(Acc.READ, PAGE, 2 * PAGE - 8, 3 * PAGE - 8, 3 * PAGE),
        cpu(Acc.WRITE, PAGE, value=9), Op(FileRead.number, c=PAGE, len=8),
    ])  # fmt: skip
    assert seen(r, 3) == [(0, Ast.DONE), (5, Ast.DONE), (5, Ast.DONE), (0, Ast.SIGBUS)]
    assert struct.unpack("<Q", r.ops[5].data) == (9,)


@pytest.mark.parametrize("how", list(How), ids=lambda h: h.name)
def test_a_call_gets_hold_of_pages(run: Run, how: How) -> None:
    forced = how in (How.PEEK, How.POKE)
    off, length = (PAGE - 256, 512) if forced else (0, 2 * PAGE)
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, PAGE - 8, PAGE, value=7),
        io(how, off, length, 11), cpu(Acc.READ, PAGE - 8, PAGE, 3 * PAGE),
        Op(Mprotect.number, len=PAGE, off=PAGE, a=PROT_READ),
        *([] if how >= How.DIRECT_OUT else [io(how, off, length, 12)]),
        cpu(Acc.READ, PAGE - 8, PAGE),
    ])  # fmt: skip
    assert r.ops[2].aux0 == length
    writes = how in WRITES
    assert [v for v, _ in seen(r, 3)] == [11 if writes else 7] * 2 + [0]
    if how == How.POKE:
        # It writes where the process may not.
        assert [v for v, _ in seen(r, 6)] == [12, 12]
    if how == How.VM_WRITE:
        assert r.ops[5].aux0 == PAGE
        assert [v for v, _ in seen(r, 6)] == [12, 11]


def test_of_another_process(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, 0, value=7), Op(Fork.number, arg=1),
        io(How.VM_READ, 0, PAGE, proc=1, b=1), io(How.VM_WRITE, 0, PAGE, 9, proc=1, b=1),
        cpu(Acc.READ, 0), cpu(Acc.READ, 0, proc=1),
    ])  # fmt: skip
    assert struct.unpack_from("<Q", r.ops[3].data) == (7,)
    assert [seen(r, 5), seen(r, 6)] == [[(9, Ast.DONE)], [(7, Ast.DONE)]]


def test_where_nothing_is(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE, 1), io(How.VM_READ, 0, 2 * PAGE), io(How.PIPE, 0, 2 * PAGE),
        io(How.VM_READ, PAGE, PAGE), io(How.PIPE, PAGE, PAGE), io(How.PEEK, PAGE, 8),
    ])  # fmt: skip
    assert [(o.status, o.aux0) for o in r.ops[1:]] == [
        (0, PAGE), (0, PAGE), (-errno.EFAULT, 0), (-errno.EFAULT, 0), (-errno.EIO, 0),
    ]  # fmt: skip


def test_a_pin_answers_without_what_pins(run: Run) -> None:
    r = run([mmap(MapKind.ANON_PRIVATE), Op(Pin.number, len=PAGE)])
    assert r.ops[1].status in (0, -errno.EOPNOTSUPP)


def test_a_child_of_fork_pins_by_itself(run: Run) -> None:
    """What its parent has pinned, and let go, is nothing that it has."""
    by_ring = Op(Pin.number, len=PAGE, arg=1)
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, 0, value=7), by_ring, Op(Fork.number, arg=1),
        Op(Unpin.number), replace(by_ring, proc=1), cpu(Acc.WRITE, 0, value=8, proc=1),
        Op(Unpin.number, proc=1),
    ])  # fmt: skip
    if r.ops[2].status == -errno.EOPNOTSUPP:
        pytest.skip("this host's kernel has no io_uring for us")
    assert struct.unpack_from("<Q", r.ops[7].data) == (8,)


def test_programs_of_the_generator_without_their_gpu(host_agent: HostAgent) -> None:
    """What it draws of files and pins, races too, with a real kernel: nothing is accused."""
    agent = host_agent.connect()
    rng = random.Random(4)
    ran = 0
    for seed in range(120):
        drawn = program(rng.randbytes(size_of(rng.randint(24, 60))))
        #: Of hugetlb memory and swap the host may have none; the merger is the whole host's.
        kept = [
            o for o in drawn.ops
            if not ops.of(o).uses_gpu and ops.of(o).name not in NOT_HERE
            and not (o.op == WriteBack.number and o.arg == Dropping.DROP_ALL)
            and not (o.op in (Mmap.number, Replace.number) and o.arg in HUGETLB)
        ]  # fmt: skip
        p = Program(normalise(kept, FILE_PAGES), FILE_PAGES, settle_ms=0)
        result = Result.decode(agent.program(p.encode(), 60), p)
        wrong = Checker(p, result).run()
        assert wrong is None, f"example {seed}: {wrong}"
        ran += sum(1 for o in p.ops if o.op >= Truncate.number)
    assert ran > 500
