# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory whose accesses go by other rules: served by a thread of the process, watched, guarded,
sealed, broken, taken by others."""

from __future__ import annotations

import errno
import random
import struct
from collections import Counter

import pytest
from fake import Fake

from hmmbench.campaign.generate import program, size_of
from hmmbench.example.recipe import op_from_json, op_to_json
from hmmbench.guest.program import (
    ERR_FAULT,
    PAGE,
    PROT_READ,
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
from hmmbench.model.cells import Coverage
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Advice, Madvise, Mlock
from hmmbench.model.ops.base import NOT_THERE
from hmmbench.model.ops.dirty import CLEAR, LOOK, Dirty
from hmmbench.model.ops.folios import Mthp
from hmmbench.model.ops.guard import INSTALL, REMOVE, Guard, Seal
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Mmap, Mprotect, Mremap, Munmap, Replace
from hmmbench.model.ops.moving import Migrate
from hmmbench.model.ops.nodes import Bind, MovePages, NumaBalance, Offline
from hmmbench.model.ops.pins import How as Call
from hmmbench.model.ops.pins import Pin, PinIo
from hmmbench.model.ops.poison import BROKEN, SOFT, Poison
from hmmbench.model.ops.processes import Fork, Nop
from hmmbench.model.ops.reclaim import Memcg, ProcessMadvise
from hmmbench.model.ops.uffd import How, Uffd
from hmmbench.oracle.values import Checker

#: Drawn by grammar 4, and not before.
NEW = (
    Uffd, Dirty, Guard, Seal, MovePages, Bind, NumaBalance, Offline, ProcessMadvise, Memcg, Poison,
)
#: Of these the guest may say that its kernel has none.
OPTIONAL = frozenset({"uffd", "dirty", "guard", "poison"})

def mmap(kind: MapKind = MapKind.ANON_PRIVATE) -> Op:
    return Op(Mmap.number, len=4 * PAGE, arg=kind, a=PROT_RW)


def at(number: int, arg: int = 0, pages: int = 4, **fields: int) -> Op:
    return Op(number, len=pages * PAGE, arg=arg, **fields)  # type: ignore[arg-type]


def access(number: int, kind: Acc, value: int = 0, page: int = 0) -> Op:
    return Op(number, acc=[(int(kind), 0, 0, page * PAGE, value, 0)])


def cpu(kind: Acc, value: int = 0, page: int = 0) -> Op:
    return access(CpuAccess.number, kind, value, page)


def gpu(kind: Acc, value: int = 0, page: int = 0) -> Op:
    return access(GpuAccess.number, kind, value, page)


def phases(*listed: Op) -> list[Op]:
    """One after the other."""
    for phase, o in enumerate(listed):
        o.phase = phase
    return list(listed)


def beside(*others: Op, first: tuple[Op, ...] = ()) -> list[int]:
    """What is kept of a phase, each operation in a thread of its own."""
    listed = phases(mmap(), *first)
    for actor, o in enumerate(others):
        o.phase, o.actor = len(listed), actor
    kept = normalise([*listed, *others], FILE_PAGES)
    return [o.op for o in kept if o.phase == len(listed)]


def kept(*listed: Op) -> list[int]:
    return [o.op for o in normalise(phases(*listed), FILE_PAGES)]


def judged(listed: list[Op], *results: OpResult) -> str:
    violation = Checker(Program(listed, FILE_PAGES), Result(list(results))).run()
    return violation.message if violation else ""


def ran(listed: list[Op], bug: str = "", lacks: frozenset[str] = frozenset()) -> str:
    p = Program(normalise(listed, FILE_PAGES), FILE_PAGES)
    assert [o.op for o in p.ops] == [o.op for o in listed], "not all was admitted"
    for seed in range(8):
        result = Result.decode(Fake(bug, seed, lacks).run(p.encode()), p)
        if violation := Checker(p, result).run():
            return violation.message
    return ""


def seen(value: int = 0, status: Ast = Ast.DONE) -> OpResult:
    return OpResult(
        -errno.EFAULT if status != Ast.DONE else 0, acc=[(value, int(status), 0)]
    )


def said(*flags: int) -> OpResult:
    return OpResult(data=bytes(flags))


def refused(page: int = 0) -> OpResult:
    return OpResult(
        -errno.EFAULT, ERR_FAULT, fault_region=0, fault_addr=page * PAGE, acc=[(0, 0, 0)]
    )  # fmt: skip


def missing(pattern: int) -> Op:
    return at(Uffd.number, How.MISSING, a=pattern)


# -- userfaultfd --


def test_what_is_missing_comes_with_the_pattern_each_time() -> None:
    drop = at(Madvise.number, a=Advice.DONTNEED)
    listed = phases(
        mmap(), cpu(Acc.WRITE, 1), missing(7), gpu(Acc.READ), gpu(Acc.WRITE, 9), drop,
        cpu(Acc.READ), at(Uffd.number, How.LEAVE), gpu(Acc.READ),
    )  # fmt: skip
    assert ran(listed) == ""

    def read(first: int, second: int, left: int) -> str:
        return judged(listed, OpResult(), seen(), OpResult(), seen(first), seen(), OpResult(),
                      seen(second), OpResult(), seen(left))  # fmt: skip

    assert read(7, 7, 0) == ""
    assert read(0, 7, 0)
    assert read(1, 7, 0)
    assert read(7, 9, 0)
    assert read(7, 7, 7)


def test_what_is_given_up_beside_others_comes_with_the_pattern() -> None:
    listed = phases(mmap(), missing(7), cpu(Acc.WRITE, 9), at(Madvise.number, a=Advice.DONTNEED),
                    cpu(Acc.WRITE, 5), cpu(Acc.READ), cpu(Acc.READ, page=1))  # fmt: skip
    listed[4].phase, listed[4].actor = 3, 1
    assert [o.op for o in normalise(listed, FILE_PAGES)] == [o.op for o in listed]

    def read(first: int, second: int) -> str:
        return judged(listed, OpResult(), OpResult(), seen(), OpResult(), seen(), seen(first),
                      seen(second))  # fmt: skip

    assert read(7, 7) == ""
    assert read(5, 7) == ""
    assert read(0, 7)
    assert read(9, 7)
    assert read(5, 0)


def test_who_serves_faults_is_waited_for() -> None:
    """A driver has no excuse: what the process may read its GPU may."""
    listed = phases(mmap(), missing(7), gpu(Acc.READ))
    assert judged(listed, OpResult(), OpResult(), refused())
    shared = phases(mmap(MapKind.ANON_SHARED), cpu(Acc.WRITE, 3), at(Uffd.number, How.MINOR),
                    gpu(Acc.READ))  # fmt: skip
    assert judged(shared, OpResult(), seen(), OpResult(), seen(3)) == ""
    assert judged(shared, OpResult(), seen(), OpResult(), refused())
    assert ran(shared) == ""


def watched(write: Op, *before: Op) -> list[Op]:
    return phases(
        mmap(), cpu(Acc.WRITE, 1), at(Uffd.number, How.WRITES), *before,
        at(Uffd.number, How.PROTECT), write, at(Uffd.number, How.LOOK),
    )  # fmt: skip


def test_a_write_to_what_is_protected_is_told_of() -> None:
    listed = watched(gpu(Acc.WRITE, 2))

    def looked(protected: int, told: int) -> str:
        return judged(listed, OpResult(), seen(), OpResult(), said(protected, 0, 0, 0), seen(),
                      said(told, 0, 0, 0))  # fmt: skip

    assert looked(1, 1) == ""
    assert "does not know of a write: r0+0x0" in looked(1, 0)
    # What was not there could not be protected.
    assert looked(0, 0) == ""
    # Nor is it sure that it was written.
    same = watched(gpu(Acc.WRITE, 1))
    assert judged(same, OpResult(), seen(), OpResult(), said(1, 0, 0, 0), seen(),
                  said(0, 0, 0, 0)) == ""  # fmt: skip
    assert ran(listed) == ""
    moved = watched(gpu(Acc.ADD, 2), at(Migrate.number, 1), gpu(Acc.ADD, 5))
    assert ran(moved) == ""
    assert "does not know of a write" in ran(moved, "unwatched")


def test_what_is_given_up_or_merged_is_not_watched() -> None:
    for what in (at(Madvise.number, a=Advice.DONTNEED),
                 at(Replace.number, MapKind.ANON_PRIVATE, a=PROT_RW)):  # fmt: skip
        listed = phases(
            mmap(), cpu(Acc.WRITE, 1), at(Dirty.number, CLEAR), what, cpu(Acc.WRITE, 2),
            at(Dirty.number, LOOK),
        )  # fmt: skip
        assert judged(listed, OpResult(), seen(), said(1, 1, 1, 1), OpResult(), seen(),
                      said(0, 0, 0, 0)) == ""  # fmt: skip


def test_others_leave_served_memory_alone() -> None:
    enter = [Mmap.number, Uffd.number]
    for o in (
        at(Madvise.number, a=Advice.FREE), at(Madvise.number, a=Advice.MERGEABLE),
        at(Mlock.number), at(Mremap.number, 1, b=4 * PAGE), at(Pin.number), Op(Fork.number, arg=1),
        at(Guard.number, INSTALL), at(Seal.number), at(Poison.number, SOFT, pages=1),
    ):  # fmt: skip
        assert kept(mmap(), missing(1), o) == enter, o
    assert kept(mmap(), missing(1), at(PinIo.number, 2, pages=1)) == enter
    assert kept(mmap(), missing(1), at(PinIo.number, 0)) == [*enter, PinIo.number]
    protect = at(Uffd.number, How.PROTECT)
    both = [Uffd.number, GpuAccess.number]
    assert beside(protect, gpu(Acc.WRITE, 1), first=(at(Uffd.number, How.WRITES),)) == both
    assert beside(missing(1), gpu(Acc.WRITE, 1)) == [GpuAccess.number]


def test_no_fork_takes_along_what_a_call_writes_meanwhile() -> None:
    """Of the child nobody could say what it has."""
    for how, with_it in ((Call.VM_WRITE, []), (Call.VM_READ, [PinIo.number])):
        both = Op(Fork.number, arg=1), at(PinIo.number, how, a=5)
        assert beside(*both) == [Fork.number, *with_it]


# -- soft-dirty --


def test_the_kernel_knows_what_was_written() -> None:
    listed = phases(
        mmap(), cpu(Acc.WRITE, 1), gpu(Acc.ADD, 1), at(Dirty.number, CLEAR), gpu(Acc.ADD, 1),
        at(Dirty.number, LOOK),
    )  # fmt: skip

    def looked(clean: int, dirty: int) -> str:
        return judged(listed, OpResult(), seen(), seen(1), said(clean, 0, 0, 0), seen(2),
                      said(dirty, 0, 0, 0))  # fmt: skip

    assert looked(1, 1) == ""
    assert looked(0, 0) == ""
    assert "does not know of a write: r0+0x0" in looked(1, 0)
    assert ran(listed) == ""
    assert "does not know of a write" in ran(listed, "unwatched")
    # The next time it is asked to forget, it forgets all.
    again = [*listed[:5], at(Dirty.number, CLEAR, pages=1, off=PAGE), listed[5]]
    assert judged(phases(*again), OpResult(), seen(), seen(1), said(1, 0, 0, 0), seen(2), said(0),
                  said(0, 0, 0, 0)) == ""  # fmt: skip


def test_what_changed_its_protection_is_in_no_book() -> None:
    for o in (at(Mprotect.number, a=PROT_RW), Op(Fork.number, arg=1),
              at(Uffd.number, How.WRITES), Op(NumaBalance.number, arg=1)):  # fmt: skip
        listed = phases(
            mmap(), cpu(Acc.WRITE, 1), at(Dirty.number, CLEAR), o, gpu(Acc.ADD, 1),
            at(Dirty.number, LOOK),
        )  # fmt: skip
        assert judged(listed, OpResult(), seen(), said(1, 1, 1, 1), OpResult(), seen(1),
                      said(0, 0, 0, 0)) == ""  # fmt: skip


def test_what_was_left_behind_by_a_move_is_merged_still() -> None:
    moved = at(Mremap.number, 1, b=4 * PAGE, c=1)
    for what, blamed in ((Advice.MERGEABLE, False), (Advice.HUGEPAGE, True)):
        listed = phases(
            mmap(), at(Madvise.number, a=what), moved, cpu(Acc.WRITE, 1), at(Dirty.number, CLEAR),
            cpu(Acc.WRITE, 2), at(Dirty.number, LOOK),
        )  # fmt: skip
        said_of = judged(listed, OpResult(), OpResult(), OpResult(), seen(), said(1, 0, 0, 0),
                         seen(), said(0, 0, 0, 0))  # fmt: skip
        assert ("does not know of a write" in said_of) == blamed, said_of


# -- guards and seals --


def guarded(*then: Op) -> list[Op]:
    return phases(mmap(), cpu(Acc.WRITE, 1), at(Guard.number, INSTALL, pages=1), *then)


def test_nobody_touches_what_is_guarded() -> None:
    listed = guarded(cpu(Acc.READ), gpu(Acc.READ), cpu(Acc.READ, page=1),
                     at(Guard.number, REMOVE), gpu(Acc.READ))  # fmt: skip

    def used(by_cpu: OpResult, by_gpu: OpResult, after: int) -> str:
        return judged(listed, OpResult(), seen(), OpResult(), by_cpu, by_gpu, seen(), OpResult(),
                      seen(after))  # fmt: skip

    segv = seen(0, Ast.SIGSEGV)
    assert used(segv, refused(), 0) == ""
    assert used(seen(1), refused(), 0)
    assert used(seen(0, Ast.SIGBUS), refused(), 0)
    assert used(segv, seen(1), 0)
    assert used(segv, refused(), 1)
    assert ran(listed) == ""
    assert ran(guarded(gpu(Acc.READ))) == ""
    had = phases(mmap(), gpu(Acc.WRITE, 1), at(Guard.number, INSTALL, pages=1), gpu(Acc.READ))
    assert ran(had, "guard_mapped")


def test_a_guard_outlives_protection_giving_up_moving_and_fork() -> None:
    to = at(Mremap.number, 1, pages=1, b=PAGE)
    child = cpu(Acc.READ)
    child.proc = 1
    listed = guarded(
        at(Mprotect.number, a=PROT_READ), at(Madvise.number, a=Advice.DONTNEED),
        Op(Fork.number, arg=1), child, cpu(Acc.READ), to,
        Op(CpuAccess.number, acc=[(int(Acc.READ), 1, 0, 0, 0, 0)]),
    )  # fmt: skip
    segv = seen(0, Ast.SIGSEGV)
    assert judged(listed, *[OpResult()] * 1, seen(), *[OpResult()] * 4, segv, segv, OpResult(),
                  segv) == ""  # fmt: skip
    assert ran(listed) == ""


def test_a_kernel_without_it_says_so_and_nothing_happens() -> None:
    listed = guarded(cpu(Acc.READ), gpu(Acc.READ))
    absent = OpResult(NOT_THERE)
    assert judged(listed, OpResult(), seen(), absent, seen(1), seen(1)) == ""
    assert judged(listed, OpResult(), seen(), absent, seen(0), seen(1))
    assert judged(listed, OpResult(), seen(), OpResult(-errno.EINVAL), seen(1), seen(1))
    for name in OPTIONAL:
        assert next(o for o in ops.OPERATIONS.values() if o.name == name).optional
    # Counted, and in no cell.
    coverage = Coverage()
    Checker(Program(listed, FILE_PAGES), Result([
        OpResult(), seen(), absent, seen(1), seen(1)
    ]), coverage).run()  # fmt: skip
    assert coverage.to_json()["not_there"] == {"guard": 1}
    assert not coverage.rows["guard"]


def test_guards_come_and_go_beside_others() -> None:
    both = [Guard.number, GpuAccess.number]
    assert beside(at(Guard.number, INSTALL), gpu(Acc.WRITE, 1)) == both
    assert beside(at(Guard.number, REMOVE), gpu(Acc.WRITE, 1),
                  first=(at(Guard.number, INSTALL),)) == both  # fmt: skip
    assert beside(at(Guard.number, REMOVE), gpu(Acc.WRITE, 1)) == [GpuAccess.number]
    listed = phases(mmap(), at(Guard.number, INSTALL, pages=1), cpu(Acc.WRITE, 5), cpu(Acc.READ))
    listed[2].phase, listed[2].actor, listed[3].phase = 1, 1, 2
    segv = seen(0, Ast.SIGSEGV)
    assert judged(listed, OpResult(), OpResult(), seen(), segv) == ""
    assert judged(listed, OpResult(), OpResult(), segv, segv) == ""
    assert judged(listed, OpResult(), OpResult(), seen(), seen(5))
    # Who comes meanwhile finds a page of zeroes.
    twice = phases(mmap(), cpu(Acc.WRITE, 5), at(Guard.number, INSTALL, pages=1), cpu(Acc.READ),
                   cpu(Acc.READ))  # fmt: skip
    twice[3].phase, twice[3].actor, twice[4].phase = 2, 1, 3

    def found(value: int) -> str:
        return judged(twice, OpResult(), seen(), OpResult(), seen(value), segv)

    assert found(5) == found(0) == ""
    assert found(6)
    # Of a kernel without it the one write is done, and stays.
    assert judged(listed, OpResult(), OpResult(NOT_THERE), seen(), seen(5)) == ""
    assert judged(listed, OpResult(), OpResult(NOT_THERE), segv, seen(5))


def test_what_is_sealed_stays() -> None:
    perm = -errno.EPERM
    tries = (
        at(Munmap.number), at(Mprotect.number, a=PROT_READ), at(Mremap.number, 1, b=4 * PAGE),
        at(Replace.number, MapKind.ANON_PRIVATE, a=PROT_RW),
    )  # fmt: skip
    for one in tries:
        listed = phases(mmap(), cpu(Acc.WRITE, 1), at(Seal.number), one, gpu(Acc.READ))
        assert judged(listed, OpResult(), seen(), OpResult(), OpResult(perm), seen(1)) == ""
        assert judged(listed, OpResult(), seen(), OpResult(), OpResult(), seen(1))
        assert ran(listed) == ""
        # Half of it: the kernel may have done the other half.
        assert kept(mmap(), at(Seal.number, pages=2), at(one.op, one.arg, a=one.a, b=one.b)) == [
            Mmap.number, Seal.number
        ]  # fmt: skip


# -- broken memory --


def test_who_touches_what_is_broken_is_told() -> None:
    listed = phases(
        mmap(), gpu(Acc.WRITE, 1), at(Poison.number, BROKEN, pages=1), cpu(Acc.READ), gpu(Acc.READ),
        at(Replace.number, MapKind.ANON_PRIVATE, a=PROT_RW), gpu(Acc.READ),
    )  # fmt: skip

    def used(gone: int, by_cpu: OpResult, by_gpu: OpResult) -> str:
        return judged(listed, OpResult(), seen(), said(gone), by_cpu, by_gpu, OpResult(), seen(0))

    bus = seen(0, Ast.SIGBUS)
    assert used(1, bus, refused()) == ""
    # The kernel had the content elsewhere.
    assert used(0, seen(1), seen(1)) == ""
    assert used(1, seen(1), refused())
    assert used(1, seen(0, Ast.SIGSEGV), refused())
    assert used(1, bus, seen(1))
    assert used(0, bus, refused())
    assert ran(listed) == ""
    assert ran(listed, "poison_read")
    assert ran(listed, lacks=frozenset({"poison"})) == ""


def test_what_is_about_to_break_is_what_it_was() -> None:
    listed = phases(mmap(), gpu(Acc.WRITE, 1), at(Poison.number, SOFT, pages=1), gpu(Acc.READ))
    for status in (0, -errno.EBUSY, -errno.EIO):
        moved = OpResult(status, data=b"\0")
        assert judged(listed, OpResult(), seen(), moved, seen(1)) == ""
    assert judged(listed, OpResult(), seen(), said(0), seen(0))
    assert "lost" in judged(listed, OpResult(), seen(), said(1), seen(1))
    assert kept(mmap(), Op(Mthp.number, a=64), at(Poison.number, SOFT, pages=1)) == [
        Mmap.number, Mthp.number
    ]  # fmt: skip


# -- taken by others --


def test_what_move_pages_may_say() -> None:
    listed = phases(mmap(), at(MovePages.number, 1))

    def moved(*nodes: int) -> str:
        data = struct.pack(f"<{len(nodes)}i", *nodes)
        return judged(listed, OpResult(), OpResult(aux0=2, data=data))

    assert moved(0, 1, -errno.ENOENT, -errno.EFAULT) == ""
    assert moved(0, 1, 2, 0)
    assert moved(0, 1, -errno.EPERM, 0)
    assert moved(0, 1, 1)


def test_advice_is_for_others_and_for_all_of_it() -> None:
    fork = Op(Fork.number, arg=1)
    advise = at(ProcessMadvise.number, a=Advice.PAGEOUT, b=1)
    listed = phases(mmap(), cpu(Acc.WRITE, 1), fork, advise)
    assert judged(listed, OpResult(), seen(), OpResult(), OpResult(aux0=4 * PAGE)) == ""
    assert judged(listed, OpResult(), seen(), OpResult(), OpResult(aux0=PAGE))
    assert kept(mmap(), at(ProcessMadvise.number, a=Advice.PAGEOUT, b=0)) == [Mmap.number]
    assert kept(mmap(), at(ProcessMadvise.number, a=Advice.DONTNEED, b=1)) == [Mmap.number]


# -- drawn --


@pytest.mark.parametrize("lacks", [frozenset(), OPTIONAL])
def test_programs_have_all_of_it_and_a_sound_machine_is_not_blamed(lacks: frozenset[str]) -> None:
    met: Counter[str] = Counter()
    for seed in range(50):
        p = program(random.Random(seed).randbytes(size_of(90)), seed)
        width = Counter(o.phase for o in {(o.phase, o.proc, o.actor): o for o in p.ops}.values())
        for o in p.ops:
            kind = ops.of(o)
            met[kind.name + " beside" * (width[o.phase] > 1)] += 1
            if o.op == Uffd.number:
                met[f"uffd {How(o.arg).name.lower()}"] += 1
            assert o.op == Nop.number or op_from_json(0, op_to_json(o)) == o
            assert kind.sentence(o, "it")
            assert all(ops.of(x).name == kind.name for x in kind.simpler(o))
        assert [o.phase for o in p.ops] == sorted(o.phase for o in p.ops)
        result = Result.decode(Fake(seed=seed, lacks=lacks).run(p.encode()), p)
        violation = Checker(p, result).run()
        assert violation is None, f"seed {seed}: {violation.message}"
        assert not any(
            o.op in {n.number for n in NEW}
            for o in program(random.Random(seed).randbytes(size_of(90)), seed, 3).ops
        )
    for one in (*(n.name for n in NEW), *(f"uffd {how.name.lower()}" for how in How),
                "uffd beside", "dirty beside", "guard beside", "move_pages beside",
                "process_madvise beside", "memcg beside", "mthp"):  # fmt: skip
        assert met[one] + met[one + " beside"], one


@pytest.mark.parametrize("bug", ["unwatched", "guard_mapped", "poison_read"])
def test_programs_show_a_machine_that_is_wrong(bug: str) -> None:
    for seed in range(150):
        p = program(random.Random(seed).randbytes(size_of(90)), seed)
        violation = Checker(p, Result.decode(Fake(bug, seed).run(p.encode()), p)).run()
        if violation is not None:
            return
    raise AssertionError(bug)
