# SPDX-License-Identifier: GPL-2.0-or-later
"""Executions in fresh exact machines: each is its chain, program and surroundings, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from hmmbench.example import holds
from hmmbench.example.event import TimedEvent
from hmmbench.example.judge import run
from hmmbench.example.recipe import Environment, Link
from hmmbench.example.target import Execution, Target
from hmmbench.guest.program import Program
from hmmbench.vm import decisions
from hmmbench.vm.decisions import Record


@runtime_checkable
class Recorder(Protocol):
    """A target that knows."""

    def record(self) -> Record | None:
        """Of the latest execution; None if its machine did not survive it."""


class Fresh:
    """A target whose every execution has a fresh machine, in which a chain ran before."""

    def __init__(self, target: Target, chain: Sequence[Link] = ()) -> None:
        self.target = target
        self.chain = tuple(chain)
        #: nothing has run in the machine that look() has next
        self.clean = False

    def execute(self, program: Program, environment: Environment) -> Execution:
        self.prepare()
        return self.look(program, environment)

    def prepare(self) -> None:
        """The machine for the next execution, of the target itself."""
        self.clean = False
        self.target.renew()
        for link in self.chain:
            self.target.execute(link.program, link.environment)

    def look(self, program: Program, environment: Environment) -> Execution:
        """In the machine as it is."""
        self.clean = False
        done = self.target.execute(program, environment)
        # Such a one is replaced.
        self.clean = done.tainted
        return done

    def record(self) -> Record | None:
        return self.target.record() if isinstance(self.target, Recorder) else None

    def renew(self) -> None:
        """It always is."""

    def end(self) -> None:
        self.target.end()

    def keep(self, folder: Path) -> None:
        self.target.keep(folder)

    def watch(self) -> None:
        """An exact machine is not traced by asking it: that would be another execution."""

    def watched(self) -> list[TimedEvent]:
        return []


def plain(program: Program) -> Program:
    """The program as a recipe gives it back: without what only the campaign knew."""
    return Program(program.ops, program.file_pages)


def held(
    target: Fresh, program: Program, environment: Environment, record: Record | None
) -> tuple[holds.Hold, ...] | None:
    """Who was held in this execution, which is made once more to count the passages; None: not
    known, or it does not repeat."""
    if not environment.schedule or record is None:
        return None
    missing = holds.uncounted(record.log)
    if missing:
        counting = holds.counting(environment.schedule, missing)
        run(target, program, replace(environment, schedule=counting))
        again = target.record()
        if again is None or decisions.part(record.log, again.log) is not None:
            return None
        if holds.uncounted(again.log):
            return None
        record = again
    return holds.recorded(record.log)
