# SPDX-License-Identifier: GPL-2.0-or-later
"""Who else has a process's pages in hand: calls that go through its memory page by page, and pins.

A call of `pin_io` gets the pages (get_user_pages() and what is built on it), copies, and lets go:
it brings home what is in VRAM, and a migration that comes in between has to wait or give up.
`pin` keeps pages for long (FOLL_LONGTERM, for writing): until `unpin` they are the same pages,
in system memory, whatever migrates.  `unpin` looks at the pages themselves, not through the page
table: what process and GPU wrote has to be in them.

Not by a direct read from the disk (zram, as swap is) into what was to be paged out: 7.3.4 was
seen to lose words there, without a driver's doing.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum

from hmmbench.guest.program import (
    MIGRATE_DEVICE,
    MIGRATE_SYSTEM,
    PAGE,
    PROT_RW,
    REGION_SIZE,
    Acc,
    MapKind,
    Op,
    OpResult,
)
from hmmbench.model.belief import SYSTEM, UNKNOWN, Belief, touched
from hmmbench.model.drawing import WORDS, Draw, usable, writable
from hmmbench.model.ops.base import (
    OK,
    RANGE,
    STACK_REGION,
    Field,
    Operation,
    aligned,
    pages,
    settled,
    shorter,
)
from hmmbench.model.space import (
    GUARDED,
    HUGETLB,
    POISONED,
    SERVED,
    SHARED,
    Process,
    Space,
    Vma,
    gp_of,
)

#: Bytes of one call, and pages of one pin, at most.
MOST = 4 * PAGE
MOST_PAGES = 4
MOST_PEEKED = 512

#: Memory that is pinned: what a pin for writing does not copy.
_PINNABLE = (MapKind.ANON_PRIVATE, MapKind.ANON_SHARED)
#: Areas whose pages nobody gets, or that their process brings first.
_NOT_PINNED = frozenset({GUARDED, POISONED, *SERVED})

_NOT_ALL = frozenset({0, -errno.EFAULT, -errno.EIO})


class How(IntEnum):
    """By which call: HOW_* of ops/pins.c.

    VM_*       -- process_vm_readv, process_vm_writev
    PEEK, POKE -- ptrace, a word at a time, as a debugger: also where the protection forbids it
    PIPE       -- vmsplice, and the pipe is read
    DIRECT_*   -- O_DIRECT: from the memory to a disk, which is read; from a disk
    FIXED_*    -- the same by a buffer that io_uring has registered meanwhile: a pin for writing
    """

    VM_READ = 0
    VM_WRITE = 1
    PEEK = 2
    POKE = 3
    PIPE = 4
    DIRECT_OUT = 5
    DIRECT_IN = 6
    FIXED_OUT = 7
    FIXED_IN = 8


#: A pin by that, and what such pages have in `Process.pinned`: nobody looks at them by it.
PIPE, PIPE_SINCE, STAYS = 2, 5, -1

WRITES = (How.VM_WRITE, How.POKE, How.DIRECT_IN, How.FIXED_IN)
_FORCES = (How.PEEK, How.POKE)
_FIXED = (How.FIXED_OUT, How.FIXED_IN)
_DIRECT = (How.DIRECT_OUT, How.DIRECT_IN, *_FIXED)
#: What also reaches the memory of another process.
_OF_OTHERS = (How.VM_READ, How.VM_WRITE)
_WORDS: dict[int, str] = {how: how.name.lower().replace("_", "-") for how in How}


def _prefix(p: Process, o: Op) -> int:
    """Bytes up to the first page that the call cannot get."""
    end = o.off + o.len
    for gp in range(gp_of(o.region, o.off), gp_of(o.region, end - 1) + 1):
        if not _gets(p, o, gp):
            return max(0, (gp - gp_of(o.region, 0)) * PAGE - o.off)
    return o.len


def _gets(p: Process, o: Op, gp: int) -> bool:
    v = p.find(gp)
    if v is None or v.beyond(gp):
        return False
    need = 2 if o.arg in WRITES else 1
    if v.prot & need:
        return True
    # Of private memory a debugger gets a copy of its own, and reads what is there.
    return o.arg in _FORCES and (need == 1 or v.kind not in SHARED)


def _pinnable(v: Vma | None) -> bool:
    return (
        v is not None and v.kind in _PINNABLE and v.prot == PROT_RW
        and not v.flags & _NOT_PINNED
    )  # fmt: skip


def _owner(space: Space, o: Op) -> Process:
    """Whose memory it is."""
    return space.procs[o.b - 1 if o.b else o.proc]


class PinIo(Operation):
    """Memory is read or written by a call that gets hold of its pages; `a`: what is written.

    `b`: of that process and one, or 0: the memory is the caller's own.
    """

    number, name = 50, "pin_io"
    weight = 6
    since = 4
    rows = tuple(f"by {word}" for word in _WORDS.values())
    group = "CPU"
    fields = (
        *RANGE, Field("how", "arg", _WORDS), Field("pattern", "a", hex=True), Field("of", "b"),
    )  # fmt: skip
    races = True
    steady = True
    oracle = "values"

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.arg not in list(How) or not 0 < o.len <= MOST or o.off % 8 or o.len % 8:
            return False
        if o.region > STACK_REGION + 1 or o.off + o.len > REGION_SIZE:
            return False
        if o.b:
            # Of another process, which lives, and by a call that is for that.
            owner = space.procs.get(o.b - 1)
            if owner is None or not owner.alive or owner is p or o.arg not in _OF_OTHERS:
                return False
            p = owner
        whole = list(range(gp_of(o.region, o.off), gp_of(o.region, o.off + o.len - 1) + 1))
        if any(gp in p.unsettled for gp in whole):
            return False
        flags = frozenset[str]().union(*(v.flags for gp in whole if (v := p.find(gp))))
        if flags & {GUARDED, POISONED} or (o.arg in _FORCES and flags & SERVED):
            # (Who forces keeps the lock that others need who serve the fault.)
            return False
        if o.arg in (How.DIRECT_IN, How.FIXED_IN) and p.was_paged(whole[0], whole[-1] + 1):
            return False
        if o.arg in _FORCES and (o.len > MOST_PEEKED or any(
            (v := p.find(gp)) and v.kind in HUGETLB and v.prot != PROT_RW for gp in whole
        )):  # fmt: skip
            # (6.12 does not force its way to hugetlb memory, 7.3 does.)
            return False
        there = all(_gets(p, o, gp) for gp in whole)
        if o.region >= STACK_REGION and not there:
            # (It is there even if the program does not say so.)
            return False
        if o.arg in _FIXED and not all(_pinnable(p.find(gp)) for gp in whole):
            return False
        return o.arg not in _DIRECT or (there and o.off % PAGE == 0 and o.len % PAGE == 0)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        if racing and o.arg not in WRITES:
            return _NOT_ALL
        if _prefix(_owner(space, o), o):
            return OK
        return frozenset({-errno.EIO if o.arg in _FORCES else -errno.EFAULT})

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        return not o.b

    def writes(self, o: Op) -> bool:
        return o.arg in WRITES

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        p = _owner(space, o)
        done = _prefix(p, o)
        if r.aux0 != done:
            return f"({_WORDS[How(o.arg)]}) did {r.aux0} bytes, expected {done}"
        if o.arg in WRITES:
            return ""
        if len(r.data) != done:
            return f"({_WORDS[How(o.arg)]}) answered {len(r.data)} bytes, expected {done}"
        for k, value in enumerate(struct.unpack(f"<{done // 8}Q", r.data)):
            off = o.off + 8 * k
            gp = gp_of(o.region, off)
            vma = p.find(gp)
            assert vma is not None
            page, word = p.page(gp, vma), off // 8 % 512
            if not page.access(word, Acc.READ, 0, 0, value):
                return (
                    f"({_WORDS[How(o.arg)]}) found {value:#x} at r{o.region}+{off:#x}, "
                    f"expected {page.possible(word)}"
                )
        return ""

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg not in WRITES:
            return
        p = _owner(space, o)
        for off in range(o.off, o.off + _prefix(p, o), 8):
            gp = gp_of(o.region, off)
            vma = p.find(gp)
            assert vma is not None
            page = p.page(gp, vma)
            if not page.plain:
                page.own()
            page.put(off // 8 % 512, o.a)

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE if o.arg in _DIRECT else 8)

    def row(self, o: Op) -> str | None:
        return self.rows[o.arg] if o.arg in list(How) else None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        owner = _owner(b.space, o)
        theirs = b.all_pages.setdefault(owner.number, {})
        start, end = touched(o)
        row = self.row(o)
        assert row is not None
        if not r.aux1:
            # (By another way, where the guest has no disk or no io_uring.)
            b.count(b.in_range(row, owner, theirs, start, end))
        if r.status == 0 and not racing:
            theirs.update({gp: SYSTEM for gp in range(start, end) if gp in theirs})

    def sentence(self, o: Op, at: str) -> str:
        how = _WORDS[How(o.arg)] + (f" in process {o.b - 1}" if o.b else "")
        return f"writes {o.a:#x} to {at} by {how}" if o.arg in WRITES else f"reads {at} by {how}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        private = writable(proc)
        vma = rng.choice(private if private and rng.random() < 0.7 else usable(proc))
        start, end = g.few(vma)
        o = g.ranged("pin_io", proc, start, end, arg=rng.choice(list(How)))
        if o.arg in WRITES:
            g.value += 1
            o.a = g.value << 32
        if o.arg in _FORCES:
            o.off, o.len = o.off + rng.choice((0, 8, 4088)), rng.choice((8, 64, 512))
        elif o.arg not in _DIRECT and rng.random() < 0.4:
            o.off, o.len = o.off + rng.choice((0, 8, 4088)), rng.choice((8, 64, 4096))
        if rng.random() < 0.7:
            g.first([g.accesses("gpu_access", proc, [
                g.access(vma, gp, lane, rng.choice(WORDS), rng.choice((Acc.READ, Acc.WRITE)))
                for lane, gp in enumerate(range(start, end))
            ])])  # fmt: skip
        g.after = [
            g.accesses("gpu_access", proc, [
                g.access(vma, gp, lane, word, Acc.READ)
                for lane, (gp, word) in enumerate((gp, word) for gp in range(start, end)
                                                  for word in (0, 1, 511))
            ]),
            g.touch(proc, vma, start, end, Acc.READ),
        ]  # fmt: skip
        if rng.random() < 0.6:
            g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
        others = [p for p in g.space.alive() if p is not proc]
        if o.arg in _OF_OTHERS and others and rng.random() < 0.6:
            return [replace(o, proc=rng.choice(others).number, b=proc.number + 1)]
        if rng.random() < 0.5:
            return [o]
        # Back and forth, while others get hold of the pages, or use them if nobody writes.
        out = []
        for to in rng.choice(((MIGRATE_DEVICE,), (MIGRATE_SYSTEM, MIGRATE_DEVICE))):
            if rng.random() < 0.5:
                out.append(g.op("sleep", proc, a=rng.choice((50, 200, 1000))))
            out.append(g.ranged("migrate", proc, start, end, arg=to))
        if rng.random() < 0.3:
            out.append(g.op("evict", proc, a=0))
        for _ in range(rng.choice((1, 2, 4))):
            g.value += 1
            out.append(replace(o, actor=1, a=g.value << 32))
        if o.arg not in WRITES:
            out.append(g.accesses("gpu_access", proc, [
                g.access(vma, gp, lane, rng.choice(WORDS), Acc.ADD)
                for lane, gp in enumerate([*range(start, end)] * 4)
            ], 2))  # fmt: skip
        return out


class Pin(Operation):
    """Pages are pinned for long, and for writing; one pin in all processes.  A pipe has references
    to them alone: they stay where they are, in VRAM too if that is memory of the CPU."""

    number, name = 51, "pin"
    weight = 3
    since = 4
    changed = (PIPE_SINCE,)
    rows = ("pin",)
    group = "CPU"
    fields = (*RANGE, Field("by", "arg", {0: "test", 1: "ring", PIPE: "pipe"}))

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return (
            space.pinner is None
            and o.arg <= PIPE
            and aligned(o)
            and o.len <= MOST_PAGES * PAGE
            and settled(p, o)
            and all(map(_pinnable, p.overlapping(*pages(o))))
        )

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        # Not every kernel has what pins.
        return OK | {-errno.EOPNOTSUPP}

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        if r.status == 0:
            space.procs[o.proc].pinned = {
                gp: STAYS if o.arg == PIPE else k for k, gp in enumerate(range(*pages(o)))
            }
        return ""

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.pinner = p.number

    def simpler(self, o: Op) -> Iterator[Op]:
        if o.arg:
            yield replace(o, arg=0)
        yield from shorter(o, PAGE)

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        if r.status == 0:
            b.put(range(*touched(o)), UNKNOWN if o.arg == PIPE else SYSTEM)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return None if kind in _PINNABLE else "only memory that a pin does not copy"

    def sentence(self, o: Op, at: str) -> str:
        return f"pins {at}" + ("", " as a buffer of io_uring", " in a pipe")[o.arg]

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        if g.space.pinner is not None:
            return [g.op("unpin", proc)] if g.space.pinner == proc.number else []
        private = writable(proc)
        if not private:
            return []
        vma = rng.choice(private)
        start, end = g.few(vma)
        who = g.accesses("gpu_access", proc, [
            g.access(vma, gp, lane, rng.choice(WORDS), Acc.WRITE)
            for lane, gp in enumerate(range(start, end))
        ])  # fmt: skip
        if rng.random() < 0.6:
            g.first([who])
        if rng.random() < 0.6:
            g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
        # With what lies beside it, which moves.
        lo, hi = max(vma.start, start - 2), min(vma.end, end + 2)
        g.after = [
            g.ranged("query", proc, start, end),
            g.ranged("migrate", proc, lo, hi, arg=MIGRATE_DEVICE),
            g.ranged("query", proc, lo, hi),
            g.accesses("gpu_access", proc, [
                g.access(vma, gp, lane, rng.choice(WORDS), rng.choice((Acc.ADD, Acc.WRITE)))
                for lane, gp in enumerate(range(lo, hi))
            ]),
        ]  # fmt: skip
        by = rng.randrange(3) if g.grammar >= PIPE_SINCE else None
        if rng.random() < (0.8 if by == PIPE else 0.3):
            g.after.append(g.op("evict", proc, a=0))
        if rng.random() < 0.6:
            g.after.append(g.op("unpin", proc))
        g.after.append(g.touch(proc, vma, lo, hi, Acc.READ))
        if by is None:
            by = rng.randrange(2)
        return [g.ranged("pin", proc, start, end, arg=by)]


class Unpin(Operation):
    """The pages that are pinned are looked at, and let go."""

    number, name = 52, "unpin"
    weight = 1
    since = 4
    oracle = "values"

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return space.pinner == p.number

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return frozenset({0}) if space.procs[o.proc].pinned else None

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        p = space.procs[o.proc]
        for gp, index in sorted(p.pinned.items()):
            if index == STAYS:
                continue
            vma, data = p.find(gp), r.data[index * PAGE : (index + 1) * PAGE]
            if len(data) != PAGE:
                return f"answered {len(r.data)} bytes, which page {index} of the pin is not in"
            if vma is None or gp in p.unsettled:
                continue
            page = p.page(gp, vma)
            for word, value in enumerate(struct.unpack("<512Q", data)):
                if not page.access(word, Acc.READ, 0, 0, value):
                    return (
                        f"found {value:#x} in the page that was pinned at "
                        f"r{gp >> 14}+{(gp & 16383) * PAGE + word * 8:#x}, "
                        f"expected {page.possible(word)}"
                    )
        return ""

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.pinner = None
        p.pinned = {}

    def sentence(self, o: Op, at: str) -> str:
        return "lets go what it has pinned"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.op("unpin", proc)] if g.space.pinner == proc.number else []


OPERATIONS = (PinIo(), Pin(), Unpin())
