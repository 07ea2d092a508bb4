# SPDX-License-Identifier: GPL-2.0-or-later
"""A campaign: examples until one fails or all have passed.

Each is made of a block of bytes, which the seed fixes (generate.py); what fails is confirmed,
shrunk by `shrink` and written as a recipe.

On exact machines examples run in chains: so many of consecutive numbers in one machine, fresh at
the first of them.  So what an example depends on is a matter of its number alone, not of which
machine was free when.  On machines with threads executions of racing programs do not repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

from hmmbench.base import host, interrupt
from hmmbench.campaign import features
from hmmbench.campaign.explore import Explorer
from hmmbench.campaign.findings import Assignment, Findings
from hmmbench.campaign.generate import blocks, grown, program, steps_of, version
from hmmbench.campaign.shrink import SMALL
from hmmbench.campaign.surroundings import Surroundings, scheduled
from hmmbench.device import injection
from hmmbench.example import schedules
from hmmbench.example.delays import SCHEDULES
from hmmbench.example.judge import Verdict, judge
from hmmbench.example.recipe import Environment, Link
from hmmbench.example.target import Execution, Target
from hmmbench.guest.program import Program
from hmmbench.model.trail import Trail
from hmmbench.oracle.violation import NO_END, Violation
from hmmbench.report.tally import Tally
from hmmbench.vm.errors import VmError

#: Examples of each profile.
PROFILES = {"quick": 300, "default": 3000, "long": 30000}

#: More examples than any limit of time lets through.
UNBOUNDED = 10_000_000

#: So many points at most has the curve of a campaign's speed.
PACE = 240

#: Failures that were not seen again or stayed large, after which a campaign looks for no further
#: one; and seconds for which it looks for a better one than a large one that repeats.  What a
#: driver does wrong in a race it often does wrong without one in another example.
ELUSIVE = 3
BETTER_S = 30.0

#: Examples that are drawn at once.
BATCH = 100

#: Examples that run one after another in one exact machine.
CHAIN = 20


@dataclass
class _Example:
    """The next program of the campaign, and what surrounds it."""

    index: int
    program: Program
    env: Environment
    #: of a chain: the machine is fresh
    first: bool


class Campaign:
    """One `run`.

    targets     -- where programs are executed, one at a time on each
    spare       -- more of them, which only help to make a failure small
    out         -- folder for evidence; made when there is some
    delays      -- names of the driver's delay points
    schedule    -- how they are used: a name of delays.SCHEDULES
    injections  -- rules that may be used (none: the device behaves)
    note        -- called with the tally now and then
    shrink_s    -- time for making one failure small
    audit       -- the device's mirror audit: off, sampled, fill or access
    device      -- of the targets, a name of DEVICES: noted in recipes, for `replay`
    limit_s     -- no new example after so many seconds (none: `examples` alone counts)
    exact       -- the targets are exact machines: where their schedules may hold CPUs
    kind        -- of those schedules: a name of schedules.KINDS
    first       -- number of the first example
    cpus        -- of exact machines, for recipes
    tally       -- that of a campaign before, which this one goes on with
    given       -- programs that are run in turn instead of new ones, each in its surroundings; on
                   exact machines under another schedule each time
    machine     -- of the targets, if it is another than the usual one (vm/kinds.py), for recipes
    grammar     -- of which version what the seed makes is (generate.py; None: the newest)
    built       -- what recipes of exact machines depend on (recipe.BUILT)
    explorer    -- what examples follow from beside the seed, on exact machines (None: nothing)
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
        injections: Sequence[str] = injection.RULES,
        note: Callable[[Tally, str], None] = lambda tally, text: None,
        shrink_s: float = 150.0,
        audit: str = "off",
        device: str = "",
        limit_s: float | None = None,
        exact: schedules.Points | None = None,
        kind: str = "mixed",
        first: int = 0,
        cpus: int = 0,
        tally: Tally | None = None,
        given: Sequence[Link] = (),
        built: Mapping[str, str] | None = None,
        spare: Sequence[Target] = (),
        grammar: int | None = None,
        machine: str = "",
        explorer: Explorer | None = None,
    ) -> None:
        self.targets = tuple(targets) if isinstance(targets, Sequence) else (targets,)
        self.out = out
        self.seed = seed
        self.grammar = grammar
        self.examples = examples
        self.schedule = SCHEDULES[schedule](tuple(delays))
        self.note = note
        self.shrink_s = shrink_s
        self.limit_s = limit_s
        self.exact = exact
        self.surroundings = Surroundings(
            seed, self.schedule, tuple(injections), audit, exact, kind
        )
        self.meetings = schedules.Meetings(
            exact.aims if exact is not None else schedules.Aims()
        )
        self.first = first
        self.tally = Tally() if tally is None else tally
        self.given = tuple(given)
        self.spare = tuple(spare)
        self.explorer = explorer
        self._functions = (
            features.Functions(exact.table)
            if explorer is not None and exact is not None and exact.table is not None else None
        )  # fmt: skip
        self.findings = Findings(
            (*self.targets, *self.spare), out, seed, kernel, tuple(delays),
            lambda text: self.note(self.tally, text), shrink_s, device, exact,
            cpus, dict(built or {}), machine,
        )  # fmt: skip
        self._started = 0
        self._begun = time.monotonic()
        self._begun_cpu = host.cpu_s()
        self._looks_since = 0.0
        #: by machine: what it runs (or has run and nobody judged), and what it ran before that
        self._running: list[Assignment | None] = [None] * len(self.targets)
        self._before: list[Assignment | None] = [None] * len(self.targets)
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
            except VmError as error:
                # What was found goes first: it is no less true, and the error is told beside it.
                if not self.tally.findings:
                    self._end()
                    raise
                if str(error) not in self.tally.failed:
                    self.tally.failed.append(str(error))
            except BaseException:
                # An interrupt: the machines end now, not after the examples in them.
                self._end()
                raise
        self.tally.run_s += time.monotonic() - begun
        self.tally.cpu_s += host.cpu_s() - self._begun_cpu
        return self.tally

    def _end(self) -> None:
        for target in (*self.targets, *self.spare):
            target.end()

    def _all(self) -> None:
        source = self._examples()
        waiting: list[list[_Example]] = [[] for _ in self.targets]

        def give(number: int) -> None:
            """The machine's next example, if there is one."""
            if not waiting[number] and self._going() and self._ready():
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

    def _ready(self) -> bool:
        """Nothing that runs just now has a say in the next examples."""
        return self.explorer is None or self.explorer.ready(self.first + self._started)

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
        # In batches, because Hypothesis (grammars 1 and 2) can only be left between two of them.
        for number in count():
            left = self.examples - self._started
            if left <= 0:
                return
            for link in self.given[:left]:
                index = self._number()
                env = scheduled(link.environment, self.surroundings.drawn(index)[0])
                yield _Example(index, link.program, env, not (index % CHAIN))
            for data in [] if self.given else self._batch(number):
                index = self._number()
                yield _Example(index, *self._drawn(index, data), not (index % CHAIN))

    def _drawn(self, index: int, data: bytes) -> tuple[Program, Environment]:
        # Without a seed, which only a reader of its bytes sees: recipes have none, and what ran is
        # what they hold.
        if self.explorer is None:
            p = program(data, grammar=self.grammar)
            return p, self.surroundings.of(index, p)
        chosen = self.explorer.choose(index, steps_of(data))
        p = grown(chosen.steps, grammar=self.grammar)
        env = self.surroundings.of(index, p, chosen.around, chosen.when)
        if chosen.chance and env.schedule:
            env = replace(env, schedule=schedules.reseeded(env.schedule, chosen.chance))
        return p, env

    def _number(self) -> int:
        """Of the next example."""
        self._started += 1
        return self.first + self._started - 1

    def _batch(self, number: int) -> list[bytes]:
        count = min(BATCH, self.examples - self._started)
        return blocks(self.seed, self.first // BATCH + number, count, version(self.grammar))

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

        self._running[number] = Assignment(
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

    def _take(self, number: int) -> Assignment | None:
        """What a machine ran, once its answer is there; the machine is free then."""
        running, self._running[number] = self._running[number], None
        if running is not None:
            try:
                running.answer.result()
            except VmError as error:
                self._failed(running, error)
                # What the other machines have found is not to be lost with this one.
                if not self._enough():
                    self._found_beside([])
                raise
            self._before[number] = running
            # That one is judged; all of them would never be given back.
            if running.before is not None:
                running.before.before = None
        return running

    def _failed(self, example: Assignment, error: VmError) -> None:
        """The machine failed, and not the driver in it: what is needed to see it again is kept."""
        if self.explorer is not None:
            self.explorer.reached(example.index, frozenset())
        folder = self.out / f"machine-failed-{example.index}"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            self.findings.recipe(example, "", error.message).write(folder / "recipe.json")
            error.hint += f"\nThe example that it ran, and what is left of it: {folder}"
            with suppress(VmError):
                example.target.keep(folder / "machine")
        self.tally.failed.append(str(error))

    def _stop(self) -> list[Assignment]:
        """Wait for all machines; what they ran.  Of one that failed its evidence is kept."""
        running = [one for one in self._running if one is not None]
        wait_for([one.answer for one in running])
        self._running = [None] * len(self.targets)
        answered = []
        for one in running:
            error = one.answer.exception()
            if error is None:
                answered.append(one)
            elif isinstance(error, VmError):
                self._failed(one, error)
                self.note(self.tally, f"another machine failed meanwhile: {error.message}")
        return answered

    def _finish(self, example: Assignment | None) -> None:
        """Judge an example whose answer is there, and count it."""
        if example is None or self._enough():
            return
        violations = self._judge(example)
        if violations:
            self._found_beside([(example, violations)])

    def _found_beside(self, failing: list[tuple[Assignment, list[Violation]]]) -> None:
        """What ran beside these is judged too, before its machine is used for anything else."""
        for other in self._stop():
            known = {found[0].key for _, found in failing}
            known |= {finding.violation.key for finding in self.tally.findings}
            also = self._judge(other)
            if also and also[0].key not in known:
                failing.append((other, also))
        self._found(failing)
        if self.exact is not None:
            # Their machines have run something else since.
            self._before = [None] * len(self.targets)

    def _judge(self, example: Assignment) -> list[Violation]:
        """Of an example whose answer is there, which is counted."""
        execution = example.answer.result()
        self.schedule.learn(example.env.delays, execution.points)
        self.meetings.learn(example.env.schedule, execution.met)
        outcome = self._judged(example, execution)
        self.tally.examples += 1
        self.tally.operations += outcome.operations
        self.tally.gpu_accesses += outcome.gpu_accesses
        self.tally.undecided += outcome.undecided
        self.tally.promises += outcome.promises
        self.tally.promises_tried += outcome.promises_tried
        self.tally.stores += outcome.stores
        self.tally.stores_there += outcome.stores_there
        self.tally.pages_to_read += outcome.pages_to_read
        self.tally.pages_read += outcome.pages_read
        self.tally.censuses += outcome.censuses
        self.tally.censuses_taken += outcome.censuses_taken
        self.tally.accounts += outcome.accounts
        self.tally.accounts_taken += outcome.accounts_taken
        self._record(example.env)
        if outcome.violations and not self.tally.found_examples:
            self.tally.found_s = self._elapsed()
            self.tally.found_cpu_s = self.tally.cpu_s + host.cpu_s() - self._begun_cpu
            self.tally.found_examples = self.tally.examples
        self.note(self.tally, "")
        return outcome.violations

    def _judged(self, example: Assignment, execution: Execution) -> Verdict:
        if self.explorer is None:
            return judge(execution, self.tally.coverage)
        trail = self.tally.coverage.trail = Trail()
        outcome = judge(execution, self.tally.coverage)
        self.tally.coverage.trail = None
        found = features.of(trail, outcome, execution, self._functions)
        # What ran again has counted more than once, which no other example can reach.
        self.explorer.reached(example.index, frozenset() if example.env.again else found)
        self.tally.reached = self.explorer.counts()
        return outcome

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

    def _found(self, failing: Sequence[tuple[Assignment, list[Violation]]]) -> None:
        """These failed at the same time, of different mistakes; all is kept before one is made
        small, which takes all machines."""
        found = time.monotonic()
        written = []
        for example, violations in failing:
            finding = self.findings.write(example, violations, len(self.tally.findings) + 1)
            self.tally.findings.append(finding)
            written.append((example, finding, any(v.key == NO_END for v in violations)))
            self.note(
                self.tally, f"violation in example {example.index}: {finding.violation.message}"
            )
        for example, finding, hung in written:
            look = self.findings.shrink(example, finding, hung)
            self._looks_since = time.monotonic()
            self.tally.shrunk_s += self._looks_since - found
            look()
            found = time.monotonic()
