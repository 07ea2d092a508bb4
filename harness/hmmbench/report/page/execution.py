# SPDX-License-Identifier: GPL-2.0-or-later
"""A failing execution of an exact machine as SVG geometry, and its decisions in words.

From top to bottom: the program's threads with their operations; each CPU with what ran on it and
when it was held; the engines of the device; its interrupts.  One clock, the machine's own, so all
of it is exact.  The axis is that of timeline.py.

A log has up to a million decisions.  Slices and steps that lie nearer to each other than a person
can see are one bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from hmmbench.device.events import Happened, Kind
from hmmbench.example.portrait import Decided
from hmmbench.guest.program import RES_SKIPPED, Op, OpResult
from hmmbench.model import ops
from hmmbench.report.page.timeline import GPU, TOP, Axis, Bar, Mark, duration
from hmmbench.vm.decisions import Decision, What, decision

#: Heights of lanes, and the space between their groups.
HIGH, LOW, GAP = 34.0, 22.0, 10.0

#: Two bars nearer than this are one, and none is thinner.
NEAR, THIN = 1.5, 1.2

#: Operations and events of the device that are drawn, the last before the violation; decisions
#: that are told, switches that are listed.
SHOWN, EVENTS, TOLD, LISTED = 30, 120, 3, 40

#: Nanoseconds that are drawn before a violation where the operations' times are not known.
BEFORE_NS = 1_000_000

#: Nanoseconds of an instruction: spec.EXACT_ICOUNT.
INSTRUCTION_NS = 2

_SLICES = (What.OVER, What.HALTED, What.PAUSED, What.AT_POINT)
_USER = 1 << 63

_T = TypeVar("_T")

_WHY: dict[int, str] = {
    What.OVER: "is stopped", What.HALTED: "has nothing more to do",
}  # fmt: skip

#: Events of the device that say little of a failure.
_QUIET = (Kind.TLB_FILL, Kind.IRQ)


@dataclass(frozen=True)
class Row:
    """A decision in words.  `number`: as in the drawing, 0 if it is not numbered there."""

    number: int
    at: str
    text: str
    where: str


@dataclass
class Drawing:
    """Lanes: (name, y, height); violation: x of its line, None if it has no moment."""

    lanes: list[tuple[str, float, float]] = field(default_factory=list)
    rules: list[float] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    numbers: list[tuple[float, float, int]] = field(default_factory=list)
    ticks: tuple[tuple[float, str], ...] = ()
    violation: float | None = None
    violation_at: str = ""
    what: str = ""
    decisions: list[Row] = field(default_factory=list)
    switches: list[Row] = field(default_factory=list)
    held: bool = False
    height: float = 0.0
    left_out: int = 0


@dataclass(frozen=True)
class _Slice:
    begin: int
    end: int
    cpu: int
    entry: Decision


@dataclass(frozen=True)
class _Operation:
    number: int
    begin: int
    end: int
    op: Op


def execution(
    ops: Sequence[Op], results: Sequence[OpResult], hot: int, decided: Decided
) -> Drawing | None:
    """None if there is nothing to draw: no operation that began, and no moment."""
    moment = decided.moment
    timed, left_out = _operations(ops, results, decided)
    if not timed and moment is None:
        return None
    begin = min([one.begin for one in timed] or [max(0, moment.ns - BEFORE_NS) if moment else 0])
    end = max([one.end for one in timed] + ([moment.ns] if moment else []))
    log = decided.log[(decided.log["ns"] >= begin) & (decided.log["ns"] <= end)]
    slices = _slices(log)
    holds = [d for d in map(decision, log[log["what"] == int(What.HELD)]) if d.ns < end]
    until = moment.ns if moment else end
    chosen = _chosen(holds, slices, _racing(timed, hot, until), until)
    events = _events(decided.happened, begin, end, until)
    times = [t for one in timed for t in (one.begin, one.end)]
    times += [t for d in holds for t in (d.ns, min(end, d.ns + d.arg))]
    times += [d.ns for d in chosen] + [e.ns for e in events] + ([moment.ns] if moment else [])
    axis = Axis([begin, end, *times])
    out = Drawing(ticks=axis.ticks(begin), left_out=left_out, held=bool(holds))
    y = _lanes(out, timed, log, events, decided.engines)
    _draw_operations(out, timed, y, axis, hot)
    _draw_cpus(out, slices, holds, y, axis, decided, begin, end)
    _draw_device(out, log, events, y, axis, decided.engines, begin)
    if moment is not None:
        out.violation = axis(moment.ns)
        out.violation_at, out.what = f"+{duration(moment.ns - begin)}", moment.what
    _tell(out, chosen, slices, holds, y, axis, decided, begin, _racing(timed, hot, until), until)
    return out


def _operations(
    ops: Sequence[Op], results: Sequence[OpResult], decided: Decided
) -> tuple[list[_Operation], int]:
    clock = decided.clock
    if clock is None or not results:
        # A finding may have neither: the guest did not come so far.
        return [], 0
    timed = [
        _Operation(n, clock.virtual(r.start_ns), clock.virtual(r.start_ns + r.time_ns), o)
        for n, (o, r) in enumerate(zip(ops, results, strict=True))
        if r.start_ns and r.status != RES_SKIPPED
    ]
    if decided.moment is not None:
        # What came later has nothing to do with it.
        timed = [one for one in timed if one.begin <= decided.moment.ns]
    timed.sort(key=lambda one: one.begin)
    return timed[-SHOWN:], max(0, len(timed) - SHOWN)


def _slices(log: np.ndarray[Any, Any]) -> list[_Slice]:
    found = map(decision, log[np.isin(log["what"], [int(what) for what in _SLICES])])
    return [_Slice(d.ns - d.arg * INSTRUCTION_NS, d.ns, d.who, d) for d in found if d.arg]


def _racing(timed: Sequence[_Operation], hot: int, until: int) -> tuple[int, int]:
    """When operations ran beside one another last, up to the one that shows the violation."""
    last = next((one.op.phase for one in timed if one.number == hot), None)
    threads: dict[int, set[tuple[int, int]]] = {}
    for one in timed:
        if last is None or one.op.phase <= last:
            threads.setdefault(one.op.phase, set()).add((one.op.proc, one.op.actor))
    racing = [phase for phase, who in threads.items() if len(who) > 1]
    phase = max(racing or threads, default=0)
    spans = [(one.begin, one.end) for one in timed if one.op.phase == phase]
    return (
        min((begin for begin, _ in spans), default=0),
        max((end for _, end in spans), default=until),
    )


def _chosen(
    holds: Sequence[Decision], slices: Sequence[_Slice], racing: tuple[int, int], until: int
) -> list[Decision]:
    """The decisions that make it fail, as far as a log can say: holds, else who was stopped in the
    middle of what it did, the latest before the violation."""
    before = [d for d in holds if d.ns <= until]
    if before:
        near = [d for d in before if d.ns + d.arg >= racing[0]] or before
        return near[-TOLD:]
    stopped = [
        a.entry for a, b in pairwise(slices)
        if a.entry.what == What.OVER and a.cpu != b.cpu and racing[0] <= a.end <= until
    ]  # fmt: skip
    return stopped[-TOLD:]


def _events(happened: Sequence[Happened], begin: int, end: int, until: int) -> list[Happened]:
    """The ones that say most, and of those the ones around the violation."""
    found = [e for e in happened if begin <= e.ns <= end and e.kind != Kind.VIOLATION]
    if len(found) > EVENTS:
        found = [e for e in found if e.kind not in _QUIET]
    return sorted(sorted(found, key=lambda e: abs(e.ns - until))[:EVENTS], key=lambda e: e.ns)


def _lanes(
    out: Drawing, timed: Sequence[_Operation], log: np.ndarray[Any, Any],
    events: Sequence[Happened], engines: Sequence[str],
) -> dict[str, float]:  # fmt: skip
    cpus = np.unique(log["who"][np.isin(log["what"], [int(w) for w in (*_SLICES, What.HELD)])])
    stepped = log[(log["what"] == int(What.ENGINE)) & (log["arg"] > 0)]["who"]
    acting = {e.engine for e in events}
    acting |= {engines[n] for n in np.unique(stepped) if n < len(engines)}
    irqs = bool((log["what"] == int(What.IRQ)).any()) or "interrupts" in acting
    groups = [
        (sorted({_thread(one.op) for one in timed}), HIGH),
        ([f"CPU {n}" for n in cpus], HIGH),
        ([name for name in engines if name in acting] + (["interrupts"] if irqs else []), LOW),
    ]
    places: dict[str, float] = {}
    at = TOP
    for names, height in groups:
        if names and places:
            out.rules.append(at + GAP / 2)
            at += GAP
        for name in names:
            places[name] = at
            out.lanes.append((name, at, height))
            at += height
    out.height = at + 6
    return places


def _thread(o: Op) -> str:
    return f"process {o.proc}, thread {o.actor}"


def _draw_operations(
    out: Drawing, timed: Sequence[_Operation], y: dict[str, float], axis: Axis, hot: int
) -> None:
    for one in timed:
        x, x2 = axis(one.begin), axis(one.end)
        name = ops.of(one.op).name
        out.bars.append(
            Bar(
                x, y[_thread(one.op)], max(x2 - x, 3), str(one.number + 1),
                f"step {one.number + 1}: {name}, {duration(one.end - one.begin)}",
                "gpu" if one.op.op in GPU else "cpu", one.number == hot,
            )
        )  # fmt: skip


def _draw_cpus(
    out: Drawing, slices: Sequence[_Slice], holds: Sequence[Decision], y: dict[str, float],
    axis: Axis, decided: Decided, begin: int, end: int,
) -> None:  # fmt: skip
    groups = _merged([(f"CPU {s.cpu}", axis(s.begin), axis(s.end), s) for s in slices])
    names = decided.names([group[-1].entry.pc for *_, group in groups], source=False)
    for name, x, x2, group in groups:
        ran = sum(s.entry.arg for s in group)
        inside = sum(s.entry.arg for s in group if s.entry.pc < _USER)
        many = f"{len(group)} times, " if len(group) > 1 else ""
        title = (
            f"{name} runs {many}{ran} instructions, to {names[group[-1].entry.pc].name}, "
            f"at +{duration(group[-1].end - begin)}"
        )
        kind = "user" if 2 * inside > ran else "kernel"
        out.bars.append(Bar(x, y[name], max(x2 - x, THIN), "", title, kind, False))
    for d in holds:
        x, x2 = axis(d.ns), axis(min(end, d.ns + d.arg))
        title = f"CPU {d.who} is held for {duration(d.arg)}, at +{duration(d.ns - begin)}"
        out.bars.append(Bar(x, y[f"CPU {d.who}"], max(x2 - x, 3), "", title, "held", False))


def _draw_device(
    out: Drawing, log: np.ndarray[Any, Any], events: Sequence[Happened], y: dict[str, float],
    axis: Axis, engines: Sequence[str], begin: int,
) -> None:  # fmt: skip
    stepped = [
        decision(one) for one in log[(log["what"] == int(What.ENGINE)) & (log["arg"] > 0)]
        if one["who"] < len(engines)
    ]  # fmt: skip
    for name, x, x2, group in _merged(
        [(engines[d.who], axis(d.ns), axis(d.ns), d) for d in stepped]
    ):
        title = f"{name} works, from +{duration(group[0].ns - begin)}"
        out.bars.append(Bar(x, y[name], max(x2 - x, THIN), "", title, "steps", False))
    for e in events:
        title = f"{e.text}, at +{duration(e.ns - begin)}"
        out.marks.append(Mark(axis(e.ns), y[e.engine], title, "mark"))
    for d in map(decision, log[log["what"] == int(What.IRQ)]):
        title = f"interrupts {d.who:#x} arrive late, at +{duration(d.ns - begin)}"
        out.marks.append(Mark(axis(d.ns), y["interrupts"], title, "arrives"))


def _merged(
    bars: Iterable[tuple[str, float, float, _T]],
) -> list[tuple[str, float, float, list[_T]]]:
    """Of each lane, what is too near to be told apart."""
    out: list[tuple[str, float, float, list[_T]]] = []
    last: dict[str, int] = {}
    for lane, x, x2, one in bars:
        at = last.get(lane)
        if at is not None and x - out[at][2] < NEAR:
            name, begun, ended, group = out[at]
            group.append(one)
            out[at] = (name, begun, max(ended, x2), group)
        else:
            last[lane] = len(out)
            out.append((lane, x, x2, [one]))
    return out


# -- in words


def _tell(
    out: Drawing, chosen: Sequence[Decision], slices: Sequence[_Slice], holds: Sequence[Decision],
    y: dict[str, float], axis: Axis, decided: Decided, begin: int, racing: tuple[int, int],
    until: int,
) -> None:  # fmt: skip
    # Who only waits for another comes and goes without end.
    slices = [one for one in slices if one.entry.what != What.PAUSED]
    switches = [
        (a.entry, b.cpu) for a, b in pairwise(slices)
        if a.cpu != b.cpu and racing[0] <= a.end <= until
    ]  # fmt: skip
    goes_on = {(d.icount, d.who): cpu for d, cpu in switches}
    listed: list[Decision] = sorted(
        [d for d, _ in switches if d.what != What.AT_POINT]
        + [d for d in holds if racing[0] <= d.ns <= until],
        key=lambda d: (d.icount, d.ns),
    )[-LISTED:]
    places = decided.names([d.pc for d in (*chosen, *listed)])

    def row(number: int, d: Decision) -> Row:
        if d.what == What.HELD:
            text = f"CPU {d.who} is held for {duration(d.arg)}"
        else:
            text = f"CPU {d.who} {_WHY.get(d.what, 'stops')} after {d.arg} instructions"
            if (d.icount, d.who) in goes_on:
                text += f", CPU {goes_on[d.icount, d.who]} goes on"
        # Where it idles says nothing.
        where = "" if d.what == What.HALTED else str(places[d.pc])
        return Row(number, f"+{duration(d.ns - begin)}", text, where)

    numbers = {(d.icount, d.what): n for n, d in enumerate(chosen, 1)}
    for n, d in enumerate(chosen, 1):
        out.decisions.append(row(n, d))
        out.numbers.append((axis(d.ns), y[f"CPU {d.who}"], n))
    out.switches = [row(numbers.get((d.icount, d.what), 0), d) for d in listed]
