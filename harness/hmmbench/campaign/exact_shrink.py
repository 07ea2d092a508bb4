# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a failure of an exact machine small: what is taken has failed in a fresh machine.

1. Bold guesses at the operations concerned, under the schedule that found it.  Of a chain, first
   all that neither begins nor ends a process nor uses the GPU goes.
2. What that decided by chance is told one by one: a list of holds (holds.py), and as few of them
   as it takes.
3. The operations.  A list counts passages, and those change with what is taken away: so CPUs are
   held at each passage of its places meanwhile, if it fails so, too.
4. The list once more, with round times, and the operations under it.

A fresh machine takes ten times as long as one that has run such a program before.  So where
neither chance nor a number of passages decides, candidates are tried in machines that are kept, and
what a step has come to once more in a fresh one.  If it does not fail there, one has misled the
next, and the step is made again with each confirmed.

Candidates are tried ahead on as many machines as there are, each of which gets its own in order:
the first in order that fails is taken, whichever answers first.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from hmmbench.campaign.shrink import (
    EXTRA_S,
    HANG_MS,
    Shrinker,
    Shrunk,
    _copy_ops,
    _meets,
    _pages,
    _simpler,
)
from hmmbench.example import holds
from hmmbench.example import schedules as exact_schedule
from hmmbench.example.event import TimedEvent
from hmmbench.example.judge import judge, run
from hmmbench.example.recipe import Environment, Link
from hmmbench.example.schedules import Points
from hmmbench.example.target import Execution, Target
from hmmbench.guest.program import TIMEOUT_MS, Access, Op, OpKind, Program
from hmmbench.model.admit import normalise
from hmmbench.model.space import HUGE_PAGES
from hmmbench.oracle.violation import Violation
from hmmbench.vm import decisions
from hmmbench.vm.decisions import Record

#: Schedules of the same kind that a candidate gets beside its own, where it holds by chance.
SEEDS = 2

#: Those that are tried where the failure was not seen again alone: what ran before it in its
#: machine made it fail by chance, perhaps.
SOUGHT = 16

#: Those that are tried with long slices and a list of holds, which cost little.
PLAIN_SEEDS = 8

#: And where CPUs are held at points because no list fails.
SEEDS_AT = 6

#: Candidates that are tried in one machine before it is replaced.
KEPT = 40

#: Share of the time after which the operations are left as they are, for the list at the end;
#: and where there is a chain, which takes time, too.
FOR_PROGRAM, FOR_LAST = 0.75, 0.4

#: What is mostly enough of a chain that wears a driver out: what begins and ends processes, opens
#: the GPU (its first access does) and closes it; or that and what moves pages.
LIVES = frozenset({
    OpKind.MMAP, OpKind.SPAWN, OpKind.FORK, OpKind.EXIT, OpKind.KILL, OpKind.CLOSE_GPU,
    OpKind.GPU_ACCESS,
})  # fmt: skip
WEARING = (LIVES, LIVES | {OpKind.MIGRATE, OpKind.MUNMAP})

#: Accesses of one operation that are taken away one by one, at most.
ACCESSES = 12

T = TypeVar("T")


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

    def keep(self, folder: Path) -> None:
        self.target.keep(folder)

    def watch(self) -> None:
        """An exact machine is not traced by asking it: that would be another execution."""

    def watched(self) -> list[TimedEvent]:
        return []


def plain(program: Program) -> Program:
    """The program as a recipe gives it back: without what only the campaign knew."""
    return Program(program.ops, program.file_pages)


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


class ExactShrinker(Shrinker):
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

    def run(self) -> ExactShrunk:
        with ExitStack() as stack:
            self._threads = [
                stack.enter_context(ThreadPoolExecutor(1, f"shrink-{n}"))
                for n in range(len(self._targets))
            ]
            return self._hanging() if self.violation.oracle == "progress" else self._smallest(False)

    def _hanging(self) -> ExactShrunk:
        """What repeats a fault for ever executes until its limit: a short one, until the end."""
        first = self.program, self.environment, self.violation, self._before, self._after
        self._timeout_ms = HANG_MS
        found = self._smallest(False)
        self._timeout_ms = TIMEOUT_MS
        self.deadline = max(self.deadline, time.monotonic() + EXTRA_S)
        self.seen.clear()
        if found.rate and self._first(self._candidates([(0, self.program, [self.environment])])):
            return self._result(1.0)
        # It is slow, and was taken for a hang; or is none so soon.
        self.program, self.environment, self.violation, self._before, self._after = first
        self._record = None
        self.seen.clear()
        return self._smallest(False)

    def _smallest(self, hang: bool) -> ExactShrunk:
        whole = self._candidates([(0, self.program, self._reseeded(self.environment, SOUGHT))])
        if not self._first(whole):
            return self._result(0.0)
        if self._before:
            self._lives()
        last = self.violation.op
        if 0 <= last < len(self.program.ops):
            # What comes after the violation did not cause it.
            phase = self.program.ops[last].phase
            self._fails([o for o in self.program.ops if o.phase <= phase])
        bold = last >= 0 and self._guess()
        bold |= self._near()
        self._environment()
        self._listed()
        phases = {one.phase for one in holds.holds(self.environment.schedule)}
        self._loose()
        if phases:
            self._around(phases)
        elif last < 0 and not bold:
            self._first_phases()
            self._guess()
        end = self.deadline
        self.deadline -= (1 - (FOR_LAST if self._before else FOR_PROGRAM)) * self._seconds
        self._program()
        self.deadline = end
        self._listed()
        self._rounded()
        if holds.holds(self.environment.schedule):
            # Under the list: what was needed by other passages alone goes.
            self._operations()
        self._links()
        return self._result(1.0)

    def _program(self) -> None:
        changed = True
        while changed and not self._late():
            changed = self._operations()
            changed |= self._accesses()
            changed |= self._simplify()

    def _result(self, rate: float) -> ExactShrunk:
        return ExactShrunk(
            self.program, self.environment, self.violation, rate, self.executions, self._record,
            self._before,
        )  # fmt: skip

    # -- trying --

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
        copies = _copy_ops(ops)
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
            yield replace(environment, schedule=exact_schedule.reseeded(of, seed))

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

    def _schedules(self, schedules: Iterable[str]) -> bool:
        """The first of these schedules with which it still fails."""
        wanted = (replace(self.environment, schedule=one) for one in schedules)
        return self._first(
            self._candidates((n, self.program, [env]) for n, env in enumerate(wanted))
        ) is not None  # fmt: skip

    # -- steps: the chain --

    def _lives(self) -> None:
        """All operations but a few kinds are taken from the whole chain at once."""

        def only(link: Link, kinds: frozenset[OpKind], keep: int = -1) -> Link | None:
            ops = [o for n, o in enumerate(link.program.ops) if o.op in kinds or n == keep]
            left = normalise(_copy_ops(ops), link.program.file_pages)
            if not left:
                return None
            return replace(link, program=Program(left, link.program.file_pages))

        wanted = []
        for kinds in WEARING:
            last = only(self._one(), kinds, self.violation.op)
            chain = [only(link, kinds) for link in self._before]
            if last is not None:
                before = tuple(link for link in chain if link is not None)
                wanted.append(_Candidate(last.program, last.environment, 0, before))
        self._first(iter(wanted))

    def _links(self) -> None:
        """What runs before it in its machine, from the nearest; what one of them has come to may
        be enough of the others, too."""
        last = len(self._before)
        self._whole((*map(_plain, self._before), self._one()), last)
        for n in reversed(range(last)):
            if self._late():
                break
            whole = (*self._before, self._one())
            if self._whole((*whole[:n], *whole[n + 1 :]), len(whole) - 2):
                continue
            self._turn_to(n)
            self._whole((*self._before, _plain(self._one()), *self._after), n)
            self._environment()
            self._plain_schedule()
            self._program()
            self._whole((*(self._one(),) * (n + 1), *self._after), n)
            self._turn_to(len(self._before) + len(self._after))

    def _one(self) -> Link:
        """The example that is made smaller now."""
        return Link(self.program, self.environment)

    def _turn_to(self, n: int) -> None:
        """The n-th of those that run in its machine is made smaller from now on."""
        whole = (*self._before, self._one(), *self._after)
        self._before, self._after = whole[:n], whole[n + 1 :]
        self.program, self.environment = whole[n].program, whole[n].environment

    def _whole(self, whole: Sequence[Link], n: int) -> bool:
        """These in one machine, if the last of them fails then; the n-th is made smaller."""
        link = whole[n]
        one = _Candidate(
            link.program, link.environment, 0, tuple(whole[:n]), tuple(whole[n + 1 :])
        )  # fmt: skip
        return self._first(iter([one])) is not None

    # -- steps: the schedule --

    def _listed(self) -> None:
        """What is held, one by one and as few as it takes; if it fails so.  Else as plain as is."""
        if not self._told() and not (self._at_points() and self._told()):
            self._plain_schedule()
            return
        self._fewest()
        for words in ("irq", "step"):
            self._schedules([holds.without(self.environment.schedule, words)])
        schedule = self.environment.schedule
        plain_one = holds.told(holds.base(schedule), holds.holds(schedule))
        if plain_one != schedule:
            others = (exact_schedule.reseeded(plain_one, n) for n in range(1, PLAIN_SEEDS + 1))
            self._schedules([plain_one, *others])

    def _told(self) -> bool:
        """What is held as a list, if it fails so; True if it has one."""
        schedule = self.environment.schedule
        found = self._recorded()
        if found is None:
            return False
        listed = [holds.told(holds.base(schedule), found), holds.told(schedule, found)]
        if self._schedules(listed):
            return True
        return holds.without(schedule, "do") != schedule

    def _at_points(self) -> bool:
        """What short slices do is mostly done by holds, too, where drivers race with HMM."""
        plain_one = holds.base(self.environment.schedule)
        if self.environment.schedule in ("", plain_one):
            return False
        points = self._points
        sets = dict.fromkeys(
            tuple(dict.fromkeys(at))
            for at in (
                points.of("gaps"), points.of("late_gaps"), points.of("relocks"), points.favourites,
                points.of("seams"),
            ) if at
        )  # fmt: skip
        held_at = [holds.at_each(plain_one, at, exact_schedule.GAP_NS) for at in sets]
        return self._schedules([
            plain_one,
            *(exact_schedule.reseeded(one, n) for n in range(1, SEEDS_AT + 1) for one in held_at),
        ])  # fmt: skip

    def _recorded(self) -> tuple[holds.Hold, ...] | None:
        """The holds of the current failure; None: not known, or not of what has failed."""
        self.executions += 1
        self._targets[0].chain = self._before
        program = self._timed(self.program)
        return held(self._targets[0], program, self.environment, self._record)

    def _fewest(self) -> None:
        """Delta debugging of the list, from halves to single ones; none at all first."""
        schedule = self.environment.schedule
        if not holds.holds(schedule) or self._schedules([holds.told(schedule, ())]):
            return
        size = max(1, len(holds.holds(schedule)) // 2)
        while not self._late():
            taken = False
            listed = holds.holds(self.environment.schedule)
            at = 0
            while at < len(listed) and len(listed) > 1:
                starts = range(at, len(listed), size)
                fewer = [listed[:start] + listed[start + size :] for start in starts]
                wanted = [
                    replace(self.environment, schedule=holds.told(self.environment.schedule, one))
                    for one in fewer if one
                ]  # fmt: skip
                hit = self._first(
                    self._candidates((n, self.program, [env]) for n, env in enumerate(wanted))
                )
                if hit is None:
                    break
                taken = True
                at += hit.at * size
                listed = holds.holds(self.environment.schedule)
            if size == 1 and not taken:
                break
            size = max(1, min(size // 2, len(listed) // 2))

    def _rounded(self) -> bool:
        """Times that can be read."""
        changed = False
        for n in range(len(holds.holds(self.environment.schedule))):
            schedule = self.environment.schedule
            listed = list(holds.holds(schedule))
            if n >= len(listed):
                break
            changed |= self._schedules(
                holds.told(schedule, [*listed[:n], replace(listed[n], ns=ns), *listed[n + 1 :]])
                for ns in holds.round_ns(listed[n].ns)
            )
        return changed

    def _loose(self) -> None:
        """At each passage of the list's places, so that it does not matter how many there are."""
        schedule = self.environment.schedule
        if holds.holds(schedule):
            each = holds.each(schedule)
            others = (exact_schedule.reseeded(each, n) for n in range(1, PLAIN_SEEDS + 1))
            self._schedules([each, *others])

    def _plain_schedule(self) -> None:
        for step in exact_schedule.plainer(self.environment.schedule):
            # Against the latest: each step stands on those that were taken.
            changed = step(self.environment.schedule)
            if changed != self.environment.schedule:
                self._fails(self.program.ops, replace(self.environment, schedule=changed))

    # -- steps: the program --

    def _around(self, phases: set[int]) -> bool:
        """CPUs are held in these phases: they, and what was done to the memory they name, are
        mostly enough."""
        ops = self.program.ops
        named = [pages for o in ops if o.phase in phases for pages in _pages(o)]
        if self.violation.page >= 0:
            named.append((self.violation.page, self.violation.page + 1))
        last = max(phases)
        near = {o.phase for o in ops if any(_meets(o, *pages) for pages in named)}
        wide = {o.phase for o in ops if any(_meets(o, *_huge(*pages)) for pages in named)}
        stage = (OpKind.POLICY, OpKind.FORK, OpKind.SPAWN)
        return any(
            self._fails([
                o for o in ops
                if o.phase in phases
                or (o.phase <= end and (o.phase in kept or o.op in stage))
            ])
            for end in (last, _last(ops)) for kept in (near, wide)
        ) or self._fails([o for o in ops if o.phase <= last])  # fmt: skip

    def _operations(self) -> bool:
        """ddmin over the operations, from large pieces to single ones."""
        procs = sorted({o.proc for o in self.program.ops})
        any_change = len(procs) > 1 and self._sweep(
            procs, lambda proc: [o for o in self.program.ops if o.proc != proc]
        )
        size = max(len(self.program.ops) // 2, 1)
        while not self._late():

            def fewer(start: int, size: int = size) -> list[Op] | None:
                ops = self.program.ops
                rest = ops[: max(start, 0)] + ops[start + size :]
                return rest if len(rest) < len(ops) else None

            # From the end, so that what is taken away moves nothing that is still to come.
            hit = self._sweep(range(len(self.program.ops) - size, -size, -size), fewer)
            any_change |= hit
            if size == 1 and not hit:
                break
            size = max(1, size // 2)
        return any_change

    def _accesses(self) -> bool:
        """Fewer accesses in each list, by halves, then one by one while there are few."""
        any_change = False
        longest = max((len(o.acc) for o in self.program.ops), default=0)
        for level in range(1, longest.bit_length()):
            places = []
            for i, o in enumerate(self.program.ops):
                size = len(o.acc) >> level
                if size and (size > 1 or len(o.acc) <= ACCESSES):
                    places += [(i, start, size) for start in range(len(o.acc) - size, -size, -size)]

            def fewer(place: tuple[int, int, int]) -> list[Op] | None:
                i, start, size = place
                if i >= len(self.program.ops):
                    return None
                acc = self.program.ops[i].acc
                rest = acc[: max(start, 0)] + acc[start + size :]
                return self._changed(i, rest) if rest and len(rest) < len(acc) else None

            any_change |= self._sweep(places, fewer)
        return any_change

    def _changed(self, i: int, acc: list[Access]) -> list[Op]:
        ops = list(self.program.ops)
        ops[i] = replace(ops[i], acc=acc)
        return ops

    def _simplify(self) -> bool:
        """Simpler parameters: one thread, one context, plain mappings, few pages."""
        places = [
            (i, n) for i, o in enumerate(self.program.ops) for n in range(len(list(_simpler(o))))
        ]

        def simpler(place: tuple[int, int]) -> list[Op] | None:
            i, n = place
            if i >= len(self.program.ops):
                return None
            ways = list(_simpler(self.program.ops[i]))
            if n >= len(ways):
                return None
            ops = list(self.program.ops)
            ops[i] = ways[n]
            return ops

        any_change = self._sweep(places, simpler)
        ops = _copy_ops(self.program.ops)
        if len({o.phase for o in ops}) < len(ops):
            for n, o in enumerate(ops):
                o.phase = n
            any_change |= self._fails(ops, was=self.program.ops)
        return any_change


def _plain(link: Link) -> Link:
    """Of an example whose surroundings have no part in it."""
    was = link.environment
    plain_one = Environment(audit=was.audit, schedule=holds.base(was.schedule))
    return replace(link, environment=plain_one)


def _huge(first: int, end: int) -> tuple[int, int]:
    """The 2 MiB around these pages."""
    return first // HUGE_PAGES * HUGE_PAGES, -(-end // HUGE_PAGES) * HUGE_PAGES


def _last(ops: Sequence[Op]) -> int:
    """The last phase."""
    return max((o.phase for o in ops), default=0)


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
