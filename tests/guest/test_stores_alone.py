# SPDX-License-Identifier: GPL-2.0-or-later
"""Files in memory, on a disk and at the agent's own server, and buffers of io_uring, without a GPU:
agent and model against the kernel of the host, as far as it has them."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from host_agent import HostAgent
from test_files_and_pins import NOT_HERE

from hmmbench.campaign.generate import program, size_of
from hmmbench.guest.program import PAGE, PROT_RW, Acc, Ast, MapKind, Op, Program, Result
from hmmbench.model import ops
from hmmbench.model.admit import normalise
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Zap
from hmmbench.model.ops.files import FileRead, FileWrite, Msync, Punch, Truncate
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.mapping import Mmap, Replace
from hmmbench.model.ops.pins import Pin, Unpin
from hmmbench.model.ops.processes import Fork
from hmmbench.model.ops.stores import How, Store, Where, WriteBack
from hmmbench.model.space import HUGETLB
from hmmbench.oracle.values import Checker

Run = Callable[[list[Op]], Result]

stores = pytest.mark.parametrize("where", list(Where), ids=lambda w: w.name)


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any file system of the host stands for the guest's."""
    monkeypatch.setenv("HMMBENCH_DISK", str(tmp_path))


@pytest.fixture
def run(host_agent: HostAgent, disk: None) -> Run:
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


def store(where: Where) -> Op:
    return Op(Store.number, arg=where)


def mmap(kind: MapKind, region: int = 0, **more: int) -> Op:
    return Op(Mmap.number, region=region, len=4 * PAGE, arg=kind, a=PROT_RW, **more)  # type: ignore[arg-type]


def cpu(kind: Acc, *at: int, value: int = 0, region: int = 0, **more: int) -> Op:
    return Op(CpuAccess.number, acc=[(int(kind), region, 0, a, value, 0) for a in at], **more)  # type: ignore[arg-type]


def back(how: How, pages: int = 4) -> Op:
    return Op(WriteBack.number, arg=how, len=pages * PAGE)


def seen(r: Result, op: int) -> list[tuple[int, int]]:
    return [(value, status) for value, status, _ in r.ops[op].acc]


def have(r: Result, where: Where) -> None:
    if r.ops[0].status:
        assert where != Where.TMPFS
        pytest.skip(f"this machine has no {where.name}")
    assert r.ops[0].aux0 == where


@stores
def test_a_file_is_the_same_wherever_it_is(run: Run, where: Where) -> None:
    r = run([
        store(where), mmap(MapKind.FILE_SHARED), mmap(MapKind.FILE_PRIVATE, 1),
        cpu(Acc.WRITE, 0, 3 * PAGE, value=7), cpu(Acc.WRITE, 2 * PAGE, value=8, region=1),
        Op(Truncate.number, c=2 * PAGE),
        cpu(Acc.READ, 0, 3 * PAGE), cpu(Acc.READ, 0, 2 * PAGE, region=1),
        Op(FileRead.number, c=PAGE, len=2 * PAGE), Op(Truncate.number, c=24 * PAGE),
        cpu(Acc.READ, 3 * PAGE), cpu(Acc.READ, 2 * PAGE, region=1),
        Op(FileWrite.number, c=PAGE - 8, len=16, a=9), cpu(Acc.READ, 0, PAGE - 8, PAGE, PAGE + 8),
        Op(Punch.number, c=PAGE - 8, len=2 * PAGE), cpu(Acc.READ, 0, PAGE - 8, PAGE, 2 * PAGE - 8),
        Op(Msync.number, len=4 * PAGE), Op(FileRead.number, len=4 * PAGE),
    ])  # fmt: skip
    have(r, where)
    assert seen(r, 6) == seen(r, 7) == [(7, Ast.DONE), (0, Ast.SIGBUS)]
    assert [v for v, _ in seen(r, 13)] == [7, 9, 9, 0]
    assert [v for v, _ in seen(r, 15)] == [7, 0, 0, 0]


@stores
@pytest.mark.parametrize("how", [How.FSYNC, How.RANGE, How.START], ids=lambda h: h.name)
def test_what_is_written_after_write_back_outlives_a_drop(
    run: Run, where: Where, how: How
) -> None:
    r = run([
        store(where), mmap(MapKind.FILE_SHARED), Op(Fork.number, arg=1),
        cpu(Acc.WRITE, 0, PAGE, value=1), back(how),
        cpu(Acc.WRITE, 0, 2 * PAGE, value=2, proc=1), back(how),
        Op(Zap.number, len=4 * PAGE), Op(Zap.number, len=4 * PAGE, proc=1), back(How.DROP),
        Op(FileRead.number, len=3 * PAGE), cpu(Acc.READ, 0, PAGE, 2 * PAGE),
    ])  # fmt: skip
    have(r, where)
    assert [struct.unpack_from("<Q", r.ops[10].data, n * PAGE)[0] for n in range(3)] == [2, 1, 2]


@stores
def test_a_file_is_empty_when_the_next_program_begins(run: Run, where: Where) -> None:
    r = run([store(where), mmap(MapKind.FILE_SHARED), cpu(Acc.WRITE, 0, PAGE, value=5)])
    have(r, where)
    r = run([store(where), mmap(MapKind.FILE_SHARED), cpu(Acc.READ, 0, PAGE)])
    assert seen(r, 2) == [(0, Ast.DONE)] * 2


def test_a_store_that_nobody_has_is_memory(host_agent: HostAgent) -> None:
    p = Program([Op(Store.number, arg=9), Op(Store.number, b=1, arg=1)], FILE_PAGES, settle_ms=0)
    r = Result.decode(host_agent.connect().program(p.encode(), 30), p)
    assert r.ops[0].status == -errno.EINVAL


@pytest.mark.parametrize("kind", [MapKind.ANON_PRIVATE, MapKind.ANON_SHARED])
def test_a_ring_has_the_pages_themselves(run: Run, kind: MapKind) -> None:
    r = run([
        mmap(kind), cpu(Acc.WRITE, 0, PAGE + 8, value=5),
        Op(Pin.number, len=2 * PAGE, arg=1), Op(Fork.number, arg=1),
        cpu(Acc.WRITE, 0, value=6), cpu(Acc.READ, 0, proc=1), Op(Unpin.number),
    ])  # fmt: skip
    if r.ops[2].status == -errno.EOPNOTSUPP:
        pytest.skip("this machine has no io_uring")
    words = [struct.unpack_from("<Q", r.ops[6].data, at)[0] for at in (0, PAGE + 8)]
    assert (r.ops[2].status, r.ops[6].status, words) == (0, 0, [6, 5])


def test_programs_of_the_generator_without_their_gpu(host_agent: HostAgent) -> None:
    """What it draws of files on whatever, races too, with a real kernel: nothing is accused."""
    agent = host_agent.connect()
    rng = random.Random(5)
    ran, there = 0, {0: 0, -errno.EOPNOTSUPP: 0}
    for seed in range(150):
        drawn = program(rng.randbytes(size_of(rng.randint(24, 60))))
        #: Of hugetlb memory and swap the host may have none; some are the whole host's.
        kept = [
            o for o in drawn.ops
            if not ops.of(o).uses_gpu
            and ops.of(o).name not in (*NOT_HERE, "compact", "khugepaged")
            and not (o.op in (Mmap.number, Replace.number) and o.arg in HUGETLB)
        ]  # fmt: skip
        kept = [
            replace(o, arg=How.DROP) if (o.op, o.arg) == (WriteBack.number, How.DROP_ALL) else o
            for o in kept
        ]
        p = Program(normalise(kept, FILE_PAGES), FILE_PAGES, settle_ms=0)
        result = Result.decode(agent.program(p.encode(), 60), p)
        wrong = Checker(p, result).run()
        assert wrong is None, f"example {seed}: {wrong}"
        for o, r in zip(p.ops, result.ops, strict=True):
            if o.op == Store.number:
                there[r.status] += 1
        ran += sum(1 for o in p.ops if o.op == WriteBack.number)
    assert ran > 100
    assert sum(there.values()) > 100
