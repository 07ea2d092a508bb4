# SPDX-License-Identifier: GPL-2.0-or-later
"""What surrounds an example: short VRAM, a device that misbehaves, delays, a schedule, a driver
that is bound anew.  All of it follows from the campaign's seed and the example's number."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hmmbench.example import delays, schedules
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import POLICY_MIGRATE, Program
from hmmbench.model.ops.moving import Policy

#: After one example of so many, a quarter of a second: the driver is unbound and bound again.
#: Soon for the first time, so that a short run has one.
REBIND_EACH, REBIND_FIRST = 150, 7

#: Share of the examples on exact machines in which the driver's delay points, where it has any,
#: are used beside the schedule.
DELAYED_TOO = 0.35

#: Rules of the device that a sound driver survives; one is used in an example now and then.
INJECTIONS = (
    # An invalidation that takes its time is where a driver that does not wait goes wrong: hence
    # more than once, and long against the operations that follow it.
    *("mmu.invalidate delay=8000000",) * 2,
    "mmu.invalidate prob=0.3 delay=40000000",
    "mmu.invalidate prob=0.3 delay=3000000",
    "fault.entry prob=0.2 duplicate",
    "fault.entry prob=0.3 delay_valid=500000",
    "fault.replay prob=0.3 delay=200000",
    "irq.message prob=0.3 delay=200000",
    "irq.message prob=0.3 duplicate",
    "ce.copy prob=0.3 delay=200000",
    # One copy home fails: driver copies go to bus addresses, those of programs to virtual ones.
    # It is not every page that is looked at afterwards.
    *("ce.copy match=20000000/ffffff0020000000 count=1 error",) * 3,
    "ring.fence prob=0.3 delay=200000",
    "ring.launch prob=0.3 delay=100000",
    "mmu.walk prob=0.1 delay=1000000",
)

#: A GPU that is slower to fault again than the driver is to answer.  Late replays meet the next
#: fault of what they sent again beside such a one alone, so it goes with waits at their point.
LATE_REPLAY, SLOW_WALKS = "fault_before_replay", "mmu.walk delay=1000000"

#: Share of examples in which the device misbehaves by one of these.
INJECTED = 0.3

#: Share of examples in which VRAM is short, and how many pages it has then: what does not fit
#: stays where it is, or is moved half.  More often where the GPU's faults are to move pages, which
#: then drive one another out, best if there is one.
VRAM_SHORT, VRAM_SHORT_AT_FAULTS = 0.08, 0.4
VRAM_PAGES, VRAM_PAGES_AT_FAULTS = (0, 1, 1, 2, 3, 16, 200), (1, 1, 1, 2, 3, 16)


def scheduled(environment: Environment, schedule: str) -> Environment:
    """The same with this schedule, or a calmer one where driver or device are slow already."""
    slow = environment.delays or environment.inject
    return replace(environment, schedule=schedules.calmed(schedule) if slow else schedule)


@dataclass(frozen=True)
class Surroundings:
    """Of one campaign.

    delays     -- uses the driver's delay points
    injections -- rules that may be used (none: the device behaves)
    audit      -- the device's mirror audit: off, sampled, fill or access
    exact      -- where schedules of exact machines may hold CPUs; None: machines with threads
    kind       -- of those schedules: a name of schedules.KINDS
    """

    seed: int
    delays: delays.Schedule
    injections: tuple[str, ...] = INJECTIONS
    audit: str = "off"
    exact: schedules.Points | None = None
    kind: str = "mixed"

    def of(self, index: int, p: Program) -> Environment:
        """Most examples run undisturbed; some with a widened race or a misbehaving device."""
        rng = random.Random(self.seed << 32 | index)
        lines = self.delays.delays(rng, p)
        schedule, delayed = self.drawn(index)
        if not delayed:
            lines = ()
        inject: tuple[str, ...] = ()
        if self.injections and rng.random() < INJECTED:
            inject = (rng.choice(self.injections),)
        late = any(line.split()[0] == LATE_REPLAY for line in lines)
        if self.injections and late:
            inject = (SLOW_WALKS,)
        at_faults = any(o.op == Policy.number and o.arg & POLICY_MIGRATE for o in p.ops)
        short = rng.random() < (VRAM_SHORT_AT_FAULTS if at_faults else VRAM_SHORT)
        vram = rng.choice(VRAM_PAGES_AT_FAULTS if at_faults else VRAM_PAGES) if short else None
        rebind = index % REBIND_EACH == REBIND_FIRST
        return scheduled(Environment(lines, inject, self.audit, rebind, vram), schedule)

    def drawn(self, index: int) -> tuple[str, bool]:
        """An example's schedule on an exact machine, and whether delay points are used, too."""
        if self.exact is None:
            return "", True
        # A stream of its own: what else surrounds an example is the same on any machine.
        own = random.Random(f"{self.seed} {index} schedule")
        return schedules.draw(self.kind, own, self.exact), own.random() < DELAYED_TOO
