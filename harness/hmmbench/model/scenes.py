# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenes: several operations that are drawn together, because apart they would hardly meet."""

from __future__ import annotations

from hmmbench.guest.program import (
    F_CTX1,
    F_NOWAIT,
    HUGE,
    MIGRATE_DEVICE,
    MIGRATE_MAP,
    MIGRATE_SYSTEM,
    POLICY_EXCLUSIVE,
    POLICY_MAP,
    PROT_NONE,
    PROT_READ,
    PROT_RW,
    Acc,
    Op,
)
from hmmbench.model.drawing import (
    REGIONS,
    WORDS,
    Draw,
    huge,
    offset,
    same_memory,
    usable,
    writable,
)
from hmmbench.model.space import (
    HUGE_PAGES,
    HUGETLB,
    POISONED,
    REGION_SHIFT,
    SERVED,
    SHARED,
    Process,
    Vma,
)

#: More pages than a driver would collect for one invalidation, and little enough to fill at once.
WIDE = (520, 700)

#: Instructions a thread of a program that spins: more than it can do while a program may last.
ENDLESS = 1 << 40
#: Turns of a loop that make a job last.
DELAYS = (30_000, 150_000)


def _advise(g: Draw, proc: Process, start: int, end: int, advice: str) -> Op:
    return g.ranged("madvise", proc, start, end, a=g.word("madvise", "advice", advice))


def wide(g: Draw, proc: Process) -> list[Op]:
    """Many small pages that the GPU has mapped are taken away at once."""
    rng = g.rng
    region, pages = rng.randrange(REGIONS), rng.choice(WIDE)
    new = g.op("mmap", proc, region=region, len=2 * HUGE, a=PROT_RW)
    if not g.first([new]):
        return []
    start = region << REGION_SHIFT
    g.first([_advise(g, proc, start, start + 1024, "nohugepage")])
    g.value += 1
    g.first([g.ranged("gpu_fill", proc, start, start + pages, a=g.value << 32)])
    r = rng.random()
    if r < 0.4:
        return [g.ranged("munmap", proc, start, start + 1024)]
    if r < 0.7:
        return [_advise(g, proc, start, start + 1024, "dontneed")]
    return [g.ranged("mprotect", proc, start, start + 1024, a=PROT_READ)]


def regain(g: Draw, proc: Process) -> list[Op]:
    """A copy is refused at both ends; what it was not to write the next job is given, or reads."""
    rng = g.rng
    # A driver serves what has the lower address first: there the hole is, at a region's end.
    private = [v for v in writable(proc) if v.start >> REGION_SHIFT]
    if not private:
        return []
    vma = rng.choice(private)
    start, end = g.few(vma)
    if rng.random() < 0.5:
        g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
    g.first([g.ranged("mprotect", proc, start, end, a=PROT_READ)])
    hole = (start >> REGION_SHIFT << REGION_SHIFT) - 1
    g.first([g.ranged(
        "gpu_copy", proc, hole, hole + 1, arg=start >> REGION_SHIFT,
        a=offset(start),
    )])  # fmt: skip
    kind = rng.choice((Acc.WRITE, Acc.ADD, Acc.READ))
    if kind != Acc.READ:
        g.first([g.ranged("mprotect", proc, start, end, a=PROT_RW)])
    return [g.accesses("gpu_access", proc, [
        g.access(vma, start, lane, word, kind) for lane, word in enumerate(WORDS)
    ])]  # fmt: skip


def job(g: Draw, proc: Process, access: bool) -> None:
    """A job that is not waited for; what comes next ends it, or waits."""
    if not access:
        g.first([g.op("gpu_spin", proc, flags=F_NOWAIT, a=1_000_000)])
    elif proc.vmas:
        job = g.draw("gpu_access", proc)
        job[0].flags |= F_NOWAIT
        g.first(job)


def behind(g: Draw, proc: Process) -> list[Op]:
    """A job is waited for while one that does not end is behind it in the same context."""
    rng = g.rng
    (job,) = g.draw("gpu_access", proc)
    # Long enough for the one who waits to be asleep when it ends.
    job.acc.insert(0, (int(Acc.DELAY), 0, job.acc[0][2], 0, rng.choice(DELAYS), 0))
    job.flags |= F_NOWAIT
    g.first([job])
    g.first([g.op("gpu_spin", proc, flags=job.flags, a=ENDLESS)])
    others = [p for p in g.space.alive() if p is not proc]
    r = rng.random()
    if not others or r < 0.6:
        g.after = [g.op("close_gpu", proc)]
    elif r < 0.8:
        g.after = [g.op("exit", proc)]
    else:
        g.after = [g.op("kill", rng.choice(others), arg=proc.number)]
    return [g.op("wait_gpu", proc, a=1)]


def close_amid(g: Draw, proc: Process) -> list[Op]:
    """The GPU is closed while another thread changes the memory that it mirrors."""
    rng = g.rng
    private = writable(proc)
    if not private:
        return []
    vma = rng.choice(private)
    start, end = g.few(vma)
    # Open, and with something to take away.
    g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE, a=MIGRATE_MAP)])
    out = [g.op("close_gpu", proc)]
    if rng.random() < 0.7:
        out.insert(0, g.op("sleep", proc, a=rng.choice((100, 300, 1000))))
    for _ in range(rng.choice((3, 5, 8))):
        r = rng.random()
        if r < 0.5:
            prot = rng.choice((PROT_READ, PROT_RW))
            o = g.ranged("mprotect", proc, start, end, a=prot)
        elif r < 0.85:
            o = _advise(g, proc, start, end, "dontneed")
        else:
            o = g.touch(proc, vma, start, end, Acc.READ)
        out += [o, g.op("sleep", proc, a=rng.choice((50, 100, 300)))]
        out[-1].actor = out[-2].actor = 1
    return out


def handover(g: Draw, proc: Process) -> list[Op]:
    """One process closes while another opens: what the one gives back the other gets.

    Before, both are closed and the first opens alone, so that it has what a driver that takes
    the lowest free number gives to the second.
    """
    rng = g.rng
    others = [p for p in g.space.alive() if p is not proc]
    n = g.next_proc()
    if not others and n and g.first([g.op("spawn", proc, arg=n)]):
        others = [g.space.procs[n]]
    if not others:
        return []
    other = rng.choice(others)
    if not other.vmas:
        g.first(g.draw("mmap", other))
    if not other.vmas:
        return []
    g.first([g.op("close_gpu", other)])
    g.first([g.op("close_gpu", proc)])
    g.first(g.draw("gpu_access", proc))
    g.after = g.draw("gpu_access", other)
    pause = g.op("sleep", other, a=rng.choice((100, 500, 1500, 3000)))
    return [g.op("close_gpu", proc), pause, *g.draw("gpu_access", other)]


def _stampede(g: Draw, proc: Process) -> list[Op]:
    """Many threads touch a page in VRAM at once: each of them has a reference to it, and the one
    that moves it home can only do so while the others let go."""
    rng = g.rng
    vma = rng.choice(writable(proc))
    start, end = g.few(vma)
    g.first([g.touch(proc, vma, start, end, Acc.WRITE)])
    g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
    out = []
    for actor in range(rng.choice((3, 4, 4))):
        kind = rng.choice((Acc.READ, Acc.ADD, Acc.WRITE))
        out.append(g.touch(proc, vma, start, end, kind))
        out[-1].actor = actor
    return out


def _tear(g: Draw, proc: Process, first: int) -> list[Op]:
    """2 MiB in VRAM, which a CPU has mapped page by page, are split because one is touched, while
    another thread gives them up."""
    rng = g.rng
    g.first([g.ranged("migrate", proc, first, first + HUGE_PAGES, arg=MIGRATE_DEVICE)])
    gp = first + rng.choice((0, 1, 2, rng.randrange(HUGE_PAGES), HUGE_PAGES - 1))
    if rng.random() < 0.7:
        g.first([_advise(g, proc, gp, gp + 1, "nohugepage")])
    else:
        for prot in (PROT_READ, PROT_RW):
            g.first([g.ranged("mprotect", proc, gp, gp + 1, a=prot)])
    out = []
    for actor in (1, 2)[: rng.choice((1, 2))]:
        near = min(max(gp + rng.choice((0, 0, 1, -1)), first), first + HUGE_PAGES - 1)
        vma = proc.find(near)
        if vma is not None:
            out.append(g.touch(proc, vma, near, near + 1, rng.choice((Acc.READ, Acc.WRITE))))
            out[-1].actor = actor
    for _ in range(rng.choice((1, 2))):
        if rng.random() < 0.5:
            out.append(g.op("sleep", proc, a=rng.choice((50, 200, 1000))))
        start = rng.choice((first, gp))
        out.append(_advise(g, proc, start, first + HUGE_PAGES, "dontneed"))
    return out


def race(g: Draw, proc: Process) -> list[Op]:
    """Several actors on the same few words at once."""
    rng = g.rng
    r = rng.random()
    if r < 0.1 and writable(proc):
        return _stampede(g, proc)
    whole = huge(proc) if r > 0.9 else []
    if whole:
        return _tear(g, proc, rng.choice(whole))
    strong = [v for v in proc.vmas if v.prot == PROT_RW] or usable(proc)
    vma = rng.choice(strong)
    pages = [g.page_of(vma) for _ in range(rng.choice((1, 1, 2, 3)))]
    words = [rng.choice(WORDS) for _ in range(rng.choice((1, 2, 3)))]
    who: list[tuple[Process, int]] = [(proc, 0), (proc, 1), (proc, 2), (proc, 3)]
    views = {proc.number: (vma, pages)}
    for other in g.space.alive():
        if other is proc:
            continue
        view = same_memory(other, vma, pages)
        if view is not None:
            views[other.number] = view
            who += [(other, 0), (other, 1)]
    rng.shuffle(who)
    if rng.random() < 0.2 and vma.kind not in SHARED:
        # Somebody gets what another gives back.
        g.first([g.ranged("migrate", proc, min(pages), max(pages) + 1, arg=MIGRATE_DEVICE)])
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
                        out.append(g.op("sleep", p, actor, a=wait))
                    o = _mover(g, p, v, gps)
                    o.actor = actor
                    out.append(o)
                if rng.random() < 0.7:
                    continue
            gpu = rng.random() < 0.6
            out.append(racer(g, p, actor, v, gps, words, gpu))
    if rng.random() < 0.3:
        p, actor = who[-1]
        v, gps = views[p.number]
        for _ in range(rng.choice((1, 2, 4))):
            out.append(g.ranged("query", p, min(gps), max(gps) + 1))
            out[-1].actor = actor
    # What the race left behind, as each side sees it.
    g.after = [
        g.accesses("gpu_access", proc, [
            g.access(vma, gp, lane, word, Acc.READ)
            for lane, (gp, word) in enumerate((gp, word) for gp in set(pages) for word in words)
        ]),
        g.accesses("cpu_access", proc, [
            g.access(vma, gp, 0, word, Acc.READ) for gp in set(pages) for word in words
        ]),
    ]  # fmt: skip
    return out


def _mover(g: Draw, p: Process, vma: Vma, gps: list[int]) -> Op:
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
        return g.ranged("migrate", p, start, end, arg=to)
    if r < 0.5:
        return g.op("evict", p, a=0)
    if r < 0.65:
        return _advise(g, p, start, end, "dontneed")
    if r < 0.85:
        prot = rng.choice((PROT_READ, PROT_READ, PROT_RW, PROT_NONE))
        return g.ranged("mprotect", p, start, end, a=prot)
    if r < 0.9:
        return g.ranged("munmap", p, start, end)
    return _advise(g, p, start, end, rng.choice(("pageout", "cold", "nohugepage")))


def racer(
    g: Draw, p: Process, actor: int, vma: Vma, gps: list[int], words: list[int], gpu: bool
) -> Op:
    rng = g.rng
    kinds = (Acc.READ, Acc.READ, Acc.WRITE, Acc.WRITE, Acc.ADD, Acc.ADD, Acc.XCHG, Acc.CAS)
    if gpu:
        o = g.op("gpu_access", p, actor, flags=F_CTX1 if rng.random() < 0.3 else 0)
        lanes = rng.choice((1, 2, 4, 32))
        each = rng.choice((2, 3, 4)) if lanes < 32 else 1
        atomics = lanes == 32 or rng.random() < 0.3
        for lane in range(lanes):
            for _ in range(each):
                kind = Acc.ADD if atomics else rng.choice(kinds)
                o.acc.append(g.access(vma, rng.choice(gps), lane, rng.choice(words), kind))
        return o
    o = g.op("cpu_access", p, actor, arg=rng.choice((0, 0, 500, 5000)))
    for _ in range(rng.choice((2, 4, 6))):
        o.acc.append(g.access(vma, rng.choice(gps), 0, rng.choice(words), rng.choice(kinds)))
    return o


def lazyfree(g: Draw, proc: Process) -> list[Op]:
    """Pages are given up, written again, moved (or not) and paged out: what was written stays."""
    private = writable(proc)
    if not private:
        return g.draw("madvise", proc)
    vma = g.rng.choice(private)
    start, end = g.few(vma)
    g.first([g.touch(proc, vma, start, end, Acc.WRITE)])
    g.first([_advise(g, proc, start, end, "free")])
    again = g.touch(proc, vma, start, end, Acc.WRITE)
    out: list[Op] = []
    home: list[Op] = []
    if g.rng.random() < 0.6:
        out.append(g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE))
        # In VRAM they cannot be paged out.
        home.append(g.ranged("migrate", proc, start, end, arg=MIGRATE_SYSTEM))
    if g.rng.random() < 0.6:
        # Where they are, if the policy leaves them there.
        again.op = g.number("gpu_access")
        out.append(again)
    else:
        out.insert(0, again)
    g.after = [
        *home, _advise(g, proc, start, end, "pageout"),
        g.touch(proc, vma, start, end, Acc.READ),
    ]  # fmt: skip
    for o in out[:-1]:
        g.first([o])
    return out[-1:]


def merge(g: Draw, proc: Process) -> list[Op]:
    """Pages of equal contents are merged by the kernel, then somebody writes one of them."""
    rng = g.rng
    private = [v for v in writable(proc) if not v.flags & {POISONED, *SERVED}]
    if not private:
        return g.draw("madvise", proc)
    vma = rng.choice(private)
    start, end = vma.start, min(vma.end, vma.start + rng.choice((2, 4)))
    # As they were given, and the same word of each once more.
    word, same = rng.choice(WORDS), (g.value + 1) << 32
    g.value += 1
    if rng.random() < 0.7:
        g.first([_advise(g, proc, start, end, "dontneed")])
    region = start >> REGION_SHIFT
    g.first([g.accesses("cpu_access", proc, [
        (int(Acc.WRITE), region, 0, offset(gp) + 8 * word, same, 0) for gp in range(start, end)
    ])])  # fmt: skip
    g.first([_advise(g, proc, start, end, "mergeable")])
    g.first([g.op("ksm", proc, a=1)])
    who = rng.choice(("cpu_access", "gpu_access"))
    kind = rng.choice((Acc.READ, Acc.WRITE, Acc.ADD))
    g.after = [
        g.touch(proc, vma, start, end, Acc.READ), g.ranged("query", proc, start, end),
    ]  # fmt: skip
    return [g.accesses(who, proc, [
        g.access(vma, gp, 0, word, kind) for gp in (start, end - 1)[: rng.choice((1, 2))]
    ])]  # fmt: skip


def _take(g: Draw, proc: Process) -> list[Op]:
    """The GPU gets pages exclusively, while another thread gives them up and writes new ones, or
    moves them to VRAM."""
    rng = g.rng
    vma = rng.choice(writable(proc))
    start, end = g.few(vma)
    move = rng.random() < 0.3
    g.first([g.op("policy", proc, arg=POLICY_MAP | POLICY_EXCLUSIVE)])
    out = [g.accesses("gpu_access", proc, [
        g.access(vma, gp, lane, rng.choice(WORDS), Acc.ADD)
        for lane, gp in enumerate([*range(start, end)] * rng.choice((1, 4, 8)))
    ])]  # fmt: skip
    for _ in range(rng.choice((1, 2, 4))):
        out.append(g.op("sleep", proc, 1, a=rng.choice((100, 300, 1000, 3000))))
        if move:
            out.append(g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE))
        else:
            out.append(_advise(g, proc, start, end, "dontneed"))
            out.append(g.touch(proc, vma, start, end, Acc.WRITE))
            out[-2].actor = 1
        out[-1].actor = 1
    g.after = [
        # An entry that is still exclusive keeps a page from coming home.
        *([g.op("evict", proc, a=0)] if move else []),
        g.ranged("query", proc, start, end), g.touch(proc, vma, start, end, Acc.READ),
    ]  # fmt: skip
    return out


def revoke(g: Draw, proc: Process) -> list[Op]:
    """Threads want pages back that are exclusively the GPU's, while another gives them up."""
    rng = g.rng
    private = writable(proc)
    if not private:
        return race(g, proc)
    if rng.random() < 0.3:
        return _take(g, proc)
    vma = rng.choice(private)
    start, end = g.few(vma)
    pages = range(start, end)
    words = [rng.choice(WORDS) for _ in range(2)]
    g.first([g.op("policy", proc, arg=POLICY_MAP | POLICY_EXCLUSIVE)])
    lanes = [(gp, word) for gp in pages for word in words]
    g.first([g.accesses("gpu_access", proc, [
        g.access(vma, gp, lane, word, Acc.ADD) for lane, (gp, word) in enumerate(lanes)
    ])])  # fmt: skip
    out: list[Op] = []
    for actor in (1, 2)[: rng.choice((1, 2, 2))]:
        out.append(g.op("cpu_access", proc, actor, arg=rng.choice((0, 0, 500))))
        for gp in pages:
            kind = rng.choice((Acc.READ, Acc.ADD, Acc.WRITE))
            out[-1].acc.append(g.access(vma, gp, 0, rng.choice(words), kind))
    wait = rng.choice((0, 50, 200, 1000))
    r = rng.random()
    g.after = [g.ranged("query", proc, start, end)]
    if r < 0.25:
        return out
    if r < 0.75:
        last = _advise(g, proc, start, end, "dontneed")
    elif r < 0.88:
        last = g.ranged("munmap", proc, start, end)
    else:
        last = g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)
    return [*out, *([g.op("sleep", proc, a=wait)] if wait else []), last]


def end(g: Draw, proc: Process) -> list[Op]:
    """A process ends, by itself or killed, often with the GPU at work for it."""
    rng = g.rng
    alive = g.space.alive()
    if len(alive) < 2:
        return []
    other = rng.choice([p for p in alive if p is not proc])
    if rng.random() < 0.5:
        victim, last = other, g.op("kill", proc, arg=other.number)
    else:
        victim, last = proc, g.op("exit", proc)
    r = rng.random()
    if r < 0.6:
        job(g, victim, access=r < 0.35)
    return [last]
