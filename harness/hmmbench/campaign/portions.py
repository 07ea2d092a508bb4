# SPDX-License-Identifier: GPL-2.0-or-later
"""Which examples of a run are for which kind of machine."""

from __future__ import annotations

from dataclasses import dataclass

from hmmbench.report.tally import EXACT

#: Of the examples of a run on exact machines, one of so many is run on machines with threads: for
#: real parallelism, and memory order that one thread cannot show.
THREADS_EACH = 10

#: Their numbers begin here, so that they are other programs.
THREADS_FIRST = 1_000_000


@dataclass(frozen=True)
class Portion:
    """Examples on machines of one kind: how many, or for how long, and the first one's number."""

    exact: bool
    examples: int
    limit_s: float | None
    first: int = 0


def portions(accel: str, examples: int, limit_s: float | None) -> list[Portion]:
    """One of THREADS_EACH examples, or so much of the time, is for threads."""
    if accel != EXACT:
        return [Portion(False, examples, limit_s)]
    if limit_s is not None:
        on_threads = limit_s / THREADS_EACH
        return [
            Portion(True, examples, limit_s - on_threads),
            Portion(False, examples, on_threads, THREADS_FIRST),
        ]
    few = examples // THREADS_EACH
    both = [Portion(True, examples - few, None), Portion(False, few, None, THREADS_FIRST)]
    return [portion for portion in both if portion.examples]
