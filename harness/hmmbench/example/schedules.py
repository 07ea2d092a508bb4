# SPDX-License-Identifier: GPL-2.0-or-later
"""Schedules of exact machines, drawn from the example's seed: who runs, who is held, and where.

A schedule is a line of words that the object hmm-exact reads (qemu-device/qemu/
hmm-exact-plan.c); the same line gives the same execution.  All of them work with any kernel and
any driver: they name instructions, times and addresses, never a delay point.

random  -- slices of 2^5 to 2^15 instructions; holds at random times
points  -- holds where a CPU comes to one of a few functions that HMM drivers call or have
crowd   -- long holds at each return of HMM's functions to the driver, however many are held:
           who gives way to nobody is stopped by others for as long as that goes on
aimed   -- holds before and after few instructions by which two CPUs, or a CPU and the GPU, meet
           in memory, as a profile found them (campaign/aim.py); the uncommon ones first
pct     -- long slices and few holds, as probabilistic concurrency testing has it (Burckhardt et
           al., ASPLOS 2010): what needs few preemptions at the right places is found with few
mixed   -- one of random, points, pct and, seldom, crowd, drawn for each example
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hmmbench.symbols import SymbolTable
from hmmbench.vm.decisions import names

#: log2 of instructions, at least and at most.
SLICES = ("5:14", "5:14", "7:12", "10:15")
#: Of a CPU that is let run until it waits.
LONG_SLICES = "15:17"

#: How often a CPU is held in an example, and log2 of nanoseconds: long enough that what others
#: do meanwhile is whole operations.
HOLDS = (1, 4, 8, 16)
HOLD_NS = ("14:17", "16:20", "16:22", "16:22")

#: Virtual nanoseconds over which holds at times are spread.
SPAN_NS = 20_000_000

#: Holds at points in an example at most: of HMM's own functions some ten are passed in one while
#: operations race, of all points some hundred.
POINT_HOLDS = (4, 16, 64, 256)

#: Engines of the device: log2 of nanoseconds between steps, log2 of how far.
STEPS = ("9:13:0:8", "9:15:0:8", "7:11:0:4", "12:16:4:9")

#: Share of the examples in which its interrupts are late, and log2 of nanoseconds.
LATE_IRQ, IRQ_NS = 0.3, "10:17"


#: Share of the examples in which CPUs are held only while an operation is under way.  One will do:
#: fault service and the ends of mirrors, which nobody waits for, race with it.
BUSY = 0.9


#: crowd: holds, each far longer than the way from one to the next; CPUs held at the same time.
#: Four at a time they last 5.9 s, longer than it takes to tell a hang (5 s); one after the other,
#: for an engine that misses page by page, 24 s, shorter than what works may take (30 s).
CROWD_HOLDS, CROWD_NS, CROWD = 10000, "20:21", 4


#: aimed: pairs in an example, and how many holds are wanted at each; holds at most.
PAIRS = (1, 2, 4, 4)
WANTED = (2, 4, 8)
AIMED_HOLDS = (16, 64, 256)


@dataclass(frozen=True)
class Spot:
    """An instruction that accesses memory which another CPU or the GPU does, too.

    after  -- address of the next one; None: a CPU cannot be held there
    passed -- how often an example comes there while operations race, about
    """

    address: int
    after: int | None
    passed: float


@dataclass(frozen=True)
class Aims:
    """`pairs`: two that meet (None: the GPU); `weights`: how likely each is to be taken."""

    pairs: tuple[tuple[Spot, Spot | None], ...] = ()
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class Points:
    """Addresses where CPUs may be held.

    favourites -- where HMM's own functions return to the driver, each so often as it is to be
                  taken: what races is there
    kinds      -- where the driver is within something, by what it is (symbols.points.KINDS)
    table      -- names of addresses, where they are known
    aims       -- what `aimed` draws from; none where there is no profile
    """

    favourites: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    table: SymbolTable | None = None
    aims: Aims = Aims()
    kinds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, kind: str) -> tuple[int, ...]:
        return self.kinds.get(kind, ())

    @property
    def all(self) -> tuple[int, ...]:
        named = [*self.favourites, *self.of("gaps"), *self.of("relocks"), *self.others]
        for addresses in self.kinds.values():
            named += addresses
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True)
class Where:
    """At which points a schedule holds.

    share -- of the schedules
    odds  -- at one passage of so many
    pick  -- which of them
    hold  -- log2 of nanoseconds
    fair  -- in place of `odds`: at so many of n passages, for the nth of a place in a phase
    most  -- holds
    """

    at: Callable[[Points], tuple[int, ...]]
    share: int
    odds: tuple[int, ...] = ()
    pick: Callable[[random.Random, Sequence[int]], Sequence[int]] = lambda rng, at: at
    hold: tuple[str, ...] = HOLD_NS
    fair: tuple[int, ...] = ()
    most: tuple[int, ...] = POINT_HOLDS


def _few(rng: random.Random, at: Sequence[int]) -> Sequence[int]:
    return [rng.choice(at) for _ in range(rng.choice((1, 1, 2, 3)))]


def _part(*shares: float) -> Callable[[random.Random, Sequence[int]], Sequence[int]]:
    """Each of them with one of these chances, and one at least."""

    def pick(rng: random.Random, at: Sequence[int]) -> Sequence[int]:
        share, once = rng.choice(shares), dict.fromkeys(at)
        return [one for one in once if rng.random() < share] or [rng.choice(at)]

    return pick


#: Some places are passed a thousand times as often as others.  If all were held at, those would use
#: up the holds; and one or two of two hundred are hardly ever the right ones.
_some = _part(0.125, 0.25)

#: Of places held at in all fairness: some of them left out, for who is held at one comes too late
#: for the next.
_fair = _part(0.25, 0.5, 0.5, 1.0)


#: What is seen in a gap changes by whole operations of others.
GAP_NS = "18:22"

WHERE = (
    # A program that can show a mistake is seldom; one kind of places at a time would leave most of
    # those that come along unused.  (Of 37 examples none was held more than 136 times.)
    Where(
        lambda p: (*p.favourites, *p.of("gaps"), *p.of("relocks"), *p.of("seams")), 12, (), _fair,
        ("16:20", "18:22", "18:22"), (1, 1, 2, 4), (POINT_HOLDS[-1],),
    ),
    Where(lambda p: p.all, 4, (), _fair, ("16:20", "18:22"), (1, 2), (POINT_HOLDS[-1],)),
    Where(lambda p: p.of("gaps"), 5, (1, 1, 2), hold=(GAP_NS,)),
    # Few drivers have any; and branches that never follow one another look like one.
    Where(lambda p: p.of("late_gaps") or p.of("gaps"), 2, (1, 1, 2), hold=(GAP_NS,)),
    Where(lambda p: p.of("relocks"), 2, (1, 1, 2), _few, (GAP_NS,)),
    Where(lambda p: p.favourites, 3, (1, 2, 2, 4)),
    Where(lambda p: p.favourites, 1, (1, 1, 2), _few),
    Where(lambda p: p.of("seams"), 2, (1, 2, 2, 4), _some),
    Where(lambda p: p.all, 1, (4, 12, 24)),
    Where(lambda p: p.all, 1, (1, 1, 2, 4), _few),
)


def _base(rng: random.Random) -> list[str]:
    words = [f"seed={rng.getrandbits(48)}", f"step={rng.choice(STEPS)}"]
    if rng.random() < BUSY:
        words.append("busy=1")
    if rng.random() < LATE_IRQ:
        words.append(f"irq={IRQ_NS}")
    return words


def _random(rng: random.Random, points: Points) -> list[str]:
    words = [f"slice={rng.choice(SLICES)}"]
    if rng.random() < 0.7:
        words += [f"hold={rng.choice(HOLDS)}:{rng.choice(HOLD_NS)}", f"span={SPAN_NS}"]
    return words


def _points(rng: random.Random, points: Points) -> list[str]:
    if not points.all:
        return _random(rng, points)
    where = rng.choices(WHERE, [one.share for one in WHERE])[0]
    at = where.pick(rng, where.at(points) or points.all)
    return [
        f"slice={rng.choice(SLICES)}",
        f"point={rng.choice(where.most)}:{rng.choice(where.hold)}",
        f"fair={rng.choice(where.fair)}" if where.fair else f"odds={rng.choice(where.odds)}",
        "at=" + names(sorted(set(at))),
    ]


def _pct(rng: random.Random, points: Points) -> list[str]:
    return [f"slice={LONG_SLICES}", f"hold={rng.choice((1, 2, 3))}:18:22", f"span={SPAN_NS}"]


def _crowd(rng: random.Random, points: Points) -> list[str]:
    at = points.of("returns")
    if not at:
        return _points(rng, points)
    return [
        f"slice={rng.choice(SLICES)}", f"point={CROWD_HOLDS}:{CROWD_NS}", f"crowd={CROWD}",
        "at=" + names(sorted(set(at))),
    ]


def _aimed(rng: random.Random, points: Points) -> list[str]:
    """Either of two that meet is held; the other's passages meanwhile are counted."""
    if not points.aims.pairs:
        return _points(rng, points)
    at, others, passed, number = [], [], 0.0, rng.choice(PAIRS)
    for first, second in rng.choices(points.aims.pairs, points.aims.weights, k=number):
        held, other = first, second
        if second is not None and rng.random() < 0.5:
            held, other = second, first
        at.append(held.after if held.after is not None and rng.random() < 0.5 else held.address)
        passed += held.passed
        if other is not None:
            others.append(other.address)
    words = [
        f"slice={rng.choice(SLICES)}",
        "busy=2",
        f"point={rng.choice(AIMED_HOLDS)}:{rng.choice(HOLD_NS)}",
        f"odds={max(1, round(passed / number / rng.choice(WANTED)))}",
        "at=" + names(sorted(set(at))),
    ]
    return words + (["count=" + names(sorted(set(others)))] if others else [])


def _mixed(rng: random.Random, points: Points) -> list[str]:
    return rng.choices((_random, _points, _pct, _crowd), (4, 20, 2, 2))[0](rng, points)


#: By name: a schedule from a random stream and the machine's points.
KINDS: dict[str, Callable[[random.Random, Points], list[str]]] = {
    "mixed": _mixed, "random": _random, "points": _points, "pct": _pct,
    "crowd": _crowd, "aimed": _aimed,
}  # fmt: skip


#: Those that draw from what is aimed at.
AIMED = ("aimed",)


def draw(kind: str, rng: random.Random, points: Points) -> str:
    """A schedule of this kind.  Raises KeyError if there is none."""
    base, words = _base(rng), KINDS[kind](rng, points)
    own = {word.partition("=")[0] for word in words}
    return " ".join([*(word for word in base if word.partition("=")[0] not in own), *words])


class Meetings:
    """Which of two that meet were tried, and met: a CPU was held at one, another passed the other.

    Coverage of interleavings, as schedule.Pairs has it for delay points.  Ordered pairs: who is
    held makes a difference.
    """

    def __init__(self, aims: Aims) -> None:
        self._spots: dict[int, int] = {}
        self._possible: set[tuple[int, int]] = set()
        for first, second in aims.pairs:
            if second is None:
                continue
            for spot in (first, second):
                self._spots[spot.address] = spot.address
            self._possible |= {
                (first.address, second.address), (second.address, first.address),
            }  # fmt: skip
        # Held behind one is held at it, unless there is one of its own.
        for first, second in aims.pairs:
            for one in (first, second):
                if one is not None and one.after is not None:
                    self._spots.setdefault(one.after, one.address)
        self._tried: set[tuple[int, int]] = set()
        self._met: set[tuple[int, int]] = set()

    def learn(self, schedule: str, met: Iterable[tuple[int, int]]) -> None:
        """What an example's schedule tried, and what the machine said of it."""
        if not self._possible:
            return
        held, counted = addresses(schedule), addresses(schedule, "count")
        self._tried |= self._pairs((h, c) for h in held for c in (*held, *counted))
        self._met |= self._pairs(met)

    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        return {
            (self._spots.get(held, 0), self._spots.get(passed, 0)) for held, passed in pairs
        } & self._possible

    def coverage(self) -> dict[str, int]:
        """Empty where nothing is known to meet."""
        if not self._possible:
            return {}
        return {
            "pairs": len(self._possible), "pairs_tried": len(self._tried | self._met),
            "pairs_met": len(self._met),
        }  # fmt: skip


def reseeded(schedule: str, seed: int) -> str:
    """The same kind of schedule, with other chances."""
    words = [word for word in schedule.split() if not word.startswith("seed=")]
    return " ".join([f"seed={seed}", *words])


def _without(*names: str) -> Callable[[str], str]:
    return lambda schedule: " ".join(
        word for word in schedule.split() if word.partition("=")[0] not in names
    )


def _with(name: str, value: str) -> Callable[[str], str]:
    """The word set, if the schedule has it."""

    def change(schedule: str) -> str:
        words = [
            f"{name}={value}" if word.partition("=")[0] == name else word
            for word in schedule.split()
        ]
        return " ".join(words)

    return change


def _times(name: str, divisor: int) -> Callable[[str], str]:
    """So many times fewer holds, one at least."""

    def change(schedule: str) -> str:
        out = []
        for word in schedule.split():
            key, _, value = word.partition("=")
            if key == name:
                number, _, rest = value.partition(":")
                word = f"{key}={max(1, int(number) // divisor)}:{rest}"
            out.append(word)
        return " ".join(out)

    return change


def _fewer_points(half: int) -> Callable[[str], str]:
    def change(schedule: str) -> str:
        at = addresses(schedule)
        if len(at) < 2:
            return schedule
        kept = at[: len(at) // 2] if half == 0 else at[len(at) // 2 :]
        return _with("at", names(kept))(schedule)

    return change


def plainer(schedule: str) -> Sequence[Callable[[str], str]]:
    """Steps that each take something out of a schedule, the boldest first."""
    return (
        _without("hold", "span", "busy", "point", "at", "odds", "fair", "crowd", "count", "irq"),
        _without("point", "at", "odds", "fair", "crowd", "count"),
        calmed,
        _without("hold", "span"),
        _without("irq"),
        _without("busy"),
        _with("slice", LONG_SLICES),
        _with("odds", "1"), _without("fair"),
        _fewer_points(0), _fewer_points(1), _fewer_points(0), _fewer_points(1),
        *(_times(name, n) for name in ("hold", "point") for n in (8, 4, 2, 2, 2)),
        _without("step"),
    )  # fmt: skip


def calmed(schedule: str) -> str:
    """For a device or a driver that is slow by itself: a few of a crowd are held, one at a time.

    With both, two sound ones that only ask again may keep each other waiting: in 2,700 examples
    it was seen twice.
    """
    alone = _without("crowd")(schedule)
    few = _with("point", f"{POINT_HOLDS[-1]}:{HOLD_NS[1]}")
    return few(alone) if alone != schedule else schedule


def addresses(schedule: str, name: str = "at") -> Sequence[int]:
    """The points that it names in this word."""
    for word in schedule.split():
        key, _, value = word.partition("=")
        if key == name:
            return [int(address, 16) for address in value.split(",") if address]
    return []
