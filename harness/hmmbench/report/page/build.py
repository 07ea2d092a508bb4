# SPDX-License-Identifier: GPL-2.0-or-later
"""Puts the page together.  Everything that is inserted is escaped by the template engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hmmbench.device import injection
from hmmbench.example.portrait import Portrait
from hmmbench.example.recipe import Recipe
from hmmbench.model import oracles
from hmmbench.report import words
from hmmbench.report.page.execution import execution
from hmmbench.report.page.heat import heat, short
from hmmbench.report.page.timeline import duration, timeline
from hmmbench.report.result import Report
from hmmbench.report.tally import Finding, Tally
from hmmbench.vm import kinds

#: Characters of one text from outside (a console excerpt, a message) that go into the page.
TEXT_MAX = 12000
#: Steps told of one recipe; a shrunk one has about ten.
STEPS_MAX = 120

_EXPECTED = re.compile(r"(?:found|ended with) (.+?), expected (.+)$", re.DOTALL)

#: Control characters, which a console has and HTML must not.
_CONTROL = dict.fromkeys((*range(9), *range(11, 32), 127), "�")


@dataclass(frozen=True)
class _Step:
    number: int
    who: str
    text: str
    result: str
    hot: bool


#: counter -> (name, meaning); "dev_": the device's own.
_NUMBERS = {
    "dev_faults": ("faults", "entries in the device's replayable ring"),
    "faults_duplicate": ("duplicate faults", "told twice, served once"),
    "faults_stale": ("stale faults", "already satisfied when looked at"),
    "faults_thrashing": ("thrashing faults", "served in place: just evicted"),
    "dev_faults_dropped": ("dropped faults", "the ring was full"),
    "dev_replays": ("replays", "stalled warps sent on"),
    "dev_cancels": ("cancels", "accesses that were refused for good"),
    "invalidations": ("invalidations", "calls of the interval notifier"),
    "tlb_invalidates": ("TLB invalidations", "asked of the device"),
    "fault_retries": ("fault retries", "the sequence count had moved on"),
    "maps": ("pages mapped", "GPU page-table entries written"),
    "pages_to_device": ("pages to VRAM", "migrated"),
    "pages_to_system": ("pages to system memory", "migrated back"),
    "pages_to_device_failed": ("not migrated", "pages that would not move"),
    "cpu_faults": ("CPU faults on VRAM", "migrate_to_ram"),
    "evictions": ("evictions", "of chunks of VRAM"),
    "pages_evicted": ("pages evicted", "from VRAM"),
    "jobs_done": ("GPU jobs", "done"),
    "jobs_failed": ("GPU jobs failed", "on purpose, mostly: a fault was the right answer"),
}


def write(path: Path, report: Report, tally: Tally, counters: Mapping[str, int]) -> None:
    """Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(report, tally, counters), encoding="utf-8")


def render(report: Report, tally: Tally, counters: Mapping[str, int]) -> str:
    """The whole page."""
    environment = Environment(
        loader=PackageLoader("hmmbench.report.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["group"] = lambda n: f"{n:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    environment.filters["short"] = short
    environment.filters["first_upper"] = lambda s: s[:1].upper() + s[1:]
    source = environment.loader
    assert source is not None

    def raw(name: str) -> Markup:
        # Our own files, which hold nothing from outside.
        return Markup(source.get_source(environment, name)[0])

    page = environment.get_template("report.html.j2").render(
        r=report,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        title=_title(report),
        heat=heat(tally.coverage),
        racing=tally.coverage.racing,
        numbers=_numbers(counters),
        injected=[
            (rule, n, line.words if (line := injection.of(rule)) is not None else "")
            for rule, n in sorted(tally.injected.items())
        ],
        delayed=sorted(tally.delayed.items()),
        interleavings=report.interleavings,
        pace=_pace(tally.pace),
        findings=[_finding(n, f, report.options) for n, f in enumerate(tally.findings, 1)],
        stages=[(name, duration(s * 1e9)) for name, s in report.stages.items()],
        css=raw("report.css"),
        js=raw("report.js"),
        oracle_words=oracles.WORDS,
    )
    return page.translate(_CONTROL)


def _title(report: Report) -> str:
    if report.verdict == "pass":
        return "No violation"
    if report.verdict == "fail":
        n = len(report.violations)
        return "A violation was found" if n == 1 else f"{n} violations were found"
    if report.verdict == "short":
        return "No violation, but too little was looked at"
    return "The run did not finish"


def _numbers(counters: Mapping[str, int]) -> list[tuple[str, int, str]]:
    return [
        (name, counters[key], meaning)
        for key, (name, meaning) in _NUMBERS.items()
        if key in counters
    ]


@dataclass(frozen=True)
class _Pace:
    points: str
    area: str
    top: str
    seconds: str
    mean: str


def _pace(samples: Sequence[tuple[float, int, int]]) -> _Pace | None:
    """Operations a second over time, as the points of a line 1000 x 120."""
    window = max(1, len(samples) // 48)
    rates: list[tuple[float, float]] = []
    before = (0.0, 0)
    for t, operations, _ in samples[window - 1 :: window]:
        if t > before[0]:
            rates.append((t, (operations - before[1]) / (t - before[0])))
            before = (t, operations)
    if len(rates) < 2:
        return None
    end, top = rates[-1][0], max(r for _, r in rates) or 1.0
    points = [f"{1000 * t / end:.1f},{118 - 108 * r / top:.1f}" for t, r in rates]
    first = points[0].split(",")[1]
    line = " ".join([f"0,{first}", *points])
    return _Pace(
        line, f"0,120 {line} 1000,120", f"{top:.0f}", duration(end * 1e9),
        f"{before[1] / end:.0f}",
    )  # fmt: skip


def _finding(number: int, f: Finding, options: Sequence[str]) -> dict[str, Any]:
    recipe = Recipe.read(f.recipe)
    portrait = f.portrait
    violation = portrait.violation if portrait else f.violation
    program = portrait.program if portrait else recipe.program
    ops = program.ops
    count = len(recipe.program.ops)
    results = portrait.result.ops if portrait and portrait.result else None
    steps = []
    for i, o in enumerate(ops[:count]):
        result = words.status(o, results[i]) if results else ""
        who = f"process {o.proc}" + (f", thread {o.actor}" if o.actor else "")
        steps.append((o.phase, _Step(i + 1, who, words.sentence(o), result, i == violation.op)))
    phases = [[s for _, s in g] for _, g in groupby(steps[:STEPS_MAX], key=lambda x: x[0])]
    match = _EXPECTED.search(violation.message)
    path = shlex.quote(str(f.recipe))
    # The same kernel and driver as in the run: a broken driver fails, the sound one does not.
    same = "".join(" " + shlex.quote(word) for word in options)
    details = violation.details
    return {
        "number": number,
        "oracle": violation.oracle,
        "message": _cut(violation.message),
        "seen_with": words.seen_with(f.shown_by, f.looked_for),
        "seen": _cut(match[1]) if match else "",
        "expected": _cut(match[2]) if match else "",
        "phases": phases,
        "more": max(0, count - STEPS_MAX),
        "count": count,
        "rate": f"{100 * f.rate:.0f}",
        "delays": [_delay(d) for d in recipe.environment.delays],
        "inject": recipe.environment.inject,
        "rebind": recipe.environment.rebind,
        "vram": recipe.environment.vram,
        "again": recipe.environment.again,
        "machine": kinds.words(recipe.machine) if recipe.machine else "",
        "pages": _pages(portrait),
        "pages_when": portrait.when if portrait else "",
        "details": _cut(details),
        "extra": [_cut(d) for d in (portrait.details if portrait else [])][:200]
        if not details
        else [],
        "timeline": timeline(ops[:count], results[:count], violation.op, portrait.events)
        if results and portrait and not portrait.decided
        else None,
        "execution": execution(
            ops[:count], results[:count] if results else [], violation.op, portrait.decided
        )
        if portrait and portrait.decided
        else None,
        "replay": f"./hmmbench replay {path}{same}",
        "export": f"./hmmbench replay {path} --export-c reproducer.c",
        # An exact machine is not asked while it runs, but can be taken back.
        "look": ("Debug", f"./hmmbench replay {path}{same} --gdb") if recipe.exact
        else ("Trace", f"./hmmbench replay {path}{same} --trace trace.json"),
        "folder": str(f.folder),
    }


def _delay(line: str) -> str:
    """ "NAME [at N | until OTHER] USEC [PERMILLE [SEED [TIMES]]]" in words."""
    name, *rest = line.split()
    when, limit = "", ""
    if rest[0] == "at":
        when = f", at passage {rest[1]}"
    elif rest[0] == "until":
        when, limit = f", until {rest[1]} comes", " at most"
    usec, *share = rest[2:] if when else rest
    often = f", in {int(share[0]) / 10:g} % of passages" if share and share[0].isdigit() else ""
    times = f", {share[2]} times at most" if len(share) > 2 else ""
    return f"{name}: {usec} \N{MICRO SIGN}s{limit}{when}{often}{times}"


def _pages(portrait: Portrait | None) -> list[dict[str, str]]:
    return [
        {
            "place": p.where,
            "cpu": p.cpu,
            "gpu": p.gpu,
        }
        for p in (portrait.pages if portrait else [])
    ]


def _cut(text: str) -> str:
    """Short enough for the page."""
    if len(text) <= TEXT_MAX:
        return text
    return text[:TEXT_MAX] + f"\n... {len(text) - TEXT_MAX} characters more"
