# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's book of written pages: soft-dirty bits.

`clear` empties it, and says which pages it will have when they are written, whoever writes them:
those that are in system memory and were written before.  Not those of VRAM: clear_soft_dirty()
(fs/proc/task_mmu.c, 6.12 and 7.3) leaves an entry of a device writable, so that nobody is told
of what the GPU writes there.  Where the model then knows for sure that a word changed, `look`
has to find the page in it.  Unless its protection changed, by mprotect, userfaultfd or fork, or for
NUMA balancing: of an entry of a device those drop the bit (change_pte_range(),
copy_nonpresent_pte(): "we do not preserve soft-dirty information").
"""

from __future__ import annotations

from collections.abc import Iterator

from hmmbench.guest.program import MIGRATE_DEVICE, PAGE, PROT_RW, Acc, MapKind, Op, OpResult
from hmmbench.model.drawing import REGIONS, WORDS, Draw
from hmmbench.model.ops.base import (
    PERHAPS,
    RANGE,
    Field,
    Operation,
    flags_of,
    pages,
    ranged,
    shorter,
)
from hmmbench.model.scenes import racer
from hmmbench.model.space import GUARDED, MERGEABLE, POISONED, SERVED, Process, Space, place

#: Pages of one operation (MAX_LOOK of ops/dirty.c).
MOST = 512

CLEAR, LOOK = 0, 1

#: Whose pages may be others by now.
_ELSEWHERE = frozenset({GUARDED, MERGEABLE, POISONED, *SERVED})


class Dirty(Operation):
    number, name = 81, "dirty"
    since = 4
    weight = 3
    rows = ("clear soft-dirty", "ask soft-dirty")
    group = "address space"
    fields = (*RANGE, Field("how", "arg", {CLEAR: "clear", LOOK: "look"}))
    races = True
    optional = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.arg > LOOK or not ranged(o) or o.region >= REGIONS or o.len > MOST * PAGE:
            return False
        there = p.overlapping(*pages(o))
        return p.covered(*pages(o)) and all(v.kind == MapKind.ANON_PRIVATE for v in there)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return PERHAPS

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        return o.arg == CLEAR

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        p = space.procs[o.proc]
        start, end = pages(o)
        if len(r.data) != end - start:
            return f"answered {len(r.data)} bytes for {end - start} pages"
        if o.arg == CLEAR:
            space.answered = o, frozenset(gp for gp in range(start, end) if r.data[gp - start])
            return ""
        for gp in [gp for gp in p.clean if start <= gp < end]:
            vma = p.find(gp)
            # (A folio that is split or put together keeps its book in its own way.)
            unsure = vma is None or vma.large or space.folios or space.balanced
            if r.data[gp - start] or unsure or vma is None:
                del p.clean[gp]
            elif not vma.flags & _ELSEWHERE and p.page(gp, vma).surely_changed(p.clean[gp]):
                return f"does not know of a write: {place(gp)} was clean and is another now"
        return ""

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg == LOOK:
            return
        # Of all of the process it is forgotten now.
        p.clean = {}
        for gp in space.told(o) or ():
            vma = p.find(gp)
            if vma is not None and not vma.large and not vma.flags & _ELSEWHERE:
                p.clean[gp] = p.page(gp, vma).copy()

    def row(self, o: Op) -> str | None:
        return self.rows[o.arg] if o.arg <= LOOK else None

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return None if kind == MapKind.ANON_PRIVATE else "of private memory alone"

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        if o.arg == CLEAR:
            return f"has the kernel forget what was written, in {at} and everywhere (soft-dirty)"
        return f"asks the kernel which pages of {at} were written (soft-dirty)"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """The GPU has the pages and may write them when they become clean, and does."""
        rng = g.rng
        private = [
            v for v in proc.vmas
            if v.kind == MapKind.ANON_PRIVATE and v.prot == PROT_RW and not v.flags
        ]  # fmt: skip
        if not private:
            return []
        vma = rng.choice(private)
        start, end = g.few(vma)
        gps, words = list(range(start, end)), [rng.choice(WORDS) for _ in range(2)]

        def write() -> Op:
            return g.accesses("gpu_access", proc, [
                g.access(vma, gp, lane, word, rng.choice((Acc.WRITE, Acc.ADD)))
                for lane, (gp, word) in enumerate((gp, word) for gp in gps for word in words)
            ])  # fmt: skip

        g.first([g.touch(proc, vma, start, end, Acc.WRITE)])
        if rng.random() < 0.7:
            g.first([write()])
        clear = g.ranged("dirty", proc, start, end, arg=CLEAR)
        look = g.ranged("dirty", proc, start, end, arg=LOOK)
        assert not flags_of(proc, clear) & _ELSEWHERE
        g.after = [write(), look]
        if rng.random() < 0.4:
            g.after.insert(rng.choice((0, 1)), g.ranged(
                "migrate", proc, start, end, arg=rng.choice((MIGRATE_DEVICE, 0))
            ))  # fmt: skip
        if rng.random() < 0.3:
            pause = g.op("sleep", proc, a=rng.choice((50, 300, 1000)))
            g.after.insert(0, g.ranged("dirty", proc, start, end, arg=CLEAR))
            return [pause, clear, racer(g, proc, 1, vma, gps, words, True)]
        return [clear]


OPERATIONS = (Dirty(),)
