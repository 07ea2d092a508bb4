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
from hmmbench.campaign.pieces import copy_ops, draws
from hmmbench.campaign.shrink import Shrinker, Shrunk
from hmmbench.device import injection
from hmmbench.example import holds, schedules
from hmmbench.example.judge import Verdict, judge, run
from hmmbench.example.recipe import Environment, Link
from hmmbench.example.schedules import Points
from hmmbench.guest.program import TIMEOUT_MS, Op, Program
from hmmbench.model.admit import normalise
from hmmbench.model.ops import takes_ms
from hmmbench.oracle.violation import NO_END, Violation
from hmmbench.vm.decisions import Record

#: Schedules of the same kind that a candidate gets beside its own, where it holds by chance.
SEEDS = 2

#: Candidates that are tried in one machine before it is replaced.
KEPT = 40

#: What counts as a hang meanwhile, of virtual time (milliseconds): what repeats a fault for ever
#: executes until then.  A program takes a tenth of the first, and what still works has several
#: times as long; half of the second where neither device nor schedule keep it.  What operations
#: wait by themselves comes to it.  What has come of it has failed once more under the usual limit.
SHORT_HANG_MS, UNDISTURBED_HANG_MS = 300, 60

T = TypeVar("T")

#: What is known of the current failure: program, environment, violation, what runs before and after
#: it, the record of its execution, whether that was in a fresh machine, whether it did not end.
State = tuple[
    Program, Environment, Violation, tuple[Link, ...], tuple[Link, ...], Record | None, bool, bool
]


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
    hung: bool = False


class Tries(Shrinker):
    """As Shrinker; an execution fails or does not.

    targets -- one or several of a kind, with the same chain; nobody else uses them meanwhile
    points  -- where CPUs are held if no list of what was decided fails
    """

    def __init__(
        self, targets: Fresh | Sequence[Fresh], program: Program, environment: Environment,
        violation: Violation, seconds: float = 150.0,
        note: Callable[[str], None] = lambda text: None, points: Points | None = None,
        hung: bool = False,
    ) -> None:  # fmt: skip
        self._points = Points() if points is None else points
        self._targets = [targets] if isinstance(targets, Fresh) else list(targets)
        # Limits are virtual time, which costs nothing, and a recipe has the usual ones.
        super().__init__(self._targets[0], plain(program), environment, violation, seconds, note)
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
        #: and it did not end then
        self._hung = hung
        #: it failed with long slices whatever the seed when that was last looked at
        self._certain = False
        #: what runs in its machine before and behind the example that is made smaller: mostly
        #: that is the last
        self._before = self._targets[0].chain
        self._after: tuple[Link, ...] = ()
        #: how long a candidate may take; it says nothing of that itself
        self._timeout_ms = TIMEOUT_MS
        #: what has failed under the usual limit, where a shorter one is tried
        self._usual: State | None = None

    def _state(self) -> State:
        return (
            self.program, self.environment, self.violation, self._before, self._after,
            self._record, self._sure, self._hung,
        )  # fmt: skip

    def _turn_back(self, state: State) -> None:
        (
            self.program, self.environment, self.violation, self._before, self._after,
            self._record, self._sure, self._hung,
        ) = state  # fmt: skip

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
                    self._take(one, tried, tried.found)
                    return one
        finally:
            # They are not cancelled: what a machine has run may not be a matter of time.
            wait_for([future for _, future in ahead])
        return None

    def _each(self, candidates: Sequence[_Candidate]) -> list[_Tried]:
        """What becomes of each, as many at the same time as there are machines."""
        tried = []
        for n, one in enumerate(candidates):
            number = n % len(self._targets)
            tried.append(self._threads[number].submit(self._try, number, one, False))
        self.executions += len(tried)
        wait_for(tried)
        return [future.result() for future in tried]

    def _take(self, one: _Candidate, tried: _Tried, found: Violation) -> None:
        """It is the new best."""
        self.program, self.environment = one.program, one.environment
        self._before, self._after = one.before, one.after
        self.violation, self._record = found, tried.record
        self._sure, self._hung = tried.fresh, tried.hung
        self.note(f"{len(self.program.ops)} operations, {self.executions} executions")

    def _try(self, number: int, candidate: _Candidate, trusting: bool) -> _Tried:
        target = self._targets[number]
        *chain, last = candidate.whole
        target.chain, env = tuple(chain), last.environment
        p = self._timed(last.program, env)
        kept = holds.robust(env.schedule) and not draws(env.inject)
        if not chain and kept and self._looks[number] < KEPT:
            fresh = target.clean
            self._looks[number] = 1 if fresh else self._looks[number] + 1
            outcome = judge(target.look(p, env))
            if fresh or trusting or self._same(outcome) is None:
                return self._tried(target, outcome, fresh)
        self._looks[number] = 0
        return self._tried(target, run(target, p, env), True)

    def _tried(self, target: Fresh, outcome: Verdict, fresh: bool) -> _Tried:
        found = self._same(outcome)
        hung = any(v.key == NO_END for v in outcome.violations)
        return _Tried(found, target.record() if found and fresh else None, fresh, hung)

    def _same(self, outcome: Verdict) -> Violation | None:
        """As Shrinker's; of the mirror also another: what GPU and CPU had of a page when they were
        compared is a matter of time."""
        return super()._same(outcome) or next(
            (v for v in outcome.violations if _compared(v) and _compared(self.violation)), None
        )

    def _timed(self, program: Program, environment: Environment) -> Program:
        limit, settle, kill = self._timeout_ms, program.settle_ms, program.kill_ms
        schedule = environment.schedule
        disturbed = (
            environment.inject or environment.delays or environment.vram is not None
            or schedule != holds.base(schedule)
        )  # fmt: skip
        if limit == SHORT_HANG_MS and not disturbed:
            limit = UNDISTURBED_HANG_MS
        if limit <= SHORT_HANG_MS:
            # Where the guest itself hangs, all of them count.
            settle = min(settle, limit)
            if self.violation.key == NO_END or self.violation.oracle == "kernel":
                # Without an answer it is seen as well: that nobody answers, and the console.
                kill = limit
            limit += takes_ms(program) + injection.waits_ms(environment.inject)
        return replace(program, timeout_ms=limit, settle_ms=settle, kill_ms=kill)

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

    def _reseeded(self, environment: Environment, seeds: int = SEEDS) -> Iterator[Environment]:
        """It, then others that differ by their seeds, or hold more often."""
        yield environment
        schedule = environment.schedule
        if not schedule:
            return
        if schedule == holds.base(schedule) and (self._certain or self._before or self._after):
            # Not by chance; or for what ran before it, and each costs as much as all of that.
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

        before = self._state()
        seen = set(self.seen)
        while at < len(places):
            taken = self._first(self._candidates(wanted(at)), self._trusting)
            if taken is None:
                break
            any_change = True
            at = taken.at + 1
        if not self._sure and not self._confirmed():
            self._turn_back(before)
            self.seen = seen
            self._trusting = False
            return self._sweep(places, change)
        return any_change

    def _confirmed(self) -> bool:
        """Whether it fails in a fresh machine as it is now; there is no chain."""
        self.executions += 1
        self._targets[0].chain = ()
        program = self._timed(self.program, self.environment)
        found = self._same(run(self._targets[0], program, self.environment))
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


def _compared(violation: Violation) -> bool:
    """The device had both entries of a page, and they differed."""
    return violation.oracle == "mirror" and violation.message.startswith("mirror-")


def _last(ops: Sequence[Op]) -> int:
    """The last phase."""
    return max((o.phase for o in ops), default=0)
