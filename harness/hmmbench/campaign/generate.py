# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs out of bytes.

Hypothesis draws one block of bytes an example: four a step, a kind and a 24-bit seed that
fixes everything else about the step.  (One draw an operation or more would cost more time than
the VM needs to run it; `measure` in tests/model says how much.)  A step proposes operations
from what memory looks like at that point, `admit` has the last word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hmmbench.guest.program import (
    F_CTX1,
    F_NOWAIT,
    HUGE,
    MAX_PROCS,
    MIGRATE_DEVICE,
    MIGRATE_MAP,
    MIGRATE_SYSTEM,
    PAGE,
    POLICY_EXCLUSIVE,
    POLICY_MAP,
    POLICY_MIGRATE,
    PROT_NONE,
    PROT_READ,
    PROT_RW,
    Acc,
    Access,
    Advice,
    MapKind,
    Op,
    Program,
)
from hmmbench.model.admit import Admission, end_nowait
from hmmbench.model.ops.base import GLOBAL_REGION, STACK_REGION
from hmmbench.model.ops.jobs import (
    CloseGpu,
    CpuAccess,
    GpuAccess,
    GpuCopy,
    GpuFill,
    GpuSpin,
    WaitGpu,
)
from hmmbench.model.ops.mapping import Madvise, Mmap, Mprotect, Mremap, Munmap
from hmmbench.model.ops.moving import Evict, Migrate, Policy, Query
from hmmbench.model.ops.processes import Exit, Fork, Kill, Sleep, Spawn
from hmmbench.model.space import (
    FILE,
    HUGE_PAGES,
    HUGETLB,
    REGION_PAGES,
    REGION_SHIFT,
    SHARED,
    Process,
    Space,
    Vma,
)

#: Steps of an example: a step makes one operation, a race several.
MIN_STEPS, MAX_STEPS = 40, 100
BYTES_A_STEP = 4

REGIONS = 8
FILE_PAGES = (24, 600, 0, 0)

#: Pages of a VMA that one QUERY looks at: the hot ones are its first.
SEEN = 64
#: More pages than a driver would collect for one invalidation, and little enough to fill at once.
WIDE = (520, 700)

#: Instructions a thread of a program that spins: more than it can do while a program may last.
ENDLESS = 1 << 40
#: Turns of a loop that make a job last.
DELAYS = (30_000, 150_000)

_KINDS = (Acc.READ, Acc.WRITE, Acc.ADD, Acc.XCHG, Acc.CAS, Acc.READ32, Acc.WRITE32)
_WORDS = (0, 1, 2, 63, 64, 255, 510, 511)


@dataclass(frozen=True)
class Target:
    """A page to work on: the process, the VMA it lies in (None: a hole)."""

    proc: Process
    gp: int
    vma: Vma | None


def size_of(steps: int) -> int:
    """Bytes that `program` reads for so many steps."""
    return steps * BYTES_A_STEP


def program(data: bytes, seed: int = 0) -> Program:
    """The program that the bytes stand for.  The same bytes give the same program."""
    g = Generator()
    for k in range(0, len(data) - BYTES_A_STEP + 1, BYTES_A_STEP):
        g.step(data[k], int.from_bytes(data[k + 1 : k + 4], "little") | (k + 1) << 24)
    return Program(g.finish(), FILE_PAGES, seed=seed)


class Generator:
    """Grows one program, step by step."""

    def __init__(self) -> None:
        self.space = Space(FILE_PAGES)
        self.admission = Admission(self.space)
        self.ops: list[Op] = []
        self.phase = 0
        self.value = 0
        self.rng = Random(0)
        # what was last written where, a guess that makes some compares succeed
        self.guess: dict[tuple[int, int], int] = {}
        # operations to follow what is being made, each in a phase of its own
        self.after: list[Op] = []

    def step(self, kind: int, seed: int) -> None:
        self.rng = Random(seed)
        alive = self.space.alive()
        if not alive:
            return
        proc = alive[0] if len(alive) == 1 else self.rng.choice(alive)
        maker = _TABLE[kind]
        if not proc.vmas or (len(self.ops) < 3 and maker is not _mmap):
            maker = _mmap
        made = maker(self, proc)
        if not made:
            return
        for o in made:
            o.phase = self.phase
        kept = self.admission.phase(made)
        if not kept and maker is not _cpu and proc.vmas:
            extra = _cpu(self, proc)
            for o in extra:
                o.phase = self.phase
            kept = self.admission.phase(extra)
        if kept:
            self.ops += kept
            self.phase += 1
        after, self.after = self.after, []
        for o in after:
            if self.space.procs[o.proc].alive:
                o.phase = self.phase
                kept = self.admission.phase([o])
                self.ops += kept
                self.phase += bool(kept)

    def first(self, ops: list[Op]) -> bool:
        """Puts operations of one phase before what is being made; whether any was admitted."""
        for o in ops:
            o.phase = self.phase
        kept = self.admission.phase(ops) if ops else []
        self.ops += kept
        self.phase += bool(kept)
        return bool(kept)

    def finish(self) -> list[Op]:
        for proc in self.space.alive():
            # Atomics that the GPU kept although a CPU had its page back: only a look shows them.
            if proc.exclusive:
                self.first([
                    self.ranged(Query.number, proc, v.start, min(v.end, v.start + SEEN))
                    for v in proc.vmas if v.kind == MapKind.ANON_PRIVATE
                ])  # fmt: skip
        return end_nowait(self.ops)

    # -- choosing --

    def pick(self, proc: Process) -> Vma:
        """A VMA, the small and the new more often."""
        rng = self.rng
        return proc.vmas[min(rng.randrange(len(proc.vmas)), rng.randrange(len(proc.vmas)))]

    def page_of(self, vma: Vma) -> int:
        """A page of the VMA: mostly one of a few, so that operations meet."""
        rng = self.rng
        n = vma.end - vma.start
        r = rng.random()
        if n <= 4 or r < 0.75:
            return vma.start + rng.randrange(min(n, 4))
        if r < 0.9:
            return vma.end - 1 - rng.randrange(min(n, 3))
        return vma.start + rng.randrange(n)

    def span(self, vma: Vma) -> tuple[int, int]:
        """A part of the VMA, at its hot pages more often: [start, end) in pages."""
        rng = self.rng
        n = vma.end - vma.start
        r = rng.random()
        if r < 0.25:
            a, b = 0, n
        elif r < 0.8:
            a = rng.randrange(min(n, 4))
            b = min(n, a + rng.choice((1, 1, 2, 4, 8)))
        else:
            a = rng.randrange(n)
            b = a + 1 + rng.randrange(n - a)
        if vma.kind in HUGETLB:
            lo = (vma.start + a) // 512 * 512
            return lo, min(vma.end, -(-(vma.start + b) // 512) * 512)
        return vma.start + a, vma.start + b

    def ranged(self, kind: int, proc: Process, start: int, end: int, **more: int) -> Op:
        o = Op(
            kind, proc.number, region=start >> REGION_SHIFT,
            off=(start & (REGION_PAGES - 1)) * PAGE, len=(end - start) * PAGE,
        )  # fmt: skip
        for name, value in more.items():
            setattr(o, name, value)
        return o

    def access(self, vma: Vma | None, gp: int, lane: int, word: int, kind: int) -> Access:
        rng = self.rng
        if vma is not None and not vma.prot & 2 and kind not in (Acc.READ, Acc.READ32):
            # Refused accesses end a whole GPU job: rare, and on purpose (`stray`).
            kind = Acc.READ
        self.value += 1
        value, expect = self.value << 32, 0
        off = (gp & (REGION_PAGES - 1)) * PAGE + word * 8
        if kind == Acc.ADD:
            value = self.value
        elif kind == Acc.WRITE32:
            value = self.value
            off += rng.choice((0, 4))
        elif kind == Acc.READ32:
            off += rng.choice((0, 4))
        elif kind == Acc.CAS:
            expect = self.guess.get((gp, word), 0)
        if kind in (Acc.WRITE, Acc.XCHG):
            self.guess[(gp, word)] = value
        if kind in (Acc.READ, Acc.READ32):
            value = 0
        return (int(kind), gp >> REGION_SHIFT, lane, off, value, expect)

    def stray(self, proc: Process) -> Access:
        """An access that is refused, if such a place is near."""
        rng = self.rng
        vma = self.pick(proc)
        if rng.random() < 0.5:
            gp = vma.end if rng.random() < 0.5 else max(vma.start - 1, 0)
            if gp >> REGION_SHIFT != vma.start >> REGION_SHIFT:
                gp = vma.start
            found = proc.find(gp)
        else:
            weak = [v for v in proc.vmas if v.prot != PROT_RW]
            found = rng.choice(weak) if weak else vma
            gp = self.page_of(found)
        self.value += 1
        kind = rng.choice((Acc.READ, Acc.WRITE, Acc.WRITE, Acc.ADD))
        off = (gp & (REGION_PAGES - 1)) * PAGE + rng.choice(_WORDS) * 8
        value = 0 if kind == Acc.READ else self.value << 32
        return (int(kind), gp >> REGION_SHIFT, 0, off, value, 0)


Maker = Callable[[Generator, Process], list[Op]]


def _usable(proc: Process) -> list[Vma]:
    return [v for v in proc.vmas if v.prot] or proc.vmas


def _mmap(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    r = rng.random()
    region = rng.randrange(REGIONS)
    slot = rng.randrange(4) * HUGE
    pages = rng.choice((1, 2, 4, 8, 16))
    prot = PROT_RW if rng.random() < 0.9 else rng.choice((PROT_READ, PROT_NONE))
    o = Op(Mmap.number, proc.number, region=region, off=slot, len=pages * PAGE, a=prot)
    if r < 0.42:
        o.arg = MapKind.ANON_PRIVATE
        if rng.random() < 0.35:
            # room for 2 MiB pages
            o.len = rng.choice((HUGE, 2 * HUGE))
    elif r < 0.54:
        o.arg = MapKind.ANON_SHARED
    elif r < 0.84:
        o.arg = MapKind.FILE_PRIVATE if r < 0.7 else MapKind.FILE_SHARED
        o.b = rng.choice((0, 0, 0, 1))
        limit = FILE_PAGES[o.b]
        first = rng.choice((0, 0, 1, limit - pages))
        o.c = first * PAGE
    elif r < 0.9:
        o.arg = rng.choice((MapKind.HUGETLB_PRIVATE, MapKind.HUGETLB_SHARED))
        o.len = HUGE
        o.a = PROT_RW
    elif r < 0.95:
        o.arg, o.region = MapKind.STACK, STACK_REGION
    else:
        o.arg, o.region = MapKind.GLOBAL, GLOBAL_REGION
    return [o]


def _munmap(g: Generator, proc: Process) -> list[Op]:
    if g.rng.random() < 0.1:
        return _wide(g, proc)
    vma = g.pick(proc)
    start, end = g.span(vma)
    return [g.ranged(Munmap.number, proc, start, end)]


def _wide(g: Generator, proc: Process) -> list[Op]:
    """Many small pages that the GPU has mapped are taken away at once."""
    rng = g.rng
    region, pages = rng.randrange(REGIONS), rng.choice(WIDE)
    new = Op(Mmap.number, proc.number, region=region, len=2 * HUGE, a=PROT_RW)
    if not g.first([new]):
        return []
    start = region << REGION_SHIFT
    g.first([g.ranged(Madvise.number, proc, start, start + 1024, a=Advice.NOHUGEPAGE)])
    g.value += 1
    g.first([g.ranged(GpuFill.number, proc, start, start + pages, a=g.value << 32)])
    r = rng.random()
    if r < 0.4:
        return [g.ranged(Munmap.number, proc, start, start + 1024)]
    if r < 0.7:
        return [g.ranged(Madvise.number, proc, start, start + 1024, a=Advice.DONTNEED)]
    return [g.ranged(Mprotect.number, proc, start, start + 1024, a=PROT_READ)]


def _regain(g: Generator, proc: Process) -> list[Op]:
    """A copy is refused at both ends; what it was not to write the next job is given, or reads."""
    rng = g.rng
    # A driver serves what has the lower address first: there the hole is, at a region's end.
    private = [v for v in _writable(proc) if v.start >> REGION_SHIFT]
    if not private:
        return []
    vma = rng.choice(private)
    start, end = _few(g, vma)
    if rng.random() < 0.5:
        g.first([g.ranged(Migrate.number, proc, start, end, arg=MIGRATE_DEVICE)])
    g.first([g.ranged(Mprotect.number, proc, start, end, a=PROT_READ)])
    hole = (start >> REGION_SHIFT << REGION_SHIFT) - 1
    g.first([g.ranged(
        GpuCopy.number, proc, hole, hole + 1, arg=start >> REGION_SHIFT,
        a=(start & (REGION_PAGES - 1)) * PAGE,
    )])  # fmt: skip
    kind = rng.choice((Acc.WRITE, Acc.ADD, Acc.READ))
    if kind != Acc.READ:
        g.first([g.ranged(Mprotect.number, proc, start, end, a=PROT_RW)])
    return [Op(GpuAccess.number, proc.number, acc=[
        g.access(vma, start, lane, word, kind) for lane, word in enumerate(_WORDS)
    ])]  # fmt: skip


def _mprotect(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    if rng.random() < 0.08:
        return _regain(g, proc)
    vma = g.pick(proc)
    weak = [v for v in proc.vmas if v.prot != PROT_RW]
    if weak and rng.random() < 0.5:
        vma = rng.choice(weak)
        prot = PROT_RW
        start, end = vma.start, vma.end
    else:
        prot = rng.choice((PROT_READ, PROT_READ, PROT_READ, PROT_NONE, PROT_RW))
        start, end = g.span(vma)
    return [g.ranged(Mprotect.number, proc, start, end, a=prot)]


def _mremap(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    vma = g.pick(proc)
    start, end = g.span(vma)
    region = rng.randrange(REGIONS)
    length = (end - start) * PAGE
    # Beside or across 2 MiB borders, as page tables move whole or piecewise.
    to = rng.randrange(4) * HUGE + rng.choice((0, 0, 16, 255)) * PAGE
    new = length
    r = rng.random()
    dontunmap = 0
    if r < 0.15 and length > PAGE:
        new = length - PAGE
    elif r < 0.3 and vma.kind == MapKind.ANON_PRIVATE:
        new = length + 2 * PAGE
    elif r < 0.45 and vma.kind == MapKind.ANON_PRIVATE:
        dontunmap = 1
    return [g.ranged(Mremap.number, proc, start, end, arg=region, a=to, b=new, c=dontunmap)]


def _madvise(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    advice = rng.choice(
        (Advice.DONTNEED, Advice.DONTNEED, Advice.FREE, Advice.HUGEPAGE, Advice.HUGEPAGE,
         Advice.NOHUGEPAGE, Advice.COLD, Advice.PAGEOUT, Advice.PAGEOUT)
    )  # fmt: skip
    vma = g.pick(proc)
    start, end = g.span(vma)
    if advice == Advice.FREE:
        end = min(end, start + 64)
    if advice == Advice.HUGEPAGE:
        big = [v for v in proc.vmas if v.end - v.start >= 512 and v.kind == MapKind.ANON_PRIVATE]
        if big:
            vma = rng.choice(big)
            start, end = vma.start, vma.end
    return [g.ranged(Madvise.number, proc, start, end, a=advice)]


def _cpu(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    o = Op(CpuAccess.number, proc.number, rng.randrange(2))
    usable = _usable(proc)
    for _ in range(rng.choice((1, 2, 4, 8, 12))):
        vma = usable[min(rng.randrange(len(usable)), rng.randrange(len(usable)))]
        kind = _KINDS[rng.choice((0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6))]
        o.acc.append(g.access(vma, g.page_of(vma), 0, rng.choice(_WORDS), kind))
    if rng.random() < 0.15:
        o.acc.append(g.stray(proc))
    return [o]


def _gpu(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    o = Op(GpuAccess.number, proc.number, 0, flags=F_CTX1 if rng.random() < 0.3 else 0)
    usable = _usable(proc)
    vmas = [usable[min(rng.randrange(len(usable)), rng.randrange(len(usable)))] for _ in range(2)]
    pages = [(v, g.page_of(v)) for v in vmas for _ in range(rng.choice((1, 1, 2, 3)))]
    lanes = rng.choice((1, 2, 8, 16, 32, 33, 64))
    each = rng.choice((1, 1, 2, 3)) if lanes > 8 else rng.choice((1, 2, 4, 8))
    o.arg = rng.choice((0, 0, 32, 64, 16))
    contend = rng.random() < 0.35
    kinds = [_KINDS[rng.choice((0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6))] for _ in range(each)]
    first = rng.randrange(8) * 64
    n = len(pages)
    for lane in range(lanes):
        for k in range(each):
            if contend:
                vma, gp = pages[rng.randrange(n)]
                word = _WORDS[rng.randrange(3)]
                kind = Acc.ADD if lanes > 8 and kinds[k] != Acc.READ else kinds[k]
            else:
                vma, gp = pages[(lane + k) % n]
                word = (first + lane * each + k) & 511
                kind = kinds[k]
            o.acc.append(g.access(vma, gp, lane, word, kind))
    if rng.random() < 0.08:
        kind_, region, _, off, value, expect = g.stray(proc)
        o.acc.append((kind_, region, rng.randrange(lanes), off, value, expect))
    return [o]


def _copy(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    src, dst = g.pick(proc), g.pick(proc)
    n = min(rng.choice((1, 1, 1, 2, 2, 4, 4, 512)), src.end - src.start, dst.end - dst.start)
    length = n * PAGE
    s, d = g.page_of(src), g.page_of(dst)
    s, d = min(s, src.end - n), min(d, dst.end - n)
    so, do = (s & (REGION_PAGES - 1)) * PAGE, (d & (REGION_PAGES - 1)) * PAGE
    if rng.random() < 0.4:
        length = rng.choice((8, 64, 256, 2048))
        so += rng.choice((0, 8, 512))
        do += rng.choice((0, 8, 512, 2040))
    if rng.random() < 0.4:
        g.value += 1
        return [
            Op(GpuFill.number, proc.number, region=d >> REGION_SHIFT, off=do, len=length,
               a=g.value << 32)
        ]  # fmt: skip
    return [
        Op(GpuCopy.number, proc.number, region=s >> REGION_SHIFT, off=so, len=length,
           arg=d >> REGION_SHIFT, a=do)
    ]  # fmt: skip


def _migrate(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    private = [v for v in proc.vmas if v.kind not in SHARED]
    vma = g.pick(proc) if not private or rng.random() < 0.2 else rng.choice(private)
    start, end = g.span(vma)
    if rng.random() < 0.15:
        end = min(end + 4, (start | (REGION_PAGES - 1)) + 1)
    to = MIGRATE_DEVICE if rng.random() < 0.7 else MIGRATE_SYSTEM
    flag = MIGRATE_MAP if to == MIGRATE_DEVICE and rng.random() < 0.4 else 0
    return [g.ranged(Migrate.number, proc, start, end, arg=to, a=flag)]


#: Migration at faults finds the most; exclusive access changes what atomics do, in either.
POLICIES = (
    POLICY_MAP, POLICY_MIGRATE, POLICY_MIGRATE, POLICY_MAP | POLICY_EXCLUSIVE,
    POLICY_MIGRATE | POLICY_EXCLUSIVE,
)  # fmt: skip


def _policy(g: Generator, proc: Process) -> list[Op]:
    rng = g.rng
    policy = rng.choice(POLICIES)
    private = _writable(proc)
    if policy & POLICY_MIGRATE and private and rng.random() < 0.4:
        # Where VRAM is short, the two ends of a copy may drive one another out.
        src, dst = (g.page_of(rng.choice(private)) for _ in range(2))
        g.after = [g.ranged(
            GpuCopy.number, proc, src, src + 1, arg=dst >> REGION_SHIFT,
            a=(dst & (REGION_PAGES - 1)) * PAGE,
        )]  # fmt: skip
    return [Op(Policy.number, proc.number, arg=policy)]


def _evict(g: Generator, proc: Process) -> list[Op]:
    return [Op(Evict.number, proc.number, a=g.rng.choice((0, 1, 4, 64)))]


def _query(g: Generator, proc: Process) -> list[Op]:
    vma = g.pick(proc)
    start, end = g.span(vma)
    end = min(end, start + SEEN)
    if g.rng.random() < 0.3:
        end = min(end + 4, (start | (REGION_PAGES - 1)) + 1)
    return [g.ranged(Query.number, proc, start, end)]


def _next_proc(g: Generator) -> int:
    return next((n for n in range(1, MAX_PROCS) if n not in g.space.procs), 0)


def _fork(g: Generator, proc: Process) -> list[Op]:
    n = _next_proc(g)
    return [Op(Fork.number, proc.number, arg=n)] if n else []


def _spawn(g: Generator, proc: Process) -> list[Op]:
    n = _next_proc(g)
    return [Op(Spawn.number, proc.number, arg=n)] if n else []


def _end(g: Generator, proc: Process) -> list[Op]:
    """A process ends, by itself or killed, often with the GPU at work for it."""
    rng = g.rng
    alive = g.space.alive()
    if len(alive) < 2:
        return []
    other = rng.choice([p for p in alive if p is not proc])
    if rng.random() < 0.5:
        victim, last = other, Op(Kill.number, proc.number, arg=other.number)
    else:
        victim, last = proc, Op(Exit.number, proc.number)
    r = rng.random()
    if r < 0.6:
        _job(g, victim, access=r < 0.35)
    return [last]


def _job(g: Generator, proc: Process, access: bool) -> None:
    """A job that is not waited for; what comes next ends it, or waits."""
    if not access:
        g.first([Op(GpuSpin.number, proc.number, flags=F_NOWAIT, a=1_000_000)])
    elif proc.vmas:
        job = _gpu(g, proc)
        job[0].flags |= F_NOWAIT
        g.first(job)


def _wait(g: Generator, proc: Process) -> list[Op]:
    """A job that is not waited for at once."""
    if g.rng.random() < 0.3:
        return _behind(g, proc)
    _job(g, proc, access=True)
    return [Op(WaitGpu.number, proc.number)]


def _behind(g: Generator, proc: Process) -> list[Op]:
    """A job is waited for while one that does not end is behind it in the same context."""
    rng = g.rng
    (job,) = _gpu(g, proc)
    # Long enough for the one who waits to be asleep when it ends.
    job.acc.insert(0, (int(Acc.DELAY), 0, job.acc[0][2], 0, rng.choice(DELAYS), 0))
    job.flags |= F_NOWAIT
    g.first([job])
    g.first([Op(GpuSpin.number, proc.number, flags=job.flags, a=ENDLESS)])
    others = [p for p in g.space.alive() if p is not proc]
    r = rng.random()
    if not others or r < 0.6:
        g.after = _closing(proc)
    elif r < 0.8:
        g.after = [Op(Exit.number, proc.number)]
    else:
        g.after = [Op(Kill.number, rng.choice(others).number, arg=proc.number)]
    return [Op(WaitGpu.number, proc.number, a=1)]


def _close(g: Generator, proc: Process) -> list[Op]:
    """The GPU is closed: idle, at work, or while another process opens it."""
    r = g.rng.random()
    if r < 0.35:
        return _close_amid(g, proc) or _closing(proc)
    if r < 0.7:
        return _handover(g, proc) or _closing(proc)
    if r < 0.9:
        _job(g, proc, access=r < 0.83)
    return _closing(proc)


def _closing(proc: Process) -> list[Op]:
    return [Op(CloseGpu.number, proc.number)]


def _writable(proc: Process) -> list[Vma]:
    """Private anonymous memory, which moves and may be given back."""
    return [v for v in proc.vmas if v.kind == MapKind.ANON_PRIVATE and v.prot == PROT_RW]


def _few(g: Generator, vma: Vma) -> tuple[int, int]:
    """One to four pages of the VMA: [start, end)."""
    start = g.page_of(vma)
    return start, min(vma.end, start + g.rng.choice((1, 2, 4)))


def _touch(g: Generator, proc: Process, vma: Vma, start: int, end: int, kind: int) -> Op:
    """The CPU reads or writes a word of each page, the same words each time."""
    acc = [g.access(vma, gp, 0, gp & 511, kind) for gp in range(start, end)]
    return Op(CpuAccess.number, proc.number, acc=acc)


def _close_amid(g: Generator, proc: Process) -> list[Op]:
    """The GPU is closed while another thread changes the memory that it mirrors."""
    rng = g.rng
    private = _writable(proc)
    if not private:
        return []
    vma = rng.choice(private)
    start, end = _few(g, vma)
    # Open, and with something to take away.
    g.first([g.ranged(Migrate.number, proc, start, end, arg=MIGRATE_DEVICE, a=MIGRATE_MAP)])
    out = _closing(proc)
    if rng.random() < 0.7:
        out.insert(0, Op(Sleep.number, proc.number, a=rng.choice((100, 300, 1000))))
    for _ in range(rng.choice((3, 5, 8))):
        r = rng.random()
        if r < 0.5:
            prot = rng.choice((PROT_READ, PROT_RW))
            o = g.ranged(Mprotect.number, proc, start, end, a=prot)
        elif r < 0.85:
            o = g.ranged(Madvise.number, proc, start, end, a=Advice.DONTNEED)
        else:
            o = _touch(g, proc, vma, start, end, Acc.READ)
        out += [o, Op(Sleep.number, proc.number, a=rng.choice((50, 100, 300)))]
        out[-1].actor = out[-2].actor = 1
    return out


def _handover(g: Generator, proc: Process) -> list[Op]:
    """One process closes while another opens: what the one gives back the other gets.

    Before, both are closed and the first opens alone, so that it has what a driver that takes
    the lowest free number gives to the second.
    """
    rng = g.rng
    others = [p for p in g.space.alive() if p is not proc]
    n = _next_proc(g)
    if not others and n and g.first([Op(Spawn.number, proc.number, arg=n)]):
        others = [g.space.procs[n]]
    if not others:
        return []
    other = rng.choice(others)
    if not other.vmas:
        g.first(_mmap(g, other))
    if not other.vmas:
        return []
    g.first(_closing(other))
    g.first(_closing(proc))
    g.first(_gpu(g, proc))
    g.after = _gpu(g, other)
    pause = Op(Sleep.number, other.number, a=rng.choice((100, 500, 1500, 3000)))
    return [*_closing(proc), pause, *_gpu(g, other)]


def _stampede(g: Generator, proc: Process) -> list[Op]:
    """Many threads touch a page in VRAM at once: each of them has a reference to it, and the one
    that moves it home can only do so while the others let go."""
    rng = g.rng
    vma = rng.choice(_writable(proc))
    start, end = _few(g, vma)
    g.first([_touch(g, proc, vma, start, end, Acc.WRITE)])
    g.first([g.ranged(Migrate.number, proc, start, end, arg=MIGRATE_DEVICE)])
    out = []
    for actor in range(rng.choice((3, 4, 4))):
        kind = rng.choice((Acc.READ, Acc.ADD, Acc.WRITE))
        out.append(_touch(g, proc, vma, start, end, kind))
        out[-1].actor = actor
    return out


def _tear(g: Generator, proc: Process, first: int) -> list[Op]:
    """2 MiB in VRAM, which a CPU has mapped page by page, are split because one is touched, while
    another thread gives them up."""
    rng = g.rng
    g.first([g.ranged(Migrate.number, proc, first, first + HUGE_PAGES, arg=MIGRATE_DEVICE)])
    gp = first + rng.choice((0, 1, 2, rng.randrange(HUGE_PAGES), HUGE_PAGES - 1))
    if rng.random() < 0.7:
        g.first([g.ranged(Madvise.number, proc, gp, gp + 1, a=Advice.NOHUGEPAGE)])
    else:
        for prot in (PROT_READ, PROT_RW):
            g.first([g.ranged(Mprotect.number, proc, gp, gp + 1, a=prot)])
    out = []
    for actor in (1, 2)[: rng.choice((1, 2))]:
        near = min(max(gp + rng.choice((0, 0, 1, -1)), first), first + HUGE_PAGES - 1)
        vma = proc.find(near)
        if vma is not None:
            out.append(_touch(g, proc, vma, near, near + 1, rng.choice((Acc.READ, Acc.WRITE))))
            out[-1].actor = actor
    for _ in range(rng.choice((1, 2))):
        if rng.random() < 0.5:
            out.append(Op(Sleep.number, proc.number, a=rng.choice((50, 200, 1000))))
        start = rng.choice((first, gp))
        out.append(g.ranged(Madvise.number, proc, start, first + HUGE_PAGES, a=Advice.DONTNEED))
    return out


def _huge(proc: Process) -> list[int]:
    """First pages of 2 MiB each that lie whole in private anonymous memory."""
    return [
        first for v in _writable(proc)
        for first in range(-(-v.start // HUGE_PAGES) * HUGE_PAGES, v.end, HUGE_PAGES)
        if first + HUGE_PAGES <= v.end
    ]  # fmt: skip


def _race(g: Generator, proc: Process) -> list[Op]:
    """Several actors on the same few words at once."""
    rng = g.rng
    r = rng.random()
    if r < 0.1 and _writable(proc):
        return _stampede(g, proc)
    huge = _huge(proc) if r > 0.9 else []
    if huge:
        return _tear(g, proc, rng.choice(huge))
    usable = [v for v in proc.vmas if v.prot == PROT_RW] or _usable(proc)
    vma = rng.choice(usable)
    pages = [g.page_of(vma) for _ in range(rng.choice((1, 1, 2, 3)))]
    words = [rng.choice(_WORDS) for _ in range(rng.choice((1, 2, 3)))]
    who: list[tuple[Process, int]] = [(proc, 0), (proc, 1), (proc, 2), (proc, 3)]
    views = {proc.number: (vma, pages)}
    for other in g.space.alive():
        if other is proc:
            continue
        view = _same_memory(other, vma, pages)
        if view is not None:
            views[other.number] = view
            who += [(other, 0), (other, 1)]
    rng.shuffle(who)
    if rng.random() < 0.2 and vma.kind not in SHARED:
        # Somebody gets what another gives back.
        g.first([g.ranged(Migrate.number, proc, min(pages), max(pages) + 1, arg=MIGRATE_DEVICE)])
    out: list[Op] = []
    mover = rng.random() < 0.7
    for n, (p, actor) in enumerate(who[: rng.choice((2, 2, 3, 4))]):
        v, gps = views[p.number]
        for _ in range(rng.choice((1, 1, 2))):
            if n == 0 and mover:
                # A launch takes its time to reach the pages: move them then, and again.
                for _ in range(rng.choice((1, 2, 3))):
                    if rng.random() < 0.7:
                        wait = rng.choice((100, 300, 700, 2000))
                        out.append(Op(Sleep.number, p.number, actor, a=wait))
                    o = _mover(g, p, v, gps)
                    o.actor = actor
                    out.append(o)
                if rng.random() < 0.7:
                    continue
            gpu = rng.random() < 0.6
            out.append(_racer(g, p, actor, v, gps, words, gpu))
    if rng.random() < 0.3:
        p, actor = who[-1]
        v, gps = views[p.number]
        for _ in range(rng.choice((1, 2, 4))):
            out.append(g.ranged(Query.number, p, min(gps), max(gps) + 1))
            out[-1].actor = actor
    # What the race left behind, as each side sees it.
    g.after = [
        Op(GpuAccess.number, proc.number, acc=[
            g.access(vma, gp, lane, word, Acc.READ)
            for lane, (gp, word) in enumerate((gp, word) for gp in set(pages) for word in words)
        ]),
        Op(CpuAccess.number, proc.number, acc=[
            g.access(vma, gp, 0, word, Acc.READ) for gp in set(pages) for word in words
        ]),
    ]  # fmt: skip
    return out


def _same_memory(other: Process, vma: Vma, pages: list[int]) -> tuple[Vma, list[int]] | None:
    """Another process's view of the memory: the shared object, or its copy after fork."""
    if vma.kind in SHARED or vma.kind in FILE:
        for v in other.vmas:
            if v.obj is not vma.obj:
                continue
            gps = [gp + vma.delta - v.delta for gp in pages]
            gps = [gp for gp in gps if v.start <= gp < v.end]
            if gps:
                return v, gps
        return None
    found = other.find(pages[0])
    if found is not None and found.kind == vma.kind:
        return found, [gp for gp in pages if found.start <= gp < found.end]
    return None


def _mover(g: Generator, p: Process, vma: Vma, gps: list[int]) -> Op:
    """An operation that moves or changes the pages while others use them."""
    rng = g.rng
    start, end = min(gps), max(gps) + 1
    if rng.random() < 0.3:
        start, end = vma.start, vma.end
    if vma.kind in HUGETLB:
        start, end = vma.start, vma.end
    r = rng.random()
    if r < 0.4:
        to = MIGRATE_DEVICE if rng.random() < 0.65 else MIGRATE_SYSTEM
        return g.ranged(Migrate.number, p, start, end, arg=to)
    if r < 0.5:
        return Op(Evict.number, p.number, a=0)
    if r < 0.65:
        return g.ranged(Madvise.number, p, start, end, a=Advice.DONTNEED)
    if r < 0.85:
        prot = rng.choice((PROT_READ, PROT_READ, PROT_RW, PROT_NONE))
        return g.ranged(Mprotect.number, p, start, end, a=prot)
    if r < 0.9:
        return g.ranged(Munmap.number, p, start, end)
    advice = rng.choice((Advice.PAGEOUT, Advice.COLD, Advice.NOHUGEPAGE))
    return g.ranged(Madvise.number, p, start, end, a=advice)


def _racer(
    g: Generator, p: Process, actor: int, vma: Vma, gps: list[int], words: list[int], gpu: bool
) -> Op:
    rng = g.rng
    kinds = (Acc.READ, Acc.READ, Acc.WRITE, Acc.WRITE, Acc.ADD, Acc.ADD, Acc.XCHG, Acc.CAS)
    if gpu:
        o = Op(GpuAccess.number, p.number, actor, flags=F_CTX1 if rng.random() < 0.3 else 0)
        lanes = rng.choice((1, 2, 4, 32))
        each = rng.choice((2, 3, 4)) if lanes < 32 else 1
        atomics = lanes == 32 or rng.random() < 0.3
        for lane in range(lanes):
            for _ in range(each):
                kind = Acc.ADD if atomics else rng.choice(kinds)
                o.acc.append(g.access(vma, rng.choice(gps), lane, rng.choice(words), kind))
        return o
    o = Op(CpuAccess.number, p.number, actor, arg=rng.choice((0, 0, 500, 5000)))
    for _ in range(rng.choice((2, 4, 6))):
        o.acc.append(g.access(vma, rng.choice(gps), 0, rng.choice(words), rng.choice(kinds)))
    return o


def _lazyfree(g: Generator, proc: Process) -> list[Op]:
    """Pages are given up, written again, moved (or not) and paged out: what was written stays."""
    private = _writable(proc)
    if not private:
        return _madvise(g, proc)
    vma = g.rng.choice(private)
    start, end = _few(g, vma)
    g.first([_touch(g, proc, vma, start, end, Acc.WRITE)])
    g.first([g.ranged(Madvise.number, proc, start, end, a=Advice.FREE)])
    again = _touch(g, proc, vma, start, end, Acc.WRITE)
    out: list[Op] = []
    home: list[Op] = []
    if g.rng.random() < 0.6:
        out.append(g.ranged(Migrate.number, proc, start, end, arg=MIGRATE_DEVICE))
        # In VRAM they cannot be paged out.
        home.append(g.ranged(Migrate.number, proc, start, end, arg=MIGRATE_SYSTEM))
    if g.rng.random() < 0.6:
        # Where they are, if the policy leaves them there.
        again.op = GpuAccess.number
        out.append(again)
    else:
        out.insert(0, again)
    g.after = [
        *home, g.ranged(Madvise.number, proc, start, end, a=Advice.PAGEOUT),
        _touch(g, proc, vma, start, end, Acc.READ),
    ]  # fmt: skip
    for o in out[:-1]:
        g.first([o])
    return out[-1:]


def _take(g: Generator, proc: Process) -> list[Op]:
    """The GPU gets pages exclusively, while another thread gives them up and writes new ones, or
    moves them to VRAM."""
    rng = g.rng
    vma = rng.choice(_writable(proc))
    start, end = _few(g, vma)
    move = rng.random() < 0.3
    g.first([Op(Policy.number, proc.number, arg=POLICY_MAP | POLICY_EXCLUSIVE)])
    out = [Op(GpuAccess.number, proc.number, acc=[
        g.access(vma, gp, lane, rng.choice(_WORDS), Acc.ADD)
        for lane, gp in enumerate([*range(start, end)] * rng.choice((1, 4, 8)))
    ])]  # fmt: skip
    for _ in range(rng.choice((1, 2, 4))):
        out.append(Op(Sleep.number, proc.number, 1, a=rng.choice((100, 300, 1000, 3000))))
        if move:
            out.append(g.ranged(Migrate.number, proc, start, end, arg=MIGRATE_DEVICE))
        else:
            out.append(g.ranged(Madvise.number, proc, start, end, a=Advice.DONTNEED))
            out.append(_touch(g, proc, vma, start, end, Acc.WRITE))
            out[-2].actor = 1
        out[-1].actor = 1
    g.after = [
        # An entry that is still exclusive keeps a page from coming home.
        *([Op(Evict.number, proc.number, a=0)] if move else []),
        g.ranged(Query.number, proc, start, end), _touch(g, proc, vma, start, end, Acc.READ),
    ]  # fmt: skip
    return out


def _revoke(g: Generator, proc: Process) -> list[Op]:
    """Threads want pages back that are exclusively the GPU's, while another gives them up."""
    rng = g.rng
    private = _writable(proc)
    if not private:
        return _race(g, proc)
    if rng.random() < 0.3:
        return _take(g, proc)
    vma = rng.choice(private)
    start, end = _few(g, vma)
    pages = range(start, end)
    words = [rng.choice(_WORDS) for _ in range(2)]
    g.first([Op(Policy.number, proc.number, arg=POLICY_MAP | POLICY_EXCLUSIVE)])
    lanes = [(gp, word) for gp in pages for word in words]
    g.first([Op(GpuAccess.number, proc.number, acc=[
        g.access(vma, gp, lane, word, Acc.ADD) for lane, (gp, word) in enumerate(lanes)
    ])])  # fmt: skip
    out: list[Op] = []
    for actor in (1, 2)[: rng.choice((1, 2, 2))]:
        out.append(Op(CpuAccess.number, proc.number, actor, arg=rng.choice((0, 0, 500))))
        for gp in pages:
            kind = rng.choice((Acc.READ, Acc.ADD, Acc.WRITE))
            out[-1].acc.append(g.access(vma, gp, 0, rng.choice(words), kind))
    wait = rng.choice((0, 50, 200, 1000))
    r = rng.random()
    g.after = [g.ranged(Query.number, proc, start, end)]
    if r < 0.25:
        return out
    if r < 0.75:
        last = g.ranged(Madvise.number, proc, start, end, a=Advice.DONTNEED)
    elif r < 0.88:
        last = g.ranged(Munmap.number, proc, start, end)
    else:
        last = g.ranged(Migrate.number, proc, start, end, arg=MIGRATE_DEVICE)
    return [*out, *([Op(Sleep.number, proc.number, a=wait)] if wait else []), last]


#: Weights out of 256, by the kind byte.  Kind 0 is the simplest.
_WEIGHTS: tuple[tuple[Maker, int], ...] = (
    (_cpu, 61),
    (_gpu, 40),
    (_migrate, 30),
    (_mmap, 18),
    (_madvise, 22),
    (_race, 18),
    (_mprotect, 14),
    (_query, 12),
    (_copy, 6),
    (_mremap, 7),
    (_munmap, 6),
    (_fork, 3),
    (_policy, 3),
    (_evict, 2),
    (_wait, 2),
    (_end, 1),
    (_close, 4),
    (_spawn, 1),
    (_lazyfree, 3),
    (_revoke, 3),
)
_TABLE: tuple[Maker, ...] = tuple(m for m, n in _WEIGHTS for _ in range(n))
assert len(_TABLE) == 256
