# SPDX-License-Identifier: GPL-2.0-or-later
"""Which examples of a run are on which machine: a portion is so many of them, of consecutive
numbers, on one.

The usual exact machine has most; a part is for machines with threads, a part for each of the other
machines that are drawn (vm/kinds.py) and of the sanitised kernels.  Which are drawn follows from
the seed.  A machine has the same numbers in each run, so an example is named by its number.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hmmbench.vm import kinds
from hmmbench.vm.spec import MachineSpec

#: Of the examples of a run on exact machines, one of so many is run on machines with threads: for
#: real parallelism, and memory order that one thread cannot show.
THREADS_EACH = 10

#: Their numbers begin here, so that they are other programs; and so far apart are those of two
#: machines.
THREADS_FIRST = FIRST_APART = 1_000_000

#: Numbers of pairs of kinds, and of sanitised kernels, begin here.
PAIRS_FIRST, VARIANTS_FIRST = 40_000_000, 60_000_000


@dataclass(frozen=True)
class Draw:
    """What a profile draws.

    kinds    -- so many other machines; None: all there are, that where a driver may refuse the
                device too
    each     -- one example of so many is for each of them, and for each sanitised kernel
    pairs    -- machines of two kinds more
    variants -- sanitised kernels
    build    -- what takes the full configuration is built for it
    """

    kinds: int | None
    each: int
    pairs: int = 0
    variants: tuple[str, ...] = ()
    build: bool = False


#: Fewer examples, or seconds, are not worth the start of another machine.
LEAST, LEAST_S = 20, 6.0

#: Another machine is a boot of some seconds the first time, and then a snapshot like the usual one.
DRAWS = {
    "quick": Draw(1, 10),
    "default": Draw(3, 20),
    "long": Draw(None, 50, 3, ("debug", "kcsan"), True),
}

#: Of a run that is bounded by time: from so many minutes on it draws as that profile.
BY_MINUTES = ((240, "long"), (20, "default"), (0, "quick"))


@dataclass(frozen=True)
class Portion:
    """Examples on machines of one kind: how many, or for how long, and the first one's number.

    machine -- of vm/kinds.py
    variant -- beside what the run asks for: names of build/kernel.py, VARIANTS
    """

    exact: bool
    examples: int
    limit_s: float | None
    first: int = 0
    machine: str = ""
    variant: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = [self.machine or kinds.USUAL, *(v for v in self.variant if v != "full")]
        return " ".join(words)


def profile_of(minutes: float) -> str:
    """As which a run draws that is bounded by time."""
    return next(name for least, name in BY_MINUTES if minutes >= least)


def drawn(
    draw: Draw, seed: int, spec: MachineSpec, config: Mapping[str, str],
    fuller: Mapping[str, str] | None = None,
) -> list[Portion]:  # fmt: skip
    """The other machines of a run; of `limit_s` and `examples` they know nothing yet.

    spec   -- the usual machine, exact if that is what runs
    config -- of the kernel that the run asks for
    fuller -- what the full configuration adds to it; None: it cannot be had
    """
    rng = random.Random(f"{seed} machines")
    here = kinds.possible(spec, config)
    more = []
    if draw.build and fuller is not None:
        more = [n for n in kinds.possible(spec, {**config, **fuller}) if n not in here]
    all_of_them = [name for name in kinds.KINDS if name in (*here, *more)]
    chosen = all_of_them
    if draw.kinds is not None:
        # A machine on which there is mostly nothing to run is for those who run on all.
        worth = [name for name in all_of_them if not kinds.may_be_refused(name)]
        chosen = rng.sample(worth, min(draw.kinds, len(worth)))

    def portion(machine: str, first: int) -> Portion:
        full = not set(machine.split("+")) <= set(here)
        return Portion(spec.exact, 0, None, first, machine, ("full",) if full else ())

    numbers = kinds.DRAWN
    found = [portion(n, (numbers.index(n) + 2) * FIRST_APART) for n in chosen]
    # Who may refuse the device makes no pair: the other half would not be looked at.
    pairs = [
        (one, other) for one, other in combinations(all_of_them, 2)
        if kinds.KINDS[one].about != kinds.KINDS[other].about
        and not kinds.may_be_refused(f"{one}+{other}")
    ]  # fmt: skip
    for one, other in rng.sample(pairs, min(draw.pairs, len(pairs))):
        at = numbers.index(one) * len(numbers) + numbers.index(other)
        found.append(portion(f"{one}+{other}", PAIRS_FIRST + at * FIRST_APART // 10))
    return found


def sanitised(draw: Draw) -> list[Portion]:
    """Machines with threads: the slowness of these kernels is taken for no hang there."""
    return [
        Portion(False, 0, None, VARIANTS_FIRST + n * FIRST_APART, variant=(name,))
        for n, name in enumerate(draw.variants)
    ]


def portions(
    exact: bool, examples: int, limit_s: float | None, others: Sequence[Portion] = (),
    each: int = THREADS_EACH, machine: str = "",
) -> list[Portion]:  # fmt: skip
    """One of THREADS_EACH examples, or so much of the time, is for threads, one of `each` for
    each of `others`; the rest for the usual machine, which `machine` is."""

    def part(number: int) -> tuple[int, float | None]:
        if limit_s is not None:
            return examples, limit_s / number
        return examples // number, None

    mine, seconds = part(each)
    found = []
    if mine >= LEAST and (seconds is None or seconds >= LEAST_S):
        found = [replace(one, examples=mine, limit_s=seconds) for one in others]
    if exact:
        found.insert(0, Portion(False, *part(THREADS_EACH), THREADS_FIRST, machine))
    left, left_s = examples, limit_s
    if left_s is not None:
        left_s -= sum(one.limit_s or 0.0 for one in found)
    else:
        left -= sum(one.examples for one in found)
    found.insert(0, Portion(exact, left, left_s, machine=machine))
    return [portion for portion in found if portion.examples]
