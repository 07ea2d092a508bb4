# SPDX-License-Identifier: GPL-2.0-or-later
"""An input made out of others: step by step, because a step is what keeps its meaning.

What stands behind a change meets other memory than before, so it may make other operations; its
seeds stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from hmmbench.campaign.corpus import Input
from hmmbench.campaign.generate import MAX_STEPS, SEED_BITS, Steps

Change = Callable[[Random, Input, Input, Input], Input]

#: What of an input is changed: its steps, what is around them, or both; how many changes its steps
#: have, and how many steps one of these concerns at most.
STEPS, AROUND = (True, True, True, False), (False, False, True, True)
TIMES, FEW = (1, 1, 2, 4, 6), 12


def mutated(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    """`other`: a second one; `new`: one that was drawn from nothing, with origins of its own."""
    what = rng.randrange(len(STEPS))
    for _ in range(rng.choice(TIMES) if STEPS[what] else 0):
        changed = _one_of(rng, _STEPS)(rng, parent, other, new)
        parent = replace(changed, steps=_fitting(rng, changed.steps) or parent.steps)
    return _one_of(rng, _AROUND)(rng, parent, other, new) if AROUND[what] else parent


def _one_of(rng: Random, changes: Sequence[tuple[Change, int]]) -> Change:
    return rng.choices([change for change, _ in changes], [share for _, share in changes])[0]


def _fitting(rng: Random, steps: Steps) -> Steps:
    """Without some that stand together, if they are too many."""
    over = len(steps) - MAX_STEPS
    if over <= 0:
        return steps
    start = rng.randrange(MAX_STEPS + 1)
    return steps[:start] + steps[start + over :]


def _part(rng: Random, steps: Steps) -> Steps:
    """Some that stand together."""
    start = rng.randrange(len(steps))
    return steps[start : start + 1 + rng.randrange(FEW)]


def _splice(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    """The begin of one, the end of another: of one that was kept, or of what nobody had yet."""
    first, second = rng.choice(((parent, new), (parent, new), (parent, other), (new, parent)))
    end = second.steps[rng.randrange(len(second.steps)) :]
    begin = first.steps[: rng.randrange(1, len(first.steps) + 1)]
    return replace(parent, steps=begin + end)


def _insert(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    at = rng.randrange(len(parent.steps) + 1)
    more = _part(rng, rng.choice((other, new)).steps)
    return replace(parent, steps=parent.steps[:at] + more + parent.steps[at:])


def _delete(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    start = rng.randrange(len(parent.steps))
    end = start + 1 + rng.randrange(FEW)
    return replace(parent, steps=parent.steps[:start] + parent.steps[end:])


def _repeat(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    """Some once more, behind themselves."""
    start = rng.randrange(len(parent.steps))
    end = min(len(parent.steps), start + 1 + rng.randrange(FEW))
    again = parent.steps[start:end] * rng.choice((1, 1, 2, 4))
    return replace(parent, steps=parent.steps[:end] + again + parent.steps[end:])


def _redraw(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    """One or some with other seeds, of the same kind or of any."""
    steps = list(parent.steps)
    start, same = rng.randrange(len(steps)), rng.random() < 0.5
    for at in range(start, min(len(steps), start + rng.choice((1, 1, 1, 2, FEW)))):
        kind, own = steps[at] if same else (rng.randrange(256), rng.randrange(256))
        # (The low bits of a seed have a say in which kind it is.)
        steps[at] = kind, rng.getrandbits(SEED_BITS - 8) << 8 | own & 255
    return replace(parent, steps=tuple(steps))


def _when(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    """The same program under another schedule: a new one, or one that led somewhere."""
    taken = rng.choice((other, new))
    return replace(parent, when=taken.when, chance=taken.chance)


def _chance(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    """The same places of the schedule, and other chances there."""
    return replace(parent, chance=1 + rng.getrandbits(47))


def _around(rng: Random, parent: Input, other: Input, new: Input) -> Input:
    return replace(parent, around=rng.choice((other, new)).around)


#: With their shares.
_STEPS: tuple[tuple[Change, int], ...] = (
    (_splice, 8), (_insert, 4), (_delete, 2), (_repeat, 3), (_redraw, 4),
)  # fmt: skip
_AROUND: tuple[tuple[Change, int], ...] = ((_when, 2), (_chance, 2), (_around, 1))
