# SPDX-License-Identifier: GPL-2.0-or-later
"""The leak oracle, from the kernel's side: what is more each time a program has run.

In some examples the program runs again when it is over, a few times, and the guest takes a census
each time: pages in use, objects of each of the kernel's caches, mappings for DMA, what a module's
own lines have allocated, counters of the memory management (agent/engine/census.h).  Where the
first looks are of a count that rises or falls, it looks LOOKS times.  A sound driver has caches,
and so has the kernel; they fill and stop.  What is no cache grows for ever, and each time.

What none of our driver's counters is needed for, and what any driver does wrong.
"""

from __future__ import annotations

from itertools import combinations, pairwise

from hmmbench.guest.program import Result
from hmmbench.oracle.violation import Violation

#: Looks after which a count is judged; as the guest has it (CENSUS_LOOKS).
LOOKS = 16

#: Looks of a count that are compared with one another.
_BLOCK = 4

#: Of all pairs of looks, in which the later one has more: of what comes and goes it is half.
_RISING = 0.85

#: What says most of where to look comes first.
_TELLING = ("alloc", "dma", "slab", "pages", "vmstat")

_WHAT = {
    "alloc": "allocations of a line of the driver's",
    "dma": "mappings for DMA",
    "slab": "objects of a cache of the kernel's",
    "pages": "pages of memory",
    "vmstat": "of a counter of the kernel's memory",
}


def looked(result: Result) -> int:
    """So many looks were taken."""
    for line in result.counters_after.splitlines():
        name, _, number = line.partition(" ")
        if name == "looks":
            return int(number)
    return 0


def series(result: Result) -> dict[str, list[int]]:
    """What was counted at each look, of what seemed to grow."""
    lines = (line.split() for line in result.counters_after.splitlines())
    return {words[1]: [int(n) for n in words[2:]] for words in lines if words[:1] == ["left"]}


def grows(values: list[int]) -> bool:
    """Whether it grows through all of the looks, and in the end as in the beginning.

    A cache that fills grows less and less, what comes and goes falls again.
    """
    if len(values) < LOOKS:
        return False
    blocks = [values[at : at + _BLOCK] for at in range(0, LOOKS, _BLOCK)]
    if not all(min(b) > min(a) and max(b) > max(a) for a, b in pairwise(blocks)):
        return False
    if sum(b > a for a, b in combinations(values, 2)) < _RISING * LOOKS * (LOOKS - 1) / 2:
        return False
    early, late = (sum(b) - sum(a) for a, b in (blocks[:2], blocks[-2:]))
    return values[-1] - values[0] >= LOOKS // 2 and 2 * late >= early


def _wrong(name: str, values: list[int]) -> bool:
    # What the kernel counts of memory in use is as wrong when it falls each time.
    return grows(values) or (name.startswith("vmstat:") and grows([-n for n in values]))


def check(result: Result) -> Violation | None:
    """What a program leaves each time it runs."""
    found = {name: values for name, values in series(result).items() if _wrong(name, values)}
    for source in _TELLING:
        for name, values in found.items():
            if name.partition(":")[0] != source:
                continue
            return Violation(
                "leak",
                f"left each time: {values[-1] - values[0]} more {_WHAT[source]} after"
                f" {len(values) - 1} executions ({name})",
                details="\n".join(f"{n}: {' '.join(map(str, v))}" for n, v in found.items()),
            )
    return None
