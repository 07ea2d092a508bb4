# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations on processes, and those that pass time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hmmbench.guest.program import MAX_PROCS, MapKind, Op, OpResult
from hmmbench.model.belief import Belief
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import HUGETLB_BUDGET, OK, Field, Operation, hugetlb_used
from hmmbench.model.space import MISSING, Process, Space


def end(p: Process) -> None:
    """Its memory is no more, and it does nothing."""
    p.alive = False
    p._set([])
    p.private.clear()
    p.unsettled.clear()
    p.watched.clear()
    p.clean.clear()


class Nop(Operation):
    number, name = 0, "nop"
    races = True

    def sentence(self, o: Op, at: str) -> str:
        return "does nothing"


class Sleep(Operation):
    number, name = 19, "sleep"
    fields = (Field("usec", "a"),)
    races = True
    wanted = False

    def takes_ms(self, o: Op) -> int:
        return o.a // 1000

    def sentence(self, o: Op, at: str) -> str:
        return f"sleeps {o.a} \N{MICRO SIGN}s"


class Spawn(Operation):
    number, name = 15, "spawn"
    weight = 1
    fields = (Field("child", "arg"),)
    main_only = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return 0 < o.arg < MAX_PROCS and o.arg not in space.procs

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.procs[o.arg] = Process(o.arg)

    def sentence(self, o: Op, at: str) -> str:
        return f"process {o.arg} is started"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        n = g.next_proc()
        return [g.op("spawn", proc, arg=n)] if n else []


class Fork(Spawn):
    number, name = 14, "fork"
    weight = 3
    rows = ("fork",)
    group = "process"
    races = True
    areas = True
    alone = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not super().admit(space, p, o) or any(MISSING in v.flags for v in p.vmas):
            # (What was not there yet the child would have as zeroes.)
            return False
        private = sum(
            (v.end - v.start) // 512 for v in p.vmas if v.kind == MapKind.HUGETLB_PRIVATE
        )
        # A child's copy of a hugetlb page is not reserved: leave room for it.
        return hugetlb_used(space) + private <= HUGETLB_BUDGET

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.procs[o.arg] = p.fork(o.arg)
        p.clean = {}

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole("fork", o.proc)
        if r.status == 0:
            b.all_pages[o.arg] = dict(b.pages)

    def sentence(self, o: Op, at: str) -> str:
        return f"forks: process {o.arg} is its copy"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        n = g.next_proc()
        return [g.op("fork", proc, arg=n)] if n else []


class Exit(Operation):
    number, name = 16, "exit"
    rows = ("exit",)
    group = "process"
    main_only = True
    wanted = False

    def apply(self, space: Space, p: Process, o: Op) -> None:
        end(p)

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole("exit", o.proc)

    def sentence(self, o: Op, at: str) -> str:
        return "exits"


class Kill(Operation):
    number, name = 17, "kill"
    rows = ("kill",)
    group = "process"
    fields = (Field("victim", "arg"), Field("reap", "a", {0: "no", 1: "yes"}))

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.a > 1:
            return False
        victim = space.procs.get(o.arg)
        return victim is not None and victim.alive and o.arg != o.proc

    def apply(self, space: Space, p: Process, o: Op) -> None:
        end(space.procs[o.arg])

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole("kill", o.arg)

    def simpler(self, o: Op) -> Iterator[Op]:
        if o.a:
            yield replace(o, a=0)

    def sentence(self, o: Op, at: str) -> str:
        return f"kills process {o.arg}" + (" and takes its memory meanwhile" if o.a else "")


OPERATIONS = (Nop(), Sleep(), Spawn(), Fork(), Exit(), Kill())
