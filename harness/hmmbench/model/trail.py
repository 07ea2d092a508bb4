# SPDX-License-Identifier: GPL-2.0-or-later
"""What one example did, as a set that two examples can be compared by (campaign/features.py).

Beside the cells (cells.py): which operation came to a page behind which, and where the page was
then; and how operations ended.  Nothing is judged by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hmmbench.guest.program import PAGE, RES_SKIPPED, Acc, Op, OpResult
from hmmbench.model import ops
from hmmbench.model.belief import ABSENT, Belief, Cell
from hmmbench.model.ops.processes import Fork
from hmmbench.model.space import REGION_SHIFT, gp_of

#: The first pages of what an operation names, which are those where operations meet.
PAGES = 16

#: What was done to a page before ("": nothing yet), what is done now, where it is (Residency), and
#: whether others run meanwhile.
Pair = tuple[str, str, int, bool]

#: Of an operation: its status, the GPU's, and whether others ran meanwhile.
End = tuple[str, int, int, bool]

_READS, _WRITES = (Acc.READ, Acc.READ32), (Acc.WRITE, Acc.WRITE32)


class Trail:
    """Filled by Coverage.observe(), operation by operation, by the judging thread alone."""

    def __init__(self) -> None:
        self.cells: set[Cell] = set()
        self.pairs: set[Pair] = set()
        self.ends: set[End] = set()
        # (process, page) -> what was done to it last
        self._last: dict[tuple[int, int], str] = {}

    def observe(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        """An operation, before the belief changes by it."""
        if r.status == RES_SKIPPED:
            return
        name = _name(o)
        self.ends.add((name, r.status, r.gpu_status, racing))
        get, last = b.pages.get, self._last
        pages = dict(_pages(o, name))
        for gp, done in pages.items():
            self.pairs.add((last.get((o.proc, gp), ""), done, get(gp, ABSENT), racing))
            last[o.proc, gp] = done
        if not pages:
            # It is about all that the process has.
            mine = [key for key in last if key[0] == o.proc]
            last.update(dict.fromkeys(mine, name))
            if o.op == Fork.number:
                last.update(((o.arg, gp), name) for _, gp in mine)


def _name(o: Op) -> str:
    operation = ops.of(o)
    return operation.name if o.acc else operation.row(o) or operation.name


def _pages(o: Op, name: str) -> Iterator[tuple[int, str]]:
    """With what is done to each."""
    if o.acc:
        # An atomic says more than a write, and that more than a read.
        for mark, kinds in (("r", _READS), ("w", _WRITES), ("a", (Acc.ADD, Acc.XCHG, Acc.CAS))):
            found = (a[1] << REGION_SHIFT | a[3] // PAGE for a in o.acc if a[0] in kinds)
            for gp in list(dict.fromkeys(found))[:PAGES]:
                yield gp, f"{name} {mark}"
        return
    for number, (region, off, length) in enumerate(ops.of(o).ranges(o)):
        first = gp_of(region, off)
        for gp in range(first, first + min(-(-length // PAGE), PAGES)):
            yield gp, f"{name} {number}" if number else name
