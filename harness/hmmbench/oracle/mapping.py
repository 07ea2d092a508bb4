# SPDX-License-Identifier: GPL-2.0-or-later
"""The mapping oracle: what QUERY says about each page must fit the VMAs and itself.

When nothing else runs, it is known what both views have to be.  Beside other threads they still
have to be of one moment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hmmbench.guest.program import (
    PAGE,
    Q_CPU_DEVICE,
    Q_CPU_READ,
    Q_CPU_WRITE,
    Q_GPU_ATOMIC,
    Q_GPU_EXCLUSIVE,
    Q_GPU_VALID,
    Q_GPU_VRAM,
    Q_GPU_WRITE,
    MapKind,
    Op,
    OpResult,
)
from hmmbench.model.space import HUGETLB, SHARED, Process, Space, Vma, gp_of, place


def _answers(o: Op, r: OpResult) -> Iterator[tuple[int, int]]:
    """(page, flags) of a QUERY that succeeded."""
    start = gp_of(o.region, o.off)
    if r.status == 0:
        for k, q in enumerate(struct.unpack(f"<{len(r.data) // 4}I", r.data)):
            yield start + k, q


def _cut(o: Op, r: OpResult) -> str:
    """Whether the answer is as long as the question."""
    npages = o.len // PAGE
    if r.status == 0 and len(r.data) != 4 * npages:
        return f"query of {npages} pages answered {len(r.data)} bytes"
    return ""


def _elsewhere(q: int) -> str:
    """What the GPU has mapped is not where the CPU has the page."""
    if q & Q_GPU_VALID and q & Q_GPU_VRAM and not q & Q_CPU_DEVICE:
        return "the GPU maps VRAM, but the page does not live there"
    if q & Q_GPU_VALID and q & Q_CPU_DEVICE and not q & Q_GPU_VRAM:
        return "the GPU maps system memory, but the page lives in VRAM"
    return ""


def check_racing(o: Op, r: OpResult) -> str:
    """As `check`, of a QUERY beside other threads.

    The CPU's table may gain something after the look at it.  But nothing can move, or be lost,
    without taking an entry away, and then the driver has to look again; so it has where the GPU
    may do more than before that look (snapshot.c).  A page that is exclusively the GPU's shows
    nothing of the CPU's.
    """
    for gp, q in _answers(o, r):
        problem = _elsewhere(q) if q & Q_CPU_READ else ""
        if q & Q_CPU_READ and q & Q_GPU_VALID and q & Q_GPU_WRITE and not q & Q_CPU_WRITE:
            problem = "the GPU may write a page that the CPU may only read"
        if problem:
            return f"{problem}: {place(gp)} of process {o.proc} (query {q:#x}, beside others)"
    return _cut(o, r)


def check(space: Space, o: Op, r: OpResult) -> str:
    """What is wrong with the answer to a QUERY when nothing else runs, or an empty string."""
    if cut := _cut(o, r):
        return cut
    proc = space.procs[o.proc]
    for gp, q in _answers(o, r):
        vma = proc.find(gp)
        prot = vma.prot if vma else 0
        problem = ""
        if q & Q_GPU_VALID:
            if vma is None:
                problem = "the GPU maps a page that is not mapped any more"
            elif vma.beyond(gp):
                problem = "the GPU maps a page behind the end of its file"
            elif not prot:
                problem = "the GPU maps a PROT_NONE page"
            elif q & Q_GPU_WRITE and not prot & 2:
                problem = "the GPU may write a page of a read-only mapping"
            elif q & Q_GPU_WRITE and not q & Q_CPU_WRITE and not _taken(proc, vma, q):
                problem = "the GPU may write a page that the CPU may only read"
            elif elsewhere := _elsewhere(q):
                problem = elsewhere
            elif not space.folios and _shared_atomics(proc, vma, q):
                problem = "the GPU may do atomics on a page that is not exclusively its own"
        if not problem and q & Q_CPU_DEVICE and vma is not None and vma.kind in SHARED:
            problem = "a shared page lives in VRAM"
        if not problem and q & Q_CPU_DEVICE and proc.pinned.get(gp, -1) >= 0:
            problem = "a page that is pinned lives in VRAM"
        if problem:
            return f"{problem}: {place(gp)} of process {o.proc} (query {q:#x})"
    return ""


def _taken(proc: Process, vma: Vma, q: int) -> bool:
    """The page may be exclusively the GPU's, and mapped there without atomics.

    QUERY shows such a page of the CPU's as nothing.  What the GPU had mapped before it may keep
    when the CPU's entry is taken, and so it is seen until the GPU's has atomics too: at any
    moment, for what is in the fault buffer is served also after its job has ended.  Up to 6.14
    the kernel also takes every page of a large folio if one is asked for.  The mirror audit,
    which reads the entry itself, judges that mapping.
    """
    return (
        proc.exclusive is not False
        and vma.kind not in SHARED | HUGETLB
        and not q & (Q_CPU_READ | Q_GPU_VRAM)
    )


def _shared_atomics(proc: Process, vma: Vma, q: int) -> bool:
    """Against an exclusive policy, on memory that the kernel has exclusive access for: small
    pages of anonymous memory."""
    return (
        proc.exclusive is True
        and vma.kind == MapKind.ANON_PRIVATE
        and not vma.large
        and q & (Q_GPU_ATOMIC | Q_GPU_VRAM | Q_GPU_EXCLUSIVE) == Q_GPU_ATOMIC
    )
