# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a failure of an exact machine small: what is taken has failed in a fresh machine.

1. Bold guesses at the operations concerned, under the schedule that found it.  Of a chain, first
   all that neither begins nor ends a process nor uses the GPU goes.
2. What that decided by chance is told one by one: a list of holds (holds.py), and as few of them
   as it takes.
3. The operations.  A list counts passages, and those change with what is taken away: so CPUs are
   held at each passage of its places meanwhile, if it fails so, too.
4. The list once more, with round times, and the operations under it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

from hmmbench.campaign.fresh import held
from hmmbench.campaign.pieces import copy_ops, meets, ranges, simpler
from hmmbench.campaign.shrink import EXTRA_S, HANG_MS
from hmmbench.campaign.tries import ExactShrunk, Tries, _Candidate, _last
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

#: Those that are tried with long slices and a list of holds, which cost little.
PLAIN_SEEDS = 8

#: And where CPUs are held at points because no list fails.
SEEDS_AT = 6

#: Share of the time after which the operations are left as they are, for the list at the end;
#: and where there is a chain, which takes time, too.
FOR_PROGRAM, FOR_LAST = 0.75, 0.4

#: What is mostly enough of a chain that wears a driver out: what begins and ends processes, opens
#: the GPU (its first access does) and closes it; or that and what moves pages.
LIVES = frozenset({
    Mmap.number, Spawn.number, Fork.number, Exit.number, Kill.number, CloseGpu.number,
    GpuAccess.number,
})  # fmt: skip
WEARING = (LIVES, LIVES | {Migrate.number, Munmap.number})

#: Accesses of one operation that are taken away one by one, at most.
ACCESSES = 12

class ExactShrinker(Tries):
    """The steps."""

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

    # -- steps: the chain --

    def _lives(self) -> None:
        """All operations but a few kinds are taken from the whole chain at once."""

        def only(link: Link, kinds: frozenset[int], keep: int = -1) -> Link | None:
            ops = [o for n, o in enumerate(link.program.ops) if o.op in kinds or n == keep]
            left = normalise(copy_ops(ops), link.program.file_pages)
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
            others = (schedules.reseeded(plain_one, n) for n in range(1, PLAIN_SEEDS + 1))
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
        held_at = [holds.at_each(plain_one, at, schedules.GAP_NS) for at in sets]
        return self._schedules([
            plain_one,
            *(schedules.reseeded(one, n) for n in range(1, SEEDS_AT + 1) for one in held_at),
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
            others = (schedules.reseeded(each, n) for n in range(1, PLAIN_SEEDS + 1))
            self._schedules([each, *others])

    def _plain_schedule(self) -> None:
        for step in schedules.plainer(self.environment.schedule):
            # Against the latest: each step stands on those that were taken.
            changed = step(self.environment.schedule)
            if changed != self.environment.schedule:
                self._fails(self.program.ops, replace(self.environment, schedule=changed))

    # -- steps: the program --

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


def _plain(link: Link) -> Link:
    """Of an example whose surroundings have no part in it."""
    was = link.environment
    plain_one = Environment(audit=was.audit, schedule=holds.base(was.schedule))
    return replace(link, environment=plain_one)


def _huge(first: int, end: int) -> tuple[int, int]:
    """The 2 MiB around these pages."""
    return first // HUGE_PAGES * HUGE_PAGES, -(-end // HUGE_PAGES) * HUGE_PAGES
