# SPDX-License-Identifier: GPL-2.0-or-later
"""What surrounds an example: short VRAM, a device that misbehaves, delays, a schedule, a driver
that is bound anew.  All of it follows from the campaign's seed and the example's number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hmmbench.device import injection
from hmmbench.example import delays, schedules
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import POLICY_MIGRATE, Program
from hmmbench.model.ops import of as operation
from hmmbench.model.ops.moving import Policy
from hmmbench.vm.spec import MachineSpec

#: A campaign's seed and an example's number, from which something is drawn.
Origin = tuple[int, int]

#: After one example of so many, a quarter of a second: the driver is unbound and bound again.
#: Soon for the first time, so that a short run has one.
REBIND_EACH, REBIND_FIRST = 150, 7

#: One example of so many, if it can (`once` of model/ops/base.py), runs AGAIN times more, for what
#: it leaves in the kernel each time (oracle/growth.py), which with its looks takes as long as some
#: other examples.  Soon for the first time, and not with the one after which the driver is unbound.
CENSUS_EACH, CENSUS_FIRST, AGAIN = 80, 3, 4

#: Share of the examples on exact machines in which the driver's delay points, where it has any,
#: are used beside the schedule.
DELAYED_TOO = 0.35

#: A GPU that is slower to fault again than the driver is to answer.  Late replays meet the next
#: fault of what they sent again beside such a one alone, so it goes with waits at their point.
LATE_REPLAY, SLOW_WALKS = "fault_before_replay", "mmu.walk delay=1000000"

#: But not with a program that walks so often that it would seem to hang.
WALKS = 500

#: Share of examples in which the device misbehaves by one of these.
INJECTED = 0.35

#: Share of examples in which VRAM is short, and how many pages it has then: what does not fit
#: stays where it is, or is moved half.  More often where the GPU's faults are to move pages, which
#: then drive one another out, best if there is one.
VRAM_SHORT, VRAM_SHORT_AT_FAULTS = 0.08, 0.4
VRAM_PAGES, VRAM_PAGES_AT_FAULTS = (0, 1, 1, 2, 3, 16, 200), (1, 1, 1, 2, 3, 16)


def injections(
    spec: MachineSpec, rules: Sequence[str] = injection.RULES
) -> tuple[str, ...]:
    """The rules, as they are of use on this machine."""
    # An IOMMU's addresses are handed out from 2^32 downwards: half of them, by another bit.
    bits = 0x20004000 if spec.iommu else 1 << (spec.memory_mib << 20).bit_length() - 2
    home = f"match={bits:x}/{0xffffff << 40 | bits:x}"
    return tuple(rule.replace(injection.HOME, home) for rule in rules)


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
    injections: tuple[str, ...] = injection.RULES
    audit: str = "off"
    exact: schedules.Points | None = None
    kind: str = "mixed"

    def of(
        self, index: int, p: Program, around: Origin | None = None, when: Origin | None = None
    ) -> Environment:
        """Most examples run undisturbed; some with a widened race or a misbehaving device.

        around, when -- whose surroundings and schedule it has, if not its own
        """
        seed, number = around or (self.seed, index)
        rng = random.Random(seed << 32 | number)
        lines = self.delays.delays(rng, p)
        schedule, delayed = self.drawn(index, when)
        if not delayed:
            lines = ()
        inject: tuple[str, ...] = ()
        if self.injections and rng.random() < INJECTED:
            inject = (rng.choice(self.injections),)
        late = any(line.split()[0] == LATE_REPLAY for line in lines)
        if self.injections and late and sum(operation(o).walks(o) for o in p.ops) < WALKS:
            inject = (SLOW_WALKS,)
        at_faults = any(o.op == Policy.number and o.arg & POLICY_MIGRATE for o in p.ops)
        short = rng.random() < (VRAM_SHORT_AT_FAULTS if at_faults else VRAM_SHORT)
        vram = rng.choice(VRAM_PAGES_AT_FAULTS if at_faults else VRAM_PAGES) if short else None
        rebind = index % REBIND_EACH == REBIND_FIRST
        due = index % CENSUS_EACH == CENSUS_FIRST and not any(operation(o).once for o in p.ops)
        again = AGAIN if due else 0
        here = Environment(lines, inject, self.audit, rebind, vram, again=again)
        return scheduled(here, schedule)

    def drawn(self, index: int, when: Origin | None = None) -> tuple[str, bool]:
        """An example's schedule on an exact machine, and whether delay points are used, too."""
        if self.exact is None:
            return "", True
        # A stream of its own: what else surrounds an example is the same on any machine.
        seed, number = when or (self.seed, index)
        own = random.Random(f"{seed} {number} schedule")
        return schedules.draw(self.kind, own, self.exact), own.random() < DELAYED_TOO
