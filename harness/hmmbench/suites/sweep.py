# SPDX-License-Identifier: GPL-2.0-or-later
"""A workload several times: with other amounts of VRAM, or with other values of one argument.

Of the runs a plot is made: seconds (or the rate that the workload says), bytes moved, faults.
Seconds are this host's: the device has no model of time, its clock is the virtual machine's.  What
it moved and how often it faulted does not depend on the host's speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hmmbench.base.errors import UsageError
from hmmbench.gpu.plot import Axis, Limit, Line, Panel, chart
from hmmbench.guest.program import PAGE
from hmmbench.suites.workload import Workload, WorkloadOutcome, load

#: Of an argument's own value, if none are given: from well below the limit of VRAM to well above.
MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)

_MIB = 1 << 20


@dataclass(frozen=True)
class Sweep:
    """`--sweep ARGUMENT[=VALUE,...]`: no values: MULTIPLES of the size's own."""

    argument: str
    values: tuple[float, ...] = ()

    @staticmethod
    def parse(text: str) -> Sweep:
        """Raises UsageError."""
        name, given, rest = text.partition("=")
        try:
            values = tuple(float(v) for v in rest.split(",")) if given else ()
        except ValueError:
            values = (0.0,)
        if not name.isidentifier() or not all(0 < v < 1 << 40 for v in values):
            raise UsageError(f"--sweep {text}: ARGUMENT=VALUE,VALUE,... with positive values")
        return Sweep(name, values)


@dataclass(frozen=True)
class Trial:
    """One run of a workload.

    vram   -- as run_one() has it
    change -- arguments that are not the size's
    words  -- what is special about it
    """

    workload: Workload
    vram: int | float | None
    change: Mapping[str, Any]
    words: str = ""


def by_vram(workload: Workload, amounts: Sequence[int | float | None]) -> list[Trial]:
    return [
        Trial(workload, a, {}, amount_words(a) if len(amounts) > 1 else "") for a in amounts
    ]


def by_argument(
    workload: Workload, size: str, sweep: Sweep, vram: int | float | None
) -> list[Trial]:
    """The size's own value comes first: VRAM is limited to what that run needs, or a factor of it.

    Raises UsageError if the argument is none, or no number.
    """
    arguments = load(workload).SIZES[size]
    own = arguments.get(sweep.argument)
    if type(own) not in (int, float):
        numbers = [n for n, v in arguments.items() if type(v) in (int, float)]
        raise UsageError(
            f"--sweep {sweep.argument}: {workload.name} has no such number",
            f"It has {', '.join(numbers) or 'none'}.",
        )
    values = sweep.values or [own * m for m in MULTIPLES]
    if type(own) is int:
        values = [max(1, round(v)) for v in values]
    return [
        Trial(workload, vram, {sweep.argument: v}, f"{sweep.argument} {v:g}")
        for v in (own, *sorted(set(values) - {own}))
    ]


def amount_words(amount: int | float | None) -> str:
    if amount is None:
        return "all VRAM"
    return f"{amount:g}x" if isinstance(amount, float) else f"{amount} pages"


def plot(outcomes: Sequence[WorkloadOutcome], argument: str | None, where: str) -> str | None:
    """An SVG of one workload's runs, or None if fewer than two of them passed.

    argument -- what differed; None: VRAM
    where    -- kernel and accelerator, for the notes
    """
    points = [o for o in outcomes if o.verdict == "pass" and (argument or o.vram_pages)]
    points.sort(key=lambda o: _x(o, argument))
    if len({_x(o, argument) for o in points}) < 2:
        return None
    xs = [_x(o, argument) for o in points]
    if argument:
        axis = Axis(xs, [(f"{x:g}", f"{_share(o):.2f}x") for x, o in zip(xs, points, strict=True)],
                    (argument, "data that can be in VRAM, in multiples of it"
                     if points[0].vram_pages else ""))  # fmt: skip
    else:
        axis = Axis(xs, [(f"{x:.3g}x", _mib(o.vram_pages or 0)) for x, o in
                         zip(xs, points, strict=True)],
                    ("VRAM, of what the workload could use", "MiB"))  # fmt: skip
    rates = [n for n in points[0].figures if n.endswith("/s")]
    panels = [
        Panel(n, [Line(n, [o.figures.get(n) for o in points])]) for n in rates
    ] or [Panel("seconds", [
        Line("in all", [o.seconds for o in points]),
        Line("GPU jobs", [o.gpu_seconds for o in points]),
    ])]  # fmt: skip
    panels.append(Panel("MiB moved", [
        Line(words, [o.story[key] / _MIB for o in points])
        for words, key in (("to VRAM", "bytes_to_vram"), ("back", "bytes_back"),
                           ("evicted", "bytes_evicted"))
    ]))  # fmt: skip
    panels.append(Panel("GPU faults", [
        Line("faults", [o.story["faults"] for o in points]),
        Line("batches", [o.story["batches"] for o in points]),
    ]))  # fmt: skip
    first = points[0]
    notes = [
        f"size {first.size}, {where}. Seconds are this host's: the device has no model of time."
        " What was moved does not depend on the host."
    ]
    failed = sum(o.verdict != "pass" for o in outcomes)
    if failed:
        notes.append(f"{failed} of {len(outcomes)} runs are not shown: they did not pass.")
    what = f"{panels[0].title} against {argument or 'VRAM'}"
    return chart(f"{first.name}: {what}", notes, axis, panels, _limit(points, xs, argument))


def _x(o: WorkloadOutcome, argument: str | None) -> float:
    if argument:
        return float(o.arguments[argument])
    return (o.vram_pages or 0) / o.movable


def _share(o: WorkloadOutcome) -> float:
    """How much could be in VRAM, as a share of what may."""
    return o.movable / o.vram_pages if o.vram_pages else 0.0


def _limit(
    points: Sequence[WorkloadOutcome], xs: Sequence[float], argument: str | None
) -> Limit | None:
    if argument is None:
        return Limit(1.0, "all of it fits", "does not fit", above=False)
    if not points[0].vram_pages:
        return None
    words = f"VRAM: {_mib(points[0].vram_pages)} MiB"
    if _share(points[0]) > 1:
        return Limit(0.0, words, "does not fit", above=True)
    for k in range(1, len(points)):
        a, b = _share(points[k - 1]), _share(points[k])
        if b > 1 >= a:
            at = xs[k - 1] + (1 - a) / (b - a) * (xs[k] - xs[k - 1])
            return Limit(at, words, "does not fit", above=True)
    return Limit(xs[-1] * 2, words, "does not fit", above=True)


def _mib(pages: int) -> str:
    return f"{pages * PAGE / _MIB:.3g}"
