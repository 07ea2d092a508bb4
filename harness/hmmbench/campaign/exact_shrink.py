# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a failure of an exact machine small: what is taken has failed in a fresh machine.

1. Of a chain, all that neither begins nor ends a process nor uses the GPU goes, then examples.
   Whether chance has a part in it is looked for once.  Then operations of all examples at once,
   while each try takes long.  Bold guesses at the operations concerned, under the schedule that
   found it, and if none fails under some that cost little.
2. What that decided by chance is told one by one: a list of holds (holds.py), and as few of them
   as it takes.
3. The operations.  A list counts passages, and those change with what is taken away: so CPUs are
   held at each passage of its places meanwhile, if it fails so, too.
4. The list once more, with round times, and the operations under it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from hmmbench.campaign.exact_schedule import ScheduleTries
from hmmbench.campaign.pieces import always, copy_ops, draws, meets, once, ranges, simpler
from hmmbench.campaign.shrink import EXTRA_S
from hmmbench.campaign.tries import KEPT, SHORT_HANG_MS, ExactShrunk, _Candidate, _last
from hmmbench.example import holds, schedules
from hmmbench.example.recipe import Environment, Link
from hmmbench.guest.program import TIMEOUT_MS, Access, Op, Program
from hmmbench.model.admit import normalise
from hmmbench.model.ops.jobs import CloseGpu, GpuAccess
from hmmbench.model.ops.mapping import Mmap, Munmap
from hmmbench.model.ops.moving import Migrate, Policy
from hmmbench.model.ops.processes import Exit, Fork, Kill, Spawn
from hmmbench.model.space import HUGE_PAGES

#: Those that are tried where the failure was not seen again alone: what ran before it in its
#: machine made it fail by chance, perhaps.
SOUGHT = 16

#: Shares of the time that is left: for the operations, where the list is due once more; where
#: there is a chain, which takes time, too; for the examples that it does without; for what all of
#: them do without, in pieces down to so many operations.
FOR_PROGRAM, FOR_LAST, FOR_CUT, FOR_EVERYWHERE = 0.7, 0.4, 0.5, 0.6
SMALLEST = 4

#: And for guesses under other schedules than the one that found it.
FOR_ANEW = 0.15

#: What is mostly enough of a chain that wears a driver out: what begins and ends processes, opens
#: the GPU (its first access does) and closes it; or that and what moves pages.
LIVES = frozenset({
    Mmap.number, Spawn.number, Fork.number, Exit.number, Kill.number, CloseGpu.number,
    GpuAccess.number,
})  # fmt: skip
WEARING = (LIVES, LIVES | {Migrate.number, Munmap.number})

#: The event at which a rule that draws comes true where it does once: it may have been this one.
#: Where it goes by a bit of a page's address, so many bits lower.
EVENTS = (1, 2, 3, 5)

#: With how many seeds a guess is held at each kind of places, and the operations that it may have.
SEEDS_ANEW, BOLD = 3, 30

#: Accesses of one operation that are taken away one by one, at most.
ACCESSES = 12


class ExactShrinker(ScheduleTries):
    """The steps."""

    def run(self) -> ExactShrunk:
        with ExitStack() as stack:
            self._threads = [
                stack.enter_context(ThreadPoolExecutor(1, f"shrink-{n}"))
                for n in range(len(self._targets))
            ]
            first = self._state()
            if self._soon() and (self.violation.oracle == "progress" or self._hung):
                self._timeout_ms = SHORT_HANG_MS
            found = self._steps()
            if self._timeout_ms == TIMEOUT_MS:
                return found
            self._timeout_ms = TIMEOUT_MS
            self._more_time()
            self.seen.clear()
            if found.rate and self._once():
                return self._result(1.0)
            # It is slow, and was taken for a hang; or is none so soon.
            self._turn_back(first if self._usual is None else self._usual)
            self._more_time()
            self.seen.clear()
            return self._steps(patient=True)

    def _soon(self) -> bool:
        """What hangs shows it in a short time: not so where others are held meanwhile."""
        return not self.environment.crowded

    def _more_time(self) -> None:
        self.deadline = max(self.deadline, time.monotonic() + EXTRA_S)

    @contextmanager
    def _share(self, share: float) -> Iterator[None]:
        """Meanwhile it is late when so much of the time that is left has gone."""
        end = self.deadline
        self.deadline -= (1 - share) * max(0.0, end - time.monotonic())
        try:
            yield
        finally:
            self.deadline = end

    def _once(self) -> bool:
        """Whether it fails as it is now, in a fresh machine."""
        self._looks = [KEPT] * len(self._targets)
        return bool(self._first(self._candidates([(0, self.program, [self.environment])])))

    def _steps(self, patient: bool = False) -> ExactShrunk:
        """patient -- what hangs is given all the time that it has in a campaign"""
        self._certain = False
        self._looks = [KEPT] * len(self._targets)
        if not (patient and self._usual) and not self._whole_again():
            return self._result(0.0)
        if self._hung and self._soon() and not patient and self._timeout_ms != SHORT_HANG_MS:
            # What hangs because of what failed executes until its limit, too.
            self._usual = self._state()
            self._timeout_ms = SHORT_HANG_MS
            self.seen.clear()
            if not self._once():
                self._timeout_ms = TIMEOUT_MS
        if self._before:
            self._lives()
            self._cut()
        self._look_for_chance()
        if self._before:
            self._plain_links()
            self._everywhere()
        last = self.violation.op
        if 0 <= last < len(self.program.ops):
            # What comes after the violation did not cause it.
            phase = self.program.ops[last].phase
            self._fails([o for o in self.program.ops if o.phase <= phase])
        bold = last >= 0 and self._guess()
        bold |= self._near()
        bold = bold or self._guess_anew()
        self._environment()
        self._listed(whole=True)
        phases = {one.phase for one in holds.holds(self.environment.schedule)}
        self._loose()
        if phases:
            self._around(phases)
        elif last < 0 and not bold:
            self._first_phases()
            self._guess()
        share = 1.0 if self._certain else FOR_PROGRAM
        with self._share(FOR_LAST if self._before else share):
            self._program()
            # Behind a chain there is one seed at any rate.
            if self._certain and not self._before and not self._late():
                self._look_for_chance()
                if not self._certain:
                    # What is left of it fails by chance after all.
                    self.seen.clear()
                    self._program()
        self._listed()
        self._rounded()
        if holds.holds(self.environment.schedule):
            # Under the list: what was needed by other passages alone goes.
            self._operations()
        self._links()
        return self._result(1.0)

    def _whole_again(self) -> bool:
        """Whether it fails as it was found, or by another chance."""
        own, *others = self._reseeded(self.environment, SOUGHT)
        wanted = [own]
        if own.inject and self.violation.oracle != "progress":
            wanted.append(replace(own, inject=always(own.inject)))
        each = dict.fromkeys([*wanted, *others])
        return self._first(self._candidates([(0, self.program, each)])) is not None

    def _guess_anew(self) -> bool:
        """Bold guesses under schedules of which each try takes a tenth of the time (Tries): what
        else there was in the example may have moved a race, or be all that had chance in it."""
        was, last, ops = self.environment, self.violation.op, self.program.ops
        plain_one = holds.base(was.schedule)
        rules = [was.inject, always(was.inject), *(once(was.inject, n) for n in EVENTS)]
        rules = [one for one in dict.fromkeys(rules) if not draws(one)]
        if self._before or (self._certain and len(rules) == 1):
            return False
        plain_ones = [plain_one, schedules.reseeded(plain_one, 1)]
        held_at = [] if self._certain else self._held_at(plain_one)
        envs = [
            *(replace(was, schedule=one, inject=i) for i in rules for one in plain_ones),
            *(
                replace(was, schedule=schedules.reseeded(one, n), inject=rules[0])
                for n in range(1, SEEDS_ANEW + 1) for one in held_at
            ),
        ]  # fmt: skip
        guesses: list[list[Op]] = []
        if 0 <= last < len(ops):
            ops = [o for o in ops if o.phase <= ops[last].phase]
            guesses += self._guesses(ops)
        sound = [self._sound(few) for few in (*guesses, *self._nearby(ops)) if len(few) <= BOLD]
        small = [one[0] for one in sound if one is not None]
        # Of each schedule all guesses: which of them fails matters less than that one does.
        wanted = [(0, p, [env]) for env in envs for p in small]
        with self._share(FOR_ANEW):
            hit = self._first(self._candidates(wanted))
        if hit is not None:
            self._look_for_chance()
        return hit is not None

    def _program(self) -> None:
        changed = True
        while changed and not self._late():
            changed = self._operations()
            changed |= self._accesses()
            changed |= self._simplify()

    # -- steps: the chain --

    def _lives(self) -> None:
        """All operations but a few kinds are taken from the whole chain at once."""

        def only(link: Link, kinds: frozenset[int], keep: int = -1) -> Link | None:
            ops = link.program.ops
            return _with(link, [o for n, o in enumerate(ops) if o.op in kinds or n == keep])

        wanted = []
        for kinds in WEARING:
            last = only(self._one(), kinds, self.violation.op)
            chain = [only(link, kinds) for link in self._before]
            if last is not None:
                before = tuple(link for link in chain if link is not None)
                wanted.append(_Candidate(last.program, last.environment, 0, before))
        self._first(iter(wanted))

    def _cut(self) -> None:
        """The examples of the chain that it does without, from halves to single ones."""
        with self._share(FOR_CUT):
            size, at = len(self._before) // 2, 0
            while size and not self._late():
                one, before = self._one(), self._before
                fewer = (
                    _Candidate(one.program, one.environment, n, before[:n] + before[n + size :])
                    for n in range(at, len(before), size)
                )
                hit = self._first(fewer)
                if hit is None:
                    # Once more from the first, if some were not tried against what is left.
                    size, at = (size, 0) if at else (size // 2, 0)
                else:
                    at = hit.at
                size = min(size, len(self._before))

    def _plain_links(self) -> None:
        """What runs before it in plain surroundings, or at least under plain schedules."""
        one = self._one()
        self._first(
            _Candidate(one.program, one.environment, n, tuple(map(plainer, self._before)))
            for n, plainer in enumerate((_plain, _without_chance))
        )

    def _everywhere(self) -> None:
        """ddmin over the operations of all that runs, from large pieces to smaller ones: each try
        takes as long as all that is left of it."""
        with self._share(FOR_EVERYWHERE):
            size = self._total() // 2
            while size >= SMALLEST and not self._late():
                starts = range(self._total() - size, -size, -size)
                while starts:
                    hit = self._first(
                        one for n, start in enumerate(starts)
                        if (one := self._less(start, start + size, n)) is not None
                    )
                    if hit is None:
                        break
                    starts = starts[hit.at + 1 :]
                size = min(size, self._total()) // 2

    def _total(self) -> int:
        """Operations of all that runs."""
        return sum(len(link.program.ops) for link in (*self._before, self._one()))

    def _less(self, start: int, end: int, at: int) -> _Candidate | None:
        """All that runs without the operations [start, end) of it; None: the last needs one."""
        place, before = 0, []
        for link in self._before:
            ops = link.program.ops
            fewer = [o for n, o in enumerate(ops, place) if not start <= n < end]
            left = _with(link, fewer) if len(fewer) < len(ops) else link
            if left is not None:
                before.append(left)
            place += len(ops)
        last = [o for n, o in enumerate(self.program.ops, place) if not start <= n < end]
        sound = self._sound(last) if last else None
        if sound is None:
            return None
        environment = self._moved(self.environment, sound[1])
        return _Candidate(sound[0], environment, at, tuple(before))

    def _links(self) -> None:
        """What runs before it in its machine, from the nearest; what one of them has come to may
        be enough of the others, too."""
        last = len(self._before)
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
            self._operations()
            self._whole((*(self._one(),) * (n + 1), *self._after), n)
            self._turn_to(len(self._before) + len(self._after))
        for n in reversed(range(len(self._before) + 1 if self._before else 0)):
            # Now that each has few operations: what those are.
            self._turn_to(n)
            self._program()
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

    # -- steps: the program --

    def _environment(self) -> bool:
        changed = super()._environment()
        inject = always(self.environment.inject)
        # What only is slow for it is no hang.
        if inject != self.environment.inject and not self._hung:
            changed |= self._fails(self.program.ops, replace(self.environment, inject=inject))
        return changed

    def _around(self, phases: set[int]) -> bool:
        """CPUs are held in these phases: they, and what was done to the memory they name, are
        mostly enough."""
        ops = self.program.ops
        named = [pages for o in ops if o.phase in phases for pages in ranges(o)]
        if self.violation.page >= 0:
            named.append((self.violation.page, self.violation.page + 1))
        last = max(phases)
        near = {o.phase for o in ops if any(meets(o, *pages) for pages in named)}
        wide = {o.phase for o in ops if any(meets(o, *_huge(*pages)) for pages in named)}
        stage = (Policy.number, Fork.number, Spawn.number)
        return any(
            self._fails([
                o for o in ops
                if o.phase in phases
                or (o.phase <= end and (o.phase in kept or o.op in stage))
            ])
            for end in (last, _last(ops)) for kept in (near, wide)
        ) or self._fails([o for o in ops if o.phase <= last])  # fmt: skip

    def _first_phases(self) -> None:
        """As Shrinker's, in one part more than there are machines."""
        ops = self.program.ops
        phases = sorted({o.phase for o in ops})
        too_few, enough, parts = 0, len(phases), len(self._targets) + 1
        while enough - too_few > 1 and not self._late():
            span = enough - too_few
            cuts = sorted({too_few + max(1, span * n // parts) for n in range(1, parts)})
            wanted = []
            for n, cut in enumerate(cuts):
                sound = self._sound([o for o in ops if o.phase < phases[cut]])
                if sound is not None:
                    wanted.append((n, sound[0], self._variants(sound[1])))
            hit = self._first(self._candidates(wanted))
            if hit is None:
                too_few = cuts[-1]
            else:
                enough = cuts[hit.at]
                too_few = cuts[hit.at - 1] if hit.at else too_few

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
            (i, n) for i, o in enumerate(self.program.ops) for n in range(len(list(simpler(o))))
        ]

        def changed(place: tuple[int, int]) -> list[Op] | None:
            i, n = place
            if i >= len(self.program.ops):
                return None
            ways = list(simpler(self.program.ops[i]))
            if n >= len(ways):
                return None
            ops = list(self.program.ops)
            ops[i] = ways[n]
            return ops

        any_change = self._sweep(places, changed)
        ops = copy_ops(self.program.ops)
        if len({o.phase for o in ops}) < len(ops):
            for n, o in enumerate(ops):
                o.phase = n
            any_change |= self._fails(ops, was=self.program.ops)
        return any_change


def _with(link: Link, ops: list[Op]) -> Link | None:
    """The example with these of its operations; None: nothing is left of it."""
    left = normalise(copy_ops(ops), link.program.file_pages)
    return replace(link, program=Program(left, link.program.file_pages)) if left else None


def _plain(link: Link) -> Link:
    """Of an example whose surroundings have no part in it."""
    was = link.environment
    plain_one = Environment(audit=was.audit, schedule=holds.base(was.schedule))
    return replace(link, environment=plain_one)


def _without_chance(link: Link) -> Link:
    was = link.environment
    env = replace(was, schedule=holds.base(was.schedule), inject=always(was.inject))
    return replace(link, environment=env)


def _huge(first: int, end: int) -> tuple[int, int]:
    """The 2 MiB around these pages."""
    return first // HUGE_PAGES * HUGE_PAGES, -(-end // HUGE_PAGES) * HUGE_PAGES
