# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations on files that are mapped: their size, holes in them, and access by descriptor.

The files are the program's (tmpfs), which all of its processes have.  What a file loses or gets
while others access it through mappings, and what then is certain, is in model/reshape.py.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import replace

from hmmbench.guest.program import (
    HUGE,
    MIGRATE_DEVICE,
    PAGE,
    PROT_RW,
    Acc,
    MapKind,
    Op,
    OpResult,
)
from hmmbench.model.belief import Belief, Cell
from hmmbench.model.drawing import REGIONS, WORDS, Draw, same_memory
from hmmbench.model.ops.base import (
    OK,
    RANGE,
    Field,
    Operation,
    aligned,
    pages,
    shorter,
)
from hmmbench.model.ops.mapping import GROUP
from hmmbench.model.space import FILE, REGION_SHIFT, Process, Space, Vma

#: Bytes that one call reads or writes, at most.
MOST = 4 * PAGE

FILE_NUMBER = Field("file", "b")
AT = Field("file_off", "c", hex=True)
LENGTH = Field("len", "len", hex=True)


def mapped(g: Draw, proc: Process) -> Vma | None:
    """A mapping of a file that may be written; a new one, if there is none."""
    rng = g.rng
    there = [v for v in proc.vmas if v.kind in FILE and v.prot == PROT_RW and v.obj is not None]
    if there and rng.random() < 0.9:
        return rng.choice(there)
    kind = rng.choice((MapKind.FILE_SHARED, MapKind.FILE_PRIVATE))
    region, slot = rng.randrange(REGIONS), rng.randrange(4) * HUGE
    new = g.op(
        "mmap", proc, region=region, off=slot, len=rng.choice((4, 8, 16)) * PAGE, a=PROT_RW,
        arg=kind,
    )  # fmt: skip
    if g.first([new]):
        return proc.find(region << REGION_SHIFT | slot // PAGE)
    return rng.choice(there) if there else None


def number_of(g: Draw, vma: Vma) -> int:
    """Of the mapping's file."""
    return next(n for n, f in enumerate(g.space.files) if f is vma.obj)


def look(g: Draw, proc: Process, vma: Vma, start: int, end: int) -> list[Op]:
    """The pages [start, end), as GPU, CPU and descriptor see them."""
    first = start + vma.delta
    return [
        g.accesses("gpu_access", proc, [
            g.access(vma, gp, lane, word, Acc.READ)
            for lane, (gp, word) in enumerate((gp, word) for gp in range(start, end)
                                              for word in WORDS[:4])
        ]),
        g.touch(proc, vma, start, end, Acc.READ),
        g.op("file_read", proc, b=number_of(g, vma), c=first * PAGE, len=(end - start) * PAGE),
    ]  # fmt: skip


def _racers(g: Draw, proc: Process, vma: Vma, gps: list[int], most: int) -> list[Op]:
    """Accesses of several threads, also of other processes that have the file, but the first."""
    rng = g.rng
    views = [(proc, actor, vma, gps) for actor in (1, 2, 3)]
    for other in g.space.alive():
        view = None if other is proc else same_memory(other, vma, gps)
        if view is not None and view[1]:
            views.append((other, 0, *view))
    rng.shuffle(views)
    kinds = (Acc.READ, Acc.READ, Acc.WRITE, Acc.WRITE, Acc.ADD)
    out = []
    for p, actor, v, its in views[: rng.choice(range(1, most + 1))]:
        gpu = rng.random() < 0.75
        o = g.op("gpu_access" if gpu else "cpu_access", p, actor)
        lanes = rng.choice((1, 4, 8, 32)) if gpu else 1
        for lane in range(lanes):
            for _ in range(rng.choice((1, 2, 3)) if gpu else 6):
                o.acc.append(
                    g.access(v, rng.choice(its), lane, rng.choice(WORDS), rng.choice(kinds))
                )
        out.append(o)
    return out


def race(g: Draw, proc: Process, vma: Vma, start: int, end: int, change: list[Op]) -> list[Op]:
    """The changes of a file, one after the other, while others access these pages of it."""
    rng = g.rng
    gps = list(range(max(vma.start, start - 1), end))
    if rng.random() < 0.7:
        g.first([g.accesses("gpu_access", proc, [
            g.access(vma, gp, lane, rng.choice(WORDS), rng.choice((Acc.READ, Acc.WRITE)))
            for lane, gp in enumerate(gps)
        ])])  # fmt: skip
    out = _racers(g, proc, vma, gps, 3)
    for o in change:
        if rng.random() < 0.8:
            out.append(g.op("sleep", proc, a=rng.choice((50, 100, 300, 1000))))
        out.append(o)
        if vma.kind == MapKind.FILE_PRIVATE and rng.random() < 0.4:
            out.append(g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE))
        elif rng.random() < 0.1:
            out.append(g.op("evict", proc, a=0))
    return out


class OfFile(Operation):
    """About a part of a file: its mappings are where it is met."""

    group = GROUP
    races = True

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return []

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.b >= len(space.files) or not space.files[o.b].capacity:
            return False
        o.region = o.off = 0
        return o.c % 8 == 0 and o.c <= space.files[o.b].capacity * PAGE

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def concerns(self, o: Op, size: int) -> range:
        """Pages of the file."""
        return range(o.c // PAGE, -(-(o.c + o.len) // PAGE))

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        obj = b.space.files[o.b]
        which = self.concerns(o, obj.npages)
        row = self.rows[0]
        cells: set[Cell] = {(row, int(MapKind.FILE_SHARED), 0)}
        for v in b.proc.vmas:
            if v.obj is obj:
                start, end = which.start - v.delta, which.stop - v.delta
                cells |= b.in_range(row, b.proc, b.pages, max(v.start, start), min(v.end, end))
        b.count(cells)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return None if kind in FILE else "only of files"


def in_file(o: Op) -> str:
    first, last = o.c // PAGE, (o.c + max(o.len, 1) - 1) // PAGE
    where = f"page {first}" if first == last else f"pages {first} to {last}"
    return f"{where} of file {o.b}" + ("" if o.len % PAGE == 0 else f" ({o.len} bytes)")


class Truncate(OfFile):
    """ftruncate: shorter, or as long as it was, whole pages.

    All mappings lose what lies behind the end, private copies too.
    """

    number, name = 40, "truncate"
    weight = 5
    since = 4
    rows = ("truncate",)
    fields = (FILE_NUMBER, Field("size", "c", hex=True))
    reshapes = True
    shapes = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return super().admit(space, p, o) and o.c % PAGE == 0

    def concerns(self, o: Op, size: int) -> range:
        new = o.c // PAGE
        return range(min(size, new), max(size, new))

    def reshaped(self, o: Op, size: int) -> tuple[range, int]:
        return self.concerns(o, size), o.c // PAGE

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.resize(space.files[o.b], o.c // PAGE)

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        obj, size = b.space.files[o.b], o.c // PAGE
        for number, theirs in b.all_pages.items():
            owner = b.space.procs.get(number)
            for v in owner.vmas if owner else ():
                if v.obj is obj:
                    for gp in range(max(v.start, size - v.delta), v.end):
                        theirs.pop(gp, None)

    def sentence(self, o: Op, at: str) -> str:
        return f"sets the size of file {o.b} to {o.c // PAGE} pages"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        vma = mapped(g, proc)
        if vma is None or vma.obj is None:
            return []
        start, end = g.few(vma)
        file = number_of(g, vma)
        whole = g.op("truncate", proc, b=file, c=vma.obj.capacity * PAGE)
        if vma.obj.npages < vma.obj.capacity and rng.random() < 0.5:
            return [whole]
        short = g.op("truncate", proc, b=file, c=(start + vma.delta) * PAGE)
        r = rng.random()
        # Left short, it would refuse most of what comes after.
        g.after = [whole] if rng.random() < 0.95 else []
        if r < 0.1:
            return [short]
        if r < 0.5:
            # Again and again, or there and back: the end comes where an access is under way.
            change = rng.choice(([short], [short], [short, whole], [short, whole, short]))
            g.after += look(g, proc, vma, start, end)
            return race(g, proc, vma, start, end, [replace(o) for o in change])
        # Pages that the GPU has go, are asked for in vain, come back and are asked for at once.
        g.first([g.accesses("gpu_access", proc, [
            g.access(vma, gp, lane, rng.choice(WORDS), rng.choice((Acc.READ, Acc.WRITE)))
            for lane, gp in enumerate(range(start, end))
        ])])  # fmt: skip
        if vma.kind == MapKind.FILE_PRIVATE and rng.random() < 0.5:
            g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
        g.first([short])
        near = range(max(vma.start, start - 1), end)
        kinds = rng.choice(((Acc.READ,), (Acc.WRITE,), (Acc.READ, Acc.WRITE, Acc.ADD)))
        g.after += [
            g.accesses("gpu_access", proc, [
                g.access(vma, gp, lane, rng.choice(WORDS), rng.choice((Acc.READ, Acc.WRITE)))
                for lane, gp in enumerate(range(start, end))
            ]),
            *look(g, proc, vma, start, end),
        ]  # fmt: skip
        if r < 0.65:
            return [g.touch(proc, vma, near.start, end, rng.choice((Acc.READ, Acc.WRITE)))]
        return [g.accesses("gpu_access", proc, [
            g.access(vma, rng.choice(near), lane, rng.choice(WORDS), rng.choice(kinds))
            for lane in range(rng.choice((1, 2, 8)))
        ] + [g.access(vma, start, 8, rng.choice(WORDS), kinds[0])])]  # fmt: skip


class Punch(OfFile):
    """fallocate(FALLOC_FL_PUNCH_HOLE): zeroes, and no pages where they are whole.

    Private copies stay.
    """

    number, name = 41, "punch"
    weight = 3
    since = 4
    rows = ("punch hole",)
    fields = (FILE_NUMBER, AT, LENGTH)
    reshapes = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not super().admit(space, p, o) or not o.len or o.len % 8:
            return False
        return o.c + o.len <= space.files[o.b].capacity * PAGE

    def reshaped(self, o: Op, size: int) -> tuple[range, int]:
        which = self.concerns(o, size)
        return range(which.start, min(which.stop, size)), size

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.files[o.b].put(o.c, o.len, 0)

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        return f"punches a hole: {in_file(o)}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        vma = mapped(g, proc)
        if vma is None or vma.obj is None:
            return []
        start, end = g.few(vma)
        at, length = (start + vma.delta) * PAGE, (end - start) * PAGE
        if rng.random() < 0.3:
            # Parts of pages are filled with zeroes where they are.
            at += rng.choice((0, 8, 2048))
            length = rng.choice((8, 2048, length - 2048))
        hole = g.op("punch", proc, b=number_of(g, vma), c=at, len=length)
        g.after = look(g, proc, vma, start, end)
        if rng.random() < 0.5:
            return race(g, proc, vma, start, end, [
                replace(hole) for _ in range(rng.choice((1, 1, 2, 3)))
            ])  # fmt: skip
        g.first([g.accesses("gpu_access", proc, [
            g.access(vma, gp, lane, word, Acc.WRITE)
            for lane, (gp, word) in enumerate((gp, word) for gp in range(start, end)
                                              for word in WORDS[:2])
        ])])  # fmt: skip
        return [hole]


class FileRead(OfFile):
    """pread."""

    number, name = 42, "file_read"
    weight = 2
    since = 4
    rows = ("file read",)
    fields = (FILE_NUMBER, AT, LENGTH)
    oracle = "values"

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return super().admit(space, p, o) and 0 < o.len <= MOST and o.len % 8 == 0

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        obj = space.files[o.b]
        expected = max(0, min(o.len, obj.npages * PAGE - o.c))
        if len(r.data) != expected:
            return f"of {obj.name} got {len(r.data)} bytes, expected {expected}"
        for k, value in enumerate(struct.unpack(f"<{expected // 8}Q", r.data)):
            at = o.c + 8 * k
            page, word = obj.page(at // PAGE), at // 8 % 512
            if not page.access(word, Acc.READ, 0, 0, value):
                return f"of {obj.name}+{at:#x} found {value:#x}, expected {page.possible(word)}"
        return ""

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, 8)

    def sentence(self, o: Op, at: str) -> str:
        return f"reads {in_file(o)}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """What the GPU wrote through a shared mapping, perhaps after reclaim has had it."""
        rng = g.rng
        vma = mapped(g, proc)
        if vma is None:
            return []
        start, end = g.few(vma)
        if rng.random() < 0.7:
            # A clean page that the GPU gets for writing, and that nobody else writes.
            g.first([g.touch(proc, vma, start, end, Acc.READ)])
            g.first([g.accesses("gpu_access", proc, [
                g.access(vma, gp, lane, rng.choice(WORDS), Acc.WRITE)
                for lane, gp in enumerate(range(start, end))
            ])])  # fmt: skip
            how = rng.choice(("none", "msync", "pageout", "pageout"))
            if how == "msync":
                g.first([g.ranged("msync", proc, start, end)])
            elif how == "pageout":
                advice = g.word("madvise", "advice", "pageout")
                g.first([g.ranged("madvise", proc, start, end, a=advice)])
        return look(g, proc, vma, start, end)[2:]


class FileWrite(OfFile):
    """pwrite of one 64-bit word over and over; may make the file longer, by whole pages."""

    number, name = 43, "file_write"
    weight = 3
    since = 4
    rows = ("file write",)
    fields = (FILE_NUMBER, AT, LENGTH, Field("pattern", "a", hex=True))
    reshapes = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not super().admit(space, p, o) or not 0 < o.len <= MOST or o.len % 8:
            return False
        end, obj = o.c + o.len, space.files[o.b]
        return end <= obj.capacity * PAGE and (end <= obj.npages * PAGE or end % PAGE == 0)

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        # What comes before it in the phase may change the size.
        return (o.c + o.len) % PAGE == 0

    def reshaped(self, o: Op, size: int) -> tuple[range, int]:
        which = self.concerns(o, size)
        return which, max(size, which.stop)

    def apply(self, space: Space, p: Process, o: Op) -> None:
        obj = space.files[o.b]
        space.resize(obj, max(obj.npages, -(-(o.c + o.len) // PAGE)))
        obj.put(o.c, o.len, o.a)

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        return f"writes {o.a:#x} to {in_file(o)}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        vma = mapped(g, proc)
        if vma is None or vma.obj is None:
            return []
        start, end = g.few(vma)
        at, length = (start + vma.delta) * PAGE, (end - start) * PAGE
        g.value += 1
        o = g.op("file_write", proc, b=number_of(g, vma), c=at, len=length, a=g.value << 32)
        g.after = look(g, proc, vma, start, end)
        if rng.random() < 0.4:
            return race(g, proc, vma, start, end, [o])
        if rng.random() < 0.5:
            o.c, o.len = o.c + rng.choice((0, 8, 512)), rng.choice((8, 64, 2048))
        g.first(look(g, proc, vma, start, end)[:1])
        return [o]


class Msync(Operation):
    number, name = 44, "msync"
    weight = 1
    since = 4
    rows = ("msync",)
    group = GROUP
    fields = RANGE
    races = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return aligned(o)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        if racing:
            return OK | {-errno.ENOMEM}
        covered = space.procs[o.proc].covered(*pages(o))
        return OK if covered else frozenset({-errno.ENOMEM})

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        return f"writes {at} back (msync)"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.ranged("msync", proc, *g.span(g.pick(proc)))]


OPERATIONS = (Truncate(), Punch(), FileRead(), FileWrite(), Msync())
