# SPDX-License-Identifier: GPL-2.0-or-later
"""Userfaultfd: a thread of the process serves the faults of its memory, those of the GPU too.

Missing pages come filled with a pattern, as often as they are missing.  Minor faults change
nothing.  What is protected against writes is as it was, and the thread is told of the first write:
of pages that the answer of `protect` names, and where the model knows for sure that a word
changed (`Page.surely_changed`), `look` has to know of it.

How a driver gets such a page: hmm_range_fault() keeps the mmap lock, so it faults without
FAULT_FLAG_ALLOW_RETRY, for which handle_userfault() answers SIGBUS (-EFAULT; 6.12 and 7.3, which
has hmm_range_fault_unlocked_timeout() beside it).  That is no refusal: an access that the
process may make succeeds, as it does for a CPU.

Not judged: what may be a piece of a large folio.  Its empty pages become the page of zeroes when it
is split (7.3), which keeps the protection, and from there a migration puts a page in its place
that does not (migrate_vma_insert_page() of both kernels: it knows of missing pages alone).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from hmmbench.guest.program import MIGRATE_DEVICE, PAGE, PROT_RW, Acc, MapKind, Op, OpResult
from hmmbench.model.belief import Belief, touched
from hmmbench.model.drawing import REGIONS, WORDS, Draw
from hmmbench.model.ops.base import (
    PERHAPS,
    RANGE,
    Field,
    Operation,
    flags_of,
    pages,
    ranged,
    settled,
    shorter,
)
from hmmbench.model.scenes import racer
from hmmbench.model.space import (
    MERGEABLE,
    MINOR,
    MISSING,
    PROTECTED,
    SERVED,
    Process,
    Space,
    Vma,
    place,
)

#: Pages of one operation (MAX_LOOK of ops/uffd.c).
MOST = 512

_SHARED = (MapKind.ANON_SHARED,)


class How(IntEnum):
    """HOW_* of ops/uffd.c.

    MISSING, MINOR, WRITES -- from now on such faults of the range are served
    PROTECT, LOOK          -- the pages are protected against writes; which were written?
    LEAVE                  -- the kernel serves them again; `a`: what is there stays
    """

    MISSING = 0
    MINOR = 1
    WRITES = 2
    PROTECT = 3
    LOOK = 4
    LEAVE = 5


_FLAG = {How.MISSING: MISSING, How.MINOR: MINOR, How.WRITES: PROTECTED}


def _private(v: Vma) -> bool:
    return v.kind == MapKind.ANON_PRIVATE and v.prot == PROT_RW


class Uffd(Operation):
    number, name = 80, "uffd"
    since = 4
    weight = 7
    rows = (
        "uffd missing", "uffd minor", "uffd write", "uffd protect", "uffd look", "uffd leave",
    )  # fmt: skip
    group = "address space"
    fields = (
        *RANGE, Field("how", "arg", {how: how.name.lower() for how in How}),
        Field("pattern", "a", hex=True),
    )  # fmt: skip
    races = True
    areas = True
    optional = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.arg not in list(How) or not ranged(o) or o.region >= REGIONS or o.len > MOST * PAGE:
            return False
        there, flags = p.overlapping(*pages(o)), flags_of(p, o)
        if not p.covered(*pages(o)):
            return False
        if o.arg == How.MINOR:
            return not flags and all(v.kind in _SHARED and v.prot for v in there)
        if o.arg in _FLAG:
            return not flags and all(map(_private, there)) and settled(p, o)
        if o.arg == How.LEAVE:
            each = [v.flags & SERVED for v in there]
            o.a = int(MISSING not in flags)
            return bool(each[0]) and all(one == each[0] for one in each)
        return all(PROTECTED in v.flags for v in there)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return None if racing else PERHAPS

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        return o.arg == How.PROTECT

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        p = space.procs[o.proc]
        start, end = pages(o)
        if o.arg not in (How.PROTECT, How.LOOK):
            return ""
        if len(r.data) != end - start:
            return f"answered {len(r.data)} bytes for {end - start} pages"
        if o.arg == How.PROTECT:
            space.answered = o, frozenset(gp for gp in range(start, end) if r.data[gp - start])
            return ""
        for gp in [gp for gp in p.watched if start <= gp < end]:
            vma = p.find(gp)
            if r.data[gp - start] or vma is None or vma.large or space.folios:
                del p.watched[gp]
            elif p.page(gp, vma).surely_changed(p.watched[gp]):
                return f"does not know of a write: {place(gp)} was protected and is another now"
        return ""

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg == How.LOOK:
            return
        start, end = pages(o)
        p.forget_clean(start, end)
        if o.arg == How.PROTECT:
            known = space.told(o) or frozenset()
            p.watched = {gp: page for gp, page in p.watched.items() if not start <= gp < end}
            for gp in known:
                vma = p.find(gp)
                if vma is not None and not vma.large and MERGEABLE not in vma.flags:
                    p.watched[gp] = p.page(gp, vma).copy()
            return
        if o.arg == How.MISSING or (o.arg == How.LEAVE and not o.a):
            p.drop_pages(start, end)
        p.unwatch(start, end)
        for v in p.split(start, end):
            v.flags -= SERVED
            v.fill = 0
            if o.arg != How.LEAVE:
                v.flags |= {_FLAG[How(o.arg)]}
                v.fill = o.a if o.arg == How.MISSING else 0

    def row(self, o: Op) -> str | None:
        return self.rows[o.arg] if o.arg in list(How) else None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        if o.arg == How.MISSING or (o.arg == How.LEAVE and not o.a):
            b.forget(*touched(o))

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        minor, private = kind in _SHARED, kind == MapKind.ANON_PRIVATE
        if row == self.rows[How.MINOR] and not minor:
            return "only shared memory has minor faults"
        if row in self.rows[How.WRITES : How.LEAVE] + self.rows[:1] and not private:
            return "of private memory alone"
        return None if minor or private else "only memory whose faults may be served"

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        return {
            How.MISSING: f"serves missing pages of {at}, filled with {o.a:#x} (userfaultfd)",
            How.MINOR: f"serves minor faults of {at} (userfaultfd)",
            How.WRITES: f"may be told of writes to {at} (userfaultfd)",
            How.PROTECT: f"protects {at} against writes, and is told of them (userfaultfd)",
            How.LOOK: f"asks which pages of {at} were written",
            How.LEAVE: f"leaves the faults of {at} to the kernel again",
        }[How(o.arg)]

    # -- drawing --

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        served = [v for v in proc.vmas if v.flags & SERVED]
        if served and rng.random() < 0.25:
            vma = rng.choice(served)
            if PROTECTED in vma.flags and rng.random() < 0.6:
                return _written(g, proc, vma)
            how = How.LOOK if PROTECTED in vma.flags and rng.random() < 0.5 else How.LEAVE
            return [g.ranged("uffd", proc, vma.start, vma.end, arg=how)]
        free = [v for v in proc.vmas if not v.flags and v.prot == PROT_RW]
        shared = [v for v in free if v.kind in _SHARED]
        private = [v for v in free if _private(v)]
        if shared and (not private or rng.random() < 0.25):
            return _entered(g, proc, rng.choice(shared), How.MINOR)
        if not private:
            return []
        vma = rng.choice(private)
        if rng.random() < 0.5:
            return _entered(g, proc, vma, How.MISSING)
        start, end = g.few(vma)
        if not g.first([g.ranged("uffd", proc, start, end, arg=How.WRITES)]):
            return []
        found = proc.find(start)
        assert found is not None
        return _written(g, proc, found)


def _entered(g: Draw, proc: Process, vma: Vma, how: How) -> list[Op]:
    """GPU and CPU meet where pages are missing, or not mapped; once more when they are there, in
    VRAM, or missing again."""
    rng = g.rng
    start, end = g.few(vma)
    g.value += 1
    if how == How.MINOR:
        g.first([g.touch(proc, vma, start, end, Acc.WRITE)])
    if not g.first([
        g.ranged("uffd", proc, start, end, arg=how, a=g.value << 32 if how == How.MISSING else 0)
    ]):  # fmt: skip
        return []
    gps, words = list(range(start, end)), [rng.choice(WORDS) for _ in range(2)]
    again = "zap" if how == How.MINOR else "madvise"
    more = {} if how == How.MINOR else {"a": g.word("madvise", "advice", "dontneed")}

    def use(who: str, kind: int) -> Op:
        return g.accesses(who, proc, [
            g.access(vma, gp, lane if who == "gpu_access" else 0, word, kind)
            for lane, (gp, word) in enumerate((gp, word) for gp in gps for word in words)
        ])  # fmt: skip

    g.after = [use("gpu_access", rng.choice((Acc.READ, Acc.ADD)))]
    if how == How.MISSING and rng.random() < 0.5:
        g.after += [g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE),
                    use("gpu_access", Acc.ADD)]  # fmt: skip
    g.after += [
        g.ranged(again, proc, start, end, **more), use("gpu_access", Acc.ADD),
        use("cpu_access", Acc.READ),
    ]  # fmt: skip
    if rng.random() < 0.4:
        g.after += [g.ranged("uffd", proc, start, end, arg=How.LEAVE), use("gpu_access", Acc.READ)]
    out = [racer(g, proc, actor, vma, gps, words, actor != 2) for actor in (1, 2, 3)]
    out = out[: rng.choice((1, 2, 3))]
    if rng.random() < 0.4:
        # They go while somebody waits for them, or has just got them.
        out += [g.op("sleep", proc, a=rng.choice((50, 200, 1000))),
                g.ranged(again, proc, start, end, **more)]  # fmt: skip
    return out


def _written(g: Draw, proc: Process, vma: Vma) -> list[Op]:
    """Pages are protected wherever they are, and written by the GPU."""
    rng = g.rng
    start, end = vma.start, min(vma.end, vma.start + 4)
    gps, words = list(range(start, end)), [rng.choice(WORDS) for _ in range(2)]
    g.first([g.touch(proc, vma, start, end, Acc.WRITE)])
    r = rng.random()
    if r < 0.6:
        g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
    if r < 0.3 or r > 0.8:
        g.first([racer(g, proc, 0, vma, gps, words, True)])
    protect = g.ranged("uffd", proc, start, end, arg=How.PROTECT)

    def look() -> Op:
        return g.ranged("uffd", proc, start, end, arg=How.LOOK)

    read = g.touch(proc, vma, start, end, Acc.READ)
    if rng.random() < 0.3:
        # While they are being written.
        g.after = [protect, racer(g, proc, 0, vma, gps, words, True), look(), read]
        pause = g.op("sleep", proc, a=rng.choice((50, 300, 1000)))
        beside = g.ranged("uffd", proc, start, end, arg=How.PROTECT)
        return [pause, beside, racer(g, proc, 1, vma, gps, words, True)]
    g.first([protect])
    if rng.random() < 0.4:
        to = rng.choice((MIGRATE_DEVICE, 0))
        g.first([g.ranged("migrate", proc, start, end, arg=to)])
    if rng.random() < 0.3:
        g.first([g.accesses("gpu_access", proc, [g.access(vma, gps[0], 0, words[0], Acc.READ)])])
    g.after = [look(), read]
    if rng.random() < 0.3:
        g.after += [racer(g, proc, 0, vma, gps, words, True), look()]
    return [g.accesses("gpu_access", proc, [
        g.access(vma, gp, lane, word, rng.choice((Acc.WRITE, Acc.WRITE, Acc.ADD)))
        for lane, (gp, word) in enumerate((gp, word) for gp in gps for word in words)
    ])]  # fmt: skip


OPERATIONS = (Uffd(),)
