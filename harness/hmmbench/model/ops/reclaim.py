# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that others take from a process: by advice (process_madvise), or because its group has too
much (memcg, cgroup v2).  Nothing in it changes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import IntEnum

from hmmbench.guest.program import MAX_REGIONS, MIGRATE_DEVICE, PAGE, Acc, Op, OpResult
from hmmbench.model.belief import SYSTEM, UNKNOWN, VRAM, Belief, touched
from hmmbench.model.drawing import REGIONS, WORDS, Draw, usable
from hmmbench.model.ops.advice import LOCKED, Advice
from hmmbench.model.ops.base import (
    PERHAPS,
    RANGE,
    Field,
    Operation,
    flags_of,
    pages,
    ranged,
    shorter,
)
from hmmbench.model.scenes import racer
from hmmbench.model.space import (
    GUARDED,
    HUGETLB,
    POISONED,
    REGION_SHIFT,
    SERVED,
    Process,
    Space,
)

#: MADV_COLLAPSE of Linux.
COLLAPSE = 25

_ADVICE: dict[int, str] = {
    a: a.name.lower() for a in (Advice.WILLNEED, Advice.COLD, Advice.PAGEOUT)
} | {COLLAPSE: "collapse"}


def _may_have_left(b: Belief, owner: Process, start: int, end: int) -> None:
    theirs = b.all_pages.get(owner.number, {})
    for v in owner.overlapping(start, end):
        lo, hi = max(v.start, start), min(v.end, end)
        there = [gp for gp, at in theirs.items() if at in (SYSTEM, VRAM) and lo <= gp < hi]
        if v.kind not in HUGETLB:
            theirs.update(dict.fromkeys(there, UNKNOWN))


class ProcessMadvise(Operation):
    """On another process's memory: what the kernel lets others say (6.12 and 7.3 alike)."""

    number, name = 87, "process_madvise"
    since = 4
    weight = 3
    rows = tuple(f"process_madvise {word}" for word in _ADVICE.values())
    group = "address space"
    fields = (*RANGE, Field("advice", "a", _ADVICE), Field("of", "b"))
    races = True
    areas = True
    optional = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        owner = space.procs.get(o.b)
        if o.a not in _ADVICE or not ranged(o) or o.region >= REGIONS:
            return False
        if owner is None or not owner.alive or owner is p or not owner.covered(*pages(o)):
            return False
        if flags_of(owner, o) & {LOCKED, POISONED, GUARDED, *SERVED}:
            return False
        return all(v.kind not in HUGETLB for v in owner.overlapping(*pages(o)))

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        # A kernel without swap has nothing to read in.
        return None if racing or o.a == COLLAPSE else PERHAPS | {-errno.EBADF}

    def judge(self, o: Op, r: OpResult, racing: bool) -> str:
        if r.status == 0 and o.a != COLLAPSE and not racing and r.aux0 != o.len:
            return f"did {r.aux0} bytes"
        return ""

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.a == Advice.PAGEOUT:
            space.procs[o.b].paged.append(pages(o))

    def row(self, o: Op) -> str | None:
        return f"process_madvise {_ADVICE[o.a]}" if o.a in _ADVICE else None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        owner, row = b.space.procs.get(o.b), self.row(o)
        if owner is not None and row is not None:
            theirs = b.all_pages.setdefault(o.b, {})
            b.count(b.in_range(row, owner, theirs, *touched(o)))
            _may_have_left(b, owner, *touched(o))

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return "not for hugetlb" if kind in HUGETLB else None

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        what = _ADVICE.get(o.a, str(o.a)).upper()
        return f"advises the kernel about {at} of process {o.b}: MADV_{what} (process_madvise)"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """While the other's GPU uses it."""
        rng = g.rng
        others = [p for p in g.space.alive() if p is not proc and usable(p)]
        n = g.next_proc()
        if not others and n and g.first([g.op("fork", proc, arg=n)]):
            others = [g.space.procs[n]]
        if not others:
            return []
        other = rng.choice(others)
        vma = g.pick(other)
        start, end = g.few(vma)
        gps, words = list(range(start, end)), [rng.choice(WORDS) for _ in range(2)]
        if vma.prot & 2:
            g.first([g.touch(other, vma, start, end, Acc.WRITE)])
        if rng.random() < 0.4:
            g.first([g.ranged("migrate", other, start, end, arg=MIGRATE_DEVICE)])
        o = g.ranged("process_madvise", proc, start, end, a=rng.choice((
            Advice.PAGEOUT, Advice.PAGEOUT, Advice.COLD, Advice.WILLNEED, COLLAPSE,
        )), b=other.number)  # fmt: skip
        g.after = [racer(g, other, 0, vma, gps, words, True),
                   g.touch(other, vma, start, end, Acc.READ)]  # fmt: skip
        if rng.random() < 0.5:
            return [o]
        pause = g.op("sleep", proc, a=rng.choice((50, 200, 700)))
        return [pause, o, racer(g, other, 0, vma, gps, words, True)]


class Group(IntEnum):
    """HOW_* of ops/reclaim.c: `a` KiB are taken from the group, or left to it."""

    JOIN = 0
    RECLAIM = 1
    HIGH = 2


class Memcg(Operation):
    """There is one group, of the processes that joined it.

    It leaves what no census can tell from a leak: 6.12 gives swap's entries back 64 at a time, and
    until then each holds the group that it was charged to; 7.3 keeps beside each slab of which a
    group has anything (names of files, say) a table of who pays, as long as there is the slab.
    """

    number, name = 88, "memcg"
    since = 4
    weight = 2
    fields = (
        Field("how", "arg", {how: how.name.lower() for how in Group}), Field("kib", "a"),
    )  # fmt: skip
    races = True
    wanted = False
    optional = True
    once = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return o.arg in list(Group) and o.a <= 1 << 20

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return PERHAPS

    def takes_ms(self, o: Op) -> int:
        # Whoever has too much for a moment is made to wait, by 2 s at most, and that goes on when
        # the moment is over (MEMCG_MAX_HIGH_DELAY_JIFFIES); so may who asked, and then the others
        # once more.  The moment itself is as long as what takes nothing is tried again: 17 times,
        # each of which may wait a tenth of a second for what is written back, five times where
        # there are few such pages (MAX_RECLAIM_RETRIES, VMSCAN_THROTTLE_WRITEBACK).
        return {Group.JOIN: 0, Group.RECLAIM: 9000, Group.HIGH: 13000}[Group(o.arg)]

    def apply(self, space: Space, p: Process, o: Op) -> None:
        for one in space.alive() if o.arg != Group.JOIN else ():
            one.paged.append((0, MAX_REGIONS << REGION_SHIFT))

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        if o.arg == Group.JOIN:
            return
        for one in b.space.alive():
            _may_have_left(b, one, 0, MAX_REGIONS << REGION_SHIFT)

    def sentence(self, o: Op, at: str) -> str:
        return {
            Group.JOIN: "joins a group of processes whose memory is counted (memcg)",
            Group.RECLAIM: f"has {o.a} KiB taken from its group (memory.reclaim)",
            Group.HIGH: f"leaves its group {o.a} KiB for a moment (memory.high)",
        }[Group(o.arg)]

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """It joins and has pages that are counted; they go beside a job, or after it."""
        rng = g.rng
        g.first([g.op("memcg", proc, arg=Group.JOIN)])
        own = [v for v in usable(proc) if v.prot & 2 and v.kind not in HUGETLB]
        if own:
            vma = rng.choice(own)
            g.first([g.touch(proc, vma, vma.start, min(vma.end, vma.start + 16), Acc.WRITE)])
        how = rng.choice((Group.RECLAIM, Group.RECLAIM, Group.HIGH))
        o = g.op("memcg", proc, arg=how, a=rng.choice((16, 64, 256, 1024)))
        job = g.draw("gpu_access", proc)
        if rng.random() < 0.5:
            g.after = job
            return [o]
        for one in job:
            one.actor = 1
        return [g.op("sleep", proc, a=rng.choice((50, 300))), o, *job]


OPERATIONS = (ProcessMadvise(), Memcg())
