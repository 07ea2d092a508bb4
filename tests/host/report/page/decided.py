# SPDX-License-Identifier: GPL-2.0-or-later
"""What an exact machine might have done, made up: two CPUs, a hold, an engine, a violation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hmmbench.device.events import Happened, Kind
from hmmbench.example.moment import Clock, Moment
from hmmbench.example.portrait import Decided
from hmmbench.guest.program import Op, OpResult
from hmmbench.model.ops.advice import Madvise
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.symbols.named import Place
from hmmbench.vm.decisions import ENTRY, What

ENGINES = ("SM 0", "copy engine 0", "front end")
KERNEL = 0xFFFFFFFF81000000

#: The guest's clock is so far behind the machine's.
ZERO = -5_000_000

#: Two threads beside one another, then a read that shows it.
OPS = [
    Op(Mmap.number, len=4096),
    Op(GpuAccess.number, phase=1, acc=[(1, 0, 0, 0, 1, 0)]),
    Op(Madvise.number, actor=1, phase=1, len=4096),
    Op(CpuAccess.number, phase=2, acc=[(0, 0, 0, 0, 0, 0)]),
]

#: Begin and end on the machine's clock (ns).
TIMES = [(6_000_000, 6_050_000), (6_100_000, 6_900_000), (6_110_000, 6_400_000),
         (6_950_000, 6_980_000)]  # fmt: skip


def results() -> list[OpResult]:
    return [
        OpResult(start_ns=a + ZERO, time_ns=b - a, acc=[(0, 1, 0)] * len(o.acc))
        for o, (a, b) in zip(OPS, TIMES, strict=True)
    ]


def names(addresses: Iterable[int], source: bool = True) -> Mapping[int, Place]:
    return {
        at: Place(f"function_{at & 0xFFF:x}", "mm/hmm.c:7" if source else "") for at in addresses
    }


def log(*rows: tuple[int, int, int, What, int]) -> np.ndarray:
    """(ns, pc, arg, what, who)"""
    out = np.zeros(len(rows), ENTRY)
    for n, (ns, pc, arg, what, who) in enumerate(rows):
        out[n] = (ns * 2, ns, pc, arg, what, who, 0, 0)
    return out


def rows(count: int = 1) -> list[tuple[int, int, int, What, int]]:
    """`count`: so many short slices of each CPU in the racing phase."""
    out = [
        (6_040_000, KERNEL + 1, 15_000, What.OVER, 0),
        (6_120_000, KERNEL + 2, 5_000, What.AT_POINT, 0),
        (6_120_000, KERNEL + 2, 600_000, What.HELD, 0),
        (6_130_000, 0, 3, What.ENGINE, 0),
    ]
    for n in range(count):
        at = 6_200_000 + n * 400_000 // count
        out += [(at, KERNEL + 3, 20, What.OVER, 1), (at + 60, 0x401000, 20, What.OVER, 2)]
    out += [
        (6_650_000, KERNEL + 4, 500, What.HALTED, 1),
        (6_800_000, KERNEL + 5, 9_000, What.OVER, 0),
        (6_810_000, KERNEL + 6, 2_000, What.OVER, 1),
        (6_850_000, 0, 0, What.IRQ, 1),
        (6_990_000, 0, 2, What.STANDS, 0),
    ]
    return out


def decided(count: int = 1, moment: int | None = 6_980_000) -> Decided:
    return Decided(
        log(*rows(count)),
        [Happened(6_130_000, Kind.FAULT, "SM 0", "fault at 0x7000"),
         Happened(6_140_000, Kind.IRQ, "interrupts", "interrupt 0 is raised"),
         Happened(6_700_000, Kind.INVAL_START, "front end", "invalidation 1 begins")],
        ENGINES, Clock(ZERO),
        None if moment is None else Moment(moment * 2, moment, "operation 4 has ended"), names,
    )  # fmt: skip
