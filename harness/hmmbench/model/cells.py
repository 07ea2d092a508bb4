# SPDX-License-Identifier: GPL-2.0-or-later
"""What a campaign covered: operation x mapping kind x residency of the pages x oracle.

Collected beside the values oracle, which calls `Coverage.observe` with each operation before it
judges it.  An operation counts once for each (mapping kind, residency) among the pages it meets.

Residency is what the bench believes of the page just before the operation: it follows what the
operations do to a page, and a QUERY's answer corrects it.  Where two threads meet or the driver
may have decided either way it is "not known".  Nothing is judged by it.

The oracle is fixed by the operation: contents by `values`, answers of calls by `status` (both in
oracle/values.py), QUERY by `mapping`; `mirror`, `protocol`, `progress`, `leak` and `kernel` look
at every one.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from hmmbench.guest.program import (
    F_NOWAIT,
    MIGRATE_DEVICE,
    PAGE,
    POLICY_MIGRATE,
    Q_CPU_DEVICE,
    Q_CPU_READ,
    RES_SKIPPED,
    Acc,
    Advice,
    MapKind,
    Op,
    OpResult,
)
from hmmbench.model import ops
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.mapping import Madvise, Mmap, Mprotect, Mremap, Munmap
from hmmbench.model.ops.moving import Evict, Migrate, Policy, Query
from hmmbench.model.ops.processes import Exit, Fork, Kill
from hmmbench.model.phrases import KINDS
from hmmbench.model.space import ANON, FIXED, HUGETLB, REGION_SHIFT, Process, Space, gp_of


class Residency(IntEnum):
    """Where a page is."""

    ABSENT = 0
    SYSTEM = 1
    VRAM = 2
    SWAPPED = 3
    UNKNOWN = 4


#: The same as plain numbers: an access of the loops below costs less than that of an enum.
_ABSENT, _SYSTEM, _VRAM, _SWAPPED, _UNKNOWN = map(int, Residency)
_UNSETTLED = (_ABSENT, _SWAPPED)

RESIDENCIES = {
    Residency.ABSENT: "not present",
    Residency.SYSTEM: "system",
    Residency.VRAM: "VRAM",
    Residency.SWAPPED: "swapped",
    Residency.UNKNOWN: "not known",
}

#: Kinds that may live in VRAM.  What of a private file mapping was written is anonymous memory.
MOVABLE = ANON | {MapKind.FILE_PRIVATE}

#: The column of accesses to addresses where nothing is mapped.
HOLE = -1

MAPPINGS: dict[int, str] = {**KINDS, HOLE: "hole"}

ORACLES = ("values", "status", "mapping", "mirror", "protocol", "progress", "leak", "kernel")

_ACCESS_ROWS = ("read", "write", "atomic")
_ADVICE = {a: f"madvise {a.name.lower()}" for a in Advice}

#: Rows of the table, in the order in which people look for them, by group.
GROUPS: dict[str, tuple[str, ...]] = {
    "CPU": tuple(f"CPU {a}" for a in _ACCESS_ROWS),
    "GPU": (*(f"GPU {a}" for a in _ACCESS_ROWS), "copy from", "copy to", "fill"),
    "migration": ("migrate to VRAM", "migrate to system", "evict"),
    "address space": ("mmap", "munmap", "mprotect", "mremap", *_ADVICE.values()),
    "process": ("fork", "exit", "kill", "close GPU"),
    "query": ("query",),
}
ROWS = tuple(row for rows in GROUPS.values() for row in rows)

_CLASS = {
    Acc.READ: 0, Acc.READ32: 0, Acc.WRITE: 1, Acc.WRITE32: 1, Acc.ADD: 2, Acc.XCHG: 2, Acc.CAS: 2,
}  # fmt: skip
_CPU_ROWS = tuple(f"CPU {a}" for a in _ACCESS_ROWS)
_GPU_ROWS = tuple(f"GPU {a}" for a in _ACCESS_ROWS)
_CONTENT = frozenset({*_CPU_ROWS, *_GPU_ROWS, "copy from", "copy to", "fill"})


def oracles_of(row: str) -> tuple[str, ...]:
    """The oracles that judge the operations of a row."""
    special = "values" if row in _CONTENT else "mapping" if row == "query" else "status"
    return (special, "mirror", "protocol", "progress", "leak", "kernel")


def impossible(row: str, kind: int, residency: int) -> str:
    """Why this cell cannot be met, or an empty string: the difference to "not met yet".

    Rules of the kernel, or of what `model.admit` lets through.
    """
    if kind == HOLE:
        if row not in _CPU_ROWS and row not in _GPU_ROWS:
            return "counted for accesses only"
        return "" if residency == Residency.ABSENT else "nothing is there"
    if row == "mmap":
        return "" if residency == Residency.ABSENT else "a new mapping has no pages"
    if kind not in MOVABLE and residency in (Residency.VRAM, Residency.UNKNOWN):
        return "only private memory migrates to VRAM"
    if kind in HUGETLB and residency == Residency.SWAPPED:
        return "hugetlb pages are not swapped"
    if row == "evict" and residency != Residency.VRAM:
        return "eviction concerns pages in VRAM"
    if row in ("munmap", "mremap") and kind in FIXED:
        return "stack and globals stay where they are"
    if row == "mprotect" and kind == MapKind.STACK:
        return "the stack's protection stays"
    if kind in HUGETLB and row in (
        "mremap", "madvise hugepage", "madvise nohugepage", "madvise mergeable",
    ):  # fmt: skip
        return "not for hugetlb"
    return ""


class Coverage:
    """Counters of one campaign.  `start` begins an example, `observe` takes its operations.

    Used by the judging thread alone.  Cost: some microseconds an operation; the pages of a
    range are handled by C loops of the interpreter (dict, set, map), not one by one.
    """

    def __init__(self) -> None:
        #: (row, mapping kind, residency) -> operations
        self.cells: Counter[tuple[str, int, int]] = Counter()
        #: row -> operations
        self.rows: Counter[str] = Counter()
        self.refused = 0
        self.racing = 0
        self._pages: dict[int, dict[int, int]] = {}
        self._migrate: set[int] = set()

    def start(self) -> None:
        """A new example: fresh processes."""
        self._pages = {}
        self._migrate = set()

    def observe(self, space: Space, o: Op, r: OpResult, racing: bool) -> None:
        """An operation, before it changes `space`; `racing`: others run at the same time."""
        if r.status == RES_SKIPPED:
            return
        self.racing += racing
        proc = space.procs.get(o.proc)
        if proc is None:
            return
        pages = self._pages.get(o.proc)
        if pages is None:
            pages = self._pages[o.proc] = {}
        kind = o.op
        if kind == CpuAccess.number or kind == GpuAccess.number:
            self._access(proc, pages, o, r, racing or bool(o.flags & F_NOWAIT))
        elif kind in _RANGED:
            self._ranged(proc, pages, o, r, racing)
        elif kind == Policy.number and r.status == 0:
            (self._migrate.add if o.arg & POLICY_MIGRATE else self._migrate.discard)(o.proc)
        elif kind == Mmap.number:
            self.rows["mmap"] += 1
            self.cells["mmap", o.arg, Residency.ABSENT] += 1
        elif kind in _WHOLE:
            self._whole(space, proc, pages, o, r)

    def _access(
        self, proc: Process, pages: dict[int, int], o: Op, r: OpResult, racing: bool
    ) -> None:
        gpu = o.op == GpuAccess.number
        names = _GPU_ROWS if gpu else _CPU_ROWS
        met: dict[tuple[int, int], int] = {}
        for a in o.acc:
            met[a[0], a[1] << REGION_SHIFT | a[3] >> 12] = 0
        migrate = gpu and o.proc in self._migrate
        cells: set[tuple[str, int, int]] = set()
        find, get = proc.find, pages.get
        new: dict[int, int] = {}
        for kind, gp in met:
            if kind == Acc.DELAY:
                continue
            row = names[_CLASS[kind]]  # type: ignore[index]
            vma = find(gp)
            if vma is None:
                cells.add((row, HOLE, _ABSENT))
                continue
            before = get(gp, _ABSENT)
            cells.add((row, vma.kind, before))
            if not gpu:
                new[gp] = _SYSTEM
            elif migrate and vma.kind in MOVABLE:
                new[gp] = _UNKNOWN if racing or vma.kind not in ANON else _VRAM
            elif before in _UNSETTLED:
                new[gp] = _SYSTEM
        if r.status == 0:
            pages.update(new)
        else:
            self.refused += 1
            # How far it came is in the accesses' results; the belief does not follow them.
            pages.update({
                gp: _UNKNOWN if get(gp) == _VRAM else at for gp, at in new.items() if gp in pages
            })  # fmt: skip
        self._count(cells)

    def _count(self, cells: set[tuple[str, int, int]]) -> None:
        self.cells.update(cells)
        self.rows.update({row for row, _, _ in cells})

    def _range(
        self, proc: Process, pages: dict[int, int], row: str, start: int, end: int
    ) -> None:
        get = pages.get
        cells = set()
        for v in proc.overlapping(start, end):
            for at in set(map(get, range(max(v.start, start), min(v.end, end)))):
                cells.add((row, int(v.kind), at or _ABSENT))
        self._count(cells)

    def _ranged(
        self, proc: Process, pages: dict[int, int], o: Op, r: OpResult, racing: bool
    ) -> None:
        start = gp_of(o.region, o.off)
        end = gp_of(o.region, o.off + max(o.len, 1) - 1) + 1
        kind = o.op
        if kind == GpuCopy.number:
            self._range(proc, pages, "copy from", start, end)
            to = gp_of(o.arg, o.a)
            to_end = gp_of(o.arg, o.a + max(o.len, 1) - 1) + 1
            self._range(proc, pages, "copy to", to, to_end)
            for lo, hi in ((start, end), (to, to_end)):
                self._used_by_gpu(proc, pages, lo, hi, racing or r.status != 0)
            return
        row = ops.of(o).row(o)
        if row is None:
            return
        self._range(proc, pages, row, start, end)
        if kind == GpuFill.number:
            self._used_by_gpu(proc, pages, start, end, racing or r.status != 0)
        elif kind == Query.number and not racing:
            _believe(pages, start, r)
        elif kind == Munmap.number:
            _forget(pages, start, end)
        elif kind == Mremap.number and r.status == 0:
            shift = gp_of(o.arg, o.a) - start
            moved = {gp + shift: at for gp, at in pages.items() if start <= gp < end}
            _forget(pages, start, end)
            kept = gp_of(o.arg, o.a) + o.b // PAGE
            pages.update({gp: at for gp, at in moved.items() if gp < kept})
        elif kind == Madvise.number:
            _advise(proc, pages, o, start, end)
        elif kind == Migrate.number:
            self._migrated(proc, pages, o, r, start, end, racing)

    def _used_by_gpu(
        self, proc: Process, pages: dict[int, int], start: int, end: int, unsure: bool
    ) -> None:
        migrate = proc.number in self._migrate
        for v in proc.overlapping(start, end):
            span = range(max(v.start, start), min(v.end, end))
            if migrate and v.kind in MOVABLE:
                pages.update(
                    dict.fromkeys(span, _UNKNOWN if unsure or v.kind not in ANON else _VRAM)
                )
            else:
                unsettled = [gp for gp in span if pages.get(gp, _ABSENT) in _UNSETTLED]
                if not unsure:
                    pages.update(dict.fromkeys(unsettled, _SYSTEM))

    def _migrated(
        self, proc: Process, pages: dict[int, int], o: Op, r: OpResult, start: int, end: int,
        racing: bool,
    ) -> None:  # fmt: skip
        if r.status != 0:
            return
        if o.arg == MIGRATE_DEVICE:
            whole = r.aux0 == end - start and not racing
            for v in proc.overlapping(start, end):
                if v.kind in MOVABLE:
                    span = range(max(v.start, start), min(v.end, end))
                    pages.update(dict.fromkeys(span, _VRAM if whole else _UNKNOWN))
            return
        there = [gp for gp, at in pages.items() if at in (_VRAM, _UNKNOWN) and start <= gp < end]
        pages.update(dict.fromkeys(there, _UNKNOWN if racing or r.aux1 else _SYSTEM))

    def _whole(
        self, space: Space, proc: Process, pages: dict[int, int], o: Op, r: OpResult
    ) -> None:
        """Operations on all of a process; eviction on those of all."""
        kind = o.op
        if kind == Evict.number:
            cells: set[tuple[str, int, int]] = set()
            for number, theirs in self._pages.items():
                owner = space.procs.get(number)
                there = [gp for gp, at in theirs.items() if at == _VRAM]
                for gp in there:
                    vma = owner.find(gp) if owner else None
                    if vma is not None:
                        cells.add(("evict", int(vma.kind), _VRAM))
                theirs.update(dict.fromkeys(there, _UNKNOWN if o.a or r.status else _SYSTEM))
            self._count(cells)
            return
        row = {Fork.number: "fork", Exit.number: "exit", Kill.number: "kill"}.get(
            kind, "close GPU"
        )
        victim = o.arg if kind == Kill.number else o.proc
        theirs = self._pages.get(victim, {})
        owner = space.procs.get(victim)
        for v in owner.vmas if owner else ():
            self._range(owner, theirs, row, v.start, v.end)  # type: ignore[arg-type]
        if kind == Fork.number and r.status == 0:
            self._pages[o.arg] = dict(pages)
        elif kind == CloseGpu.number:
            self._migrate.discard(o.proc)
            pages.update({gp: _UNKNOWN for gp, at in pages.items() if at == _VRAM})

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
                oracle: {row: self.rows[row] for row in ROWS if oracle in oracles_of(row)}
                for oracle in ORACLES
            },
        }


_RANGED = frozenset({
    Munmap.number, Mprotect.number, Mremap.number, Madvise.number, GpuCopy.number,
    GpuFill.number, Migrate.number, Query.number,
})  # fmt: skip
_WHOLE = frozenset({Fork.number, Exit.number, Kill.number, CloseGpu.number, Evict.number})


def _forget(pages: dict[int, int], start: int, end: int) -> None:
    _drop(pages, [gp for gp in pages if start <= gp < end])


def _drop(pages: dict[int, int], gone: Iterable[int]) -> None:
    for gp in gone:
        del pages[gp]


def _believe(pages: dict[int, int], start: int, r: OpResult) -> None:
    """A QUERY says where each page is; one that was swapped may still be."""
    if r.status != 0 or len(r.data) % 4:
        return
    for gp, q in enumerate(struct.unpack(f"<{len(r.data) // 4}I", r.data), start):
        if q & Q_CPU_DEVICE:
            pages[gp] = _VRAM
        elif q & Q_CPU_READ:
            pages[gp] = _SYSTEM
        elif gp in pages and pages[gp] != _SWAPPED:
            del pages[gp]


def _advise(proc: Process, pages: dict[int, int], o: Op, start: int, end: int) -> None:
    if o.a == Advice.DONTNEED:
        _forget(pages, start, end)
    elif o.a == Advice.FREE:
        there = [gp for gp in pages if start <= gp < end]
        for gp in there:
            v = proc.find(gp)
            if v is not None and v.kind in ANON:
                pages[gp] = _UNKNOWN
    elif o.a == Advice.PAGEOUT:
        for v in proc.overlapping(start, end):
            if v.kind not in HUGETLB:
                lo, hi = max(v.start, start), min(v.end, end)
                there = [gp for gp, at in pages.items() if at == _SYSTEM and lo <= gp < hi]
                pages.update(dict.fromkeys(there, _SWAPPED))
