# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of `bench` beside others of the same name: is this better, worse, or noise?

A ratio is always "so many times as good as the other": above 1 is better, whether the figure is
a time or a speed.  Of pairs that were measured in turn the ratios' geometric mean counts, with an
interval from Student's t on their logarithms.  The intervals of all figures hold together with
95 % (Bonferroni): of forty figures that are nothing but noise, two would else be called better or
worse in every comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

BETTER, WORSE, NOISE = "better", "worse", "noise"

#: Of all intervals together.
CONFIDENCE = 0.95

#: How a figure's name ends -> whether more of it is better.  What ends otherwise is compared by
#: nobody: a count, the kernel's own driver, a share of the host, an extreme, and the trips beside
#: our own events with what has them in the denominator (who shortens them would make it worse;
#: `trip_us` is compared).
_HIGHER = {"_per_s": True, "_two_sms": True, "_two_sms_cpu": True}
_LOWER = {"_us": False, "_s": False, "_cost": False}
_NEITHER = ("_min_s", "_max_s", "_qemu_per_s", "host_stolen", "wall_s")
_OF_ANOTHER = ("_test_hmm_", "_trips_")


def higher_is_better(name: str) -> bool | None:
    """None for what is no figure of merit."""
    if name.endswith(_NEITHER) or any(word in name for word in _OF_ANOTHER):
        return None
    if name.endswith("_ratio"):
        # To the kernel's test driver, in times; to qemu-riscv64, in speed.
        return name.startswith("simt_")
    # The longer ending first: ..._per_s is no time.
    for end, higher in (_HIGHER | _LOWER).items():
        if name.endswith(end):
            return higher
    return None


def figures(report: Mapping[str, Any]) -> dict[str, float]:
    """The comparable ones of a report of `bench`: all above 0."""
    return {
        name: float(value)
        for name, value in report.items()
        if higher_is_better(name) is not None
        and isinstance(value, (int, float)) and not isinstance(value, bool)
        and math.isfinite(value) and value > 0
    }  # fmt: skip


def ratio(name: str, ours: float, theirs: float) -> float:
    """How many times as good ours is."""
    return ours / theirs if higher_is_better(name) else theirs / ours


@dataclass(frozen=True)
class Shared:
    """The names in both of two sets of figures, and in one alone; in their order."""

    both: list[str]
    only_ours: list[str]
    only_theirs: list[str]

    @staticmethod
    def of(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Shared:
        return Shared(
            [n for n in ours if n in theirs],
            [n for n in ours if n not in theirs],
            [n for n in theirs if n not in ours],
        )


@dataclass(frozen=True)
class Compared:
    """One figure over all pairs.

    ours, theirs -- the geometric means, in the figure's unit
    ratio        -- how many times as good ours is, and the ends of its interval
    """

    name: str
    pairs: int
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float

    @property
    def word(self) -> str:
        if self.low > 1:
            return BETTER
        return WORSE if self.high < 1 else NOISE

    def to_json(self) -> dict[str, Any]:
        return {n: round(v, 6) if isinstance(v, float) else v for n, v in asdict(self).items()} | {
            "word": self.word
        }


def over_pairs(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> list[Compared]:
    """Every figure that two pairs or more have on both sides, in the first report's order."""
    names = list(dict.fromkeys(name for ours, _ in pairs for name in ours))
    seen = {
        name: [(o[name], t[name]) for o, t in pairs if name in o and name in t] for name in names
    }
    counted = {name: values for name, values in seen.items() if len(values) > 1}
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(counted))
    return [_compared(name, values, confidence) for name, values in counted.items()]


def _compared(name: str, values: Sequence[tuple[float, float]], confidence: float) -> Compared:
    logs = np.log([ratio(name, ours, theirs) for ours, theirs in values])
    middle, n = float(logs.mean()), len(values)
    half = student_t((1 + confidence) / 2, n - 1) * float(logs.std(ddof=1)) / math.sqrt(n)
    ours, theirs = (math.exp(float(np.log(side).mean())) for side in zip(*values, strict=True))
    return Compared(
        name, n, ours, theirs, math.exp(middle), math.exp(middle - half), math.exp(middle + half)
    )


@lru_cache
def student_t(p: float, freedom: int) -> float:
    """The quantile p (above one half) of Student's t, which neither numpy nor Python has.

    With t = sqrt(freedom) tan(x) its density becomes a power of the cosine on a finite interval,
    which is integrated by steps and searched.
    """
    x = np.linspace(0.0, math.pi / 2, 200_001)
    density = np.cos(x) ** (freedom - 1)
    area = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    at = float(np.interp((p - 0.5) * 2 * area[-1], area, x))
    return math.sqrt(freedom) * math.tan(at)
