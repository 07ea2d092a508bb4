# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the bench believes pages to be, and which cells an operation meets there.

A cell is operation x mapping kind x residency of a page just before the operation.  Residency is
what somebody has seen: a CPU that accessed the page, a driver that says it moved all pages it was
told to, a QUERY's answer.  What an advice or a policy may have brought about is "not known" until
one of them has.  Nothing is judged by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum

from hmmbench.guest.program import MapKind, Op, OpResult
from hmmbench.model.space import ANON, Process, Space, gp_of


class Residency(IntEnum):
    """Where a page is."""

    ABSENT = 0
    SYSTEM = 1
    VRAM = 2
    SWAPPED = 3
    UNKNOWN = 4


#: The same as plain numbers: an access of the loops below costs less than that of an enum.
ABSENT, SYSTEM, VRAM, SWAPPED, UNKNOWN = map(int, Residency)
UNSETTLED = (ABSENT, SWAPPED)

#: Kinds that may live in VRAM.  What of a private file mapping was written is anonymous memory.
MOVABLE = ANON | {MapKind.FILE_PRIVATE}

#: The column of accesses to addresses where nothing is mapped.
HOLE = -1

Cell = tuple[str, int, int]


class Belief:
    """The processes of one example after another, and what was counted over all of them.

    Used by the judging thread alone.  Cost: some microseconds an operation; the pages of a
    range are handled by C loops of the interpreter (dict, set, map), not one by one.
    `proc` and `pages` are those of the process whose operation it is.
    """

    proc: Process
    pages: dict[int, int]

    def __init__(self) -> None:
        #: (row, mapping kind, residency) -> operations
        self.cells: Counter[Cell] = Counter()
        #: row -> operations
        self.rows: Counter[str] = Counter()
        self.refused = 0
        #: operation -> how often the guest said that its kernel lacks it
        self.absent: Counter[str] = Counter()
        self.racing = 0
        self.space = Space((0, 0, 0, 0))
        # process -> page -> where
        self.all_pages: dict[int, dict[int, int]] = {}
        # processes whose faults migrate
        self.migrate: set[int] = set()
        # (process, page) -> it had contents, and the kernel was told to page it out
        self.advised: set[tuple[int, int]] = set()
        #: oracles that did not look at this example, by the target's word
        self.unseen: frozenset[str] = frozenset()
        # (oracle, row) -> operations that it did not see
        self._blind: Counter[tuple[str, str]] = Counter()
        self._before: Counter[str] = Counter()
        self._not_now: frozenset[str] = frozenset()

    def start(self) -> None:
        """A new example: fresh processes."""
        self._settle()
        self._not_now = self.unseen
        self.all_pages = {}
        self.migrate = set()
        self.advised = set()

    def _settle(self) -> None:
        for oracle in self._not_now:
            for row, n in (self.rows - self._before).items():
                self._blind[oracle, row] += n
        self._before = self.rows.copy()

    def judged(self, oracle: str, row: str) -> int:
        """Operations of a row that an oracle looked at."""
        self._settle()
        return self.rows[row] - self._blind[oracle, row]

    def count(self, cells: set[Cell]) -> None:
        """One operation met these."""
        self.cells.update(cells)
        self.rows.update({row for row, _, _ in cells})

    def range(self, row: str, start: int, end: int) -> None:
        """One operation on the pages [start, end)."""
        self.count(self.in_range(row, self.proc, self.pages, start, end))

    @staticmethod
    def in_range(
        row: str, proc: Process, pages: dict[int, int], start: int, end: int
    ) -> set[Cell]:
        """The cells of the pages [start, end)."""
        get = pages.get
        return {
            (row, int(v.kind), at or ABSENT)
            for v in proc.overlapping(start, end)
            for at in set(map(get, range(max(v.start, start), min(v.end, end))))
        }

    def whole(self, row: str, number: int) -> None:
        """One operation on all memory of a process."""
        owner, theirs = self.space.procs.get(number), self.all_pages.get(number, {})
        for v in owner.vmas if owner else ():
            assert owner is not None
            self.count(self.in_range(row, owner, theirs, v.start, v.end))

    def forget(self, start: int, end: int) -> None:
        """The pages [start, end) are gone."""
        for gp in [gp for gp in self.pages if start <= gp < end]:
            del self.pages[gp]
            self.advised.discard((self.proc.number, gp))

    def put(self, pages: Iterable[int], where: int) -> None:
        self.pages.update(dict.fromkeys(pages, where))

    def used_by_gpu(self, start: int, end: int, unsure: bool) -> None:
        """The GPU touched the pages [start, end); `unsure`: it may not have."""
        migrate = self.proc.number in self.migrate
        for v in self.proc.overlapping(start, end):
            span = range(max(v.start, start), min(v.end, end))
            if migrate and v.kind in MOVABLE:
                # Whether the driver has moved it is its own affair.
                self.put(span, UNKNOWN)
            elif not unsure:
                self.put([gp for gp in span if self.pages.get(gp, ABSENT) in UNSETTLED], SYSTEM)


def touched(o: Op) -> tuple[int, int]:
    """The pages of an operation's range, those included that it only begins: [start, end)."""
    return gp_of(o.region, o.off), gp_of(o.region, o.off + max(o.len, 1) - 1) + 1


def unsure(r: OpResult, racing: bool) -> bool:
    return racing or r.status != 0
