# SPDX-License-Identifier: GPL-2.0-or-later
"""All operations, by their numbers and by their names.

    ops.of(o).sentence(o, ...)      whatever it is

A family is a module here, or one from outside (base/outside.py); a new operation is a class in
it and an entry of its OPERATIONS.
"""

from __future__ import annotations

from hmmbench.guest.program import Op, Program
from hmmbench.model.ops import (
    accounts,
    advice,
    buffers,
    device,
    dirty,
    files,
    folios,
    guard,
    jobs,
    lives,
    mapping,
    moving,
    nodes,
    outside,
    pins,
    poison,
    processes,
    promises,
    queues,
    reclaim,
    refusals,
    stores,
    uffd,
)
from hmmbench.model.ops.base import Operation
from hmmbench.model.space import Space

#: The bench's own.
FAMILIES = (
    mapping, advice, moving, jobs, processes, lives, folios, files, stores, pins, promises,
    accounts, uffd, dirty, guard, nodes, reclaim, poison, device,
    buffers, queues, refusals,
)  # fmt: skip

_OWN = tuple(operation for family in FAMILIES for operation in family.OPERATIONS)

#: number -> operation
OPERATIONS: dict[int, Operation] = {
    operation.number: operation for operation in (*_OWN, *outside.operations(_OWN))
}

#: as recipes have it -> operation
NAMED: dict[str, Operation] = {operation.name: operation for operation in OPERATIONS.values()}


def of(o: Op) -> Operation:
    """Raises KeyError if there is none of that number."""
    return OPERATIONS[o.op]


def takes_ms(program: Program) -> int:
    """What its operations wait by themselves, one after another."""
    return sum(of(o).takes_ms(o) for o in program.ops)


def apply(space: Space, o: Op) -> None:
    """What the operation does when it succeeds, apart from accesses and copies."""
    of(o).apply(space, space.procs[o.proc], o)
