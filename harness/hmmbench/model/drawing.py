# SPDX-License-Identifier: GPL-2.0-or-later
"""How a step of a program is drawn: what operations and scenes choose from, and by what rules.

The same few pages more often than others, so that operations meet; places as the memory of the
program is at that point.  What is drawn need not make sense: admission has the last word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random

from hmmbench.guest.program import (
    MAX_PROCS,
    PAGE,
    PROT_RW,
    Acc,
    Access,
    MapKind,
    Op,
)
from hmmbench.model.space import (
    FILE,
    HUGE_PAGES,
    HUGETLB,
    REGION_PAGES,
    REGION_SHIFT,
    SHARED,
    Process,
    Space,
    Vma,
)

#: Regions that programs use, beside those of stack and globals.
REGIONS = 8

#: Pages of the files of a program.
FILE_PAGES = (24, 600, 0, 0)

#: Pages of a VMA that one QUERY looks at: the hot ones are its first.
SEEN = 64

#: Kinds of accesses, and the words of a page that they prefer.
KINDS = (Acc.READ, Acc.WRITE, Acc.ADD, Acc.XCHG, Acc.CAS, Acc.READ32, Acc.WRITE32)
WORDS = (0, 1, 2, 63, 64, 255, 510, 511)


class Draw(ABC):
    """A program that grows: its memory so far, and the numbers of the step that is drawn.

    space   -- memory as it is before the step
    rng     -- what fixes the step
    grammar -- for which version of the grammar it is drawn: what a seed meant stays asked for
    value   -- the last value written; each write has another
    after   -- operations to follow the step, each in a phase of its own
    """

    def __init__(self, space: Space, grammar: int) -> None:
        self.space = space
        self.grammar = grammar
        self.rng = Random(0)
        self.value = 0
        self.after: list[Op] = []
        # what was last written where, a guess that makes some compares succeed
        self._guess: dict[tuple[int, int], int] = {}

    @abstractmethod
    def first(self, ops: list[Op]) -> bool:
        """Puts operations of one phase before what is being made; whether any was admitted."""

    @abstractmethod
    def number(self, name: str) -> int:
        """Of the operation of that name."""

    @abstractmethod
    def word(self, name: str, field: str, word: str) -> int:
        """The number that an operation's field has for a word of recipes."""

    @abstractmethod
    def draw(self, name: str, proc: Process) -> list[Op]:
        """What the operation of that name draws."""

    # -- operations --

    def op(self, name: str, proc: Process, actor: int = 0, **fields: int) -> Op:
        """One that names no memory, or all of it in `fields`."""
        return Op(self.number(name), proc.number, actor, **fields)  # type: ignore[arg-type]

    def ranged(self, name: str, proc: Process, start: int, end: int, **fields: int) -> Op:
        """One on the pages [start, end)."""
        return self.op(
            name, proc, region=start >> REGION_SHIFT, off=offset(start), len=(end - start) * PAGE,
            **fields,
        )  # fmt: skip

    def accesses(self, name: str, proc: Process, acc: list[Access], actor: int = 0) -> Op:
        """One that accesses memory."""
        o = self.op(name, proc, actor)
        o.acc = acc
        return o

    def touch(self, proc: Process, vma: Vma, start: int, end: int, kind: int) -> Op:
        """The CPU reads or writes a word of each page, the same words each time."""
        acc = [self.access(vma, gp, 0, gp & 511, kind) for gp in range(start, end)]
        return self.accesses("cpu_access", proc, acc)

    # -- choosing --

    def pick(self, proc: Process) -> Vma:
        """A VMA, the small and the new more often."""
        rng = self.rng
        return proc.vmas[min(rng.randrange(len(proc.vmas)), rng.randrange(len(proc.vmas)))]

    def page_of(self, vma: Vma) -> int:
        """A page of the VMA: mostly one of a few, so that operations meet."""
        rng = self.rng
        n = vma.end - vma.start
        r = rng.random()
        if n <= 4 or r < 0.75:
            return vma.start + rng.randrange(min(n, 4))
        if r < 0.9:
            return vma.end - 1 - rng.randrange(min(n, 3))
        return vma.start + rng.randrange(n)

    def few(self, vma: Vma) -> tuple[int, int]:
        """One to four pages of the VMA: [start, end)."""
        start = self.page_of(vma)
        return start, min(vma.end, start + self.rng.choice((1, 2, 4)))

    def span(self, vma: Vma) -> tuple[int, int]:
        """A part of the VMA, at its hot pages more often: [start, end) in pages."""
        rng = self.rng
        n = vma.end - vma.start
        r = rng.random()
        if r < 0.25:
            a, b = 0, n
        elif r < 0.8:
            a = rng.randrange(min(n, 4))
            b = min(n, a + rng.choice((1, 1, 2, 4, 8)))
        else:
            a = rng.randrange(n)
            b = a + 1 + rng.randrange(n - a)
        if vma.kind in HUGETLB:
            lo = (vma.start + a) // 512 * 512
            return lo, min(vma.end, -(-(vma.start + b) // 512) * 512)
        return vma.start + a, vma.start + b

    def access(self, vma: Vma | None, gp: int, lane: int, word: int, kind: int) -> Access:
        rng = self.rng
        if vma is not None and not vma.prot & 2 and kind not in (Acc.READ, Acc.READ32):
            # Refused accesses end a whole GPU job: rare, and on purpose (`stray`).
            kind = Acc.READ
        self.value += 1
        value, expect = self.value << 32, 0
        off = offset(gp) + word * 8
        if kind == Acc.ADD:
            value = self.value
        elif kind == Acc.WRITE32:
            value = self.value
            off += rng.choice((0, 4))
        elif kind == Acc.READ32:
            off += rng.choice((0, 4))
        elif kind == Acc.CAS:
            expect = self._guess.get((gp, word), 0)
        if kind in (Acc.WRITE, Acc.XCHG):
            self._guess[(gp, word)] = value
        if kind in (Acc.READ, Acc.READ32):
            value = 0
        return (int(kind), gp >> REGION_SHIFT, lane, off, value, expect)

    def stray(self, proc: Process) -> Access:
        """An access that is refused, if such a place is near."""
        rng = self.rng
        vma = self.pick(proc)
        if rng.random() < 0.5:
            gp = vma.end if rng.random() < 0.5 else max(vma.start - 1, 0)
            if gp >> REGION_SHIFT != vma.start >> REGION_SHIFT:
                gp = vma.start
            found = proc.find(gp)
        else:
            weak = [v for v in proc.vmas if v.prot != PROT_RW]
            found = rng.choice(weak) if weak else vma
            gp = self.page_of(found)
        self.value += 1
        kind = rng.choice((Acc.READ, Acc.WRITE, Acc.WRITE, Acc.ADD))
        off = offset(gp) + rng.choice(WORDS) * 8
        value = 0 if kind == Acc.READ else self.value << 32
        return (int(kind), gp >> REGION_SHIFT, 0, off, value, 0)

    def next_proc(self) -> int:
        """The number of a process that is not there yet; 0: there is none left."""
        return next((n for n in range(1, MAX_PROCS) if n not in self.space.procs), 0)


def offset(gp: int) -> int:
    """Of a page within its region, in bytes."""
    return (gp & (REGION_PAGES - 1)) * PAGE


def usable(proc: Process) -> list[Vma]:
    """That may be accessed, if there is one."""
    return [v for v in proc.vmas if v.prot] or proc.vmas


def writable(proc: Process) -> list[Vma]:
    """Private anonymous memory, which moves and may be given back."""
    return [v for v in proc.vmas if v.kind == MapKind.ANON_PRIVATE and v.prot == PROT_RW]


def huge(proc: Process) -> list[int]:
    """First pages of 2 MiB each that lie whole in private anonymous memory."""
    return [
        first for v in writable(proc)
        for first in range(-(-v.start // HUGE_PAGES) * HUGE_PAGES, v.end, HUGE_PAGES)
        if first + HUGE_PAGES <= v.end
    ]  # fmt: skip


def same_memory(other: Process, vma: Vma, pages: list[int]) -> tuple[Vma, list[int]] | None:
    """Another process's view of the memory: the shared object, or its copy after fork."""
    if vma.kind in SHARED or vma.kind in FILE:
        for v in other.vmas:
            if v.obj is not vma.obj:
                continue
            gps = [gp + vma.delta - v.delta for gp in pages]
            gps = [gp for gp in gps if v.start <= gp < v.end]
            if gps:
                return v, gps
        return None
    found = other.find(pages[0])
    if found is not None and found.kind == vma.kind:
        return found, [gp for gp in pages if found.start <= gp < found.end]
    return None
