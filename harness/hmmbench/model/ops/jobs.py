# SPDX-License-Identifier: GPL-2.0-or-later
"""Accesses of CPU and GPU, copies, and the life of GPU jobs.

What accesses and copies do to memory is followed word by word (oracle/values.py), and which of
them may meet is decided access by access (admit.py); here is what they have in common with others.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace

from hmmbench.guest.program import F_CTX1, F_NOWAIT, F_THREAD, PAGE, Acc, Op, OpResult
from hmmbench.model import scenes
from hmmbench.model.belief import (
    ABSENT,
    HOLE,
    MOVABLE,
    SYSTEM,
    UNKNOWN,
    UNSETTLED,
    VRAM,
    Belief,
    Cell,
    touched,
    unsure,
)
from hmmbench.model.drawing import KINDS, WORDS, Draw, offset, usable
from hmmbench.model.ops.base import OK, RANGE, Field, Operation, shorter
from hmmbench.model.phrases import accesses, span
from hmmbench.model.space import REGION_SHIFT, Process, Space, gp_of

#: What of a row an access counts for.
_CLASSES = ("read", "write", "atomic")
_CLASS = {
    Acc.READ: 0, Acc.READ32: 0, Acc.WRITE: 1, Acc.WRITE32: 1, Acc.ADD: 2, Acc.XCHG: 2, Acc.CAS: 2,
}  # fmt: skip


class _Accesses(Operation):
    """A list of accesses."""

    races = True
    holes = True
    oracle = "values"

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        gpu = self.uses_gpu
        racing = racing or bool(o.flags & F_NOWAIT)
        met: dict[tuple[int, int], int] = {}
        for a in o.acc:
            met[a[0], a[1] << REGION_SHIFT | a[3] >> 12] = 0
        migrate = gpu and o.proc in b.migrate
        cells: set[Cell] = set()
        find, get = b.proc.find, b.pages.get
        new: dict[int, int] = {}
        for kind, gp in met:
            if kind == Acc.DELAY:
                continue
            row = self.rows[_CLASS[kind]]  # type: ignore[index]
            vma = find(gp)
            if vma is None:
                cells.add((row, HOLE, ABSENT))
                continue
            before = get(gp, ABSENT)
            cells.add((row, vma.kind, before))
            if not gpu:
                new[gp] = SYSTEM
            elif migrate and vma.kind in MOVABLE:
                # Whether the driver has moved it is its own affair.
                new[gp] = UNKNOWN
            elif before in UNSETTLED:
                new[gp] = SYSTEM
        if r.status == 0:
            b.pages.update(new)
        else:
            b.refused += 1
            # How far it came is in the accesses' results; the belief does not follow them.
            b.pages.update({
                gp: UNKNOWN if get(gp) == VRAM else at
                for gp, at in new.items() if gp in b.pages
            })  # fmt: skip
        b.count(cells)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        if kind == HOLE:
            return "" if at == ABSENT else "nothing is there"
        return None

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return False

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return [(a[1], a[3], 1) for a in o.acc]

    def simpler(self, o: Op) -> Iterator[Op]:
        if o.arg:
            yield replace(o, arg=0)
        kinds = {a[0] for a in o.acc}
        for kind, plain in ((Acc.ADD, Acc.WRITE), (Acc.XCHG, Acc.WRITE), (Acc.CAS, Acc.WRITE)):
            if kind in kinds:
                yield replace(
                    o, acc=[(int(plain), *a[1:5], 0) if a[0] == kind else a for a in o.acc]
                )
        lanes = sorted({a[2] for a in o.acc})
        if lanes and lanes != list(range(len(lanes))):
            number = {lane: k for k, lane in enumerate(lanes)}
            yield replace(o, acc=[(a[0], a[1], number[a[2]], *a[3:]) for a in o.acc])


class CpuAccess(_Accesses):
    number, name = 6, "cpu_access"
    weight = 61
    rows = tuple(f"CPU {a}" for a in _CLASSES)
    group = "CPU"
    fields = (Field("gap_ns", "arg"),)

    def sentence(self, o: Op, at: str) -> str:
        return f"CPU {accesses(o, False)}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        o = g.op("cpu_access", proc, rng.randrange(2))
        allowed = usable(proc)
        for _ in range(rng.choice((1, 2, 4, 8, 12))):
            vma = allowed[min(rng.randrange(len(allowed)), rng.randrange(len(allowed)))]
            kind = KINDS[rng.choice((0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6))]
            o.acc.append(g.access(vma, g.page_of(vma), 0, rng.choice(WORDS), kind))
        if rng.random() < 0.15:
            o.acc.append(g.stray(proc))
        return [o]


class GpuAccess(_Accesses):
    number, name = 7, "gpu_access"
    weight = 40
    changed = (4,)
    rows = tuple(f"GPU {a}" for a in _CLASSES)
    group = "GPU"
    fields = (Field("block", "arg"), Field("budget", "a"))
    uses_gpu = True

    def sentence(self, o: Op, at: str) -> str:
        second = " in its second context" if o.flags & F_CTX1 else ""
        wait = ", for a thread that ends at once" if o.flags & F_THREAD else ""
        wait += ", and it is not waited for" if o.flags & F_NOWAIT else ""
        return f"GPU{second} {accesses(o, True)}{wait}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        o = g.op("gpu_access", proc, 0, flags=F_CTX1 if rng.random() < 0.3 else 0)
        allowed = usable(proc)
        n = len(allowed)
        vmas = [allowed[min(rng.randrange(n), rng.randrange(n))] for _ in range(2)]
        pages = [(v, g.page_of(v)) for v in vmas for _ in range(rng.choice((1, 1, 2, 3)))]
        lanes = rng.choice((1, 2, 8, 16, 32, 33, 64))
        each = rng.choice((1, 1, 2, 3)) if lanes > 8 else rng.choice((1, 2, 4, 8))
        o.arg = rng.choice((0, 0, 32, 64, 16))
        contend = rng.random() < 0.35
        kinds = [KINDS[rng.choice((0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6))] for _ in range(each)]
        first = rng.randrange(8) * 64
        n = len(pages)
        for lane in range(lanes):
            for k in range(each):
                if contend:
                    vma, gp = pages[rng.randrange(n)]
                    word = WORDS[rng.randrange(3)]
                    kind = Acc.ADD if lanes > 8 and kinds[k] != Acc.READ else kinds[k]
                else:
                    vma, gp = pages[(lane + k) % n]
                    word = (first + lane * each + k) & 511
                    kind = kinds[k]
                o.acc.append(g.access(vma, gp, lane, word, kind))
        if rng.random() < 0.08:
            kind_, region, _, off, value, expect = g.stray(proc)
            o.acc.append((kind_, region, rng.randrange(lanes), off, value, expect))
        if g.grammar >= 4 and rng.random() < 0.08:
            o.flags |= F_THREAD
        return [o]


class _Copies(Operation):
    races = True
    uses_gpu = True
    group = "GPU"
    oracle = "values"

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return False

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, 8)


def target(o: Op) -> tuple[int, int]:
    """Where a copy or a fill writes: region and offset."""
    return (o.region, o.off) if o.op == GpuFill.number else (o.arg, o.a)


class GpuCopy(_Copies):
    number, name = 8, "gpu_copy"
    weight = 6
    rows = ("copy from", "copy to")
    fields = (*RANGE, Field("to_region", "arg"), Field("to_off", "a", hex=True))

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return [(o.region, o.off, o.len), (o.arg, o.a, o.len)]

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        to = gp_of(o.arg, o.a), gp_of(o.arg, o.a + max(o.len, 1) - 1) + 1
        for row, ends in zip(self.rows, (touched(o), to), strict=True):
            b.range(row, *ends)
        for ends in (touched(o), to):
            b.used_by_gpu(*ends, unsure(r, racing))

    def sentence(self, o: Op, at: str) -> str:
        return f"GPU copies {at} to {span(o.arg, o.a, o.len)}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        src, dst = g.pick(proc), g.pick(proc)
        n = min(rng.choice((1, 1, 1, 2, 2, 4, 4, 512)), src.end - src.start, dst.end - dst.start)
        length = n * PAGE
        s, d = g.page_of(src), g.page_of(dst)
        s, d = min(s, src.end - n), min(d, dst.end - n)
        so, do = offset(s), offset(d)
        if rng.random() < 0.4:
            length = rng.choice((8, 64, 256, 2048))
            so += rng.choice((0, 8, 512))
            do += rng.choice((0, 8, 512, 2040))
        if rng.random() < 0.4:
            g.value += 1
            return [g.op(
                "gpu_fill", proc, region=d >> REGION_SHIFT, off=do, len=length, a=g.value << 32
            )]  # fmt: skip
        return [g.op(
            "gpu_copy", proc, region=s >> REGION_SHIFT, off=so, len=length,
            arg=d >> REGION_SHIFT, a=do,
        )]  # fmt: skip


class GpuFill(_Copies):
    number, name = 9, "gpu_fill"
    fields = (*RANGE, Field("pattern", "a", hex=True))
    rows = ("fill",)

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        b.used_by_gpu(*touched(o), unsure(r, racing))

    def sentence(self, o: Op, at: str) -> str:
        return f"GPU fills {at} with {o.a:#x}"


class WaitGpu(Operation):
    number, name = 18, "wait_gpu"
    weight = 2
    fields = (Field("leave", "a"),)
    wanted = False

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def sentence(self, o: Op, at: str) -> str:
        but = " but the last" + (f" {o.a}" if o.a > 1 else "") if o.a else ""
        return f"waits for its GPU jobs{but}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """A job that is not waited for at once."""
        if g.rng.random() < 0.3:
            return scenes.behind(g, proc)
        scenes.job(g, proc, access=True)
        return [g.op("wait_gpu", proc)]


class GpuSpin(Operation):
    number, name = 20, "gpu_spin"
    fields = (Field("budget", "a"),)
    wanted = False

    def sentence(self, o: Op, at: str) -> str:
        return "GPU runs an endless program"


class CloseGpu(Operation):
    number, name = 21, "close_gpu"
    weight = 4
    rows = ("close GPU",)
    group = "process"
    races = True
    # As the first grammar has it.
    lays = False
    wanted = False

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        # The driver is not there any more to be told that a context goes.
        return OK | {-errno.ENODEV} if space.procs[o.proc].stale else OK

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        return o.proc not in gpu

    def apply(self, space: Space, p: Process, o: Op) -> None:
        p.exclusive = False
        p.stale = 0

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole("close GPU", o.proc)
        b.migrate.discard(o.proc)
        b.pages.update({gp: UNKNOWN for gp, at in b.pages.items() if at == VRAM})

    def sentence(self, o: Op, at: str) -> str:
        return "closes its GPU file"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """The GPU is closed: idle, at work, or while another process opens it."""
        r = g.rng.random()
        if r < 0.35:
            return scenes.close_amid(g, proc) or [g.op("close_gpu", proc)]
        if r < 0.7:
            return scenes.handover(g, proc) or [g.op("close_gpu", proc)]
        if r < 0.9:
            scenes.job(g, proc, access=r < 0.83)
        return [g.op("close_gpu", proc)]


OPERATIONS = (
    CpuAccess(), GpuAccess(), GpuCopy(), GpuFill(), WaitGpu(), GpuSpin(), CloseGpu(),
)  # fmt: skip
