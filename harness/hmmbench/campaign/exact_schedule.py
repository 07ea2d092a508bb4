# SPDX-License-Identifier: GPL-2.0-or-later
"""Making the schedule of a failure of an exact machine small: long slices, and as few decisions
as it takes, told one by one (holds.py)."""

from __future__ import annotations

from dataclasses import replace

from hmmbench.campaign.fresh import held
from hmmbench.campaign.tries import Tries, _Candidate
from hmmbench.example import holds, schedules

#: Those that are tried with long slices and a list of holds, which cost little; not so where the
#: program is whole.
PLAIN_SEEDS, PLAIN_SEEDS_OF_WHOLE = 8, 3

#: And where CPUs are held at points because no list fails.
SEEDS_AT = 6

#: What fails with long slices, nobody held, and each of so many seeds, fails without chance.
CERTAIN = 2


class ScheduleTries(Tries):
    """The steps that leave the program as it is."""

    def _look_for_chance(self) -> None:
        """Whether there is any: what fails with every seed needs no others in what follows."""
        if not self.environment.schedule:
            return
        known = self.environment.schedule
        plain_one = holds.base(known)
        seeds = (schedules.reseeded(plain_one, seed) for seed in range(1, CERTAIN + 2))
        asked = [one for one in dict.fromkeys([plain_one, *seeds]) if one != known][:CERTAIN]
        each = [
            _Candidate(
                self.program, replace(self.environment, schedule=one), 0, self._before, self._after
            ) for one in asked
        ]  # fmt: skip
        tried = self._each(each)
        self._certain = all(one.found is not None for one in tried)
        if self._certain and asked[0] == plain_one and tried[0].found is not None:
            self._take(each[0], tried[0], tried[0].found)

    def _listed(self, whole: bool = False) -> None:
        """What is held, one by one and as few as it takes; if it fails so.  Else as plain as is.

        whole -- the program still is, so that each try takes long
        """
        # The list of a crowd's hang would be thousands of holds, one after the other.
        listed = not self.environment.crowded and (
            self._told() or (self._at_points() and self._told())
        )
        if not listed:
            self._plain_schedule()
            return
        self._fewest()
        for words in () if whole else ("irq", "step"):
            self._schedules([holds.without(self.environment.schedule, words)])
        schedule = self.environment.schedule
        plain_one = holds.told(holds.base(schedule), holds.holds(schedule))
        if plain_one != schedule:
            seeds = range(1, (PLAIN_SEEDS_OF_WHOLE if whole else PLAIN_SEEDS) + 1)
            others = (schedules.reseeded(plain_one, n) for n in seeds)
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
        held_at = self._held_at(plain_one)
        return self._schedules([
            plain_one,
            *(schedules.reseeded(one, n) for n in range(1, SEEDS_AT + 1) for one in held_at),
        ])  # fmt: skip

    def _held_at(self, plain_one: str) -> list[str]:
        """Held at each passage of places where drivers race, a kind of them at a time."""
        points = self._points
        sets = dict.fromkeys(
            tuple(dict.fromkeys(at))
            for at in (
                points.of("gaps"), points.of("late_gaps"), points.of("relocks"), points.favourites,
                points.of("seams"),
            ) if at
        )  # fmt: skip
        return [holds.at_each(plain_one, at, schedules.GAP_NS) for at in sets]

    def _recorded(self) -> tuple[holds.Hold, ...] | None:
        """The holds of the current failure; None: not known, or not of what has failed."""
        self.executions += 1
        self._targets[0].chain = self._before
        program = self._timed(self.program, self.environment)
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
