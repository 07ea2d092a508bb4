# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the kernel's accounts of a process agree with one another, and with what it did.

A page in VRAM is one of the process's in all of them: an entry of pagemap that says "swapped", of
anonymous memory in the counters of the mm and in smaps (mm/memory.c, fs/proc/task_mmu.c).  Where
a page is now nobody knows but the kernel, so only what is certain is judged: what was written is
somewhere, a copy is no page of its file, nothing is behind a file's end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from hmmbench.guest.program import PAGE, MapKind, Op, OpResult
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import OK, RANGE, Field, Operation, aligned, pages, shorter
from hmmbench.model.page import Page
from hmmbench.model.space import FILE, HUGETLB, SHARED, Process, Space, Vma, place

#: Pages of one operation, at most; the guest has room for so many.
MAX_PAGES = 1024

_SUMS = struct.Struct("<6Q")
_PAGE = struct.Struct("<QQ")

# pagemap's (Documentation/admin-guide/mm/pagemap.rst), and PAGEMAP_SCAN's (linux/fs.h)
_PRESENT, _SWAPPED, _FILE = 1 << 63, 1 << 62, 1 << 61
_IS_FILE, _IS_PRESENT, _IS_SWAPPED, _IS_ZERO = 1 << 2, 1 << 3, 1 << 4, 1 << 5
NOT_SCANNED: Final = (1 << 64) - 1


def looked(o: Op, r: OpResult) -> bool:
    """Whether it came to a judgement: for a moment nothing moved."""
    return o.op == Account.number and r.status == 0 and r.aux0 > 0


def _sums(data: bytes) -> str:
    """What is wrong with the sums, in kilobytes."""
    anon, file, shmem, rss, anonymous, corrupted = _SUMS.unpack_from(data)
    # Memory that is said to be broken is in one of them alone; a kernel may be without the others,
    # or keep some of what it counts for each CPU (mm_counter without a sum), and tells none.
    if corrupted or not (anon and rss):
        return ""
    if anon != anonymous:
        return f"anonymous memory: {anon} kB are counted, {anonymous} kB are there"
    if file + shmem != rss - anonymous:
        return (
            f"memory of files: {file + shmem} kB are counted, {rss - anonymous} kB are there"
        )
    return ""


def _contradiction(entry: int, scan: int) -> str:
    """Of two views of a page."""
    if entry & _PRESENT and entry & _SWAPPED:
        return "it is present and swapped"
    if scan == NOT_SCANNED:
        return ""
    for name, one, other in (
        ("present", entry & _PRESENT, scan & _IS_PRESENT),
        ("swapped", entry & _SWAPPED, scan & _IS_SWAPPED),
        # The zero page is nobody's.
        ("of a file", entry & _FILE, scan & (_IS_FILE | _IS_ZERO)),
    ):
        if bool(one) != bool(other) and not (name == "of a file" and scan & _IS_ZERO):
            return f"pagemap and PAGEMAP_SCAN do not agree whether it is {name}"
    return ""


def _written(page: Page) -> bool:
    """Whether something other than zero is certainly in it."""
    if not page.plain:
        return False
    world = page.worlds[0]
    return any(isinstance(v, int) and v for v in (world.base, *world.vals.values()))


def _impossible(proc: Process, gp: int, vma: Vma, entry: int, scan: int) -> str:
    """What the model says against it."""
    there = bool(entry & (_PRESENT | _SWAPPED))
    # A kernel that does not scan does not say what is the zero page.
    zero = scan == NOT_SCANNED or bool(scan & _IS_ZERO)
    if vma.kind in FILE and vma.beyond(gp):
        return "it is there, behind the end of its file" if entry & _PRESENT else ""
    if vma.kind in SHARED:
        return "" if not entry & _PRESENT or zero or entry & _FILE else "it is no page of its file"
    page = proc.private.get(gp)
    own = page is not None and page.plain
    if page is not None and _written(page) and not there:
        return "it was written, and is nowhere"
    if (own or vma.kind == MapKind.ANON_PRIVATE) and there and not zero and entry & _FILE:
        return "it is private, and a page of a file"
    return ""


class Account(Operation):
    number, name = 72, "account"
    weight = 1
    since = 4
    oracle = "account"
    fields = (*RANGE, Field("sums", "arg"))
    wanted = False

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return aligned(o) and o.len <= MAX_PAGES * PAGE and p.covered(*pages(o))

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        if not looked(o, r):
            return ""
        if len(r.data) != _SUMS.size + o.len // PAGE * _PAGE.size:
            return f"no accounts: {len(r.data)} bytes"
        if o.arg and (bad := _sums(r.data)):
            return bad
        proc = space.procs[o.proc]
        entries = _PAGE.iter_unpack(r.data[_SUMS.size :])
        for gp, (entry, scan) in enumerate(entries, pages(o)[0]):
            vma = proc.find(gp)
            # What operations said of memory changes what its entries say; large pages of files
            # are counted as none.
            if vma is None or vma.flags or vma.kind in HUGETLB or gp in proc.unsettled:
                continue
            bad = _contradiction(entry, scan) or _impossible(proc, gp, vma, entry, scan)
            if bad:
                return f"wrong account: {bad}: {place(gp)} of process {o.proc} (pagemap {entry:#x})"
        return ""

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        return f"compares what the kernel says of {at}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        vma = g.rng.choice(proc.vmas)
        return [account(g, proc, vma, sums=True)]


def account(g: Draw, proc: Process, vma: Vma, sums: bool) -> Op:
    """Of the beginning of an area."""
    end = min(vma.end, vma.start + MAX_PAGES)
    return g.ranged("account", proc, vma.start, end, arg=int(sums))


OPERATIONS = (Account(),)
