# SPDX-License-Identifier: GPL-2.0-or-later
"""The device is taken away from its users, and comes back: unbind, reset, unplug, another module.

Jobs that run meanwhile end with an error (`Mishaps`), calls answer that there is no device.  Memory
is what it was: the driver brings all of VRAM home first, and a reset leaves VRAM's content, or
the driver brings it home for that as well.  Who had the device open has a dead file, or dead
contexts, and opens it anew: until then the process does nothing with the GPU (`Process.stale`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Final

from hmmbench.guest.program import F_NOWAIT, Op, OpResult, Program, Result
from hmmbench.model import scenes, upheaval
from hmmbench.model.belief import UNKNOWN, VRAM, Belief
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import OK, Field, Operation
from hmmbench.model.space import Process, Space


class Away(IntEnum):
    """How: from the driver, which is bound again; by a reset of the function; from the bus, which
    is scanned again; with the driver's module, if nobody has it in use, which is loaded again."""

    UNBIND = 0
    RESET = 1
    REMOVE = 2
    RELOAD = 3


_WORDS: Final = {way.value: way.name.lower() for way in Away}

#: What is drawn.  A module that is loaded again lies elsewhere, and its machine is of no use then.
_DRAWN = (*(Away.UNBIND, Away.RESET) * 4, *(Away.REMOVE,) * 3, Away.RELOAD)

#: How often it is a reset, which costs little: what is left of a program runs on.
RESETS, RESETS_SINCE = 0.35, 5

_ROWS = tuple(f"device: {word}" for word in _WORDS.values())


class TakeGpu(Operation):
    number, name = 92, "take_gpu"
    weight = 1
    since = 4
    changed = (RESETS_SINCE,)
    rows = _ROWS
    group = "process"
    fields = (Field("how", "arg", _WORDS),)
    races = True
    takes_gpu = True
    shapes = True
    once = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        # What is pinned stays in VRAM, and who was given a file cannot be told to open it anew;
        # what a file answers is known if it was taken from once.
        lives = space.alive()
        busy = space.mail or space.pinner is not None or any(q.held or q.stale for q in lives)
        return o.arg in _WORDS and not busy

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def takes_ms(self, o: Op) -> int:
        return 500

    def apply(self, space: Space, p: Process, o: Op) -> None:
        for q in space.alive():
            q.stale = 1 + o.arg

    def row(self, o: Op) -> str:
        return _ROWS[o.arg]

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole(self.row(o), o.proc)
        if o.arg != Away.RESET:
            b.migrate.clear()
        for theirs in b.all_pages.values():
            there = [gp for gp, at in theirs.items() if at == VRAM]
            theirs.update(dict.fromkeys(there, UNKNOWN))

    def simpler(self, o: Op) -> Iterator[Op]:
        if o.arg != Away.UNBIND:
            yield replace(o, arg=int(Away.UNBIND))

    def sentence(self, o: Op, at: str) -> str:
        return {
            Away.UNBIND: "unbinds the driver from the GPU, and binds it again",
            Away.RESET: "resets the GPU's function",
            Away.REMOVE: "removes the GPU from its bus, which it then scans again",
            Away.RELOAD: "removes the driver's module, unless it is in use, and loads it again",
        }[Away(o.arg)]

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """Beside what races, or alone; then all open it anew.  Mostly not at all: it takes
        long, and so does what follows such a program (VmTarget._unbound())."""
        rng = g.rng
        if g.grammar >= RESETS_SINCE and rng.random() < RESETS and self._may(g, proc):
            return self._taken(g, proc, Away.RESET)
        if rng.random() < 0.65 or not self._may(g, proc):
            return upheaval.upheaval(g, proc)
        return self._taken(g, proc, rng.choice(_DRAWN))

    def _may(self, g: Draw, proc: Process) -> bool:
        return self.admit(g.space, proc, Op(self.number))

    def _taken(self, g: Draw, proc: Process, how: Away) -> list[Op]:
        rng = g.rng
        r = rng.random()
        beside = (
            [] if r < 0.15 else scenes.race(g, proc) if r < 0.4 else upheaval.upheaval(g, proc)
        )  # fmt: skip
        if how == Away.RELOAD:
            # With the file open it does not go.
            for q in g.space.alive():
                g.first([g.op("close_gpu", q)])
        elif not beside:
            # It ends by that alone.
            g.first([g.op("gpu_spin", proc, flags=F_NOWAIT, a=scenes.ENDLESS)])
        free = [
            (p, actor) for p in g.space.alive() for actor in (3, 2, 1, 0)
            if not any((o.proc, o.actor) == (p.number, actor) for o in beside)
        ]  # fmt: skip
        if not free:
            return beside
        p, actor = rng.choice(free)
        away = g.op("take_gpu", p, actor, arg=int(how))
        wait = g.op("sleep", p, actor, a=rng.choice((0, 100, 500, 2000, 5000)))
        again = [g.op("reopen_gpu", q, arg=int(how)) for q in g.space.alive()]
        g.after = [*again, *g.after]
        return [wait, away, *beside] if beside and wait.a else [away, *beside]


class ReopenGpu(Operation):
    number, name = 93, "reopen_gpu"
    since = 4
    rows = ("open again",)
    group = "process"
    fields = TakeGpu.fields
    uses_gpu = True
    stale_ok = True
    shapes = True
    oracle = "values"

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        o.arg = p.stale - 1 if p.stale else int(Away.RELOAD)
        return True

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        if r.status == 0:
            return ""
        asked = ("opened it", "asked the file from before", "asked a context from before")
        what = asked[r.aux0] if r.aux0 < len(asked) else "closed it"
        return f"{what}: the answer is {r.status}, which is not that of a device that was away"

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg != Away.RESET:
            p.exclusive = False
        p.stale = 0

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole(self.rows[0], o.proc)

    def sentence(self, o: Op, at: str) -> str:
        if o.arg == Away.RESET:
            return "asks the GPU's contexts from before for their answer, and makes new ones"
        return "asks the GPU's file from before for its answer, and opens the GPU anew"


def takes_gpu(program: Program) -> bool:
    """Whether another device may be there afterwards."""
    return any(o.op == TakeGpu.number and o.arg != Away.RESET for o in program.ops)


def reloaded(program: Program, result: Result | None) -> bool:
    """Whether the driver's module was loaded again."""
    return result is not None and any(
        o.op == TakeGpu.number and o.arg == Away.RELOAD and r.aux0
        for o, r in zip(program.ops, result.ops, strict=True)
    )


OPERATIONS = (TakeGpu(), ReopenGpu())
