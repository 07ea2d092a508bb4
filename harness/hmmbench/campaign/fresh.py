# SPDX-License-Identifier: GPL-2.0-or-later
"""Executions in fresh exact machines: each is its chain, program and surroundings, and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def execute(self, program: Program, environment: Environment) -> Execution:
        self.prepare()
        return self.target.execute(program, environment)

    def prepare(self) -> None:
        """The machine for the next execution, of the target itself."""
        self.target.renew()
        for link in self.chain:
            self.target.execute(link.program, link.environment)

    def look(self, program: Program, environment: Environment) -> Execution:
        """In the machine as it is."""
        return self.target.execute(program, environment)

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


def shorter_chain(
    target: Target, chain: Sequence[Link], program: Program, environment: Environment,
    key: tuple[str, str], late: Callable[[], bool],
) -> tuple[Link, ...]:  # fmt: skip
    """The examples of the chain that the failure needs; it fails with all of them."""
    kept = tuple(chain)
    size = max(1, len(kept) // 2)
    while kept and not late():
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            outcome = run(Fresh(target, fewer), program, environment)
            if any(v.key == key for v in outcome.violations):
                kept = fewer
                break
            if late():
                break
        else:
            if size == 1:
                break
            size //= 2
        size = max(1, min(size, len(kept)))
    return kept
