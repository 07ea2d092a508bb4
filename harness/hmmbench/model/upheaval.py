# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenes: memory moves, goes, or becomes another's while a GPU, CPUs and copies use it."""

from __future__ import annotations

from hmmbench.guest.program import (
    F_NOWAIT,
    MIGRATE_DEVICE,
    MIGRATE_SYSTEM,
    PROT_NONE,
    PROT_READ,
    PROT_RW,
    Acc,
    MapKind,
    Op,
)
from hmmbench.model.drawing import REGIONS, WORDS, Draw, offset, usable
from hmmbench.model.scenes import racer
from hmmbench.model.space import (
    HUGE_PAGES,
    HUGETLB,
    REGION_PAGES,
    REGION_SHIFT,
    SHARED,
    Process,
    Vma,
)

#: What copies of a race copy, in bytes, and from which place in a page on: beside WORDS.
_COPIES = (64, 256, 512)
_APART = (1024, 1536, 2560, 3072)

#: How often something of the device is used beside it that no memory of the program is in.
BESIDE, BESIDE_SINCE = 0.2, 5


def _movers(vma: Vma) -> tuple[str, ...]:
    """What may happen to it beside others (the rules are in the head of admit.py)."""
    if vma.kind == MapKind.ANON_PRIVATE:
        return "fork", "fork", "mremap", "mremap", "replace", "munmap", "dontneed", "mprotect"
    if vma.kind in HUGETLB:
        return ("fork", "munmap", "zap", "mprotect") if vma.kind in SHARED else ("fork",)
    if vma.kind in SHARED:
        return "fork", "mremap", "mremap", "munmap", "zap", "mprotect"
    return ("fork",)


def _landing(g: Draw, proc: Process, start: int, count: int) -> int | None:
    """A place with room, as far into 2 MiB as where it comes from, or not."""
    for _ in range(8):
        to = g.rng.randrange(REGIONS) << REGION_SHIFT
        to += g.rng.randrange(5) * HUGE_PAGES + g.rng.choice((0, 7, start % HUGE_PAGES))
        same = to < start + count and start < to + count
        inside = to % REGION_PAGES + count <= REGION_PAGES
        if inside and not same and not proc.overlapping(to, to + count):
            return to
    return None


def _copies(g: Draw, proc: Process, actor: int, gps: list[int]) -> list[Op]:
    """Copies from or to the pages, the other end somewhere in the process's memory."""
    rng = g.rng
    strong = [v for v in proc.vmas if v.prot == PROT_RW]
    out = []
    for place in _APART[: rng.choice((1, 2, 4))]:
        near, far = rng.choice(gps), g.page_of(rng.choice(strong))
        source, to = (near, far) if rng.random() < 0.5 else (far, near)
        out.append(g.op(
            "gpu_copy", proc, actor, region=source >> REGION_SHIFT, off=offset(source) + place,
            len=rng.choice(_COPIES), arg=to >> REGION_SHIFT, a=offset(to) + place,
        ))  # fmt: skip
    return out


def _mover(g: Draw, proc: Process, vma: Vma, start: int, end: int) -> tuple[Op, int]:
    """What happens to the pages, and how far they move."""
    rng = g.rng
    what = rng.choice(_movers(vma))
    if what == "fork" and (n := g.next_proc()):
        return g.op("fork", proc, arg=n), 0
    if what == "mremap":
        to = _landing(g, proc, start, end - start)
        if to is not None:
            return g.ranged(
                "mremap", proc, start, end, arg=to >> REGION_SHIFT, a=offset(to),
                b=offset(end - start),
            ), to - start  # fmt: skip
    if what == "replace":
        return g.ranged("replace", proc, start, end, arg=MapKind.ANON_PRIVATE, a=vma.prot), 0
    if what == "zap":
        return g.ranged("zap", proc, start, end), 0
    if what == "munmap":
        return g.ranged("munmap", proc, start, end, a=int(vma.kind in SHARED)), 0
    if what == "dontneed":
        return g.ranged(
            "madvise", proc, start, end, a=g.word("madvise", "advice", "dontneed")
        ), 0  # fmt: skip
    prot = rng.choice((PROT_READ, PROT_READ, PROT_NONE))
    return g.ranged("mprotect", proc, start, end, a=prot), 0


def _beside(g: Draw, proc: Process) -> list[Op]:
    """Somebody is at other things of the device meanwhile: buffers, queues."""
    other = g.rng.choice(g.space.alive())
    made = g.draw(g.rng.choice(("buffer", "buffer", "queue", "refusal")), other)
    for o in made:
        o.actor = 3 if other is proc else 0
    return made


def upheaval(g: Draw, proc: Process) -> list[Op]:
    """Faults, copies and migrations are under way when the pages' areas change."""
    rng = g.rng
    strong = [v for v in usable(proc) if v.prot == PROT_RW]
    if not strong:
        return []
    vma = rng.choice(strong)
    start, end = (vma.start, vma.end) if vma.kind in HUGETLB else g.few(vma)
    gps = list(range(start, min(end, start + 4)))
    words = [rng.choice(WORDS) for _ in range(rng.choice((1, 2, 3)))]
    if rng.random() < 0.6:
        g.first([g.touch(proc, vma, gps[0], gps[-1] + 1, Acc.WRITE)])
    if vma.kind not in SHARED and rng.random() < 0.5:
        g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
    out: list[Op] = []
    for actor in range(1, rng.choice((2, 3, 4))):
        r = rng.random()
        if r < 0.5:
            out += [racer(g, proc, actor, vma, gps, words, True) for _ in range(rng.choice((1, 2)))]
        elif r < 0.7:
            out.append(racer(g, proc, actor, vma, gps, words, False))
        elif r < 0.85:
            out += _copies(g, proc, actor, gps)
        else:
            for _ in range(rng.choice((1, 2, 3))):
                to = rng.choice((MIGRATE_DEVICE, MIGRATE_DEVICE, MIGRATE_SYSTEM))
                out.append(g.ranged("migrate", proc, start, end, arg=to))
                out[-1].actor = actor
    if rng.random() < 0.8:
        out.append(g.op("sleep", proc, a=rng.choice((50, 100, 300, 700, 1500))))
    mover, shift = _mover(g, proc, vma, start, end)
    out.append(mover)
    if g.grammar >= BESIDE_SINCE and rng.random() < BESIDE:
        out += _beside(g, proc)
    g.after = _aftermath(g, proc, mover, vma, [gp + shift for gp in gps], words)
    return out


def _aftermath(
    g: Draw, proc: Process, mover: Op, vma: Vma, gps: list[int], words: list[int]
) -> list[Op]:
    """What each side sees of the pages, wherever they are, and what the child has."""
    places = [(gp, word) for gp in gps for word in words]

    def look(who: str, number: int, kind: int) -> Op:
        o = g.accesses(who, proc, [
            g.access(vma, gp, lane if who == "gpu_access" else 0, word, kind)
            for lane, (gp, word) in enumerate(places)
        ])  # fmt: skip
        o.proc = number
        return o

    out = [look("gpu_access", proc.number, Acc.ADD), look("cpu_access", proc.number, Acc.READ)]
    if mover.op == g.number("fork"):
        child = mover.arg
        out += [look("cpu_access", child, Acc.READ), look("gpu_access", child, Acc.ADD)]
        out += [look("cpu_access", proc.number, Acc.READ), look("cpu_access", child, Acc.READ)]
    return out


def reaped(g: Draw, proc: Process) -> list[Op]:
    """A process that the GPU works for is killed, and before it has come to its end its memory is
    taken away by notifiers that may not sleep, as an OOM killer's reaper does."""
    rng = g.rng
    others = [p for p in g.space.alive() if p is not proc]
    if not others and (n := g.next_proc()):
        g.first([g.op("fork", proc, arg=n)])
        others = [p for p in g.space.alive() if p is not proc]
    if not others:
        return []
    victim = rng.choice(others)
    strong = [v for v in victim.vmas if v.kind == MapKind.ANON_PRIVATE and v.prot == PROT_RW]
    if strong:
        vma = rng.choice(strong)
        start, end = vma.start, min(vma.end, vma.start + rng.choice((2, 8, 32, 64)))
        g.first([g.touch(victim, vma, start, end, Acc.WRITE)])
        if rng.random() < 0.4:
            g.first([g.ranged("migrate", victim, start, end, arg=MIGRATE_DEVICE)])
        gps = [rng.randrange(start, end) for _ in range(rng.choice((4, 16)))]
        job = g.accesses("gpu_access", victim, [
            access for lane, gp in enumerate(gps) for _ in range(8)
            for access in (
                g.access(vma, gp, lane, rng.choice(WORDS), Acc.ADD),
                (int(Acc.DELAY), 0, lane, 0, rng.choice((100, 1000, 5000)), 0),
            )
        ])  # fmt: skip
        job.flags |= F_NOWAIT
        g.first([job])
    return [g.op("kill", proc, arg=victim.number, a=1)]


def again(g: Draw, proc: Process) -> list[Op]:
    """What the GPU has in use is replaced, by memory of whatever kind, and used again."""
    rng = g.rng
    small = [v for v in usable(proc) if v.prot == PROT_RW and v.kind not in HUGETLB]
    if not small:
        return []
    vma = rng.choice(small)
    start, end = g.few(vma)
    kind = rng.choice((MapKind.ANON_PRIVATE, MapKind.ANON_PRIVATE, MapKind.ANON_SHARED,
                       MapKind.FILE_SHARED, MapKind.FILE_PRIVATE))  # fmt: skip
    if rng.random() < 0.4:
        g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
    words = [rng.choice(WORDS) for _ in range(2)]
    places = [(gp, word) for gp in range(start, end) for word in words]

    def use(who: str, act: int) -> Op:
        return g.accesses(who, proc, [
            g.access(vma, gp, lane if who == "gpu_access" else 0, word, act)
            for lane, (gp, word) in enumerate(places)
        ])  # fmt: skip

    g.first([use("gpu_access", Acc.WRITE)])
    g.after = [use("gpu_access", rng.choice((Acc.READ, Acc.ADD, Acc.WRITE))),
               use("cpu_access", Acc.READ)]
    prot = PROT_RW if rng.random() < 0.8 else PROT_READ
    return [g.ranged(
        "replace", proc, start, end, arg=kind, a=prot, b=1 if kind > MapKind.ANON_SHARED else 0
    )]  # fmt: skip
