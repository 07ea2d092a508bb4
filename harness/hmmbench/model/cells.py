# SPDX-License-Identifier: GPL-2.0-or-later
"""What a campaign covered: operation x mapping kind x residency of the pages x oracle.

Collected beside the values oracle, which calls `Coverage.observe` with each operation before it
judges it.  An operation counts once for each (mapping kind, residency) among the pages it meets;
which these are it says itself (`Operation.meet`, with belief.py).

The oracle is fixed by the operation: contents by `values`, answers of calls by `status` (both in
oracle/values.py), QUERY by `mapping`; `mirror`, `protocol`, `progress`, `leak`, `kernel` and
`device` look at every one.
"""

from __future__ import annotations

from typing import Any

from hmmbench.guest.program import RES_SKIPPED, Op, OpResult
from hmmbench.model import ops
from hmmbench.model.belief import HOLE, MOVABLE, Belief, Cell, Residency
from hmmbench.model.ops.base import Operation
from hmmbench.model.oracles import BY_OPERATION, OF_ALL
from hmmbench.model.phrases import KINDS
from hmmbench.model.space import ANON, HUGETLB, Space
from hmmbench.model.trail import Trail

RESIDENCIES = {
    Residency.ABSENT: "not present",
    Residency.SYSTEM: "system",
    Residency.VRAM: "VRAM",
    Residency.SWAPPED: "swapped",
    Residency.UNKNOWN: "not known",
}

MAPPINGS: dict[int, str] = {**KINDS, HOLE: "hole"}

#: Columns of the table.
ORACLES = (*BY_OPERATION, *OF_ALL)

_OF_ROW: dict[str, Operation] = {
    row: operation for operation in ops.OPERATIONS.values() for row in operation.rows
}
#: Parts of the table in the order in which people look for them; those of others come behind.
_GROUPS = ("CPU", "GPU", "migration", "address space", "process", "query")

#: Rows of the table, in the order in which people look for them, by group.
GROUPS: dict[str, tuple[str, ...]] = {
    group: tuple(row for row, operation in _OF_ROW.items() if operation.group == group)
    for group in dict.fromkeys((*_GROUPS, *(o.group for o in _OF_ROW.values())))
}
ROWS = tuple(row for rows in GROUPS.values() for row in rows)


def oracles_of(row: str) -> tuple[str, ...]:
    """The oracles that judge the operations of a row."""
    return (_OF_ROW[row].oracle, *OF_ALL)


def impossible(row: str, kind: int, residency: int) -> str:
    """Why this cell cannot be met, or an empty string: the difference to "not met yet".

    Rules of the kernel, or of what `model.admit` lets through.
    """
    operation = _OF_ROW[row]
    if kind == HOLE and not operation.holes:
        return "counted for accesses only"
    own = operation.impossible(row, kind, residency)
    if own is not None:
        return own
    if kind not in MOVABLE and residency == Residency.VRAM:
        return "only private memory migrates to VRAM"
    if kind not in MOVABLE and kind in HUGETLB and residency == Residency.UNKNOWN:
        return "nothing moves hugetlb pages"
    if kind in HUGETLB and residency == Residency.SWAPPED:
        return "hugetlb pages are not swapped"
    if kind not in ANON and residency == Residency.SWAPPED:
        return "not told from pages that were given back"
    return ""


class Coverage(Belief):
    """Counters of one campaign.  `start` begins an example, `observe` takes its operations.

    `trail` learns what one example does, if somebody puts one there before it is judged.
    """

    trail: Trail | None = None

    def observe(self, space: Space, o: Op, r: OpResult, racing: bool) -> None:
        """An operation, before it changes `space`; `racing`: others run at the same time."""
        if r.status == RES_SKIPPED:
            return
        if ops.of(o).absent(r):
            self.absent[ops.of(o).name] += 1
            return
        self.racing += racing
        proc = space.procs.get(o.proc)
        if proc is None:
            return
        self.space, self.proc = space, proc
        self.pages = self.all_pages.setdefault(o.proc, {})
        if self.trail is not None:
            self.trail.observe(self, o, r, racing)
        ops.of(o).meet(self, o, r, racing)

    def count(self, cells: set[Cell]) -> None:
        super().count(cells)
        if self.trail is not None:
            self.trail.cells |= cells

    def to_json(self) -> dict[str, Any]:
        """Stable keys.  `cells`: what was met; `empty`: possible and not met."""
        met = sorted(self.cells.items(), key=lambda x: (ROWS.index(x[0][0]), x[0][1:]))
        possible = [
            (row, kind, at)
            for row in ROWS
            for kind in MAPPINGS
            for at in Residency
            if not impossible(row, kind, at)
        ]
        return {
            "met": sum(1 for c in possible if self.cells.get(c)),
            "possible": len(possible),
            "racing_operations": self.racing,
            "refused_accesses": self.refused,
            "not_there": dict(sorted(self.absent.items())),
            "cells": [
                {
                    "operation": row,
                    "mapping": MAPPINGS[kind],
                    "residency": RESIDENCIES[Residency(at)],
                    "count": n,
                }
                for (row, kind, at), n in met
            ],
            "empty": [
                [row, MAPPINGS[kind], RESIDENCIES[at]]
                for row, kind, at in possible
                if not self.cells.get((row, kind, at))
            ],
            "oracles": {
                oracle: {
                    row: self.judged(oracle, row) for row in ROWS if oracle in oracles_of(row)
                }
                for oracle in ORACLES
            },
        }
