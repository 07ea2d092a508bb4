# SPDX-License-Identifier: GPL-2.0-or-later
"""A family of operations from outside, as a driver's developer has one: docs/writing-tests.md."""

from __future__ import annotations

from hmmbench.guest.program import PROT_RW, Op, OpResult
from hmmbench.model.belief import ABSENT, SYSTEM, UNSETTLED, Belief, touched
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import OK, RANGE, Operation, pages, ranged
from hmmbench.model.space import Process, Space


class Populate(Operation):
    """MADV_POPULATE_WRITE: all pages are there and may be written.

    It touches no content; a private mapping of a file has copies of its pages then.
    """

    number, name = 300, "populate"
    fields = RANGE
    weight = 20
    since = 5
    rows = ("populate",)
    group = "address space"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.ranged("populate", proc, *g.few(g.pick(proc)))]

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not ranged(o) or not p.covered(*pages(o)):
            return False
        return all(v.prot == PROT_RW and v.obj is None for v in p.overlapping(*pages(o)))

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        b.put((gp for gp in range(*touched(o)) if b.pages.get(gp, ABSENT) in UNSETTLED), SYSTEM)

    def sentence(self, o: Op, at: str) -> str:
        return f"populates {at}"


OPERATIONS = (Populate(),)
