# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations on where memory is: migration, policy, eviction, and asking for it."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from hmmbench.guest.program import (
    HUGE,
    MIGRATE_DEVICE,
    PAGE,
    POLICY_EXCLUSIVE,
    POLICY_MIGRATE,
    Op,
)
from hmmbench.model.ops.base import (
    OK,
    RANGE,
    TOO_FAST,
    Field,
    Operation,
    aligned,
    pages,
    place,
    ranged,
    shorter,
)
from hmmbench.model.space import Process, Space


class Migrate(Operation):
    number, name = 10, "migrate"
    fields = (*RANGE, Field("to", "arg", {0: "system", 1: "device"}), Field("map", "a"))
    races = True
    uses_gpu = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return ranged(o)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        if racing:
            return OK | TOO_FAST | {-errno.EFAULT, -errno.ENOMEM}
        there = space.procs[o.proc].overlapping(*pages(o))
        return OK if there else frozenset({-errno.EFAULT, 0})

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def row(self, o: Op) -> str:
        return "migrate to VRAM" if o.arg == MIGRATE_DEVICE else "migrate to system"

    def sentence(self, o: Op, at: str) -> str:
        where = "VRAM" if o.arg == MIGRATE_DEVICE else "system memory"
        return f"asks the driver to migrate {at} to {where}" + (" and map it" if o.a else "")

    def call(self, o: Op) -> str:
        return f"migrate({place(o)}, {o.arg}, {o.a})"


class Policy(Operation):
    number, name = 11, "policy"
    fields = (
        Field("policy", "arg", {
            0: "map", 1: "migrate", 2: "map-exclusive", 3: "migrate-exclusive",
        }),
    )  # fmt: skip
    races = True
    uses_gpu = True
    shapes = True

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg & POLICY_EXCLUSIVE:
            p.exclusive = True
        elif p.exclusive:
            # A fault that is being served meanwhile may take its page after that.
            p.exclusive = None

    def sentence(self, o: Op, at: str) -> str:
        migrates = o.arg & POLICY_MIGRATE
        how = "migrate pages to VRAM" if migrates else "map pages where they are"
        exclusive = ", atomics take them exclusively" if o.arg & POLICY_EXCLUSIVE else ""
        return f"sets the policy for GPU faults: {how}{exclusive}"

    def call(self, o: Op) -> str:
        return f"policy({o.arg})"


class Evict(Operation):
    number, name = 12, "evict"
    fields = (Field("pages", "a"),)
    races = True

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def sentence(self, o: Op, at: str) -> str:
        return f"evicts {o.a or 'all'} pages from VRAM"

    def call(self, o: Op) -> str:
        return f"evict({o.a})"


class Query(Operation):
    number, name = 13, "query"
    fields = RANGE
    races = True
    uses_gpu = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return aligned(o) and o.len <= HUGE

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK | TOO_FAST if racing else OK

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def row(self, o: Op) -> str:
        return "query"

    def sentence(self, o: Op, at: str) -> str:
        return f"asks for the page tables of {at}"


OPERATIONS = (Migrate(), Policy(), Evict(), Query())
