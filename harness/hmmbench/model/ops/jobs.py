# SPDX-License-Identifier: GPL-2.0-or-later
"""Accesses of CPU and GPU, copies, and the life of GPU jobs.

What accesses and copies do to memory is followed word by word (oracle/values.py), and which of
them may meet is decided access by access (admit.py); here is what they have in common with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hmmbench.guest.program import F_CTX1, F_NOWAIT, PAGE, Acc, Op
from hmmbench.model import scenes
from hmmbench.model.drawing import KINDS, WORDS, Draw, offset, usable
from hmmbench.model.ops.base import OK, RANGE, Field, Operation, place, shorter
from hmmbench.model.phrases import accesses, span
from hmmbench.model.space import REGION_SHIFT, Process, Space


def _context(o: Op) -> int:
    return 1 if o.flags & F_CTX1 else 0


def _waits(o: Op) -> int:
    return 0 if o.flags & F_NOWAIT else 1


class _Accesses(Operation):
    """A list of accesses."""

    races = True

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
    fields = (Field("block", "arg"), Field("budget", "a"))
    uses_gpu = True

    def sentence(self, o: Op, at: str) -> str:
        second = " in its second context" if o.flags & F_CTX1 else ""
        wait = ", and it is not waited for" if o.flags & F_NOWAIT else ""
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
        return [o]


class _Copies(Operation):
    races = True
    uses_gpu = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return False

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, 8)


class GpuCopy(_Copies):
    number, name = 8, "gpu_copy"
    weight = 6
    fields = (*RANGE, Field("to_region", "arg"), Field("to_off", "a", hex=True))

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return [(o.region, o.off, o.len), (o.arg, o.a, o.len)]

    def sentence(self, o: Op, at: str) -> str:
        return f"GPU copies {at} to {span(o.arg, o.a, o.len)}"

    def call(self, o: Op) -> str:
        return f"gpu_copy({_context(o)}, {place(o)}, {o.arg}, {o.a:#x}, {_waits(o)})"

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

    def row(self, o: Op) -> str:
        return "fill"

    def sentence(self, o: Op, at: str) -> str:
        return f"GPU fills {at} with {o.a:#x}"

    def call(self, o: Op) -> str:
        return f"gpu_fill({_context(o)}, {place(o)}, {o.a:#x}ull, {_waits(o)})"


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

    def call(self, o: Op) -> str:
        return f"gpu_wait({o.a})"

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

    def call(self, o: Op) -> str:
        return f"gpu_spin({_context(o)}, {o.a})"


class CloseGpu(Operation):
    number, name = 21, "close_gpu"
    weight = 4
    races = True
    wanted = False

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        p.exclusive = False

    def sentence(self, o: Op, at: str) -> str:
        return "closes its GPU file"

    def call(self, o: Op) -> str:
        return "gpu_close()"

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
