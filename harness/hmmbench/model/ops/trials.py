# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations that try something on memory and queues of their own.

No program knows that memory, so the guest tells what it saw of it, and the operation's class says
what is wrong with that.  Where the device misbehaves so that jobs end, or is taken away meanwhile,
nothing is said (`Operation.trial`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Protocol

from hmmbench.guest.program import PAGE, Op, OpResult
from hmmbench.model.belief import Belief
from hmmbench.model.ops.base import PERHAPS, Operation, shorter
from hmmbench.model.space import Space

#: aux0 of an answer: it came to a judgement.  Others say why not.
TRIED = 0


class Look(Protocol):
    """Something that was seen."""

    def bad(self) -> str:
        """What is wrong with it; "": nothing."""


def records(form: struct.Struct, r: OpResult) -> Iterator[tuple[int, ...]]:
    """What the answer is made of.  Raises ValueError if it is not."""
    if len(r.data) % form.size:
        raise ValueError(f"{len(r.data)} bytes")
    return form.iter_unpack(r.data)


class Trial(Operation):
    """One of which each look is judged by itself."""

    group = "GPU"
    oracle = "contents"
    races = True
    uses_gpu = True
    # What it is compared with is not the result of a call.
    wanted = False
    optional = True
    trial = True

    def seen(self, r: OpResult) -> Sequence[Look]:
        """Raises ValueError for an answer that is none."""
        raise NotImplementedError

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return []

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return PERHAPS

    def judge(self, o: Op, r: OpResult, racing: bool) -> str:
        if r.status or r.aux0 != TRIED:
            return ""
        looks = self.seen(r)
        if not looks:
            return "nothing seen: the guest says that it tried"
        return next((bad for look in looks if (bad := look.bad())), "")

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole(self.rows[0], o.proc)

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)
