# SPDX-License-Identifier: GPL-2.0-or-later
"""Accesses of CPU and GPU, copies, and the life of GPU jobs.

What accesses and copies do to memory is followed word by word (oracle/values.py), and which of
them may meet is decided access by access (admit.py); here is what they have in common with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hmmbench.guest.program import F_CTX1, F_NOWAIT, Acc, Op
from hmmbench.model.ops.base import OK, RANGE, Field, Operation, place, shorter
from hmmbench.model.phrases import accesses, span
from hmmbench.model.space import Process, Space


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
    fields = (Field("gap_ns", "arg"),)

    def sentence(self, o: Op, at: str) -> str:
        return f"CPU {accesses(o, False)}"


class GpuAccess(_Accesses):
    number, name = 7, "gpu_access"
    fields = (Field("block", "arg"), Field("budget", "a"))
    uses_gpu = True

    def sentence(self, o: Op, at: str) -> str:
        second = " in its second context" if o.flags & F_CTX1 else ""
        wait = ", and it is not waited for" if o.flags & F_NOWAIT else ""
        return f"GPU{second} {accesses(o, True)}{wait}"


class _Copies(Operation):
    races = True
    uses_gpu = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return False

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, 8)


class GpuCopy(_Copies):
    number, name = 8, "gpu_copy"
    fields = (*RANGE, Field("to_region", "arg"), Field("to_off", "a", hex=True))

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return [(o.region, o.off, o.len), (o.arg, o.a, o.len)]

    def sentence(self, o: Op, at: str) -> str:
        return f"GPU copies {at} to {span(o.arg, o.a, o.len)}"

    def call(self, o: Op) -> str:
        return f"gpu_copy({_context(o)}, {place(o)}, {o.arg}, {o.a:#x}, {_waits(o)})"


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
    fields = (Field("leave", "a"),)
    wanted = False

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def sentence(self, o: Op, at: str) -> str:
        but = " but the last" + (f" {o.a}" if o.a > 1 else "") if o.a else ""
        return f"waits for its GPU jobs{but}"

    def call(self, o: Op) -> str:
        return f"gpu_wait({o.a})"


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


OPERATIONS = (
    CpuAccess(), GpuAccess(), GpuCopy(), GpuFill(), WaitGpu(), GpuSpin(), CloseGpu(),
)  # fmt: skip
