# SPDX-License-Identifier: GPL-2.0-or-later
"""Trying candidates for a smaller failure of an exact machine: what is taken has failed in a fresh
one.

A fresh machine takes ten times as long as one that has run such a program before.  So where
neither chance nor a number of passages decides, candidates are tried in machines that are kept, and
what a step has come to once more in a fresh one.  If it does not fail there, one has misled the
next, and the step is made again with each confirmed.

Candidates are tried ahead on as many machines as there are, each of which gets its own in order:
the first in order that fails is taken, whichever answers first.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from hmmbench.campaign.fresh import Fresh, plain
from hmmbench.campaign.pieces import copy_ops
from hmmbench.campaign.shrink import Shrinker, Shrunk
from hmmbench.example import holds, schedules
from hmmbench.example.judge import judge, run
from hmmbench.example.recipe import Environment, Link
from hmmbench.example.schedules import Points
from hmmbench.guest.program import TIMEOUT_MS, Op, Program
from hmmbench.model.admit import normalise
from hmmbench.oracle.violation import Violation
from hmmbench.vm.decisions import Record

#: Schedules of the same kind that a candidate gets beside its own, where it holds by chance.
SEEDS = 2

#: Candidates that are tried in one machine before it is replaced.
KEPT = 40

T = TypeVar("T")


@dataclass
class ExactShrunk(Shrunk):
    """`record`: of the last execution of the result, if it is known; `chain`: what it needs."""

    record: Record | None = None
    chain: tuple[Link, ...] = ()


@dataclass(frozen=True)
class _Candidate:
    """`at`: the place in a step's order; `before`, `after`: what runs in its machine, too."""

    program: Program
    environment: Environment
    at: int = 0
    before: tuple[Link, ...] = ()
    after: tuple[Link, ...] = ()

    @property
    def whole(self) -> tuple[Link, ...]:
        return (*self.before, Link(self.program, self.environment), *self.after)

    @property
    def key(self) -> bytes:
        digest = hashlib.sha256()
        for link in self.whole:
            digest.update(link.program.encode() + repr(link.environment).encode())
        return digest.digest()


@dataclass(frozen=True)
class _Tried:
    """`fresh`: in a fresh machine."""

    found: Violation | None
    record: Record | None = None
    fresh: bool = True


class Tries(Shrinker):
    """As Shrinker; an execution fails or does not.

    targets -- one or several of a kind, with the same chain; nobody else uses them meanwhile
    points  -- where CPUs are held if no list of what was decided fails
    """

    def __init__(
        self, targets: Fresh | Sequence[Fresh], program: Program, environment: Environment,
        violation: Violation, seconds: float = 150.0,
        note: Callable[[str], None] = lambda text: None, points: Points | None = None,
    ) -> None:  # fmt: skip
        self._points = Points() if points is None else points
        self._targets = [targets] if isinstance(targets, Fresh) else list(targets)
        # Limits are virtual time, which costs nothing, and a recipe has the usual ones.
        super().__init__(self._targets[0], plain(program), environment, violation, seconds, note)
        self._seconds = seconds
        self._submitted = 0
        #: one for each target
        self._threads: list[ThreadPoolExecutor] = []
        #: whether a step is confirmed only when it is over
        self._trusting = True
        #: executions of each machine since it was fresh
        self._looks = [KEPT] * len(self._targets)
        #: of the execution in which the current program failed
        self._record: Record | None = None
        #: it did in a fresh machine
        self._sure = True
        #: what runs in its machine before and behind the example that is made smaller: mostly
        #: that is the last
        self._before = self._targets[0].chain
        self._after: tuple[Link, ...] = ()
        #: how long a candidate may take; it says nothing of that itself
        self._timeout_ms = TIMEOUT_MS

    def _result(self, rate: float) -> ExactShrunk:
        return ExactShrunk(
            self.program, self.environment, self.violation, rate, self.executions, self._record,
            self._before,
        )  # fmt: skip

    def _first(self, candidates: Iterator[_Candidate], trusting: bool = False) -> _Candidate | None:
        """The first of them that fails, which is the new best; None: none does.

        Others are executed ahead, and forgotten if one before them fails.

        trusting -- it need not have failed in a fresh machine; then it has no record
        """
        ahead: deque[tuple[_Candidate, Future[_Tried]]] = deque()
        try:
            while not self._late():
                while len(ahead) < len(self._targets):
                    one = next(candidates, None)
                    if one is None:
                        break
                    if one.key in self.seen or any(one.key == other.key for other, _ in ahead):
                        continue
                    n = self._submitted % len(self._targets)
                    self._submitted += 1
                    ahead.append((one, self._threads[n].submit(self._try, n, one, trusting)))
                if not ahead:
                    break
                one, future = ahead.popleft()
                tried = future.result()
                self.executions += 1
                self.seen.add(one.key)
                if tried.found is not None:
                    self.program, self.environment = one.program, one.environment
                    self._before, self._after = one.before, one.after
                    self.violation, self._record = tried.found, tried.record
                    self._sure = tried.fresh
                    self.note(f"{len(self.program.ops)} operations, {self.executions} executions")
                    return one
        finally:
            # They are not cancelled: what a machine has run may not be a matter of time.
            wait_for([future for _, future in ahead])
        return None

    def _try(self, number: int, candidate: _Candidate, trusting: bool) -> _Tried:
        target = self._targets[number]
        *chain, last = candidate.whole
        target.chain, p, env = tuple(chain), self._timed(last.program), last.environment
        if not chain and holds.robust(env.schedule) and self._looks[number] < KEPT:
            self._looks[number] += 1
            found = self._same(judge(target.look(p, env)))
            if found is None or trusting:
                return _Tried(found, fresh=False)
        self._looks[number] = 0
        found = self._same(run(target, p, env))
        return _Tried(found, target.record() if found is not None else None)

    def _timed(self, program: Program) -> Program:
        return replace(program, timeout_ms=self._timeout_ms)

    def _candidates(
        self, wanted: Iterable[tuple[int, Program, Iterable[Environment]]]
    ) -> Iterator[_Candidate]:
        """All variants of each, unless the first has been tried: then all have."""
        for at, program, variants in wanted:
            for n, environment in enumerate(variants):
                one = _Candidate(program, environment, at, self._before, self._after)
                if not n and one.key in self.seen:
                    break
                yield one

    def _sound(
        self, ops: list[Op], was: Sequence[Op] | None = None
    ) -> tuple[Program, dict[int, int]] | None:
        """The program, and which of the current one's phases has become which.

        was -- what these operations are in the current program, whose phases the schedule
               names; None: they have those phases still
        """
        copies = copy_ops(ops)
        before = {
            id(o): old.phase for o, old in zip(copies, ops if was is None else was, strict=True)
        }
        p = Program(normalise(copies, self.program.file_pages), self.program.file_pages)
        if not p.ops:
            return None
        phases: dict[int, int] = {}
        for o in p.ops:
            # Of one that has become several, the first.
            phases.setdefault(before[id(o)], o.phase)
        # What comes behind all operations is a phase, too.
        phases[_last(self.program.ops) + 1] = _last(p.ops) + 1
        return p, phases

    @staticmethod
    def _moved(environment: Environment, phases: dict[int, int]) -> Environment:
        return replace(environment, schedule=holds.moved(environment.schedule, phases))

    def _variants(self, phases: dict[int, int]) -> Iterator[Environment]:
        """The environment, and what else of its kind may do where operations have changed."""
        environment = self._moved(self.environment, phases)
        yield environment
        schedule = environment.schedule
        if holds.holds(schedule):
            for other in (holds.each(schedule), holds.earlier(schedule)):
                yield replace(environment, schedule=other)
        else:
            yield from islice(self._reseeded(environment), 1, None)

    @staticmethod
    def _reseeded(environment: Environment, seeds: int = SEEDS) -> Iterator[Environment]:
        """It, then others that differ by their seeds, or hold more often."""
        yield environment
        schedule = environment.schedule
        if not schedule:
            return
        often = holds.often(schedule)
        if often != schedule:
            yield replace(environment, schedule=often)
        for seed in range(1, seeds + 1):
            of = often if seed % 2 else schedule
            yield replace(environment, schedule=schedules.reseeded(of, seed))

    def _fails(
        self, ops: list[Op], environment: Environment | None = None,
        was: Sequence[Op] | None = None,
    ) -> bool:  # fmt: skip
        """As Shrinker._fails(); `was` as in _sound()."""
        if self._late() or not ops:
            return False
        sound = self._sound(ops, was)
        if sound is None:
            return False
        p, phases = sound
        variants = (
            self._variants(phases) if environment is None
            else self._reseeded(self._moved(environment, phases))
        )  # fmt: skip
        return self._first(self._candidates([(0, p, variants)])) is not None

    def _sweep(self, places: Sequence[T], change: Callable[[T], list[Op] | None]) -> bool:
        """Each of these changes in turn, standing on those that were taken; True if one was."""
        at, any_change = 0, False

        def wanted(first: int) -> Iterator[tuple[int, Program, Iterable[Environment]]]:
            for n in range(first, len(places)):
                ops = change(places[n])
                sound = self._sound(ops) if ops else None
                if sound is not None:
                    yield n, sound[0], self._variants(sound[1])

        before = self.program, self.environment, self.violation, self._record, self._sure
        seen = set(self.seen)
        while at < len(places):
            taken = self._first(self._candidates(wanted(at)), self._trusting)
            if taken is None:
                break
            any_change = True
            at = taken.at + 1
        if not self._sure and not self._confirmed():
            self.program, self.environment, self.violation, self._record, self._sure = before
            self.seen = seen
            self._trusting = False
            return self._sweep(places, change)
        return any_change

    def _confirmed(self) -> bool:
        """Whether it fails in a fresh machine as it is now; there is no chain."""
        self.executions += 1
        self._targets[0].chain = ()
        found = self._same(run(self._targets[0], self._timed(self.program), self.environment))
        self._looks[0] = 0
        self._record = self._targets[0].record()
        self._sure = found is not None
        if found is not None:
            self.violation = found
        return found is not None

    def _schedules(self, wanted: Iterable[str]) -> bool:
        """The first of these schedules with which it still fails."""
        each = (replace(self.environment, schedule=one) for one in wanted)
        return self._first(
            self._candidates((n, self.program, [env]) for n, env in enumerate(each))
        ) is not None  # fmt: skip


def _last(ops: Sequence[Op]) -> int:
    """The last phase."""
    return max((o.phase for o in ops), default=0)
