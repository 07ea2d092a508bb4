# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that is said to be broken (MADV_HWPOISON), or about to break (MADV_SOFT_OFFLINE).

Of a broken page the content is lost: who touches it gets SIGBUS, a job of the GPU its error, until
the area is unmapped; children of fork have that, too.  Of one that is about to break the content
is elsewhere.  The answer says which pages give SIGBUS.

The kernel knows this of system memory alone: a page in VRAM is brought home by the call itself
(get_user_pages_fast()).  Asked by its frame it refuses: -ENXIO (mf_generic_kill_procs()), and -EIO
of soft_offline_page(), of 6.12 and 7.3.  What is broken in VRAM would be the driver's to say; ours
has no such thing but for what a reset has lost (hg_vram_lost()).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from hmmbench.guest.program import MIGRATE_DEVICE, PAGE, PROT_RW, Acc, MapKind, Op, OpResult
from hmmbench.model.belief import SYSTEM, Belief, touched
from hmmbench.model.drawing import REGIONS, WORDS, Draw
from hmmbench.model.ops.base import (
    PERHAPS,
    RANGE,
    Field,
    Operation,
    pages,
    ranged,
    settled,
    shorter,
)
from hmmbench.model.scenes import racer
from hmmbench.model.space import POISONED, Process, Space, place

BROKEN, SOFT = 0, 1
#: Pages of one operation (MAX_BROKEN of ops/poison.c).
MOST = 2

#: EHWPOISON of Linux, which Python does not know.
_BROKEN_ALREADY = 133
#: The kernel could not, or not now; the answer says what came of it.
_FAILED = frozenset({-errno.EBUSY, -errno.EIO, -errno.EAGAIN, -errno.ENOMEM, -_BROKEN_ALREADY})


class Poison(Operation):
    number, name = 90, "poison"
    since = 4
    weight = 1
    rows = ("hwpoison", "soft offline")
    group = "address space"
    fields = (*RANGE, Field("how", "arg", {BROKEN: "broken", SOFT: "soft"}))
    areas = True
    optional = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.arg > SOFT or not ranged(o) or o.region >= REGIONS or o.len > MOST * PAGE:
            return False
        start, end = pages(o)
        there = p.overlapping(start, end)
        if not settled(p, o) or any(gp in p.pinned for gp in range(start, end)):
            return False
        return not space.folios and all(
            v.kind == MapKind.ANON_PRIVATE and v.prot == PROT_RW and not v.flags and not v.large
            for v in there
        )

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return PERHAPS | _FAILED

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        start, end = pages(o)
        if len(r.data) != end - start:
            return f"answered {len(r.data)} bytes for {end - start} pages"
        gone = frozenset(gp for gp in range(start, end) if r.data[gp - start])
        if o.arg == SOFT and gone:
            return f"lost what was only to move: {place(min(gone))}"
        space.answered = o, gone
        return ""

    def apply(self, space: Space, p: Process, o: Op) -> None:
        start, end = pages(o)
        gone = space.told(o)
        if gone is None:
            gone = frozenset() if o.arg == SOFT else frozenset(range(start, end))
        # What moves is in no book of before.
        p.unwatch(start, end)
        for gp in sorted(gone):
            p.drop_pages(gp, gp + 1)
            for v in p.split(gp, gp + 1):
                v.flags |= {POISONED}

    def row(self, o: Op) -> str | None:
        return self.rows[o.arg] if o.arg <= SOFT else None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        b.put(range(*touched(o)), SYSTEM)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return None if kind == MapKind.ANON_PRIVATE else "of private memory alone"

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        if o.arg == BROKEN:
            return f"says that the memory of {at} is broken (MADV_HWPOISON)"
        return f"says that the memory of {at} is about to break (MADV_SOFT_OFFLINE)"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """Pages that the GPU has mapped, or that are in VRAM; then it uses them."""
        rng = g.rng
        private = [
            v for v in proc.vmas
            if v.kind == MapKind.ANON_PRIVATE and v.prot == PROT_RW and not v.flags and not v.large
        ]  # fmt: skip
        if not private:
            return []
        vma = rng.choice(private)
        start = g.page_of(vma)
        end = min(vma.end, start + rng.choice((1, 1, 2)))
        gps, words = list(range(start, end)), [rng.choice(WORDS)]
        g.first([racer(g, proc, 0, vma, gps, words, True)])
        if rng.random() < 0.4:
            g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
        how = BROKEN if rng.random() < 0.6 else SOFT
        g.after = [racer(g, proc, 0, vma, gps, words, True),
                   g.touch(proc, vma, start, end, Acc.READ)]  # fmt: skip
        if how == BROKEN:
            g.after += [g.ranged("replace", proc, start, end, arg=MapKind.ANON_PRIVATE, a=PROT_RW),
                        racer(g, proc, 0, vma, gps, words, True)]  # fmt: skip
        return [g.ranged("poison", proc, start, end, arg=how)]


OPERATIONS = (Poison(),)
