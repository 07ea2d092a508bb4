# SPDX-License-Identifier: GPL-2.0-or-later
"""Does feedback find broken drivers in fewer examples than chance?  Both ways, beside one another.

A pair is a mutant and a seed, without and with feedback.  Of a mutant the median of its seeds'
ratios counts, so that a mutant is one voice; over mutants the median, and the sign test: how
likely so many of them better (or worse) are if it made no difference.  Who is not killed in so
many examples as the other way takes counts as worse, by a ratio that is a bound.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hmmbench.mutation.trial import KILLED, Row

#: Below this chance it is no accident.
ACCIDENT = 0.05

WORTH, COSTS, NOTHING = "fewer examples", "more examples", "no difference shown"


@dataclass(frozen=True)
class Pair:
    """A mutant with one seed."""

    seed: int
    without: Row
    with_it: Row

    @property
    def ratio(self) -> float | None:
        """How many times as many examples it takes without; None: that is not known."""
        a, b = self.without, self.with_it
        # Who brings the kernel down while it starts takes none: as good as one.
        times = max(1, a.examples) / max(1, b.examples)
        if a.status == b.status == KILLED:
            return times
        # The examples of who lives are a bound, if there were as many.
        if a.status == KILLED and b.status != KILLED and self._lived(b, a):
            return times
        if b.status == KILLED and a.status != KILLED and self._lived(a, b):
            return times
        return None

    @property
    def bound(self) -> bool:
        return self.ratio is not None and not self.without.status == self.with_it.status == KILLED

    @property
    def cpu_ratio(self) -> float | None:
        """The same of CPU seconds, where both were killed."""
        a, b = self.without, self.with_it
        if not a.status == b.status == KILLED or not b.cpu_s:
            return None
        return a.cpu_s / b.cpu_s

    @staticmethod
    def _lived(one: Row, other: Row) -> bool:
        return one.lived and one.examples >= other.examples

    def to_json(self) -> dict[str, Any]:
        def short(row: Row) -> dict[str, Any]:
            return {"status": row.status, "examples": row.examples, "cpu_s": row.cpu_s}

        return {
            "seed": self.seed, "without": short(self.without), "with": short(self.with_it),
            "ratio": _rounded(self.ratio), "bound": self.bound,
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """`pairs`: by mutant."""

    pairs: Mapping[str, list[Pair]]

    @staticmethod
    def of(rows: Iterable[Row]) -> Comparison:
        """Of all rows of a run; what was run one way alone is left out."""
        found: dict[tuple[str, int], dict[bool, Row]] = {}
        for row in rows:
            found.setdefault((row.name, row.seed), {})[row.feedback] = row
        pairs: dict[str, list[Pair]] = {}
        for (name, seed), ways in found.items():
            if len(ways) == 2:
                pairs.setdefault(name, []).append(Pair(seed, ways[False], ways[True]))
        return Comparison(pairs)

    def ratios(self) -> dict[str, float]:
        """Of each mutant of which something is known."""
        out = {}
        for name, pairs in self.pairs.items():
            known = [pair.ratio for pair in pairs if pair.ratio is not None]
            if known:
                out[name] = statistics.median(known)
        return out

    @property
    def word(self) -> str:
        better, worse = self._signs()
        if sign_test(better, worse) >= ACCIDENT:
            return NOTHING
        return WORTH if better > worse else COSTS

    def _signs(self) -> tuple[int, int]:
        ratios = self.ratios().values()
        return sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)

    def to_json(self) -> dict[str, Any]:
        ratios, (better, worse) = self.ratios(), self._signs()
        all_pairs = [pair for pairs in self.pairs.values() for pair in pairs]
        cpu = [pair.cpu_ratio for pair in all_pairs if pair.cpu_ratio is not None]
        return {
            "mutants": {
                name: {"ratio": _rounded(ratios.get(name)), "pairs": [p.to_json() for p in pairs]}
                for name, pairs in self.pairs.items()
            },
            "median_ratio": _rounded(statistics.median(ratios.values()) if ratios else None),
            "median_cpu_ratio": _rounded(statistics.median(cpu) if cpu else None),
            "better": better, "worse": worse, "equal": len(ratios) - better - worse,
            "not_known": len(self.pairs) - len(ratios),
            "bounds": sum(pair.bound for pair in all_pairs),
            "p": round(sign_test(better, worse), 6), "word": self.word,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """For people."""
        data = self.to_json()
        out = [f"{'mutant':40} {'without':>9} {'with':>9} {'ratio':>8}   (examples; > not killed)"]
        for name, pairs in self.pairs.items():
            for pair in pairs:
                cells = [
                    f"{'' if row.status == KILLED else '>' if row.lived else '?'}{row.examples}"
                    for row in (pair.without, pair.with_it)
                ]  # fmt: skip
                ratio = "-" if pair.ratio is None else f"{pair.ratio:.2f}"
                label = f"{name} (seed {pair.seed})"
                out.append(f"{label:40} {cells[0]:>9} {cells[1]:>9} {ratio:>8}")
        median, cpu = data["median_ratio"], data["median_cpu_ratio"]
        out.append(
            f"feedback: {data['word']}; without it the median mutant takes"
            f" {'-' if median is None else f'{median:.2f}'} times as many examples,"
            f" {'-' if cpu is None else f'{cpu:.2f}'} times as much CPU time; better for"
            f" {data['better']}, worse for {data['worse']}, equal for {data['equal']}, not known"
            f" for {data['not_known']}; sign test p = {data['p']:.4f}"
        )
        return out


def sign_test(better: int, worse: int) -> float:
    """How likely so uneven a split is, or a more uneven one, if either is as likely (two-sided)."""
    number, least = better + worse, min(better, worse)
    if not number:
        return 1.0
    tail: float = sum(math.comb(number, k) for k in range(least + 1)) / float(2**number)
    return min(1.0, 2 * tail)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
