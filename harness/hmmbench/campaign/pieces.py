# SPDX-License-Identifier: GPL-2.0-or-later
"""Parts of a program: what can be made simpler, which pages an operation names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hmmbench.guest.program import Acc, Op, OpKind, Program
from hmmbench.model.space import gp_of


def simpler(o: Op) -> Iterator[Op]:
    """Variants of one operation, the boldest first."""
    if o.flags:
        yield replace(o, flags=0)
    if o.op == OpKind.MMAP and o.arg and o.arg < 6:
        yield replace(o, arg=0, b=0, c=0)
    if o.op in (OpKind.GPU_ACCESS, OpKind.CPU_ACCESS):
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
    if o.op in (OpKind.MIGRATE, OpKind.MADVISE, OpKind.MPROTECT, OpKind.QUERY, OpKind.MUNMAP):
        if o.len > 4096:
            yield replace(o, len=4096)
            yield replace(o, len=o.len // 8192 * 4096)
    elif o.op in (OpKind.GPU_COPY, OpKind.GPU_FILL) and o.len > 8:
        yield replace(o, len=8)
        yield replace(o, len=o.len // 16 * 8)


def ranges(o: Op) -> Iterator[tuple[int, int]]:
    """The pages that an operation names: ranges [first, end) of `gp_of`."""
    ranges = [(o.region, o.off, o.len)]
    if o.op == OpKind.MREMAP:
        ranges.append((o.arg, o.a, o.b))
    elif o.op == OpKind.GPU_COPY:
        ranges.append((o.arg, o.a, o.len))
    ranges += [(a[1], a[3], 1) for a in o.acc]
    for region, off, length in ranges:
        if length:
            yield gp_of(region, off), gp_of(region, off + length - 1) + 1


def sets(o: Op, named: list[tuple[int, int]]) -> bool:
    """Whether it is a policy, or shapes some of these pages."""
    return o.op == OpKind.POLICY or any(meets(o, *pages) for pages in named)


def meets(o: Op, first: int, end: int) -> bool:
    return any(a < end and first < b for a, b in ranges(o))


def touching(ops: list[Op], first: int, end: int) -> list[Op]:
    """The phases in which something is done to pages [first, end), and what sets the stage."""
    phases = {o.phase for o in ops if meets(o, first, end)}
    stage = (OpKind.POLICY, OpKind.FORK, OpKind.SPAWN)
    return [o for o in ops if o.phase in phases or o.op in stage]


def copy_ops(ops: list[Op]) -> list[Op]:
    return [replace(o, acc=list(o.acc)) for o in ops]


def copy(p: Program) -> Program:
    return replace(p, ops=copy_ops(p.ops))
