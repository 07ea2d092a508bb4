# SPDX-License-Identifier: GPL-2.0-or-later
"""Lives of the GPU's file: two of one memory, of another user, passed on, kept over exec.

What is known of a descriptor is whose memory its file mirrors: `Space.mail` has those that were
sent and not taken, `Process.held` those that a process took.  Who is not the owner gets EPERM from
all that touches that memory; whether it still lives makes no difference.
"""

from __future__ import annotations

import errno

from hmmbench.guest.program import Op, OpResult
from hmmbench.model import abroad
from hmmbench.model.belief import UNKNOWN, VRAM, Belief, touched
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import (
    OK,
    RANGE,
    STACK_REGION,
    Field,
    Operation,
    pages,
    ranged,
)
from hmmbench.model.ops.processes import end
from hmmbench.model.space import Process, Space

#: Descriptors under way, and in one process, at most (MAX_HELD of ops/lives.c).
MAIL, HELD = 2, 2

#: Users beside root.
USERS = (1000, 1001)

GROUP = "process"


class _Reopens(Operation):
    """It closes the GPU's file first, with all that it knew."""

    since = 4
    group = GROUP
    uses_gpu = True
    main_only = True

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        p.exclusive = False

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole(self.rows[0], o.proc)
        b.migrate.discard(o.proc)
        b.pages.update({gp: UNKNOWN for gp, at in b.pages.items() if at == VRAM})


class SplitGpu(_Reopens):
    number, name = 30, "split_gpu"
    weight = 3
    rows = ("second open",)
    fields = (Field("files", "a", {0: "one", 1: "two"}),)
    shapes = True

    def sentence(self, o: Op, at: str) -> str:
        files = "two open files, one for each context" if o.a else "one open file"
        return f"uses the GPU by {files}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.op("split_gpu", proc, a=int(g.rng.random() < 0.8))]


class OpenAs(_Reopens):
    number, name = 35, "open_as"
    weight = 1
    rows = ("open by user",)
    fields = (Field("user", "arg"),)

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return o.arg == 0 or o.arg in USERS

    def sentence(self, o: Op, at: str) -> str:
        return f"opens the GPU as user {o.arg}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.op("open_as", proc, arg=g.rng.choice((*USERS, 0)))]


class SendGpu(Operation):
    number, name = 31, "send_gpu"
    since = 4
    weight = 2
    rows = ("send file",)
    group = GROUP
    uses_gpu = True
    main_only = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return len(space.mail) < MAIL

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.mail.append(o.proc)

    def sentence(self, o: Op, at: str) -> str:
        return "sends the descriptor of its GPU to whoever takes it"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return abroad.passed_on(g, proc)


class ReceiveGpu(Operation):
    number, name = 32, "receive_gpu"
    since = 4
    rows = ("receive file",)
    group = GROUP
    main_only = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return bool(space.mail) and len(p.held) < HELD

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        p.held.append(space.mail.pop(0))

    def sentence(self, o: Op, at: str) -> str:
        return "takes the oldest descriptor that was sent"


class UseHeld(Operation):
    number, name = 33, "use_held"
    since = 4
    rows = ("close held file", "use held file")
    group = GROUP
    main_only = True
    fields = (
        *RANGE,
        Field("how", "arg", {0: "close", 1: "param", 2: "context", 3: "migrate", 4: "query"}),
    )

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return bool(p.held) and o.arg <= 4 and ranged(o) and o.region < STACK_REGION

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        p = space.procs[o.proc]
        if o.arg <= 1:
            return OK
        if p.held[-1] != o.proc:
            return frozenset({-errno.EPERM})
        # Nothing to migrate there.
        empty = o.arg == 3 and not p.overlapping(*pages(o))
        return OK | {-errno.EFAULT} if empty else OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg == 0:
            p.held.pop()

    def row(self, o: Op) -> str:
        return self.rows[o.arg > 0]

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        if o.arg == 3 and r.status == 0:
            start, end = touched(o)
            b.put([gp for gp in b.pages if start <= gp < end], UNKNOWN)

    def sentence(self, o: Op, at: str) -> str:
        what = (
            "closes it", "asks for a parameter", "asks for a context",
            f"asks to migrate {at} to VRAM", f"asks for the page tables of {at}",
        )[o.arg]  # fmt: skip
        return f"with the newest descriptor that it took: {what}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        start = g.page_of(g.pick(proc))
        return [g.ranged("use_held", proc, start, start + 1, arg=g.rng.randrange(5))]


class Exec(Operation):
    """The process becomes another program, which has the GPU's file and none of the memory."""

    number, name = 34, "exec"
    since = 4
    rows = ("exec",)
    group = GROUP
    uses_gpu = True
    main_only = True
    fields = (Field("usec", "a"),)

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return o.a < 100_000

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def takes_ms(self, o: Op) -> int:
        return o.a // 1000

    def apply(self, space: Space, p: Process, o: Op) -> None:
        end(p)

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.whole("exec", o.proc)

    def sentence(self, o: Op, at: str) -> str:
        return f"becomes another program, which keeps the GPU's file for {o.a} \N{MICRO SIGN}s"


OPERATIONS = (SplitGpu(), SendGpu(), ReceiveGpu(), UseHeld(), Exec(), OpenAs())
