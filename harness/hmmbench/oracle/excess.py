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

from collections.abc import Iterable

from hmmbench.device import injection
from hmmbench.guest.program import PAGE, Op, Program, Result
from hmmbench.model.ops import of
from hmmbench.model.ops.jobs import GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.promises import Promise
from hmmbench.oracle.violation import Violation

#: At most: so many for each page, or access, that somebody asks for, and beside them.
EACH, BESIDE = 64, 16384

#: Counter of the device's -> what it is too much of.
_COUNTED = {"dev_faults": "fault storm", "dev_invals": "invalidation storm"}

#: And what the driver counts of its own.
_GIVEN_UP = "copy_errors"

#: How often an operation comes to its pages: a copy to two ranges, a promise again and again.
_TIMES = {GpuCopy.number: 2, GpuFill.number: 2, Promise.number: 8}


def _counters(text: str) -> dict[str, int]:
    words = (line.partition(" ") for line in text.splitlines())
    return {name: int(n) for name, _, n in words if name in (*_COUNTED, _GIVEN_UP) and n.isdigit()}


def needed(program: Program) -> int:
    """For how much a driver may be at work: accesses of lanes, pages that operations name."""

    def of(o: Op) -> int:
        if o.op == GpuAccess.number:
            return len(o.acc)
        times = _TIMES.get(o.op, 1)
        return times * (o.len // PAGE + 1)

    return sum(of(o) for o in program.ops)


def blamed(program: Program, result: Result, rules: Iterable[str]) -> Violation | None:
    """Of copies that the driver gave up only those can be: that failed, and failed again when they
    were tried alone.  Our driver counts them (`copy_errors`)."""
    rules = tuple(rules)
    # The first is of a list of them, which is then gone through one by one.
    most = max(injection.copies_fail(rules) - 1, 0)
    others = any(line.event != "ce.copy" for line in injection.lines(rules))
    if others or any(of(o).takes_gpu for o in program.ops):
        return None
    before, after = _counters(result.counters_before), _counters(result.counters_after)
    given_up = after.get(_GIVEN_UP, 0) - before.get(_GIVEN_UP, 0)
    if given_up <= most:
        return None
    return Violation(
        "promise",
        f"blamed for others: {given_up} copies were given up, and at most {most} failed by"
        " themselves",
    )


def check(program: Program, result: Result) -> Violation | None:
    before, after = _counters(result.counters_before), _counters(result.counters_after)
    most = EACH * needed(program) + BESIDE
    for name in _COUNTED.keys() & before.keys() & after.keys():
        if (counted := after[name] - before[name]) > most:
            return Violation(
                "promise", f"{_COUNTED[name]}: {counted} in a program that needs at most {most}"
            )
    return None
