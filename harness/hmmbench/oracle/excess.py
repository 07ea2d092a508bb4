# SPDX-License-Identifier: GPL-2.0-or-later
"""A part of the promise oracle: what a whole example took, within a bound of what it needs.

A perfect driver has one fault for each page that the GPU comes to and one invalidation for each
change of memory that the GPU has.  A sound one has more: pages that are taken away beside the
access, faults that were under way, replays that make all others fault again.  So the bounds are
wide, for the driver that never comes to rest; how much more a driver does than it has to in the
small, on memory that nobody else has, the promise `alone` says (model/ops/promises.py).  A device
that misbehaves so that promises are off may report as often as it likes.

The device counts, whatever driver there is; the driver's file `counters` tells it.
"""

from __future__ import annotations

from hmmbench.guest.program import PAGE, Op, Program, Result
from hmmbench.model.ops.jobs import GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.promises import Promise
from hmmbench.oracle.violation import Violation

#: At most: so many for each page, or access, that somebody asks for, and beside them.
EACH, BESIDE = 64, 16384

#: Counter of the device's -> what it is too much of.
_COUNTED = {"dev_faults": "fault storm", "dev_invals": "invalidation storm"}

#: How often an operation comes to its pages: a copy to two ranges, a promise again and again.
_TIMES = {GpuCopy.number: 2, GpuFill.number: 2, Promise.number: 8}


def _counters(text: str) -> dict[str, int]:
    words = (line.partition(" ") for line in text.splitlines())
    return {name: int(n) for name, _, n in words if name in _COUNTED and n.isdigit()}


def needed(program: Program) -> int:
    """For how much a driver may be at work: accesses of lanes, pages that operations name."""

    def of(o: Op) -> int:
        if o.op == GpuAccess.number:
            return len(o.acc)
        times = _TIMES.get(o.op, 1)
        return times * (o.len // PAGE + 1)

    return sum(of(o) for o in program.ops)


def check(program: Program, result: Result) -> Violation | None:
    before, after = _counters(result.counters_before), _counters(result.counters_after)
    most = EACH * needed(program) + BESIDE
    for name in before.keys() & after.keys():
        if (counted := after[name] - before[name]) > most:
            return Violation(
                "promise", f"{_COUNTED[name]}: {counted} in a program that needs at most {most}"
            )
    return None
