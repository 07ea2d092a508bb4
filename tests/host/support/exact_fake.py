# SPDX-License-Identifier: GPL-2.0-or-later
"""The fake machine as an exact one: what it does is fixed by all that it ran since it was fresh."""

from __future__ import annotations

import hashlib
from random import Random

import fake
from fake import FakeTarget

from hmmbench.campaign.fresh import plain
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Execution
from hmmbench.guest.program import PAGE, PROT_RW, Acc, Op, Program
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.mapping import Mmap

#: What ran: the program as a recipe keeps it, and what surrounded it.
Ran = tuple[bytes, Environment]


class Exact(FakeTarget):
    """`since`: what it ran since it was fresh; `lives`: what it ran before, life by life.

    It runs programs for show only: nothing is answered, so nothing is judged, which takes time.
    """

    shows_only = True

    def __init__(self, bug: str = "") -> None:
        super().__init__(bug)
        self.lives: list[list[Ran]] = []
        self.since: list[Ran] = []
        self.tainted = False

    def renew(self) -> None:
        if self.since:
            self.lives.append(self.since)
        self.since = []
        self.tainted = False

    def execute(self, program: Program, environment: Environment) -> Execution:
        if self.tainted:
            # As ExactTarget does by itself.
            self.renew()
        self.since.append((plain(program).encode(), environment))
        state = hashlib.sha256(repr(self.since).encode()).digest()
        if self.shows_only:
            fake.CLOCK.spend(fake.CLOCK.EXECUTION_S)
            self.programs.append(program.encode())
            self.environments.append(environment)
            done = Execution(program)
        else:
            self.machine.rng = Random(state)
            done = super().execute(program, environment)
        self.look(done, state)
        self.tainted = done.tainted
        return done

    def look(self, done: Execution, state: bytes) -> None:
        """For machines that find something."""


class ExactFake(Exact):
    """The fake machine itself."""

    shows_only = False


def long_program(operations: int = 40) -> Program:
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW),
        *(Op(CpuAccess.number, acc=[(int(Acc.ADD), 0, 0, 0, 1, 0)]) for _ in range(operations)),
    ]
    for n, o in enumerate(ops):
        o.phase = n
    return Program(ops, (24, 600, 0, 0), timeout_ms=1234)
