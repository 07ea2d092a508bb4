# SPDX-License-Identifier: GPL-2.0-or-later
"""Who did what when, as SVG geometry: one lane a CPU thread and one a process's GPU.

Times are the agent's: CLOCK_MONOTONIC of the guest at the start of an operation, and how long
it took.  All lanes share that clock, so their order is exact.  The axis is compressed: between
two neighbouring starts or ends the width grows with the logarithm of the time, which keeps
order and overlap and lets microseconds be seen beside milliseconds.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from hmmbench.example.event import TimedEvent
from hmmbench.guest.program import RES_SKIPPED, Op, OpResult
from hmmbench.model.ops import of
from hmmbench.model.ops.jobs import GpuAccess, GpuCopy, GpuFill, GpuSpin

WIDTH = 1000.0
LABEL = 126.0
LANE = 34.0
TOP = 22.0
#: Operations drawn; the last ones, if there are more.
SHOWN = 60
#: Marks of driver and device drawn.
MARKS = 160

#: Kinds of operations that a GPU does.
GPU = frozenset({GpuAccess.number, GpuCopy.number, GpuFill.number, GpuSpin.number})


@dataclass(frozen=True)
class Bar:
    """`kind`: "cpu", "gpu" or "wait" (the thread that waits for its GPU job)."""

    x: float
    y: float
    width: float
    label: str
    title: str
    kind: str
    hot: bool


@dataclass(frozen=True)
class Mark:
    x: float
    y: float
    title: str
    kind: str


@dataclass(frozen=True)
class Timeline:
    lanes: tuple[tuple[str, float], ...]
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    height: float
    left_out: int


def duration(ns: float) -> str:
    """For people: 3.2 ms."""
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "\N{MICRO SIGN}s")):
        if ns >= limit:
            return f"{ns / limit:.3g} {unit}"
    return f"{ns:.0f} ns"


def timeline(
    ops: Sequence[Op], results: Sequence[OpResult], hot: int = -1, events: Sequence[TimedEvent] = ()
) -> Timeline | None:
    """None when the agent gave no start times.  `hot`: the operation that shows the failure."""
    timed = [
        (i, o, r) for i, (o, r) in enumerate(zip(ops, results, strict=True))
        if r.start_ns and r.status != RES_SKIPPED
    ]  # fmt: skip
    if not timed:
        return None
    left_out = max(0, len(timed) - SHOWN)
    timed = timed[-SHOWN:]
    low = min(r.start_ns for _, _, r in timed)
    high = max(r.start_ns + r.time_ns for _, _, r in timed)
    marks = [e for e in events if low <= e.time_ns <= high][:MARKS]
    axis = Axis(
        [t for _, _, r in timed for t in (r.start_ns, r.start_ns + r.time_ns)]
        + [e.time_ns for e in marks]
    )
    names = _lanes(timed, marks)
    y = {name: TOP + k * LANE for k, name in enumerate(names)}
    bars: list[Bar] = []
    for i, o, r in timed:
        x, x2 = axis(r.start_ns), axis(r.start_ns + r.time_ns)
        gpu = o.op in GPU
        name = of(o).name
        title = f"step {i + 1}: {name}, {duration(r.time_ns)}"
        if gpu:
            bars.append(Bar(x, y[_thread(o)], max(x2 - x, 3), "", f"{title}: waits", "wait", False))
        lane = f"GPU, process {o.proc}" if gpu else _thread(o)
        kind = "gpu" if gpu else "cpu"
        bars.append(Bar(x, y[lane], max(x2 - x, 3), str(i + 1), title, kind, i == hot))
    return Timeline(
        tuple((n, y[n]) for n in names), tuple(bars),
        tuple(Mark(axis(e.time_ns), y[e.lane], f"{e.lane}: {e.name}, at "
                   f"+{duration(e.time_ns - low)}", e.lane) for e in marks),
        axis.ticks(low), TOP + LANE * len(names) + 6, left_out,
    )  # fmt: skip


def _thread(o: Op) -> str:
    return f"process {o.proc}, CPU {o.actor}"


def _lanes(timed: Sequence[tuple[int, Op, OpResult]], marks: Sequence[TimedEvent]) -> list[str]:
    threads = sorted({_thread(o) for _, o, _ in timed})
    gpus = sorted({f"GPU, process {o.proc}" for _, o, _ in timed if o.op in GPU})
    return threads + gpus + sorted({e.lane for e in marks})


class Axis:
    """Time to x: compressed between the given times, even between two of them."""

    def __init__(self, times: list[int]) -> None:
        self.times = sorted(set(times))
        steps = [math.log1p((b - a) / 1000) + 0.35
                 for a, b in zip(self.times, self.times[1:], strict=False)]  # fmt: skip
        total = sum(steps) or 1.0
        at = LABEL
        self.x = {self.times[0]: at}
        for t, step in zip(self.times[1:], steps, strict=True):
            at += step * (WIDTH - LABEL - 8) / total
            self.x[t] = at

    def __call__(self, t: int) -> float:
        if t in self.x:
            return round(self.x[t], 1)
        at = bisect(self.times, t)
        if not 0 < at < len(self.times):
            return round(self.x[self.times[0 if not at else -1]], 1)
        a, b = self.times[at - 1], self.times[at]
        return round(self.x[a] + (self.x[b] - self.x[a]) * (t - a) / (b - a), 1)

    def ticks(self, low: int) -> tuple[tuple[float, str], ...]:
        """Some of the times, no two nearer than a label is wide."""
        out: list[tuple[float, str]] = []
        for t in self.times:
            x = self.x[t]
            if x > WIDTH - 64:
                break
            if not out or x - out[-1][0] > 95:
                out.append((round(x, 1), f"+{duration(t - low)}"))
        return tuple(out)
