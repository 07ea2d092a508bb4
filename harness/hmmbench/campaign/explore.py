# SPDX-License-Identifier: GPL-2.0-or-later
"""Examples by feedback: what reached something new is changed, and changed again.

Which input an example has follows from the campaign's seed, its number, the corpus that there was
at first, and what examples before it reached: those of blocks (of `size` numbers) that lie at
least as many blocks back as there are machines, so that none waits for another while they are
about as fast.  So on exact machines a campaign of as many machines repeats, whichever was faster.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from hmmbench.base.errors import HmmbenchError, UsageError
from hmmbench.campaign import corpus, features
from hmmbench.campaign.corpus import Input, Kept, cover
from hmmbench.campaign.generate import Steps
from hmmbench.campaign.mutate import mutated

#: Share of examples that are drawn from nothing, the same ones as without feedback, each of which
#: is another (docs/exploration.md has what fewer cost); and of the others, while there are any, of
#: those that a corpus brought: what they reached may be another matter in this driver.
FRESH, AGAIN = 0.5, 0.5

#: How an example came to its input.
NEW, KEPT, CHANGED = "new", "kept", "changed"


@dataclass
class _Parent:
    """`own`: what it was the first to reach; `ran`: by this explorer's campaign."""

    input: Input
    features: frozenset[int]
    own: frozenset[int]
    ran: bool


class Explorer:
    """Of one campaign, and its thread's alone.

    seed, grammar -- the campaign's
    kept          -- a corpus
    machines      -- how many run examples
    size          -- of a block
    first         -- the first example's number
    """

    def __init__(
        self, seed: int, grammar: int, kept: Sequence[Kept] = (), *, machines: int = 1,
        size: int = 20, first: int = 0,
    ) -> None:  # fmt: skip
        self.grammar = grammar
        self._seed, self._size = seed, size
        self._behind = machines
        #: numbers below are learned from
        self._learned = first
        #: number -> its input, and what that reached, until it is learned from
        self._given: dict[int, Input] = {}
        self._reached: dict[int, frozenset[int]] = {}
        self._hits: Counter[int] = Counter()
        self._known: set[int] = set()
        self._parents: list[_Parent] = []
        self._places: dict[Input, int] = {}
        for one in cover(kept):
            self._add(one.input, one.features, ran=False)
        #: those of the corpus that were not run yet, the last one next
        self._waiting = [parent.input for parent in reversed(self._parents)]
        self._loaded, self._loaded_features = len(self._parents), len(self._known)
        self._sums: list[float] = []
        self._weigh()
        self.drawn: Counter[str] = Counter()

    def ready(self, number: int) -> bool:
        """Whether all is there that the example of this number follows from."""
        return all(n in self._reached for n in range(self._learned, self._due(number)))

    def choose(self, number: int, steps: Steps) -> Input:
        """The input of the next example, to be asked for in order; it may be these steps."""
        due = self._due(number)
        if due > self._learned:
            for n in range(self._learned, due):
                self._learn(n)
            self._learned = due
            self._weigh()
        rng = Random(f"{self._seed} {number} explore")
        own = self._seed, number
        chosen, how = Input(steps, own, own), NEW
        if self._parents and rng.random() >= FRESH:
            if self._waiting and rng.random() < AGAIN:
                chosen, how = self._waiting.pop(), KEPT
            else:
                chosen = mutated(rng, self._parent(rng), self._parent(rng), chosen)
                how = CHANGED
        self.drawn[how] += 1
        self._given[number] = chosen
        return chosen

    def reached(self, number: int, found: frozenset[int]) -> None:
        """What the example of this number reached, in any order."""
        self._reached[number] = found

    def counts(self) -> dict[str, int]:
        """For who looks on."""
        return {"inputs": len(self._parents), "features": len(self._known)}

    def end(
        self, folder: Path | None = None, say: Callable[[str], None] = lambda text: None
    ) -> dict[str, Any]:
        """For results, when nothing more is to be drawn: with all that was reached, which is kept
        in the folder.  `say`: told if that cannot be."""
        for n in sorted(self._reached):
            self._learn(n)
        out = {
            **self.counts(), "new_inputs": len(self._parents) - self._loaded,
            "new_features": len(self._known) - self._loaded_features,
            "examples": dict(self.drawn), "by_kind": features.by_kind(self._known),
        }  # fmt: skip
        if folder is not None:
            ran, others = (
                [Kept(p.input, p.features) for p in self._parents if p.ran == way]
                for way in (True, False)
            )
            try:
                out["kept"] = corpus.save(folder, ran, self.grammar, others)
            except HmmbenchError as error:
                say(f"the corpus is not kept: {error}")
        return out

    def _due(self, number: int) -> int:
        """The first number that the block of this one knows nothing of."""
        return (number // self._size - self._behind + 1) * self._size

    def _learn(self, number: int) -> None:
        found, given = self._reached.pop(number), self._given.pop(number)
        self._hits.update(found)
        place = self._places.get(given)
        if place is not None and found:
            # Whatever it reached in another driver.
            self._parents[place].features = found
            self._parents[place].ran = True
            self._known |= found
        elif not found <= self._known:
            self._add(given, found, ran=True)

    def _add(self, one: Input, found: frozenset[int], ran: bool) -> None:
        self._places[one] = len(self._parents)
        self._parents.append(_Parent(one, found, found - self._known, ran))
        self._known |= found

    def _weigh(self) -> None:
        """Each as often as what it was first to reach is rare.  A kind of features has the root of
        its share: of some there are a thousand times as many as of others."""
        hits = self._hits
        rare = [
            [(one >> features.BITS, 1 / (1 + hits[one])) for one in sorted(parent.own)]
            for parent in self._parents
        ]
        shares: dict[int, float] = {}
        for kind, much in (one for found in rare for one in found):
            shares[kind] = shares.get(kind, 0.0) + much
        self._sums = list(accumulate(
            math.fsum(much / math.sqrt(shares[kind]) for kind, much in found) for found in rare
        ))  # fmt: skip

    def _parent(self, rng: Random) -> Input:
        at = bisect_right(self._sums, rng.random() * self._sums[-1])
        return self._parents[min(at, len(self._sums) - 1)].input


@dataclass(frozen=True)
class Feedback:
    """That a run has it: what it begins with, and where its corpus is kept (None: nowhere)."""

    kept: tuple[Kept, ...] = ()
    folder: Path | None = None

    @staticmethod
    def asked(
        wanted: bool | None, folders: Sequence[Path], grammar: int, exact: bool
    ) -> Feedback | None:
        """By options; None: not asked for.  Raises UsageError, also for what is no corpus."""
        if wanted is False and folders:
            raise UsageError("--corpus and --no-feedback contradict each other")
        if not wanted and not folders:
            return None
        if not exact:
            raise UsageError(
                "--feedback is of exact machines: elsewhere what an example reaches does not repeat"
            )
        kept = corpus.merged([corpus.load(folder, grammar) for folder in folders])
        return Feedback(tuple(kept), folders[0] if folders else None)
