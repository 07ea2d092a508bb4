# SPDX-License-Identifier: GPL-2.0-or-later
"""One more failing execution of a small recipe, for people to look at.

After the operation that shows the failure a QUERY of each page it touched is added: both page
tables as driver and kernel see them, as near to the moment as the guest can ask.  It comes after
everything else, so it does not disturb what fails.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from hmmbench.event import Event
from hmmbench.guest.protocol import (
    PAGE,
    RES_SKIPPED,
    Acc,
    Op,
    OpKind,
    Program,
    Result,
)
from hmmbench.model.space import REGION_SHIFT, Space, gp_of, place
from hmmbench.oracle.violation import Violation
from hmmbench.recipe import Environment
from hmmbench.target import Target, judge

#: Pages that are asked for, at most.
PAGES = 24


@dataclass(frozen=True)
class PageEntry:
    """Both page tables at one page.  `query`: bits of HB_OP_QUERY, None: not answered."""

    proc: int
    place: str
    query: int | None


@dataclass
class Portrait:
    """A failing execution: the recipe's program, its result, what was violated.

    `details` is for what the device recorded of the violation (lines of text), when it did.
    """

    program: Program
    result: Result | None
    violation: Violation
    environment: Environment = field(default_factory=Environment)
    pages: list[PageEntry] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    #: what the driver traced meanwhile
    events: list[Event] = field(default_factory=list)


def portrait(
    target: Target, program: Program, environment: Environment, violation: Violation, looks: int
) -> Portrait | None:
    """Execute until it fails in the same oracle, at most `looks` times; None if it never does."""
    asked = with_queries(program, violation.op)
    for _ in range(looks):
        target.watch()
        execution = target.execute(asked, environment)
        same = [v for v in judge(execution).violations if v.oracle == violation.oracle]
        if same:
            result = execution.result
            pages = _entries(asked, result, len(program.ops))
            if result is not None:
                result = replace(result, ops=result.ops[: len(program.ops)])
            details = [d for v in same for d in v.details.splitlines()]
            return Portrait(
                program, result, same[0], environment, pages, details, target.watched()
            )
        if execution.tainted:
            target.renew()
    return None


def with_queries(program: Program, op: int) -> Program:
    """The program with a QUERY of each page that operation `op` touches, at its end.

    Only of a process that is still alive then, and of mapped pages.
    """
    if not 0 <= op < len(program.ops):
        return program
    space = Space(program.file_pages)
    for o in program.ops:
        space.apply(o)
    o = program.ops[op]
    proc = space.procs.get(o.proc)
    if proc is None or not proc.alive:
        return program
    phase = max(x.phase for x in program.ops)
    extra = []
    for gp in touched(o)[:PAGES]:
        if proc.find(gp) is not None:
            phase += 1
            extra.append(
                Op(OpKind.QUERY, o.proc, 0, phase, gp >> REGION_SHIFT, off=_offset(gp), len=PAGE)
            )
    return replace(program, ops=[*program.ops, *extra])


def touched(o: Op) -> list[int]:
    """The pages an operation names, in order."""
    if o.acc:
        return sorted({r << REGION_SHIFT | off >> 12 for k, r, _, off, _, _ in o.acc
                       if k != Acc.DELAY})  # fmt: skip
    if not o.len or o.op == OpKind.MMAP:
        return []
    pages = list(range(gp_of(o.region, o.off), gp_of(o.region, o.off + o.len - 1) + 1))
    if o.op == OpKind.GPU_COPY:
        pages = [*pages[: PAGES // 2], *range(gp_of(o.arg, o.a), gp_of(o.arg, o.a + o.len - 1) + 1)]
    return pages


def _offset(gp: int) -> int:
    return (gp & ((1 << REGION_SHIFT) - 1)) * PAGE


def _entries(program: Program, result: Result | None, first: int) -> list[PageEntry]:
    out = []
    for i, o in enumerate(program.ops[first:], first):
        r = None if result is None else result.ops[i]
        bits = None
        if r is not None and r.status != RES_SKIPPED and len(r.data) == 4:
            bits = struct.unpack("<I", r.data)[0]
        out.append(PageEntry(o.proc, place(gp_of(o.region, o.off)), bits))
    return out
