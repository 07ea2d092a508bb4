# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel is told about memory that is mapped: madvise, mlock, and the page merger."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import IntEnum

from hmmbench.guest.program import PAGE, PROT_RW, MapKind, Op, OpResult
from hmmbench.model.belief import SYSTEM, UNKNOWN, Belief, touched
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import (
    OK,
    RANGE,
    Field,
    Operation,
    aligned,
    flags_of,
    huge_ok,
    pages,
    ranged,
    settled,
    shorter,
)
from hmmbench.model.ops.mapping import GROUP
from hmmbench.model.space import (
    ANON,
    GUARDED,
    HUGETLB,
    MERGEABLE,
    POISONED,
    SEALED,
    SERVED,
    SHARED,
    Process,
    Space,
)


class Advice(IntEnum):
    """MADV_* of Linux that the programs use."""

    WILLNEED = 3
    DONTNEED = 4
    FREE = 8
    MERGEABLE = 12
    HUGEPAGE = 14
    NOHUGEPAGE = 15
    COLD = 20
    PAGEOUT = 21


#: Of Vma.flags: its pages stay where CPUs reach them.
LOCKED = "locked"

#: What the kernel refuses for memory that is locked (EINVAL).
_GIVES_UP = (Advice.DONTNEED, Advice.FREE, Advice.COLD, Advice.PAGEOUT)


#: What the kernel refuses for hugetlb memory.
_NOT_HUGETLB = (Advice.HUGEPAGE, Advice.NOHUGEPAGE, Advice.MERGEABLE, Advice.WILLNEED)

#: What programs lock.  Locking a private mapping of a file makes copies of all of its pages, and
#: memory that is there from the start would stay locked for the next program.
_LOCKABLE = (MapKind.ANON_PRIVATE, MapKind.ANON_SHARED, MapKind.FILE_SHARED)


def _locked(p: Process, o: Op) -> bool:
    """Is some of its range locked?"""
    return any(LOCKED in v.flags for v in p.overlapping(*pages(o)))


_DRAWN = (
    Advice.DONTNEED, Advice.DONTNEED, Advice.FREE, Advice.HUGEPAGE, Advice.HUGEPAGE,
    Advice.NOHUGEPAGE, Advice.COLD, Advice.PAGEOUT, Advice.PAGEOUT,
)  # fmt: skip


class Madvise(Operation):
    number, name = 5, "madvise"
    weight = 22
    changed = (2,)
    rows = tuple(f"madvise {a.name.lower()}" for a in Advice)
    group = GROUP
    fields = (*RANGE, Field("advice", "a", {a: a.name.lower() for a in Advice}))
    races = True
    areas = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not aligned(o) or o.a not in list(Advice):
            return False
        start, end = pages(o)
        vmas = p.overlapping(start, end)
        if not vmas or (o.a in _GIVES_UP and _locked(p, o)):
            return False
        flags = flags_of(p, o)
        if POISONED in flags or (o.a in (Advice.FREE, Advice.MERGEABLE) and flags & SERVED):
            return False
        if o.a in (Advice.DONTNEED, Advice.FREE) and SEALED in flags:
            # The kernel refuses some of what is only read.
            return all(v.prot == PROT_RW for v in vmas) and o.a == Advice.DONTNEED
        if o.a == Advice.DONTNEED:
            return huge_ok(p, start, end)
        if o.a == Advice.FREE:
            # Either all of it can be freed or the call is refused as a whole.
            return end - start <= 1024 and (
                all(v.kind in ANON for v in vmas)
                or (len(vmas) == 1 and vmas[0].kind not in ANON and p.covered(start, end))
            )
        if o.a in _NOT_HUGETLB:
            return all(v.kind not in HUGETLB for v in vmas)
        return all(v.kind not in HUGETLB for v in vmas) or len(vmas) == 1

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        p = space.procs[o.proc]
        start, end = pages(o)
        vmas = p.overlapping(start, end)
        if racing and o.a != Advice.DONTNEED:
            return None
        if o.a in (Advice.HUGEPAGE, Advice.NOHUGEPAGE, Advice.MERGEABLE):
            return None
        if o.a == Advice.FREE and any(v.kind not in ANON for v in vmas):
            return frozenset({-errno.EINVAL})
        if o.a in (Advice.COLD, Advice.PAGEOUT) and any(v.kind in HUGETLB for v in vmas):
            return frozenset({-errno.EINVAL})
        # A kernel without swap has nothing to read in for anonymous memory.
        more = {-errno.EBADF} if o.a == Advice.WILLNEED else frozenset()
        return (OK if p.covered(start, end) else frozenset({-errno.ENOMEM})) | more

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        if self.zeroes(o):
            return settled(p, o) and GUARDED not in flags_of(p, o) and all(
                v.kind in ANON for v in p.overlapping(*pages(o))
            )  # fmt: skip
        return o.a not in (Advice.FREE, Advice.MERGEABLE)

    def zeroes(self, o: Op) -> bool:
        return o.a == Advice.DONTNEED

    def apply(self, space: Space, p: Process, o: Op) -> None:
        start, end = pages(o)
        if o.a == Advice.DONTNEED:
            for v in p.overlapping(start, end):
                if v.kind not in SHARED:
                    p.drop_pages(max(v.start, start), min(v.end, end))
        elif o.a == Advice.FREE:
            p.unwatch(start, end)
            for v in p.overlapping(start, end):
                if v.kind in ANON:
                    lo, hi = max(v.start, start), min(v.end, end)
                    p.unsettled.update(range(lo, hi))
                    for gp, page in p.private.items():
                        if lo <= gp < hi:
                            page.free()
        elif o.a == Advice.PAGEOUT:
            p.paged.append((start, end))
        elif o.a in (Advice.HUGEPAGE, Advice.NOHUGEPAGE, Advice.MERGEABLE):
            inside = p.split(start, end)
            if o.a == Advice.MERGEABLE:
                # The entry of a page that was merged says nothing of what was written before.
                p.unwatch(start, end)
                for v in inside:
                    v.flags |= {MERGEABLE}

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def row(self, o: Op) -> str | None:
        return f"madvise {Advice(o.a).name.lower()}" if o.a in list(Advice) else None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        start, end = touched(o)
        if o.a == Advice.DONTNEED:
            b.forget(start, end)
        elif o.a == Advice.FREE:
            for gp in [gp for gp in b.pages if start <= gp < end]:
                v = b.proc.find(gp)
                if v is not None and v.kind in ANON:
                    b.pages[gp] = UNKNOWN
        elif o.a == Advice.PAGEOUT:
            for v in b.proc.overlapping(start, end):
                if v.kind not in HUGETLB:
                    lo, hi = max(v.start, start), min(v.end, end)
                    there = [gp for gp, at in b.pages.items() if at == SYSTEM and lo <= gp < hi]
                    # The kernel may leave each of them where it is.
                    b.put(there, UNKNOWN)
                    if v.kind in ANON:
                        b.advised.update((o.proc, gp) for gp in there)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        if kind in HUGETLB and row in {f"madvise {a.name.lower()}" for a in _NOT_HUGETLB}:
            return "not for hugetlb"
        return None

    def sentence(self, o: Op, at: str) -> str:
        name = Advice(o.a).name if o.a in list(Advice) else str(o.a)
        return f"advises the kernel: MADV_{name} for {at}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        advice = rng.choice(_DRAWN if g.grammar < 2 else (*_DRAWN, Advice.WILLNEED))
        vma = g.pick(proc)
        start, end = g.span(vma)
        if advice == Advice.FREE:
            end = min(end, start + 64)
        if advice == Advice.HUGEPAGE:
            big = [
                v for v in proc.vmas if v.end - v.start >= 512 and v.kind == MapKind.ANON_PRIVATE
            ]  # fmt: skip
            if big:
                vma = rng.choice(big)
                start, end = vma.start, vma.end
        return [g.ranged("madvise", proc, start, end, a=advice)]


class Zap(Operation):
    """MADV_DONTNEED of shared memory: the entries go, what is in the pages stays."""

    number, name = 26, "zap"
    since = 4
    weight = 3
    rows = ("zap of shared",)
    group = GROUP
    fields = RANGE
    races = True
    areas = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not aligned(o) or not p.covered(*pages(o)) or not huge_ok(p, *pages(o)):
            return False
        return all(v.kind in SHARED and LOCKED not in v.flags for v in p.overlapping(*pages(o)))

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        # Somebody may unmap some of it.
        return OK | {-errno.ENOMEM} if racing else OK

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return None if kind in SHARED else "of shared memory alone"

    def sentence(self, o: Op, at: str) -> str:
        return f"takes the shared memory of {at} out of its page table"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        shared = [v for v in proc.vmas if v.kind in SHARED]
        if not shared:
            return []
        return [g.ranged("zap", proc, *g.span(g.rng.choice(shared)))]


class Mlock(Operation):
    """mlock, mlock2(MLOCK_ONFAULT) and munlock.  What is locked is brought to system memory."""

    number, name = 23, "mlock"
    weight = 5
    since = 2
    rows = ("mlock", "mlock on fault", "munlock")
    group = GROUP
    fields = (*RANGE, Field("how", "a", {0: "lock", 1: "on-fault", 2: "unlock"}))

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        locked = [v for v in proc.vmas if LOCKED in v.flags]
        if locked and rng.random() < 0.4:
            vma = rng.choice(locked)
            return [g.ranged("mlock", proc, vma.start, vma.end, a=rng.choice((0, 2, 2, 2)))]
        return [g.ranged("mlock", proc, *g.span(g.pick(proc)), a=rng.choice((0, 0, 0, 1, 2)))]

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not ranged(o) or o.a > 2 or not p.covered(*pages(o)):
            return False
        if flags_of(p, o) & {GUARDED, POISONED, *SERVED}:
            return False
        return all(v.kind in _LOCKABLE and v.prot for v in p.overlapping(*pages(o)))

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        start, end = pages(o)
        vmas = space.procs[o.proc].overlapping(start, end)
        # It is locked all the same, but what lies behind the end of a file cannot be brought.
        missing = o.a == 0 and any(v.beyond(min(v.end, end) - 1) for v in vmas)
        return frozenset({-errno.ENOMEM}) if missing else OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        for v in p.split(*pages(o)):
            v.flags = v.flags - {LOCKED} if o.a == 2 else v.flags | {LOCKED}

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def row(self, o: Op) -> str:
        return self.rows[o.a]

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        if r.status == 0 and o.a == 0:
            b.put(range(*touched(o)), SYSTEM)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return None if kind in _LOCKABLE else "only memory that locking does not copy"

    def sentence(self, o: Op, at: str) -> str:
        return (f"locks {at}", f"locks what comes into {at}", f"unlocks {at}")[o.a]


class Ksm(Operation):
    number, name = 22, "ksm"
    fields = (Field("run", "a"),)
    wanted = False

    def takes_ms(self, o: Op) -> int:
        # For ksmd (op_ksm() of ops/advice.c).
        return 250 if o.a else 0

    def sentence(self, o: Op, at: str) -> str:
        return "runs the page merger" if o.a else "stops the page merger"


OPERATIONS = (Madvise(), Zap(), Mlock(), Ksm())
