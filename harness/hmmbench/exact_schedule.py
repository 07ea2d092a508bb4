# SPDX-License-Identifier: GPL-2.0-or-later
"""Schedules of exact machines, drawn from the example's seed: who runs, who is held, and where.

A schedule is a line of words that the object hmm-exact reads (qemu-device/qemu/
hmm-exact-plan.c); the same line gives the same execution.  All of them work with any kernel and
any driver: they name instructions, times and addresses, never a delay point.

random  -- slices of 2^5 to 2^15 instructions; holds at random times
points  -- holds where a CPU comes to one of a few functions that HMM drivers call or have
pct     -- long slices and few holds, as probabilistic concurrency testing has it (Burckhardt et
           al., ASPLOS 2010): what needs few preemptions at the right places is found with few
mixed   -- one of these, drawn for each example
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hmmbench.decisions import names
from hmmbench.symbols import SymbolTable

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

#: Where a schedule holds, each so often: at any of HMM's own functions, at few of them, at any
#: point, at few points; and at one passage of so many.
WHERE = (("favourites", 5, (1, 2, 2, 4)), ("few favourites", 2, (1, 1, 2)),
         ("all", 2, (4, 12, 24)), ("few", 2, (1, 1, 2, 4)))  # fmt: skip

#: Engines of the device: log2 of nanoseconds between steps, log2 of how far.
STEPS = ("9:13:0:8", "9:15:0:8", "7:11:0:4", "12:16:4:9")

#: Share of the examples in which its interrupts are late, and log2 of nanoseconds.
LATE_IRQ, IRQ_NS = 0.3, "10:17"


#: Share of the examples in which a CPU is held only while two operations are under way: what
#: happens alone races with nothing, and uses up what holds there are.
BUSY = 0.9


@dataclass(frozen=True)
class Points:
    """Addresses where CPUs may be held.

    favourites -- where HMM's own functions return to the driver, each so often as it is to be
                  taken: what races is there
    table      -- names of addresses, where they are known
    """

    favourites: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    table: SymbolTable | None = None

    @property
    def all(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.favourites, *self.others)))


def _base(rng: random.Random) -> list[str]:
    words = [f"seed={rng.getrandbits(48)}", f"step={rng.choice(STEPS)}"]
    if rng.random() < BUSY:
        words.append("busy=2")
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
    where, _, odds = rng.choices(WHERE, [weight for _, weight, _ in WHERE])[0]
    at = points.favourites if "favourites" in where else points.all
    chosen = list(at or points.all)
    if "few" in where:
        chosen = [rng.choice(chosen) for _ in range(rng.choice((1, 1, 2, 3)))]
    return [
        f"slice={rng.choice(SLICES)}",
        f"point={rng.choice(POINT_HOLDS)}:{rng.choice(HOLD_NS)}",
        f"odds={rng.choice(odds)}",
        "at=" + names(sorted(set(chosen))),
    ]


def _pct(rng: random.Random, points: Points) -> list[str]:
    return [f"slice={LONG_SLICES}", f"hold={rng.choice((1, 2, 3))}:18:22", f"span={SPAN_NS}"]


def _mixed(rng: random.Random, points: Points) -> list[str]:
    return rng.choices((_random, _points, _pct), (2, 6, 1))[0](rng, points)


#: By name: a schedule from a random stream and the machine's points.
KINDS: dict[str, Callable[[random.Random, Points], list[str]]] = {
    "mixed": _mixed, "random": _random, "points": _points, "pct": _pct,
}  # fmt: skip


def draw(kind: str, rng: random.Random, points: Points) -> str:
    """A schedule of this kind.  Raises KeyError if there is none."""
    return " ".join([*_base(rng), *KINDS[kind](rng, points)])


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
        _without("hold", "span", "busy", "point", "at", "odds", "irq"),
        _without("point", "at", "odds"),
        _without("hold", "span"),
        _without("irq"),
        _without("busy"),
        _with("slice", LONG_SLICES),
        _with("odds", "1"),
        _fewer_points(0), _fewer_points(1), _fewer_points(0), _fewer_points(1),
        *(_times(name, n) for name in ("hold", "point") for n in (8, 4, 2, 2, 2)),
        _without("step"),
    )  # fmt: skip


def addresses(schedule: str) -> Sequence[int]:
    """The points that it names."""
    for word in schedule.split():
        if word.startswith("at="):
            return [int(address, 16) for address in word[3:].split(",") if address]
    return []
