# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a failure of an exact machine small: one execution a candidate, and a few seeds.

Each candidate runs in a fresh machine, so what one did to it misleads no other.  A candidate
whose schedule no longer fits what it does is tried with a few others of the same kind.  Then the
schedule itself is made plain: fewer holds, fewer points, long slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hmmbench import exact_schedule
from hmmbench.event import Event
from hmmbench.guest.protocol import Op, Program
from hmmbench.model.admit import normalise
from hmmbench.oracle.violation import Violation
from hmmbench.recipe import Environment, Link
from hmmbench.shrink import SMALL, Shrinker, Shrunk, _copy_ops
from hmmbench.target import Execution, Target, run

#: Schedules of the same kind that a candidate gets beside its own.
SEEDS = 2


class Fresh:
    """A target whose every execution has a fresh machine, in which a chain ran before."""

    def __init__(self, target: Target, chain: Sequence[Link] = ()) -> None:
        self.target = target
        self.chain = tuple(chain)

    def execute(self, program: Program, environment: Environment) -> Execution:
        self.target.renew()
        for link in self.chain:
            self.target.execute(link.program, link.environment)
        return self.target.execute(program, environment)

    def renew(self) -> None:
        """It always is."""

    def keep(self, folder: Path) -> None:
        self.target.keep(folder)

    def watch(self) -> None:
        """An exact machine is not traced by asking it: that would be another execution."""

    def watched(self) -> list[Event]:
        return []


def plain(program: Program) -> Program:
    """The program as a recipe gives it back: without what only the campaign knew."""
    return Program(program.ops, program.file_pages)


class ExactShrinker(Shrinker):
    """As Shrinker; `target` is a Fresh, and an execution fails or does not."""

    def run(self) -> Shrunk:
        # Limits are virtual time, which costs nothing, and a recipe has the usual ones.
        self.program = plain(self.program)
        return self._smallest(False)

    def _smallest(self, hang: bool) -> Shrunk:
        found = self._first()
        if found is None:
            return Shrunk(self.program, self.environment, self.violation, 0.0, self.executions)
        self.environment, self.violation = found
        last = self.violation.op
        if 0 <= last < len(self.program.ops):
            # What comes after the violation did not cause it.
            phase = self.program.ops[last].phase
            self._fails([o for o in self.program.ops if o.phase <= phase])
        bold = last >= 0 and self._guess()
        bold |= self._near()
        if last < 0 and not bold:
            self._first_phases()
            self._guess()
        self._environment()
        changed = True
        while changed and not self._late():
            changed = self._operations()
            changed |= self._accesses()
            changed |= self._simplify()
            if len(self.program.ops) > SMALL:
                self._plain_schedule()
        self._plain_schedule()
        return Shrunk(self.program, self.environment, self.violation, 1.0, self.executions)

    def _first(self) -> tuple[Environment, Violation] | None:
        for env in self._variants(self.environment):
            self.seen.add(self._key(self.program, env))
            found = self._same(self._execute(self.program, env))
            if found is not None:
                return env, found
        return None

    @staticmethod
    def _key(program: Program, environment: Environment) -> bytes:
        return program.encode() + repr(environment).encode()

    def _variants(self, environment: Environment) -> Iterator[Environment]:
        yield environment
        if environment.schedule:
            for seed in range(1, SEEDS + 1):
                yield replace(
                    environment, schedule=exact_schedule.reseeded(environment.schedule, seed)
                )

    def _fails(self, ops: list[Op], environment: Environment | None = None) -> bool:
        if self._late() or not ops:
            return False
        p = Program(normalise(_copy_ops(ops), self.program.file_pages), self.program.file_pages)
        if not p.ops:
            return False
        wanted = self.environment if environment is None else environment
        if self._key(p, wanted) in self.seen:
            # As it is now, or tried before, with its other seeds.
            return False
        for env in self._variants(wanted):
            key = self._key(p, env)
            if key in self.seen:
                continue
            self.seen.add(key)
            found = self._same(self._execute(p, env))
            if found is not None:
                self.program, self.environment, self.violation = p, env, found
                self.note(f"{len(p.ops)} operations, {self.executions} executions")
                return True
            if self._late():
                break
        return False

    def _plain_schedule(self) -> None:
        for schedule in exact_schedule.plainer(self.environment.schedule):
            # Against the latest: each step stands on those that were taken.
            changed = schedule(self.environment.schedule)
            if changed != self.environment.schedule:
                self._fails(self.program.ops, replace(self.environment, schedule=changed))


def shorter_chain(
    target: Target, chain: Sequence[Link], program: Program, environment: Environment,
    oracle: str, late: Callable[[], bool],
) -> tuple[Link, ...]:  # fmt: skip
    """The examples of the chain that the failure needs; it fails with all of them."""
    kept = tuple(chain)
    size = max(1, len(kept) // 2)
    while kept and not late():
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            outcome = run(Fresh(target, fewer), program, environment)
            if any(v.oracle == oracle for v in outcome.violations):
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
