# SPDX-License-Identifier: GPL-2.0-or-later
"""What lies behind the program's files: where they are, and write-back.

A file is in tmpfs, or on a disk (ext4), or at a server (FUSE).  What it holds is the same
everywhere.  But what has a disk behind it is written back: the kernel takes the write permission
of a page that becomes clean, also from the GPU, and may drop it after that, so what the GPU writes
past that is lost.  Where a kernel has no such file system the file is in tmpfs; the operation says
so, and evidence counts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum

from hmmbench.guest.program import HUGE, MIGRATE_DEVICE, PAGE, PROT_RW, Acc, MapKind, Op, OpResult
from hmmbench.model.belief import ABSENT, Belief
from hmmbench.model.drawing import REGIONS, WORDS, Draw, same_memory
from hmmbench.model.ops.base import PERHAPS, Field, Operation, shorter
from hmmbench.model.ops.files import (
    AT,
    FILE_NUMBER,
    LENGTH,
    OfFile,
    in_file,
    look,
    mapped,
    number_of,
    race,
)
from hmmbench.model.ops.mapping import GROUP
from hmmbench.model.space import REGION_SHIFT, SHARED, Process, Space, Vma


class Where(IntEnum):
    """STORE_* of base/store.h."""

    TMPFS = 0
    EXT4 = 1
    FUSE = 2


class How(IntEnum):
    """HOW_* of ops/stores.c.

    FSYNC    -- fsync
    RANGE    -- sync_file_range, and it is waited for
    START    -- sync_file_range: begun
    DROP     -- posix_fadvise(DONTNEED): begun, and what is clean and nobody's goes
    DROP_ALL -- drop_caches: of all files
    """

    FSYNC = 0
    RANGE = 1
    START = 2
    DROP = 3
    DROP_ALL = 4


_WHERE: dict[int, str] = {on: on.name.lower() for on in Where}
_HOW: dict[int, str] = {how: how.name.lower().replace("_", "-") for how in How}

#: Where a program's files are, by how often.
_DRAWN = (Where.TMPFS, Where.TMPFS, Where.EXT4, Where.EXT4, Where.FUSE)


class Store(Operation):
    """Stands before all that has to do with files; the guest makes them before the program."""

    number, name = 45, "store"
    since = 4
    fields = (FILE_NUMBER, Field("on", "arg", _WHERE))
    rows = ("file on ext4", "file on fuse")
    group = GROUP
    wanted = False
    shapes = True
    optional = True

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return []

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.b >= len(space.files) or o.arg not in list(Where):
            return False
        obj = space.files[o.b]
        # At the beginning, and once.
        return bool(obj.capacity) and not any(q.vmas for q in space.procs.values()) and (
            " on " not in obj.name
        )  # fmt: skip

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return PERHAPS

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.files[o.b].name += f" on {_WHERE[Where(o.arg)]}"

    def row(self, o: Op) -> str | None:
        return f"file on {_WHERE[Where(o.arg)]}" if o.arg in (Where.EXT4, Where.FUSE) else None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        row = self.row(o)
        if row is not None and r.status == 0:
            b.count({(row, int(MapKind.FILE_SHARED), ABSENT)})

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        met = kind == MapKind.FILE_SHARED and at == ABSENT
        return "" if met else "said of a file, before it is mapped"

    def simpler(self, o: Op) -> Iterator[Op]:
        if o.arg == Where.FUSE:
            yield replace(o, arg=Where.EXT4)

    def sentence(self, o: Op, at: str) -> str:
        return f"wants file {o.b} on {_WHERE.get(Where(o.arg), o.arg)}"


def where(g: Draw, proc: Process) -> list[Op]:
    """Where the files of a program are."""
    asked = ((n, g.rng.choice(_DRAWN)) for n, obj in enumerate(g.space.files) if obj.capacity)
    return [g.op("store", proc, b=n, arg=on) for n, on in asked if on != Where.TMPFS]


class WriteBack(OfFile):
    """Pages of a file are written to its disk, or leave memory.  Nothing in them changes."""

    number, name = 46, "write_back"
    since = 4
    weight = 7
    rows = tuple(f"write back {word}" for word in _HOW.values())
    fields = (FILE_NUMBER, AT, LENGTH, Field("how", "arg", _HOW))

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return (
            super().admit(space, p, o) and o.arg in list(How) and o.len > 0
            and o.c + o.len <= space.files[o.b].capacity * PAGE
        )  # fmt: skip

    def row(self, o: Op) -> str | None:
        return f"write back {_HOW[How(o.arg)]}"

    def simpler(self, o: Op) -> Iterator[Op]:
        if o.arg in (How.START, How.DROP):
            yield replace(o, arg=How.RANGE)
        yield from shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        what = f"writes back {in_file(o)}"
        return {
            How.FSYNC: f"writes back file {o.b} (fsync)",
            How.RANGE: f"{what}, and waits for that",
            How.START: f"begins to write back {in_file(o)}",
            How.DROP: f"has the kernel drop {in_file(o)}",
            How.DROP_ALL: "has the kernel drop what it keeps of files",
        }.get(How(o.arg), what)

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        vma = mapped(g, proc)
        if vma is None or vma.obj is None:
            return []
        start, end = g.few(vma)
        if vma.kind == MapKind.FILE_SHARED and g.rng.random() < 0.4:
            return _cleaned(g, proc, vma, start, end)
        return _crowd(g, proc, vma, start, end)


OPERATIONS = (Store(), WriteBack())


def _writes(g: Draw, proc: Process, vma: Vma, start: int, end: int) -> Op:
    return g.accesses("gpu_access", proc, [
        g.access(vma, gp, lane, g.rng.choice(WORDS), g.rng.choice((Acc.WRITE, Acc.WRITE, Acc.ADD)))
        for lane, gp in enumerate(range(start, end))
    ])  # fmt: skip


def _write_back(g: Draw, proc: Process, vma: Vma, start: int, end: int, *hows: How) -> Op:
    return g.op(
        "write_back", proc, b=number_of(g, vma), c=(start + vma.delta) * PAGE,
        len=(end - start) * PAGE, arg=g.rng.choice(hows),
    )  # fmt: skip


def _cleaned(g: Draw, proc: Process, vma: Vma, start: int, end: int) -> list[Op]:
    """What the GPU writes to pages that were written back before, and that are then dropped."""
    rng = g.rng
    if rng.random() < 0.5:
        g.first([g.touch(proc, vma, start, end, Acc.READ)])
    for _ in range(rng.choice((1, 2, 2))):
        g.first([_writes(g, proc, vma, start, end)])
        if rng.random() < 0.3:
            g.first([g.ranged("msync", proc, start, end)])
        else:
            g.first([_write_back(g, proc, vma, start, end, How.FSYNC, How.RANGE, How.START)])
    if rng.random() < 0.8:
        g.first([_writes(g, proc, vma, start, end)])
    # Nobody drops what somebody maps.
    if rng.random() < 0.7:
        for p in g.space.alive():
            view = same_memory(p, vma, list(range(start, end)))
            if view is not None and view[1] and view[0].kind in SHARED:
                g.first([g.ranged("zap", p, view[1][0], view[1][-1] + 1)])
    else:
        advice = g.word("madvise", "advice", "pageout")
        g.first([g.ranged("madvise", proc, start, end, a=advice)])
    seen = look(g, proc, vma, start, end)
    g.after = rng.choice((seen, seen[::-1]))
    return [_write_back(g, proc, vma, start, end, How.DROP, How.DROP_ALL, How.DROP_ALL)]


def _beside(g: Draw, proc: Process, file: int, first: int, kind: MapKind) -> Vma | None:
    """A new mapping of the file, from that page of it on."""
    rng = g.rng
    region, slot = rng.randrange(REGIONS), rng.randrange(4) * HUGE
    pages = min(8, g.space.files[file].capacity - first)
    new = g.op(
        "mmap", proc, region=region, off=slot, len=pages * PAGE, a=PROT_RW, arg=kind, b=file,
        c=first * PAGE,
    )  # fmt: skip
    return proc.find(region << REGION_SHIFT | slot // PAGE) if g.first([new]) else None


def _another(g: Draw, proc: Process, file: int, first: int) -> Process | None:
    """A process that has the file's pages mapped, too: one that is there, a child, or a new one."""
    rng = g.rng
    others = [p for p in g.space.alive() if p is not proc]
    if others and rng.random() < 0.8:
        return rng.choice(others)
    number = g.next_proc()
    if not number or not g.first([g.op(rng.choice(("fork", "spawn")), proc, arg=number)]):
        return rng.choice(others) if others else None
    new = g.space.procs[number]
    if not new.vmas:
        _beside(g, new, file, first, MapKind.FILE_SHARED)
    return new


def _change(g: Draw, proc: Process, vma: Vma, start: int, end: int) -> tuple[list[Op], list[Op]]:
    """What happens to the file in a race, in this order, and what has to follow."""
    rng, file = g.rng, number_of(g, vma)
    assert vma.obj is not None
    at, length = (start + vma.delta) * PAGE, (end - start) * PAGE
    whole = g.op("truncate", proc, b=file, c=vma.obj.capacity * PAGE)
    out: list[Op] = []
    for what in rng.choice((
        ("sync",), ("sync", "sync"), ("sync", "drop"), ("pageout",), ("sync", "pageout", "drop"),
        ("sync", "punch"), ("punch", "sync"), ("sync", "short"), ("short", "whole", "sync"),
        ("sync", "short", "sync", "whole"),
    )):  # fmt: skip
        if what == "sync":
            out.append(_write_back(g, proc, vma, start, end, How.FSYNC, How.RANGE, How.START))
        elif what == "drop":
            out.append(_write_back(g, proc, vma, start, end, How.DROP, How.DROP_ALL))
        elif what == "pageout":
            advice = g.word("madvise", "advice", "pageout")
            out.append(g.ranged("madvise", proc, start, end, a=advice))
        elif what == "punch":
            out.append(g.op("punch", proc, b=file, c=at, len=length))
        else:
            out.append(replace(whole) if what == "whole" else replace(whole, c=at))
    return out, [whole] if any(o.op == whole.op for o in out) else []


def _crowd(g: Draw, proc: Process, vma: Vma, start: int, end: int) -> list[Op]:
    """Two processes share a file's pages, one of them has copies of some: while they are written
    back, dropped, cut off or punched."""
    rng, file = g.rng, number_of(g, vma)
    first = start + vma.delta
    other = _another(g, proc, file, first)
    owner = rng.choice([proc, *([other] if other is not None else [])])
    copies = _beside(g, owner, file, max(0, first - 2), MapKind.FILE_PRIVATE)
    gps = list(range(copies.start, copies.end)) if copies is not None else []
    if copies is not None:
        some = rng.sample(gps, rng.choice((1, 2)))
        g.first([g.accesses("gpu_access", owner, [
            g.access(copies, gp, lane, rng.choice(WORDS), Acc.WRITE)
            for lane, gp in enumerate(some)
        ])])  # fmt: skip
        if rng.random() < 0.4:
            g.first([g.ranged("migrate", owner, some[0], some[0] + 1, arg=MIGRATE_DEVICE)])
    change, follows = _change(g, proc, vma, start, end)
    out = race(g, proc, vma, start, end, change)
    if copies is not None:
        out.insert(0, g.accesses(rng.choice(("gpu_access", "cpu_access")), owner, [
            g.access(copies, rng.choice(gps), 0, rng.choice(WORDS),
                     rng.choice((Acc.READ, Acc.READ, Acc.WRITE)))
            for _ in range(rng.choice((2, 4)))
        ], 3))  # fmt: skip
        g.after = [*follows, g.touch(owner, copies, gps[0], gps[-1] + 1, Acc.READ)]
    else:
        g.after = follows
    view = None if other is None else same_memory(other, vma, list(range(start, end)))
    if other is not None and view is not None and view[1]:
        g.after.append(g.accesses("gpu_access", other, [
            g.access(view[0], gp, lane, rng.choice(WORDS), Acc.READ)
            for lane, gp in enumerate(view[1])
        ]))  # fmt: skip
    g.after += look(g, proc, vma, start, end)
    return out
