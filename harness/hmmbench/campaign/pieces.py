# SPDX-License-Identifier: GPL-2.0-or-later
"""Parts of a program: what can be made simpler, which pages an operation names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hmmbench.device import injection
from hmmbench.guest.program import Op, Program
from hmmbench.model import ops
from hmmbench.model.ops.moving import Policy
from hmmbench.model.ops.processes import Fork, Spawn
from hmmbench.model.space import gp_of


def simpler(o: Op) -> Iterator[Op]:
    """Variants of one operation, the boldest first."""
    if o.flags:
        yield replace(o, flags=0)
    yield from ops.of(o).simpler(o)


def ranges(o: Op) -> Iterator[tuple[int, int]]:
    """The pages that an operation names: ranges [first, end) of `gp_of`."""
    for region, off, length in ops.of(o).ranges(o):
        if length:
            yield gp_of(region, off), gp_of(region, off + length - 1) + 1


def sets(o: Op, named: list[tuple[int, int]]) -> bool:
    """Whether it is a policy, or shapes some of these pages."""
    return o.op == Policy.number or any(meets(o, *pages) for pages in named)


def meets(o: Op, first: int, end: int) -> bool:
    return any(a < end and first < b for a, b in ranges(o))


def touching(ops: list[Op], first: int, end: int) -> list[Op]:
    """The phases in which something is done to pages [first, end), and what sets the stage."""
    phases = {o.phase for o in ops if meets(o, first, end)}
    stage = (Policy.number, Fork.number, Spawn.number)
    return [o for o in ops if o.phase in phases or o.op in stage]


def always(inject: tuple[str, ...]) -> tuple[str, ...]:
    """Rules of the device that come true each time, not the n-th or a few times or by chance: which
    those are depends on all that there was before.  Only what a sound driver survives so."""
    words = ("prob=", "nth=", "count=")
    return tuple(
        " ".join(word for word in rule.split() if not word.startswith(words))
        if (line := injection.of(rule)) is not None and line.always else rule
        for rule in inject
    )  # fmt: skip


#: A rule that comes true once, by a bit of an address: of pages of system memory.
_BY_BIT = re.compile(r"\bmatch=([0-9a-f]+)/([0-9a-f]+)(?= count=\d+ )")


def once(inject: tuple[str, ...], event: int) -> tuple[str, ...]:
    """Rules that draw come true at that event (from 1), and never again.  What goes by a bit of
    where a page lies goes by one that many lower, since a smaller program has other pages; copies
    of programs stay out of it, whose own addresses are below 8 MiB or beyond 2^40."""

    def lower(found: re.Match[str]) -> str:
        bit, mask = (int(number, 16) for number in found.groups())
        if bit.bit_count() != 1:
            return found[0]
        return f"match={bit >> event:x}/{mask ^ bit | bit >> event:x}"

    rules = (re.sub(r"\bprob=\S+( count=\d+)?", f"nth={event}", rule) for rule in inject)
    return tuple(_BY_BIT.sub(lower, rule) for rule in rules)


def draws(inject: tuple[str, ...]) -> bool:
    """Whether the device draws, by what its machine has drawn before; it counts anew."""
    return any("prob=" in rule for rule in inject)


def copy_ops(ops: list[Op]) -> list[Op]:
    return [replace(o, acc=list(o.acc)) for o in ops]


def copy(p: Program) -> Program:
    return replace(p, ops=copy_ops(p.ops))
