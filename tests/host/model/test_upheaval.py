# SPDX-License-Identifier: GPL-2.0-or-later
"""What may change areas beside others, what the model then knows, and lives of the GPU's file."""

from __future__ import annotations

import errno
import random
from collections import Counter

import pytest
from fake import Fake

from hmmbench.campaign.generate import program, size_of
from hmmbench.example.recipe import op_from_json, op_to_json
from hmmbench.guest.program import (
    ERR_FAULT,
    F_NOWAIT,
    F_THREAD,
    HUGE,
    PAGE,
    PROT_RW,
    Acc,
    Ast,
    MapKind,
    Op,
    OpResult,
    Program,
    Result,
)
from hmmbench.model import ops
from hmmbench.model.admit import normalise
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Advice, Madvise, Zap
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess, GpuCopy, GpuSpin
from hmmbench.model.ops.lives import Exec, OpenAs, ReceiveGpu, SendGpu, SplitGpu, UseHeld
from hmmbench.model.ops.mapping import Mmap, Mprotect, Mremap, Munmap, Replace
from hmmbench.model.ops.processes import Exit, Fork, Nop, Spawn
from hmmbench.oracle.values import Checker

#: Drawn by grammar 4, and not before.
NEW = (Replace, Zap, SplitGpu, SendGpu, ReceiveGpu, UseHeld, Exec, OpenAs)


def mmap(kind: MapKind = MapKind.ANON_PRIVATE, pages: int = 4, **fields: int) -> Op:
    return Op(Mmap.number, len=pages * PAGE, arg=kind, a=PROT_RW, **fields)  # type: ignore[arg-type]


def cpu(kind: Acc, value: int = 0, page: int = 0, region: int = 0, **fields: int) -> Op:
    return Op(
        CpuAccess.number, acc=[(int(kind), region, 0, page * PAGE, value, 0)], **fields
    )  # type: ignore[arg-type]


def mremap(to: int = 1, pages: int = 4, **fields: int) -> Op:
    return Op(Mremap.number, len=pages * PAGE, arg=to, b=pages * PAGE, **fields)  # type: ignore[arg-type]


def copy(source: int, to: int, **fields: int) -> Op:
    return Op(
        GpuCopy.number, off=source * PAGE, len=64, arg=0, a=to * PAGE + 512, **fields
    )  # type: ignore[arg-type]


def kept(*listed: Op) -> list[int]:
    return [o.op for o in normalise(listed, FILE_PAGES)]


def beside(o: Op, *others: Op, first: Op | None = None) -> list[int]:
    """What is kept of a phase, each operation in a thread of its own."""
    for actor, one in enumerate((o, *others)):
        one.phase, one.actor = 1, actor
    return kept(first or mmap(), o, *others)[1:]


@pytest.mark.parametrize("number", [Fork.number, Mremap.number, Replace.number])
def test_one_that_needs_the_areas_as_they_are_is_alone(number: int) -> None:
    def alone() -> Op:
        if number == Fork.number:
            return Op(Fork.number, arg=1)
        return mremap() if number == Mremap.number else Op(
            Replace.number, len=4 * PAGE, arg=MapKind.ANON_PRIVATE, a=PROT_RW
        )

    use = CpuAccess.number
    assert beside(alone(), cpu(Acc.READ)) == [number, use]
    protect = Op(Mprotect.number, len=PAGE, a=1)
    assert beside(alone(), protect, cpu(Acc.READ)) == [number, use]
    advise = Op(Madvise.number, len=PAGE, a=Advice.NOHUGEPAGE)
    assert beside(alone(), advise, cpu(Acc.READ)) == [number, use]


def test_what_moves_and_goes_beside_others_is_of_known_contents() -> None:
    use, shared = CpuAccess.number, mmap(MapKind.ANON_SHARED)
    private_file = mmap(MapKind.FILE_PRIVATE)
    assert beside(mremap(), cpu(Acc.READ), first=shared) == [Mremap.number, use]
    assert beside(mremap(), cpu(Acc.READ), first=private_file) == [use]
    assert beside(Op(Munmap.number, len=PAGE), cpu(Acc.READ), first=shared) == [use]
    gone = Op(Munmap.number, len=PAGE, a=1)
    assert beside(gone, cpu(Acc.READ), first=shared) == [Munmap.number, use]
    assert beside(Op(Zap.number, len=PAGE), cpu(Acc.READ), first=shared) == [Zap.number, use]
    assert beside(Op(Zap.number, len=PAGE), cpu(Acc.READ)) == [use]
    fork = Op(Fork.number, arg=1)
    assert beside(fork, cpu(Acc.WRITE, 1), first=private_file) == [Fork.number, use]
    huge = Op(Mmap.number, len=HUGE, arg=MapKind.HUGETLB_SHARED, a=PROT_RW)
    assert beside(Op(Munmap.number, len=HUGE, a=1), cpu(Acc.READ), first=huge) == [2, use]


def test_nobody_touches_where_memory_lands() -> None:
    there = cpu(Acc.READ, region=1)
    assert beside(mremap(), there, cpu(Acc.READ)) == [Mremap.number, CpuAccess.number]
    into = Op(GpuCopy.number, len=64, arg=1, a=0)
    assert beside(mremap(), into) == [Mremap.number]


def test_a_copy_may_lose_its_memory_and_not_its_contents() -> None:
    assert beside(Op(Munmap.number, len=PAGE), copy(0, 1)) == [Munmap.number, GpuCopy.number]
    zero = Op(Madvise.number, len=PAGE, a=Advice.DONTNEED)
    assert beside(zero, copy(0, 1)) == [Madvise.number]
    zero = Op(Madvise.number, len=PAGE, a=Advice.DONTNEED)
    assert beside(zero, copy(1, 0)) == [Madvise.number]


def judged(listed: list[Op], *results: OpResult) -> str:
    violation = Checker(Program(listed, FILE_PAGES), Result(list(results))).run()
    return violation.message if violation else ""


def seen(value: int = 0, status: int = Ast.DONE) -> OpResult:
    return OpResult(acc=[(value, int(status), 0)])


def test_a_child_has_what_was_there_at_some_moment_of_its_fork() -> None:
    listed = [
        mmap(), cpu(Acc.WRITE, 1, phase=1), Op(Fork.number, phase=2, arg=1),
        cpu(Acc.WRITE, 2, phase=2, actor=1), cpu(Acc.WRITE, 3, phase=3),
        cpu(Acc.READ, phase=4, proc=1), cpu(Acc.READ, phase=5, proc=1),
        cpu(Acc.READ, page=1, phase=6, proc=1),
    ]  # fmt: skip
    assert [o.op for o in normalise(listed, FILE_PAGES)] == [o.op for o in listed]

    def child(first: int, then: int, other: int = 0) -> str:
        return judged(
            listed, OpResult(), seen(), OpResult(), seen(), seen(), seen(first), seen(then),
            seen(other),
        )  # fmt: skip

    assert child(1, 1) == ""
    assert child(2, 2) == ""
    assert child(1, 2)
    assert child(2, 1)
    # What its parent wrote after it, and what nobody did.
    assert child(3, 3)
    assert child(1, 1, 4)


def test_what_lands_is_what_left() -> None:
    listed = [
        mmap(), cpu(Acc.WRITE, 1, phase=1), mremap(phase=2),
        cpu(Acc.WRITE, 2, phase=2, actor=1), cpu(Acc.READ, region=1, phase=3),
        cpu(Acc.READ, phase=4),
    ]  # fmt: skip
    assert [o.op for o in normalise(listed, FILE_PAGES)] == [o.op for o in listed]

    def landed(refused: bool, value: int) -> str:
        wrote = seen(0, Ast.SIGSEGV if refused else Ast.DONE)
        wrote.status = -errno.EFAULT if refused else 0
        gone = seen(0, Ast.SIGSEGV)
        gone.status = -errno.EFAULT
        return judged(listed, OpResult(), seen(), OpResult(), wrote, seen(value), gone)

    assert landed(False, 2) == ""
    assert landed(True, 1) == ""
    assert landed(False, 1)
    assert landed(True, 2)


def test_a_copy_beside_munmap_fails_or_is_whole() -> None:
    listed = [
        mmap(), cpu(Acc.WRITE, 7, phase=1), Op(Munmap.number, phase=2, len=PAGE),
        Op(GpuCopy.number, phase=2, actor=1, len=8, a=PAGE), cpu(Acc.READ, page=1, phase=3),
    ]  # fmt: skip

    def ended(fails: bool, value: int) -> str:
        r = OpResult()
        if fails:
            r.status, r.gpu_status, r.fault_region = -errno.EFAULT, ERR_FAULT, 0
        return judged(listed, OpResult(), seen(), OpResult(), r, seen(value))

    assert ended(False, 7) == ""
    assert ended(True, 7) == ""
    assert ended(True, 0) == ""
    assert ended(False, 0)
    assert ended(True, 5)


def test_who_has_a_file_of_others_may_close_it_and_ask_what_is_everybodys() -> None:
    listed = [
        mmap(), Op(Spawn.number, phase=1, arg=1), Op(SendGpu.number, phase=2),
        Op(ReceiveGpu.number, phase=3, proc=1), Op(Exit.number, phase=4),
        *(Op(UseHeld.number, phase=5 + n, proc=1, len=PAGE, arg=how)
          for n, how in enumerate((1, 2, 3, 4, 0, 1))),
    ]  # fmt: skip
    sent = normalise(listed, FILE_PAGES)
    # Nothing is held any more.
    assert len(sent) == len(listed) - 1

    def used(*statuses: int) -> str:
        results = [OpResult() for _ in sent]
        for r, status in zip(results[5:], statuses, strict=True):
            r.status = status
        return judged(sent, *results)

    perm = -errno.EPERM
    assert used(0, perm, perm, perm, 0) == ""
    for n in range(5):
        wrong = [0, perm, perm, perm, 0]
        wrong[n] = 0 if wrong[n] else perm
        assert used(*wrong)


def test_a_job_whose_file_was_given_away_is_waited_for() -> None:
    """It ends with the memory, at a moment that nobody waits for; one that touches none may run."""
    def left(*more: Op) -> list[Op]:
        job = Op(GpuAccess.number, phase=3, flags=F_NOWAIT, acc=[(int(Acc.WRITE), 0, 0, 0, 1, 0)])
        return normalise([mmap(), Op(Spawn.number, phase=1, arg=1), *more, job,
                          Op(Exit.number, phase=4)], FILE_PAGES)

    assert left()[-2].flags & F_NOWAIT
    assert not left(Op(SendGpu.number, phase=2))[-2].flags & F_NOWAIT
    spin = [mmap(), Op(Spawn.number, arg=1, phase=1), Op(SendGpu.number, phase=2),
            Op(GpuSpin.number, flags=F_NOWAIT, phase=3, a=1 << 40), Op(Exit.number, phase=4)]
    assert normalise(spin, FILE_PAGES)[-2].a == 1 << 40


def test_programs_have_all_of_it_and_a_sound_machine_is_not_blamed() -> None:
    met: Counter[str] = Counter()
    threads = 0
    for seed in range(60):
        p = program(random.Random(seed).randbytes(size_of(80)), seed)
        width = Counter(o.phase for o in {(o.phase, o.proc, o.actor): o for o in p.ops}.values())
        for o in p.ops:
            name = ops.of(o).name
            met[name + " beside" * (width[o.phase] > 1)] += 1
            threads += bool(o.flags & F_THREAD)
            assert o.op == Nop.number or op_from_json(0, op_to_json(o)) == o
            assert ops.of(o).sentence(o, "it")
        violation = Checker(p, Result.decode(Fake(seed=seed).run(p.encode()), p)).run()
        assert violation is None, violation.message
        assert not any(
            o.op in {n.number for n in NEW} or o.flags & F_THREAD
            for o in program(random.Random(seed).randbytes(size_of(80)), seed, 3).ops
        )
    assert threads > 20
    for one in (*(n.name for n in NEW), "fork beside", "mremap beside", "replace beside",
                "zap beside", "munmap beside", "gpu_copy beside"):  # fmt: skip
        assert met[one], one
