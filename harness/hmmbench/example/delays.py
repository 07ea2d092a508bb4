# SPDX-License-Identifier: GPL-2.0-or-later
"""Races on purpose: where the driver waits in an example, so that a narrow race becomes wide.

A schedule chooses lines for the driver's file `delays` (docs/driver.md) and learns from what the
driver counted in the example.  Which examples it disturbs, and how, follows from the campaign's
seed and from those counts; a recipe has the lines themselves, so a replay needs no schedule.

random -- a point, a length and a share of its passages, drawn for each example; and, where the
          program makes a race that is named here (AIMED), the points of that.
pct    -- few waits at single passages, drawn from all passages that earlier examples had: the
          idea of probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010: a bug of
          depth d needs d - 1 preemptions at the right steps; few, well spread, find it with a
          known probability).  A wait takes the place of their change of priority.
pairs  -- a point waits until another thread passes a second point, or until the device counts
          an event: each ordered pair in turn, those that were met least first.  What it met is
          the campaign's coverage of interleavings.
"""

from __future__ import annotations

import itertools
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hmmbench.guest.program import MIGRATE_DEVICE, POLICY_EXCLUSIVE, PROT_READ, Program
from hmmbench.model.ops.advice import Madvise
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, GpuCopy
from hmmbench.model.ops.mapping import Mprotect, Mremap, Munmap
from hmmbench.model.ops.moving import Evict, Migrate, Policy, Query
from hmmbench.model.ops.processes import Fork

#: Share of examples that are disturbed.
SHARE = 0.3

#: Points that are chosen more often, where the driver has them: between looking at the CPU's
#: page table and acting on it is where drivers of this kind go wrong, and at the end of an
#: address space, whose number another gets.
FAVOURITES = ("svm_after_range_fault", "migrate_before_map", "release_before_asid_free")
FAVOURED = 0.6

#: Two more, in programs that set a policy of exclusive access: no others pass them.
EXCLUSIVE = ("exclusive_before_entry", "exclusive_before_map")

#: Microseconds and how many of 1000 passages wait.  Long waits meet what short ones miss, but one
#: at each passage would make an example take seconds.
DELAYS = ((500, 1000), (3000, 300), (8000, 100))

#: Points that a change of the CPU's page table passes at each page, also where the GPU has none:
#: waiting there is all that is done meanwhile.
IDLE = ("svm_before_invalidate", "exclusive_before_revoke")

#: Microseconds that one of those may wait in all in an example.
WAITS_US = 1_000_000

#: Points passed a few times in an example, when a file is closed or a job fails: these wait each
#: time.
RARE = (
    "release_begin", "release_before_remove", "release_before_asid_free", "svm_closing_invalidate",
    "fault_before_cancel",
)  # fmt: skip
RARE_DELAYS = ((3000, 1000), (8000, 1000))

#: Counters of the device that a point can wait for: what the GPU does meanwhile.
EVENTS = (
    "dev_faults", "dev_replays", "dev_invals", "dev_loads", "dev_stores", "dev_atomics",
    "dev_copies", "dev_fences", "dev_launches",
)  # fmt: skip

#: pct: waits in an example at most, and their length (microseconds).
DEPTH = 3
PCT_US = 4000

#: pct: passages of a point that nothing is known about.
PCT_UNKNOWN = 20

#: pairs: how long a point waits for the other (microseconds), and at how many of 1000 passages.
PAIR_US = 3000
PAIR_PERMILLE = 500


@dataclass(frozen=True)
class Point:
    """A line of the driver's file after an example: counts since it was set.

    hits    -- waits
    passed  -- passages
    met     -- waits that ended because the other point was passed
    """

    name: str
    hits: int
    passed: int
    met: int


@dataclass(frozen=True)
class Aim:
    """A race that a program makes: the points where it is narrow, all of which then wait.

    share   -- of the examples that have such a race
    waits   -- microseconds and how many of 1000 passages, one of these
    """

    points: tuple[str, ...]
    share: float
    waits: tuple[tuple[int, int], ...]


#: Threads of a process that touch memory at once: a stampede, if it is the same.
CROWD = 3

#: What changes the CPU's page table under a page that is being made exclusive: "claim".  What
#: moves it to VRAM before that: "take".
CHANGES = (Mprotect.number, Munmap.number, Madvise.number, Mremap.number, Fork.number)

#: Jobs, and what may have them refused.
JOBS = (GpuAccess.number, GpuCopy.number)
REFUSES = (Mprotect.number, Munmap.number)

#: By what the program does at the same time (`races`): "close" while others use the GPU, and
#: "serve", whether their faults are served meanwhile; "round", jobs that may be refused beside
#: others: a late replay of theirs meets the next fault of what is refused.  Waiting costs little
#: where few examples pass the points, and those seldom; a page is freed often.
AIMED = {
    "close": Aim(("release_before_remove", "svm_closing_invalidate"), 0.4, RARE_DELAYS),
    "serve": Aim(("svm_after_range_fault",), 0.3, ((3000, 1000), (8000, 500))),
    "query": Aim(("query_before_walk", "query_after_walk"), 0.2, ((1000, 1000), (3000, 500))),
    "exclusive": Aim(("exclusive_before_revoke",), 0.4, ((1000, 1000), (3000, 700), (8000, 500))),
    "copy": Aim(("ce_before_run",), 0.06, ((500, 1000), (2000, 300))),
    "claim": Aim(("exclusive_before_map",), 0.3, ((1000, 1000), (3000, 1000))),
    "take": Aim(("exclusive_before_entry",), 0.4, ((1000, 1000), (3000, 1000))),
    "move": Aim(("vram_after_free",), 0.06, ((500, 500), (2000, 200))),
    "round": Aim(("fault_before_replay",), 0.12, ((3000, 1000),)),
    "refusal": Aim(("fault_before_cancel",), 0.4, RARE_DELAYS),
    "stampede": Aim(("to_ram_entry",), 0.25, ((3000, 1000), (8000, 1000))),
    "evict": Aim(("to_ram_moved",), 0.3, ((1000, 1000), (3000, 500))),
}


def races(program: Program) -> set[str]:
    """What of AIMED a program does."""
    threads = {(o.phase, o.proc, o.actor) for o in program.ops}
    at_once = Counter(phase for phase, _, _ in threads)
    beside = Counter((phase, proc) for phase, proc, _ in threads)
    found = set()
    touching = {(o.phase, o.proc, o.actor) for o in program.ops if o.op == CpuAccess.number}
    if max(Counter((phase, proc) for phase, proc, _ in touching).values(), default=0) >= CROWD:
        found.add("stampede")
    for before, o in itertools.pairwise(program.ops):
        # A copy to what was just made read-only, which the next job may have, or read.
        protects = before.op == Mprotect.number and before.a == PROT_READ
        if protects and o.op == GpuCopy.number and (o.proc, o.arg) == (before.proc, before.region):
            found.add("refusal")
    jobs = {(o.phase, o.proc, o.actor) for o in program.ops if o.op in JOBS}
    phases = Counter(phase for phase, _, _ in jobs)
    refused_from = min((o.phase for o in program.ops if o.op in REFUSES), default=math.inf)
    if any(n > 1 and phase >= refused_from for phase, n in phases.items()):
        found.add("round")
    for o in program.ops:
        if o.op == Migrate.number and at_once[o.phase] > 1:
            found.add("copy")
        if o.op == Evict.number and at_once[o.phase] > 1:
            found.add("evict")
        if o.op == Policy.number and o.arg & POLICY_EXCLUSIVE:
            found.add("exclusive")
        elif o.op in CHANGES and beside[o.phase, o.proc] > 1:
            found.add("claim")
        elif o.op in (CloseGpu.number, Query.number) and beside[o.phase, o.proc] > 1:
            found |= {"close", "serve"} if o.op == CloseGpu.number else {"query"}
        elif o.op == Migrate.number and o.arg == MIGRATE_DEVICE and beside[o.phase, o.proc] > 1:
            found |= {"move", "take"}
    if "exclusive" not in found:
        found -= {"claim", "take"}
    return found


def line(name: str, us: int, permille: int, seed: int) -> str:
    """A line for the driver's file.

    One operation may pass a point of IDLE a thousand times: were it to wait each time, a program
    that is sound would stand still for longer than it may.  Elsewhere work is done between two
    waits, or there is none, and then that is what is to be found.
    """
    line = f"{name} {us} {permille} {seed}"
    return f"{line} {WAITS_US // us}" if name.split()[0] in IDLE else line


def parse(text: str) -> list[Point]:
    """The driver's file `delays`."""
    out = []
    for line in text.splitlines():
        if line.strip():
            name, _, _, hits, passed, met = line.split()
            out.append(Point(name, int(hits), int(passed), int(met)))
    return out


class Schedule(ABC):
    """Used by the campaign's thread alone."""

    def __init__(self, points: Sequence[str], share: float = SHARE) -> None:
        self.points = tuple(points)
        self.share = share

    def delays(self, rng: random.Random, program: Program | None = None) -> tuple[str, ...]:
        """Lines for one example; none for most."""
        if not self.points or rng.random() >= self.share:
            return ()
        return self.choose(rng, program is not None and "exclusive" in races(program))

    @abstractmethod
    def choose(self, rng: random.Random, exclusive: bool = False) -> tuple[str, ...]:
        """Lines for an example that is to be disturbed.  `exclusive`: its program sets a policy of
        exclusive access."""

    def learn(self, lines: Iterable[str], points: Sequence[Point]) -> None:
        """What the driver counted in an example that ran with these lines."""
        del lines, points

    def coverage(self) -> dict[str, int]:
        """Of interleavings, for the report."""
        return {}


class Random(Schedule):
    """See the module's text."""

    def delays(self, rng: random.Random, program: Program | None = None) -> tuple[str, ...]:
        lines = super().delays(rng, program)
        names = {line.split()[0] for line in lines}
        for what in sorted(races(program)) if program is not None else ():
            aim = AIMED[what]
            apt = [n for n in aim.points if n in self.points and n not in names]
            if apt and rng.random() < aim.share:
                us, permille = rng.choice(aim.waits)
                lines += tuple(line(n, us, permille, rng.randrange(1, 1 << 16)) for n in apt)
        return lines

    def choose(self, rng: random.Random, exclusive: bool = False) -> tuple[str, ...]:
        names = rng.sample(self.points, k=min(len(self.points), rng.choice((1, 1, 2))))
        liked = (*FAVOURITES, *EXCLUSIVE) if exclusive else FAVOURITES
        favourites = [n for n in liked if n in self.points]
        if favourites and rng.random() < FAVOURED:
            names = [rng.choice(favourites)]
        return tuple(
            line(name, us, permille, rng.randrange(1, 1 << 16))
            for name in names
            for us, permille in (rng.choice(RARE_DELAYS if name in RARE else DELAYS),)
        )


class Pct(Schedule):
    """See the module's text."""

    def __init__(self, points: Sequence[str], share: float = SHARE) -> None:
        super().__init__(points, share)
        #: passages of a point in an example, the most seen lately
        self._length = dict.fromkeys(self.points, PCT_UNKNOWN)

    def choose(self, rng: random.Random, exclusive: bool = False) -> tuple[str, ...]:
        names = list(self.points)
        weights = [self._length[n] for n in names]
        chosen = {}
        for _ in range(rng.randint(1, DEPTH)):
            name = rng.choices(names, weights)[0]
            # The driver keeps one setting a point.
            chosen[name] = f"{name} at {rng.randint(1, self._length[name])} {PCT_US}"
        return tuple(chosen.values())

    def learn(self, lines: Iterable[str], points: Sequence[Point]) -> None:
        for p in points:
            if p.name in self._length:
                # Forgets slowly: examples differ in length.
                self._length[p.name] = max(1, p.passed, self._length[p.name] * 3 // 4)


class Pairs(Schedule):
    """See the module's text."""

    def __init__(self, points: Sequence[str], share: float = SHARE) -> None:
        super().__init__(points, share)
        self._tried: Counter[tuple[str, str]] = Counter()
        self._met: Counter[tuple[str, str]] = Counter()
        self._pairs = [(p, q) for p in self.points for q in (*self.points, *EVENTS)]

    def choose(self, rng: random.Random, exclusive: bool = False) -> tuple[str, ...]:
        # First what was never met, the least tried of it before the rest; chance among equals.
        first, second = min(
            self._pairs,
            key=lambda pair: (self._met[pair] + self._tried[pair] // 4, rng.random()),
        )
        self._tried[first, second] += 1
        return (
            line(
                f"{first} until {second}", PAIR_US, PAIR_PERMILLE, rng.randrange(1, 1 << 16)
            ),
        )

    def learn(self, lines: Iterable[str], points: Sequence[Point]) -> None:
        met = {p.name: p.met for p in points}
        for line in lines:
            first, word, second, *_ = line.split()
            if word == "until" and met.get(first):
                self._met[first, second] += 1

    def coverage(self) -> dict[str, int]:
        return {
            "pairs": len(self._pairs),
            "pairs_tried": len(self._tried),
            "pairs_met": len(self._met),
        }


SCHEDULES: dict[str, Callable[[Sequence[str]], Schedule]] = {
    "delay-random": Random,
    "delay-pct": Pct,
    "delay-pairs": Pairs,
}
