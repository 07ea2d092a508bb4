# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages that nobody may touch (MADV_GUARD_*, since 6.13); areas that stay as they are (mseal).

A guard takes what is in its page and stays when the page is given up, or its area is protected
otherwise, moved or forked.  mseal is for ever: no munmap, mprotect, mremap or mmap over it (EPERM).
"""

from __future__ import annotations

from collections.abc import Iterator

from hmmbench.guest.program import (
    MIGRATE_DEVICE,
    PAGE,
    PROT_NONE,
    PROT_READ,
    PROT_RW,
    Acc,
    MapKind,
    Op,
    OpResult,
)
from hmmbench.model.belief import Belief, touched
from hmmbench.model.drawing import REGIONS, WORDS, Draw, offset, writable
from hmmbench.model.ops.base import (
    OK,
    PERHAPS,
    RANGE,
    Field,
    Operation,
    flags_of,
    pages,
    ranged,
    settled,
    shorter,
)
from hmmbench.model.scenes import racer
from hmmbench.model.space import GUARDED, MERGEABLE, SEALED, Process, Space

INSTALL, REMOVE = 0, 1


class Guard(Operation):
    number, name = 82, "guard"
    since = 4
    weight = 5
    rows = ("guard", "unguard")
    group = "address space"
    fields = (*RANGE, Field("how", "arg", {INSTALL: "install", REMOVE: "remove"}))
    races = True
    areas = True
    unmaps = True
    shapes = True
    optional = True
    # MAX_MADVISE_GUARD_RETRIES of mm/madvise.c: who touches a page that went gets one of zeroes,
    # until there is a guard in its place.
    takes = 3

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.arg > REMOVE or not ranged(o) or not p.covered(*pages(o)):
            return False
        if any(v.kind != MapKind.ANON_PRIVATE for v in p.overlapping(*pages(o))):
            return False
        other = flags_of(p, o) - {GUARDED, MERGEABLE}
        return not other and (o.arg == REMOVE or settled(p, o))

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return PERHAPS

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        there = p.overlapping(*pages(o))
        if o.arg == INSTALL:
            return settled(p, o) and not flags_of(p, o)
        return all(GUARDED in v.flags and v.behind == PROT_RW for v in there)

    def zeroes(self, o: Op) -> bool:
        return o.arg == INSTALL

    def protects(self, o: Op) -> int:
        return PROT_NONE if o.arg == INSTALL else PROT_RW

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg == INSTALL:
            p.drop_pages(*pages(o))
        for v in p.split(*pages(o)):
            if o.arg == INSTALL and GUARDED not in v.flags:
                v.behind, v.prot = v.prot, PROT_NONE
                v.flags |= {GUARDED}
            elif o.arg == REMOVE and GUARDED in v.flags:
                v.prot = v.behind
                v.flags -= {GUARDED}

    def row(self, o: Op) -> str | None:
        return self.rows[o.arg] if o.arg <= REMOVE else None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        b.forget(*touched(o))

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return None if kind == MapKind.ANON_PRIVATE else "of private memory alone"

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        if o.arg == INSTALL:
            return f"guards {at}: nobody may touch it (MADV_GUARD_INSTALL)"
        return f"guards {at} no more (MADV_GUARD_REMOVE)"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """Pages that the GPU has are guarded, perhaps while it uses them; it uses them again."""
        rng = g.rng
        guarded = [v for v in proc.vmas if GUARDED in v.flags]
        if guarded and rng.random() < 0.5:
            vma = rng.choice(guarded)
            return _used(g, proc, vma.start, vma.end, REMOVE)
        private = [v for v in writable(proc) if not v.flags]
        if not private:
            return []
        vma = rng.choice(private)
        start, end = g.few(vma)
        if rng.random() < 0.6:
            g.first([g.touch(proc, vma, start, end, Acc.WRITE)])
        if rng.random() < 0.5:
            g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
        return _used(g, proc, start, end, INSTALL)


def _used(g: Draw, proc: Process, start: int, end: int, how: int) -> list[Op]:
    rng = g.rng
    vma = proc.find(start)
    assert vma is not None
    strong = vma.sub(start, end)
    strong.prot = PROT_RW
    gps, words = list(range(start, min(end, start + 4))), [rng.choice(WORDS)]
    g.after = [racer(g, proc, 0, strong, gps, words, True)]
    if how == INSTALL and rng.random() < 0.7:
        g.after += [
            g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE),
            g.ranged("guard", proc, start, end, arg=REMOVE),
            racer(g, proc, 0, strong, gps, words, True),
        ]  # fmt: skip
    g.after.append(g.touch(proc, strong, start, min(end, start + 4), Acc.READ))
    o = g.ranged("guard", proc, start, end, arg=how)
    if rng.random() < 0.6:
        return [o]
    pause = g.op("sleep", proc, a=rng.choice((50, 200, 700)))
    beside = [racer(g, proc, 1, strong, gps, words, True)]
    if rng.random() < 0.4:
        beside.append(racer(g, proc, 2, strong, gps, words, False))
    return [pause, o, *beside]


class Seal(Operation):
    """Both kernels have it (6.10)."""

    number, name = 83, "seal"
    since = 4
    weight = 1
    rows = ("seal",)
    group = "address space"
    fields = RANGE
    areas = True
    shapes = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not ranged(o) or o.region >= REGIONS or not p.covered(*pages(o)):
            return False
        known = (MapKind.ANON_PRIVATE, MapKind.ANON_SHARED)
        return not flags_of(p, o) - {SEALED} and all(
            v.kind in known for v in p.overlapping(*pages(o))
        )

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        for v in p.split(*pages(o)):
            v.flags |= {SEALED}

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        known = (MapKind.ANON_PRIVATE, MapKind.ANON_SHARED)
        return None if kind in known else "only of memory without file"

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        return f"seals {at}: its areas stay as they are (mseal)"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """Then somebody tries, in vain, and the GPU has it as before."""
        rng = g.rng
        free = [v for v in writable(proc) if not v.flags]
        if not free:
            return []
        vma = rng.choice(free)
        start, end = g.few(vma)
        to = rng.randrange(REGIONS)
        tries = [
            g.ranged("munmap", proc, start, end),
            g.ranged("mprotect", proc, start, end, a=rng.choice((PROT_READ, PROT_NONE))),
            g.ranged("mremap", proc, start, end, arg=to, a=6 << 21, b=offset(end - start)),
            g.ranged("replace", proc, start, end, arg=MapKind.ANON_PRIVATE, a=PROT_RW),
        ]  # fmt: skip
        words = [rng.choice(WORDS)]
        g.first([racer(g, proc, 0, vma, list(range(start, end)), words, True)])
        g.after = [
            g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE), *rng.sample(tries, 2),
            racer(g, proc, 0, vma, list(range(start, end)), words, True),
            g.touch(proc, vma, start, end, Acc.READ),
        ]  # fmt: skip
        return [g.ranged("seal", proc, start, end)]


OPERATIONS = (Guard(), Seal())
