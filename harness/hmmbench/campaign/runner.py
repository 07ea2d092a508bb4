# SPDX-License-Identifier: GPL-2.0-or-later
"""A campaign: examples from Hypothesis until one fails or all have passed.

Hypothesis generates (one block of bytes an example, fixed by the seed, no database); what fails
is confirmed, shrunk by `shrink` and written as a recipe.

On exact machines examples run in chains: so many of consecutive numbers in one machine, fresh at
the first of them.  So what an example depends on is a matter of its number alone, not of which
machine was free when.  On machines with threads executions of racing programs do not repeat.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as fix_seed
from hypothesis import strategies as st

from hmmbench.base import host, interrupt
from hmmbench.campaign.evidence import exact_portrait, portrait
from hmmbench.campaign.exact_shrink import ExactShrinker
from hmmbench.campaign.fresh import Fresh, held, plain, shorter_chain
from hmmbench.campaign.generate import MAX_STEPS, MIN_STEPS, program, size_of
from hmmbench.campaign.shrink import SMALL, Shrinker, Shrunk
from hmmbench.campaign.tries import ExactShrunk
from hmmbench.example import holds, schedules
from hmmbench.example.delays import FAVOURITES, SCHEDULES
from hmmbench.example.judge import judge, run
from hmmbench.example.portrait import Portrait
from hmmbench.example.recipe import Environment, Link, Recipe
from hmmbench.example.target import Execution, Target
from hmmbench.guest.program import POLICY_MIGRATE, OpKind, Program
from hmmbench.model.cells import Coverage
from hmmbench.oracle.violation import Violation
from hmmbench.vm import decisions
from hmmbench.vm.errors import VmError

#: Examples of each profile.
PROFILES = {"quick": 300, "default": 3000, "long": 30000}

#: More examples than any limit of time lets through.
UNBOUNDED = 10_000_000

#: So many points at most has the curve of a campaign's speed.
PACE = 240

#: Executions at most to see the small failure once more, for the report.
LOOKS = 40

#: Failures that were not seen again or stayed large, after which a campaign looks for no further
#: one; and seconds for which it looks for a better one than a large one that repeats.  What a
#: driver does wrong in a race it often does wrong without one in another example.
ELUSIVE = 3
BETTER_S = 30.0

#: After one example of so many, a quarter of a second: the driver is unbound and bound again.
#: Soon for the first time, so that a short run has one.
REBIND_EACH, REBIND_FIRST = 150, 7

#: Seconds for making a failure small that takes what ran before it in its machine.
CHAIN_S = 60.0

#: Examples of one run of Hypothesis.
BATCH = 100

#: Examples that run one after another in one exact machine.
CHAIN = 20

#: Share of the examples on exact machines in which the driver's delay points, where it has any,
#: are used beside the schedule.
DELAYED_TOO = 0.35

#: Rules of the device that a sound driver survives; one is used in an example now and then.
INJECTIONS = (
    # An invalidation that takes its time is where a driver that does not wait goes wrong: hence
    # more than once, and long against the operations that follow it.
    *("tlb_invalidate delay=8000000",) * 2,
    "tlb_invalidate prob=0.3 delay=40000000",
    "tlb_invalidate prob=0.3 delay=3000000",
    "fault prob=0.2 duplicate",
    "fault prob=0.3 delay_valid=500000",
    "replay prob=0.3 delay=200000",
    "irq prob=0.3 delay=200000",
    "irq prob=0.3 duplicate",
    "copy prob=0.3 delay=200000",
    # One copy home fails: driver copies go to bus addresses, those of programs to virtual ones.
    # It is not every page that is looked at afterwards.
    *("copy match=20000000/ffffff0020000000 count=1 error",) * 3,
    "fence prob=0.3 delay=200000",
    "launch prob=0.3 delay=100000",
    "walk prob=0.1 delay=1000000",
)

#: Share of examples in which the device misbehaves by one of these.
INJECTED = 0.3

#: Share of examples in which VRAM is short, and how many pages it has then: what does not fit
#: stays where it is, or is moved half.  More often where the GPU's faults are to move pages, which
#: then drive one another out, best if there is one.
VRAM_SHORT, VRAM_SHORT_AT_FAULTS = 0.08, 0.4
VRAM_PAGES, VRAM_PAGES_AT_FAULTS = (0, 1, 1, 2, 3, 16, 200), (1, 1, 1, 2, 3, 16)


#: Kinds of machine, in results.
EXACT, THREADS = "exact", "threads"


@dataclass
class Finding:
    """A violation and what was kept of it.

    shown_by   -- kinds of machine on which it was seen; the recipe is of the last
    looked_for -- executions in which exact machines looked for what threads had found
    """

    violation: Violation
    recipe: Path
    folder: Path
    operations: int
    rate: float
    portrait: Portrait | None = None
    shown_by: tuple[str, ...] = (THREADS,)
    looked_for: int = 0

    def to_json(self) -> dict[str, object]:
        return {
            "oracle": self.violation.oracle,
            "message": self.violation.message,
            "details": self.violation.details,
            "recipe": str(self.recipe),
            "operations": self.operations,
            "rate": round(self.rate, 3),
            "shown_by": list(self.shown_by),
            "looked_for": self.looked_for,
        }


@dataclass
class Tally:
    """What a campaign did."""

    examples: int = 0
    operations: int = 0
    gpu_accesses: int = 0
    undecided: int = 0
    run_s: float = 0.0
    #: CPU seconds of bench and machines, in all of it
    cpu_s: float = 0.0
    #: seconds, CPU seconds and examples until the first violation (0: none); seconds for making
    #: them small
    found_s: float = 0.0
    found_cpu_s: float = 0.0
    found_examples: int = 0
    shrunk_s: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    #: rule or delay point -> examples that ran with it
    injected: Counter[str] = field(default_factory=Counter)
    delayed: Counter[str] = field(default_factory=Counter)
    #: (seconds since the start, operations, examples), at most some hundreds
    pace: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def finding(self) -> Finding | None:
        """The smallest of those that repeat, or the first."""
        repeating = [found for found in self.findings if found.rate]
        if repeating:
            return min(repeating, key=lambda found: found.operations)
        return self.findings[0] if self.findings else None


@dataclass
class _Example:
    """The next program of the campaign, and what surrounds it."""

    index: int
    program: Program
    env: Environment
    #: of a chain: the machine is fresh
    first: bool


@dataclass
class _Running:
    """An example given to a machine."""

    index: int
    program: Program
    env: Environment
    target: Target
    answer: Future[Execution]
    #: what this machine ran before it
    before: _Running | None
    #: on an exact machine: all that it ran since it was fresh
    chain: tuple[Link, ...] = ()


class Campaign:
    """One `run`.

    targets     -- where programs are executed, one at a time on each
    out         -- folder for evidence; made when there is some
    delays      -- names of the driver's delay points
    schedule    -- how they are used: a name of schedule.SCHEDULES
    injections  -- rules that may be used (none: the device behaves)
    note        -- called with the tally now and then
    shrink_s    -- time for making one failure small
    audit       -- the device's mirror audit: off, sampled, fill or access
    coherent    -- VRAM is memory of the CPU too: noted in recipes, for `replay`
    limit_s     -- no new example after so many seconds (none: `examples` alone counts)
    exact       -- the targets are exact machines: where their schedules may hold CPUs
    kind        -- of those schedules: a name of exact_schedule.KINDS
    first       -- number of the first example
    cpus        -- of exact machines, for recipes
    tally       -- that of a campaign before, which this one goes on with
    given       -- programs that are run in turn instead of new ones, each in its surroundings; on
                   exact machines under another schedule each time
    built       -- what recipes of exact machines depend on (recipe.BUILT)
    """

    def __init__(
        self,
        targets: Target | Sequence[Target],
        out: Path,
        *,
        seed: int = 0,
        examples: int = PROFILES["quick"],
        kernel: str = "",
        delays: Sequence[str] = (),
        schedule: str = "delay-random",
        injections: Sequence[str] = INJECTIONS,
        note: Callable[[Tally, str], None] = lambda tally, text: None,
        shrink_s: float = 150.0,
        audit: str = "off",
        coherent: bool = False,
        limit_s: float | None = None,
        exact: schedules.Points | None = None,
        kind: str = "mixed",
        first: int = 0,
        cpus: int = 0,
        tally: Tally | None = None,
        given: Sequence[Link] = (),
        built: Mapping[str, str] | None = None,
    ) -> None:
        self.targets = tuple(targets) if isinstance(targets, Sequence) else (targets,)
        self.out = out
        self.seed = seed
        self.examples = examples
        self.kernel = kernel
        self.delays = tuple(delays)
        self.schedule = SCHEDULES[schedule](self.delays)
        self.injections = tuple(injections)
        self.note = note
        self.shrink_s = shrink_s
        self.audit = audit
        self.coherent = coherent
        self.limit_s = limit_s
        self.exact = exact
        self.kind = kind
        self.meetings = schedules.Meetings(
            exact.aims if exact is not None else schedules.Aims()
        )
        self.first = first
        self.cpus = cpus
        self.tally = Tally() if tally is None else tally
        self.given = tuple(given)
        self.built = dict(built or {})
        self._started = 0
        self._begun = time.monotonic()
        self._begun_cpu = host.cpu_s()
        self._looks_since = 0.0
        #: by machine: what it runs (or has run and nobody judged), and what it ran before that
        self._running: list[_Running | None] = [None] * len(self.targets)
        self._before: list[_Running | None] = [None] * len(self.targets)
        self._threads: list[ThreadPoolExecutor] = []

    def run(self) -> Tally:
        """Each machine runs one example while this thread judges those before and makes the next.

        Which machine runs an example, and in what order examples are judged, is a matter of time
        with more than one machine; the examples themselves are not, nor what an exact machine ran
        before one.

        A machine is used by its own worker thread from the submission of an example until its
        answer is there; by this thread after that (shrinking, evidence), when `_stop` has waited
        for all of them.  Everything else belongs to this thread alone.
        """
        begun = self._begun = time.monotonic()
        self._begun_cpu = host.cpu_s()
        with ExitStack() as stack:
            self._threads = [
                stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix=f"machine-{n}"))
                for n in range(len(self.targets))
            ]
            try:
                self._all()
            except BaseException:
                # An interrupt: the machines end now, not after the examples in them.
                for target in self.targets:
                    target.renew()
                raise
        self.tally.run_s += time.monotonic() - begun
        self.tally.cpu_s += host.cpu_s() - self._begun_cpu
        return self.tally

    def _all(self) -> None:
        source = self._examples()
        waiting: list[list[_Example]] = [[] for _ in self.targets]

        def give(number: int) -> None:
            """The machine's next example, if there is one."""
            if not waiting[number] and self._going():
                waiting[number] = list(islice(source, self._block()))
            if waiting[number] and not self._enough() and not self._late():
                self._submit(number, waiting[number].pop(0))

        while True:
            for number, running in enumerate(self._running):
                if running is None:
                    give(number)
            answered = self._answered()
            if answered is None:
                break
            done = self._take(answered)
            if done is not None and done.answer.result().tainted:
                # Judged first: what follows would replace the machine, and its evidence.
                self._finish(done)
            else:
                give(answered)
                self._finish(done)

    def _block(self) -> int:
        """How many examples a machine is given at once: to the end of a chain's numbers."""
        if self.exact is None:
            return 1
        return CHAIN - (self.first + self._started) % CHAIN

    def _going(self) -> bool:
        interrupt.check()
        return self._started < self.examples and not self._enough() and not self._late()

    def _late(self) -> bool:
        return self.limit_s is not None and time.monotonic() - self._begun > self.limit_s

    def _enough(self) -> bool:
        """A failure that does not repeat is one, but a small recipe is worth more."""
        findings = self.tally.findings
        if len(findings) >= (ELUSIVE if self.shrink_s else 1):
            return True
        best = self.tally.finding
        if best is None or not best.rate:
            return False
        return best.operations <= SMALL or time.monotonic() - self._looks_since > BETTER_S

    def _examples(self) -> Iterator[_Example]:
        """One after another, made when they are asked for."""
        # In batches, because Hypothesis can only be left between two of them: an exception would
        # make it run the example again.
        for number in count():
            left = self.examples - self._started
            if left <= 0:
                return
            for link in self.given[:left]:
                index = self._number()
                env = replace(link.environment, schedule=self._drawn(index)[0])
                yield _Example(index, link.program, env, not (index % CHAIN))
            for data in [] if self.given else self._batch(number):
                index = self._number()
                # Without a seed, which only a reader of its bytes sees: recipes have none, and
                # what ran is what they hold.
                p = program(data)
                yield _Example(index, p, self.environment(index, p), not (index % CHAIN))

    def _number(self) -> int:
        """Of the next example."""
        self._started += 1
        return self.first + self._started - 1

    def _batch(self, number: int) -> list[bytes]:
        blocks = st.integers(MIN_STEPS, MAX_STEPS).flatmap(
            lambda n: st.binary(min_size=size_of(n), max_size=size_of(n))
        )
        found: list[bytes] = []

        @fix_seed(self.seed << 32 | self.first // BATCH + number)
        @settings(
            max_examples=min(BATCH, self.examples - self._started),
            database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck), print_blob=False,
        )  # fmt: skip
        @given(blocks)
        def examples(data: bytes) -> None:
            found.append(data)

        examples()
        return found

    def environment(self, index: int, p: Program) -> Environment:
        """Most examples run undisturbed; some with a widened race or a misbehaving device."""
        rng = random.Random(self.seed << 32 | index)
        delays = self.schedule.delays(rng, p)
        schedule, delayed = self._drawn(index)
        if not delayed:
            delays = ()
        inject: tuple[str, ...] = ()
        if self.injections and rng.random() < INJECTED:
            inject = (rng.choice(self.injections),)
        at_faults = any(o.op == OpKind.POLICY and o.arg & POLICY_MIGRATE for o in p.ops)
        short = rng.random() < (VRAM_SHORT_AT_FAULTS if at_faults else VRAM_SHORT)
        vram = rng.choice(VRAM_PAGES_AT_FAULTS if at_faults else VRAM_PAGES) if short else None
        rebind = index % REBIND_EACH == REBIND_FIRST
        return Environment(delays, inject, self.audit, rebind, vram, schedule)

    def _drawn(self, index: int) -> tuple[str, bool]:
        """An example's schedule on an exact machine, and whether delay points are used, too."""
        if self.exact is None:
            return "", True
        # A stream of its own: what else surrounds an example is the same on any machine.
        own = random.Random(f"{self.seed} {index} schedule")
        return schedules.draw(self.kind, own, self.exact), own.random() < DELAYED_TOO

    def _submit(self, number: int, example: _Example) -> None:
        target = self.targets[number]
        before = self._before[number]
        chain: tuple[Link, ...] = ()
        # A machine that something was wrong with is replaced: the chain begins anew.
        going_on = before is not None and not (example.first or before.answer.result().tainted)
        if self.exact is not None and before is not None and going_on:
            chain = (*before.chain, Link(before.program, before.env))

        def work() -> Execution:
            if self.exact is not None and not chain:
                target.renew()
            return target.execute(example.program, example.env)

        self._running[number] = _Running(
            example.index, example.program, example.env, target,
            self._threads[number].submit(work), before, chain,
        )  # fmt: skip

    def _answered(self) -> int | None:
        """The machine whose answer has waited longest, waiting for one; None: nothing runs."""
        running = {one.answer: one.index for one in self._running if one is not None}
        if not running:
            return None
        done, _ = wait_for(running, return_when=FIRST_COMPLETED)
        # All get their share, and the order is nearly kept.
        oldest = min(running[answer] for answer in done)
        return next(n for n, one in enumerate(self._running) if one and one.index == oldest)

    def _take(self, number: int) -> _Running | None:
        """What a machine ran, once its answer is there; the machine is free then."""
        running, self._running[number] = self._running[number], None
        if running is not None:
            try:
                running.answer.result()
            except VmError as error:
                self._failed(running, error)
                raise
            self._before[number] = running
            # That one is judged; all of them would never be given back.
            if running.before is not None:
                running.before.before = None
        return running

    def _failed(self, example: _Running, error: VmError) -> None:
        """The machine failed, and not the driver in it: what is needed to see it again is kept."""
        folder = self.out / f"machine-failed-{example.index}"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            self._recipe(example, "", error.message).write(folder / "recipe.json")
            error.hint += f"\nThe example that it ran, and what is left of it: {folder}"
            with suppress(VmError):
                example.target.keep(folder / "machine")

    def _recipe(self, example: _Running, oracle: str, message: str) -> Recipe:
        """The whole example, as it ran."""
        recipe = Recipe(
            example.program, example.env, oracle, message, self.kernel, self.seed, example.index,
            repeat=200 if self.exact is None else 1, coherent=self.coherent, cpus=self.cpus,
            chain=example.chain, built=self.built,
        )  # fmt: skip
        return recipe if self.exact is None else holds.kept(recipe, self.exact.table)

    def _stop(self) -> None:
        """Wait for all machines; nobody looks at their answers, be they errors."""
        wait_for([running.answer for running in self._running if running is not None])
        self._running = [None] * len(self.targets)

    def _finish(self, example: _Running | None) -> None:
        """Judge an example whose answer is there, and count it."""
        if example is None or self._enough():
            return
        execution = example.answer.result()
        self.schedule.learn(example.env.delays, execution.points)
        self.meetings.learn(example.env.schedule, execution.met)
        outcome = judge(execution, self.tally.coverage)
        self.tally.examples += 1
        self.tally.operations += outcome.operations
        self.tally.gpu_accesses += outcome.gpu_accesses
        self.tally.undecided += outcome.undecided
        self._record(example.env)
        self.note(self.tally, "")
        if outcome.failed:
            self._stop()
            self._found(example, outcome.violations)
            if self.exact is not None:
                # Their machines have run something else since.
                self._before = [None] * len(self.targets)

    def _record(self, env: Environment) -> None:
        """What the report shows besides the sums."""
        tally = self.tally
        tally.injected.update(env.inject)
        tally.delayed.update(line.split()[0] for line in env.delays)
        elapsed = round(self._elapsed(), 3)
        if self.limit_s is not None:
            last = tally.pace[-1][0] if tally.pace else 0.0
            due = elapsed - last >= self.limit_s / PACE
        else:
            due = tally.examples % max(1, self.examples // PACE) == 0
        if due:
            tally.pace.append((elapsed, tally.operations, tally.examples))

    def _elapsed(self) -> float:
        """Since the first campaign of this tally began, without what was between campaigns."""
        return self.tally.run_s + time.monotonic() - self._begun

    def _found(self, example: _Running, violations: list[Violation]) -> None:
        p, env, index, target = example.program, example.env, example.index, example.target
        first = violations[0]
        found = time.monotonic()
        if not self.tally.findings:
            self.tally.found_s = self._elapsed()
            self.tally.found_cpu_s = self.tally.cpu_s + host.cpu_s() - self._begun_cpu
            self.tally.found_examples = self.tally.examples
        folder = self.out / f"violation-{len(self.tally.findings) + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "recipe.json"
        original = folder / "original.json"
        recipe = self._recipe(example, first.oracle, first.message)
        # Before anything else: what follows may be interrupted.
        recipe.write(path)
        recipe.write(original)
        (folder / "violations.json").write_text(
            json.dumps(
                [{"oracle": v.oracle, "message": v.message, "details": v.details}
                 for v in violations], indent=1,
            ) + "\n"
        )  # fmt: skip
        target.keep(folder / "machine")
        kind = THREADS if self.exact is None else EXACT
        finding = Finding(first, path, folder, len(p.ops), 0.0, shown_by=(kind,))
        self.tally.findings.append(finding)
        self.note(self.tally, f"violation in example {index}: {first.message}")
        chain: tuple[Link, ...] = ()
        small: Shrunk
        if self.exact is not None:
            small, chain = self._shrink_exact(target, example, first)
        else:
            small = self._shrink(target, p, env, first)
        if self.exact is None and not small.rate and example.before is not None:
            # Some mistakes show when the next program starts (an ASID that is used again), or
            # when the driver is unbound after it.
            self.note(self.tally, "not seen again: the example before is tried")
            p, index = example.before.program, example.before.index
            env = replace(example.before.env, rebind=example.before.env.rebind or env.rebind)
            small = self._shrink(target, p, env, replace(first, op=-1))
        self._looks_since = time.monotonic()
        self.tally.shrunk_s += self._looks_since - found
        if small.rate:
            recipe = replace(
                recipe, program=small.program, environment=small.environment,
                oracle=small.violation.oracle, message=small.violation.message, example=index,
                repeat=repeats(small.rate) if self.exact is None else 1, chain=chain,
            )  # fmt: skip
            if isinstance(small, ExactShrunk):
                recipe = self._anchored(recipe, small, folder)
            recipe.write(path)
            finding.violation = small.violation
            finding.operations = len(small.program.ops)
        finding.rate = small.rate
        if small.rate:
            self.note(self.tally, "one more look at the failure")
            finding.portrait = self._portrait(target, small, chain)

    def _portrait(
        self, target: Target, small: Shrunk, chain: tuple[Link, ...]
    ) -> Portrait | None:
        """One more look at the failure, which must cost neither the finding nor the campaign."""
        failing = small.program, small.environment, small.violation
        try:
            if self.exact is not None:
                return exact_portrait(target, chain, *failing)
            return portrait(target, *failing, min(LOOKS, repeats(small.rate)))
        except Exception as error:
            self.note(self.tally, f"no second look at the failure: {error!r}")
            with suppress(VmError):
                target.renew()
            return None

    def _anchored(self, recipe: Recipe, small: ExactShrunk, folder: Path) -> Recipe:
        """With its places by name, and what was decided beside it."""
        table = None if self.exact is None else self.exact.table
        if small.record is not None:
            decisions.write(folder / decisions.KEPT, small.record.log)
            recipe = replace(recipe, hash=small.record.hash)
        return holds.kept(recipe, table)

    def _shrink_exact(
        self, target: Target, example: _Running, first: Violation
    ) -> tuple[ExactShrunk, tuple[Link, ...]]:
        """Alone if it fails alone, else with what ran before it in its machine."""
        deadline = time.monotonic() + self.shrink_s
        p = plain(example.program)

        # The other machines stand idle.
        others = [one for one in self.targets if one is not target]

        def small(
            chain: tuple[Link, ...], violation: Violation, env: Environment = example.env
        ) -> ExactShrunk:
            return ExactShrinker(
                [Fresh(one, chain) for one in (target, *others)], p, env, violation,
                max(0.0, deadline - time.monotonic()),
                lambda text: self.note(self.tally, f"shrinking: {text}"), self.exact,
            ).run()  # fmt: skip

        found = small((), first)
        if found.rate or not example.chain:
            return found, ()
        self.note(self.tally, "not seen alone: with the examples before it")
        chain = tuple(Link(plain(link.program), link.environment) for link in example.chain)
        fresh = Fresh(target, chain)
        outcome = run(fresh, p, example.env)
        if not any(v.oracle == first.oracle for v in outcome.violations):
            return found, ()
        # What ran before it had a part in what was decided by chance: told one by one it may do
        # without.
        listed = held(fresh, p, example.env, fresh.record())
        if listed:
            told = replace(example.env, schedule=holds.told(example.env.schedule, listed))
            alone = small((), first, told)
            if alone.rate:
                return alone, ()
        # Each execution is as many as the chain has examples: another finding is worth more.
        deadline = min(deadline, time.monotonic() + CHAIN_S)
        half = time.monotonic() + (deadline - time.monotonic()) / 2
        chain = shorter_chain(
            target, chain, p, example.env, first.oracle, lambda: time.monotonic() > half
        )
        found = small(chain, first)
        return found, found.chain

    def _shrink(self, target: Target, p: Program, env: Environment, first: Violation) -> Shrunk:
        return Shrinker(
            target, p, env, first, self.shrink_s,
            lambda text: self.note(self.tally, f"shrinking: {text}"),
            [n for n in FAVOURITES if n in self.delays]
            + [n for n in self.delays if n not in FAVOURITES],
        ).run()  # fmt: skip


def repeats(rate: float) -> int:
    """Executions after which a failure of this rate has shown with great certainty.

    The measured rate is an estimate from a few dozen executions, so it is taken at half.
    """
    if rate >= 0.95:
        return 8
    n = 8
    while (1 - rate / 2) ** n > 0.01 and n < 1500:
        n += 4
    return n
