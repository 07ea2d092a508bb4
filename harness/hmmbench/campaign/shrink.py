# SPDX-License-Identifier: GPL-2.0-or-later
"""From a program that failed to the smallest one that still does.

Delta debugging on operations, then on accesses and parameters.  Our own rather than the
property-test engine's, because executions race: a candidate counts as failing when one of
several executions fails, and how many are needed is measured on the failure in hand.  Every
candidate passes through `normalise`, so it is sound whatever was taken away.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hmmbench.campaign.pieces import copy, copy_ops, ranges, sets, simpler, touching
from hmmbench.example.delays import line
from hmmbench.example.judge import Verdict, run
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Target
from hmmbench.guest.program import F_NOWAIT, TIMEOUT_MS, Op, Program
from hmmbench.model import ops, oracles
from hmmbench.model.admit import normalise
from hmmbench.model.ops.jobs import GpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Migrate, Policy
from hmmbench.model.ops.processes import Fork, Spawn
from hmmbench.model.space import HUGE_PAGES
from hmmbench.oracle.violation import Violation

#: Executions with which the failure rate of the first program is measured.
CONFIRM = 12
#: Executions of one candidate at most.
TRIES = 60
#: A recipe of more operations is gone over again, so many times at most.
SMALL, AGAIN = 10, 3
#: A failure that is seen less often than this is made more likely before anything else.
SELDOM = 0.1
#: A program that fails so often is waited for no longer than it needs for that.
OFTEN = 0.6
#: What counts as a hang while shrinking one (milliseconds).
HANG_MS = 1000
#: How long a program may take that fails before an oracle that sees at once what is wrong
#: (milliseconds), the first with which it still does.
SHORT_MS = (300, HANG_MS, 2500)
#: How long a leak is waited for to go away while shrinking one (milliseconds).
LEAK_MS = 500
#: The delay that is tried then (microseconds), and the rate that is good enough.
WIDE_US = 8000
ENOUGH = 0.4
#: Two failures that took longer than this (seconds) are taken for more.
SLOW_S = 4.0
#: What gives memory its shape, and jobs theirs.
SHAPE = frozenset(kind for kind, operation in ops.OPERATIONS.items() if operation.shapes)
#: Operations of the processes concerned that bold guesses keep, before the phase that failed.
GUESSES = (
    frozenset({Mmap.number, Policy.number}),
    SHAPE,
    frozenset({Mmap.number, Policy.number, Migrate.number, GpuAccess.number}),
)
#: Executions after which what a program uses up has run out (there are 256 address spaces), or a
#: ring that it spoils has come round (1,024 faults).
WEAR = 1500
#: Seconds beyond the limit for measuring the result.
EXTRA_S = 20.0
#: How sure an execution series must be to see a failure of the measured rate.
MISS = 0.06


@dataclass
class Shrunk:
    """The result: `rate` failures an execution of the final program (0: never seen again)."""

    program: Program
    environment: Environment
    violation: Violation
    rate: float
    executions: int


class Shrinker:
    """One failure.  `seconds`: the time it may take; the best so far is kept when it is over."""

    def __init__(
        self,
        target: Target,
        program: Program,
        environment: Environment,
        violation: Violation,
        seconds: float = 150.0,
        note: Callable[[str], None] = lambda text: None,
        delays: Sequence[str] = (),
    ) -> None:
        self.target = target
        self.program = copy(program)
        self.environment = environment
        self.violation = violation
        #: How long the recipe waits for what is held to be given back (milliseconds).
        self.settle_ms = program.settle_ms
        self.deadline = time.monotonic() + seconds
        self.note = note
        self.delays = tuple(delays)
        self.executions = 0
        self.tries = CONFIRM
        self.hits = 1
        self.seen: set[bytes] = set()
        # every accepted candidate, oldest first: if the last fails too rarely, an earlier one is
        # the better recipe
        self.accepted: list[tuple[Program, Environment, Violation]] = []

    def run(self) -> Shrunk:
        # Whatever settled before it failed needs no long wait to be seen again.
        hang = self.violation.oracle == "progress"
        self.program.timeout_ms = HANG_MS if hang else 8000
        if self.violation.oracle in ("leak", "progress", *oracles.DEVICE):
            self.program.settle_ms = min(self.settle_ms, LEAK_MS)
        if self.violation.oracle in ("kernel", *oracles.DEVICE):
            self._shorten()
        found = self._smallest(hang)
        found.program.timeout_ms, found.program.settle_ms = TIMEOUT_MS, self.settle_ms
        return found

    def _smallest(self, hang: bool) -> Shrunk:
        # What comes after the violation did not cause it.
        last = self.violation.op
        if 0 <= last < len(self.program.ops):
            phase = self.program.ops[last].phase
            self.program.ops = [o for o in self.program.ops if o.phase <= phase]
        rate = self._rate(self.program, self.environment, 4 if hang else CONFIRM)
        if rate < SELDOM:
            rate = self._boost(rate)
        if not rate:
            rate = self._rate(self.program, self.environment, 4 * CONFIRM)
        if not rate:
            return Shrunk(self.program, self.environment, self.violation, 0.0, self.executions)
        self._expect(rate)
        bold = last >= 0 and self._guess()
        bold |= self._near()
        if last < 0 and not bold:
            self._first_phases()
            # So the last phase that is left takes part in it.
            bold = self._guess()
        if bold:
            rate = self._rate(self.program, self.environment, CONFIRM) or rate
        if rate < ENOUGH:
            # Cheaper, now that it is small.
            rate = self._boost(rate)
        self._expect(rate)
        if self._environment():
            self._expect(self._rate(self.program, self.environment, CONFIRM) or rate)
        changed, again = True, AGAIN
        while not self._late():
            if not changed:
                if len(self.program.ops) <= SMALL or not again:
                    break
                # A race hid some failures: what is still large is tried once more.
                again -= 1
                self.seen.clear()
            changed = self._operations()
            changed |= self._accesses()
            changed |= self._simplify()
        return self._best(rate)

    def _shorten(self) -> None:
        """A driver that device or kernel complain of often hangs then: no longer than needed."""
        for wait_ms in SHORT_MS:
            self.program.timeout_ms = wait_ms
            if self._rate(self.program, self.environment, 4) >= OFTEN:
                break

    def _boost(self, rate: float) -> float:
        """A race that is seldom lost: widen it at one of the driver's delay points, if it helps."""
        best = self.environment
        half = time.monotonic() + (self.deadline - time.monotonic()) / 2
        for env in self._wider():
            if time.monotonic() > half:
                break
            got = self._rate(self.program, env, CONFIRM // 2)
            if got > rate + 0.1:
                rate, best = got, env
                self.note(f"fails {100 * rate:.0f}% with {', '.join(env.delays)}")
            if rate >= ENOUGH:
                break
        self.environment = best
        return rate

    def _wider(self) -> Iterator[Environment]:
        """Surroundings in which a race may be wider: first the example's own, drawn out."""
        here = self.environment
        names = [d.split()[0] for d in here.delays]
        if names:
            yield replace(here, delays=tuple(line(n, WIDE_US, 1000, 1) for n in names))
        for n in names if len(names) > 1 else []:
            yield replace(here, delays=(line(n, WIDE_US, 1000, 1),))
        others = [n for n in self.delays if n not in names]
        # What was chosen for a reason by the caller comes first.
        for n in others:
            yield replace(here, delays=(line(n, WIDE_US, 1000, 1),))

    def _best(self, first_rate: float) -> Shrunk:
        """The smallest accepted program that fails often enough to be repeated."""
        wanted = min(first_rate / 4, 0.2)
        best = (0.0, self.program, self.environment, self.violation)
        candidates = [(self.program, self.environment, self.violation), *self.accepted[::-1]]
        # The last ones, then further and further back; each as `replay` will meet it, in a fresh
        # machine, because some failures need one and some need what ran before.
        step, at = 1, 0
        self.deadline = max(self.deadline, time.monotonic() + EXTRA_S)
        while at < len(candidates):
            program, environment, _ = candidates[at]
            self.target.renew()
            rate = self._rate(program, environment, 2 * CONFIRM)
            if rate > best[0] and self._lasts(program, environment, rate):
                best = (rate, program, environment, self.violation)
            elif not rate and (rate := self._wear(program, environment)):
                best = (rate, program, environment, self.violation)
                break
            if best[0] >= wanted or self._late():
                break
            at += step
            step *= 2
        if not best[0] and self.accepted:
            # The whole example is a recipe, too, if it fails.
            program, environment, violation = self.accepted[0]
            self.target.renew()
            rate = self._rate(program, environment, CONFIRM)
            if rate and self._lasts(program, environment, rate):
                best = (rate, program, environment, violation)
        rate, program, environment, violation = best
        return Shrunk(program, environment, violation, rate, self.executions)

    def _wear(self, program: Program, environment: Environment) -> float:
        """Of what uses something up: it fails late in a fresh machine, and from then on each time.

        Called after the executions of a measurement in which none failed.  Failures an execution;
        0 if that is not how it fails.
        """
        for n in range(2 * CONFIRM + 1, WEAR):
            found = self._same(self._execute(program, environment))
            if found is not None:
                self.violation = found
                last = all(self._same(self._execute(program, environment)) for _ in range(3))
                return 1 / n if last else 0.0
            if self._late():
                break
        return 0.0

    def _lasts(self, program: Program, environment: Environment, rate: float) -> bool:
        """Whether what did not end by the short limit does not by the long one, and what was left
        after the short wait is left after the long one: else it was slow, and led away."""
        if self.violation.oracle not in ("progress", "leak"):
            return True
        patient = replace(program, timeout_ms=TIMEOUT_MS, settle_ms=self.settle_ms)
        tries = 4 if rate >= OFTEN else TRIES
        return any(self._same(self._execute(patient, environment)) for _ in range(tries))

    def _anew(self, program: Program, environment: Environment) -> bool:
        """Whether it fails in a fresh machine too.

        What the device complains of may be the work of a candidate before: VRAM that the driver
        has lost count of stays so until the machine ends.
        """
        if self.violation.oracle != "protocol":
            return True
        self.target.renew()
        return any(self._same(self._execute(program, environment)) for _ in range(self.tries))

    def _expect(self, rate: float) -> None:
        """How many executions a candidate gets, and how many of them have to fail.

        A candidate that races must fail twice: one lucky failure of a program that fails far
        less often than the one before would lead away.  Not if a failure costs seconds.
        """
        self.hits = 1 if rate >= 0.95 or self.violation.oracle == "progress" else 2
        if rate >= 0.95:
            self.tries = 2
        else:
            needed = math.ceil(1.5 * math.log(MISS) / math.log(1 - max(rate, 0.02)))
            self.tries = min(TRIES, max(5, needed))

    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def _execute(self, program: Program, environment: Environment) -> Verdict:
        self.executions += 1
        return run(self.target, program, environment)

    def _same(self, outcome: Verdict) -> Violation | None:
        """The same mistake (Violation.key), else none: another one is another story."""
        return next((v for v in outcome.violations if v.key == self.violation.key), None)

    def _rate(self, program: Program, environment: Environment, times: int) -> float:
        begun = time.monotonic()
        hits = runs = 0
        for _ in range(times):
            found = self._same(self._execute(program, environment))
            runs += 1
            if found is not None:
                hits += 1
                self.violation = found
                slow = time.monotonic() - begun > SLOW_S
                if hits >= (2 if slow else 4) and hits == runs:
                    break
            if self._late() and runs >= 3:
                break
        return hits / runs

    def _fails(self, ops: list[Op], environment: Environment | None = None) -> bool:
        """Try a candidate; on failure it is the new best.  Forgets nothing it has tried."""
        if self._late() or not ops:
            return False
        p = Program(
            normalise(copy_ops(ops), self.program.file_pages), self.program.file_pages,
            self.program.timeout_ms, self.program.settle_ms, self.program.flags, self.program.seed,
        )  # fmt: skip
        if not p.ops:
            return False
        env = self.environment if environment is None else environment
        key = p.encode() + repr(env).encode()
        if key in self.seen:
            return False
        self.seen.add(key)
        hits = 0
        if self.violation.oracle not in oracles.SPARING:
            # Such a failure costs the machine, so the next candidate would meet a fresh one or
            # not by chance.
            self.target.renew()
        for n in range(self.tries):
            found = self._same(self._execute(p, env))
            hits += found is not None
            if hits == 0 and n >= self.tries * 2 // 3:
                break
            if found is not None and hits >= self.hits:
                if not self._anew(p, env):
                    break
                self.accepted.append((self.program, self.environment, self.violation))
                self.program, self.environment, self.violation = p, env, found
                self.note(f"{len(p.ops)} operations, {self.executions} executions")
                return True
            if self._late():
                break
        return False

    # -- steps --

    def _environment(self) -> bool:
        """Fewer delays and injected faults."""
        before = self.environment
        if before.inject:
            self._fails(self.program.ops, replace(self.environment, inject=()))
        for name in self.environment.delays:
            fewer = tuple(d for d in self.environment.delays if d != name)
            self._fails(self.program.ops, replace(self.environment, delays=fewer))
        if before.again:
            self._fails(self.program.ops, replace(self.environment, again=0))
        if before.rebind:
            self._fails(self.program.ops, replace(self.environment, rebind=False))
        if before.vram is not None:
            self._fails(self.program.ops, replace(self.environment, vram=None))
        return before != self.environment

    def _guess(self) -> bool:
        return any(self._fails(ops) for ops in self._guesses(self.program.ops))

    @staticmethod
    def _guesses(ops: list[Op]) -> Iterator[list[Op]]:
        """What failed last, on memory as it is mapped: enough for much that fails always, and a
        hang costs seconds each time it is seen."""
        start = next(i for i, o in enumerate(ops) if o.phase == ops[-1].phase)
        # Jobs that nobody has waited for yet belong to it.
        while start and ops[start - 1].flags & F_NOWAIT:
            start -= 1
        before, end = ops[:start], ops[start:]
        procs = {o.proc for o in end}
        births, near = set(), set()
        # What it names, and what that was before it was moved.
        named = [pages for o in end for pages in ranges(o)]
        for o in reversed(before):
            if o.op in (Fork.number, Spawn.number) and o.arg in procs:
                births.add(id(o))
                procs.add(o.proc)
            elif o.op in SHAPE and o.proc in procs and sets(o, named):
                near.add(id(o))
                named += ranges(o)
        shapes = ({id(o) for o in before if o.proc in procs and o.op in g} for g in GUESSES)
        for kept in (near, *shapes):
            yield [o for o in before if id(o) in births | kept] + end

    def _near(self) -> bool:
        return any(self._fails(ops) for ops in self._nearby(self.program.ops))

    def _nearby(self, ops: list[Op]) -> Iterator[list[Op]]:
        """What was done to the page in question, or to its 2 MiB, is mostly enough: in one step."""
        page = self.violation.page
        if page >= 0:
            huge = page // HUGE_PAGES * HUGE_PAGES
            for first, end in ((page, page + 1), (huge, huge + HUGE_PAGES)):
                yield touching(ops, first, end)

    def _first_phases(self) -> None:
        """Nobody knows in which operation it happened: by halves, what was before is enough."""
        ops = self.program.ops
        phases = sorted({o.phase for o in ops})
        too_few, enough = 0, len(phases)
        while enough - too_few > 1 and not self._late():
            half = (too_few + enough) // 2
            if self._fails([o for o in ops if o.phase < phases[half]]):
                enough = half
            else:
                too_few = half

    def _operations(self) -> bool:
        """ddmin over the operations, from large pieces to single ones."""
        any_change = False
        for proc in sorted({o.proc for o in self.program.ops}):
            any_change |= self._fails([o for o in self.program.ops if o.proc != proc])
        size = max(len(self.program.ops) // 2, 1)
        while size >= 1 and not self._late():
            # From the end: what is last is nearest to the violation and rarely superfluous, but
            # taking away from the end keeps what the rest stands on.
            start = len(self.program.ops) - size
            hit = False
            while start > -size:
                ops = self.program.ops
                rest = ops[: max(start, 0)] + ops[start + size :]
                if len(rest) < len(ops) and self._fails(rest):
                    hit = any_change = True
                    start = min(start, len(self.program.ops))
                start -= size
            if size == 1 and not hit:
                break
            size = size // 2 if size > 1 else 1
        return any_change

    def _accesses(self) -> bool:
        """Fewer accesses in each list, by halves, then one by one while there are few."""
        any_change = False
        i = 0
        while i < len(self.program.ops) and not self._late():
            size = len(self.program.ops[i].acc) // 2
            while size >= 1 and i < len(self.program.ops):
                acc = self.program.ops[i].acc
                if size == 1 and len(acc) > 12:
                    break
                start = 0
                while i < len(self.program.ops) and start < len(self.program.ops[i].acc):
                    acc = self.program.ops[i].acc
                    rest = acc[:start] + acc[start + size :]
                    if rest and self._with(i, replace(self.program.ops[i], acc=rest)):
                        any_change = True
                    else:
                        start += size
                size //= 2
            i += 1
        return any_change

    def _with(self, i: int, op: Op) -> bool:
        ops = list(self.program.ops)
        ops[i] = op
        return self._fails(ops)

    def _simplify(self) -> bool:
        """Simpler parameters: one thread, one context, plain mappings, few pages."""
        any_change = False
        i = 0
        while i < len(self.program.ops) and not self._late():
            for other in simpler(self.program.ops[i]):
                if i < len(self.program.ops) and self._with(i, other):
                    any_change = True
                    break
            i += 1
        ops = copy_ops(self.program.ops)
        if len({o.phase for o in ops}) < len(ops):
            for n, o in enumerate(ops):
                o.phase = n
            any_change |= self._fails(ops)
        return any_change
