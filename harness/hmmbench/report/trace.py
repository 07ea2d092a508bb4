# SPDX-License-Identifier: GPL-2.0-or-later
"""One execution as a trace that Perfetto opens (ui.perfetto.dev): what the agent's operations,
the driver's tracepoints and the device's trace events say, on one time axis.

Format: JSON of Chrome's "Trace Event Format" (the public document of that name), which Perfetto
lists among the external formats it reads.  "X" are slices, "i" instants, "M" names.

The axis is the guest's CLOCK_MONOTONIC.  The agent's times are taken with it, and the driver's
events too (tracefs clock "mono"), so these are exact to the microsecond that tracefs prints.
The device's events carry the host's wall clock (QEMU's log backend).  Their offset is bounded by
causes that come before their effects: the device writes a fault before the driver takes it out,
the driver traces a TLB invalidation or a launch before the device starts it.  The middle of the
bounds is used and half their distance is the error, which the trace states.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hmmbench.device import cheader
from hmmbench.example.tracer import NUMBER, Traced
from hmmbench.guest.program import RES_SKIPPED, Program, Result
from hmmbench.model import ops
from hmmbench.report import words

HW = cheader.hardware()
#: Resolution of either trace's times (ns).
RESOLUTION = 1000



@dataclass(frozen=True)
class Alignment:
    """`offset`: guest minus host (ns).  `error`: it may be off by so much; None: unknown."""

    offset: int
    error: int | None


def align(driver: Sequence[Traced], device: Sequence[Traced]) -> Alignment | None:
    """Bring host time to guest time; None if nothing ties the two together."""
    # (asid, page) -> times; only keys that both sides saw equally often are used.
    high = _gaps(_times(device, "hmm_gpu_fault", "va"), _times(driver, "hmm_gpu_fault", "addr"))
    low = _gaps(
        _times([e for e in device if e.value("type") == HW.HG_INVAL_RANGE], "hmm_gpu_inval_start",
               "start"),
        _times(driver, "hmm_gpu_tlb_invalidate", ""),
    ) + _gaps(
        _launches(device, "hmm_gpu_launch"),
        _launches([e for e in driver if e.value("op") == HW.HG_OP_LAUNCH], "hmm_gpu_job"),
    )  # fmt: skip
    if high and low:
        most, least = min(high), max(low)
        return Alignment((most + least) // 2, abs(most - least) // 2 + RESOLUTION)
    if high:
        return Alignment(min(high), None)
    if low:
        return Alignment(max(low), None)
    return None


def _launches(events: Iterable[Traced], name: str) -> dict[tuple[int, int], list[int]]:
    out: dict[tuple[int, int], list[int]] = defaultdict(list)
    for e in events:
        ctx = e.value("ctx")
        if e.name == name and ctx is not None:
            out[ctx, 0].append(e.time_ns)
    return out


def _times(events: Iterable[Traced], name: str, address: str) -> dict[tuple[int, int], list[int]]:
    out: dict[tuple[int, int], list[int]] = defaultdict(list)
    for e in events:
        if e.name != name:
            continue
        asid = e.value("asid")
        if address:
            at = e.value(address)
        else:
            match = re.search(rf" {NUMBER}\.\.", e.args)
            at = int(match[1], 0) if match else None
        if asid is not None and at is not None:
            # The device writes the generation of the address space above its number.
            out[asid & 0xFFFF, at >> 12].append(e.time_ns)
    return out


def _gaps(
    device: Mapping[tuple[int, int], list[int]], driver: Mapping[tuple[int, int], list[int]]
) -> list[int]:
    """Guest minus host of events that belong together, in order of their happening."""
    return [
        g - h
        for key, mine in device.items()
        if len(mine) == len(driver.get(key, ()))
        for h, g in zip(sorted(mine), sorted(driver[key]), strict=True)
    ]


@dataclass
class Chrome:
    """Grows the JSON.  pid 1: processes of the program, 2: driver, 3: device."""

    events: list[dict[str, Any]] = field(default_factory=list)
    names: dict[tuple[int, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pid, name in ((1, "Program (agent)"), (2, "Driver"), (3, "Device")):
            self.events.append({"ph": "M", "pid": pid, "name": "process_name",
                                "args": {"name": name}})  # fmt: skip

    def thread(self, pid: int, name: str) -> int:
        """The number of a track, made when first asked for."""
        if (pid, name) not in self.names:
            tid = self.names[pid, name] = len(self.names) + 1
            self.events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name",
                                "args": {"name": name}})  # fmt: skip
        return self.names[pid, name]

    def slice(self, pid: int, track: str, name: str, start: int, length: int, text: str) -> None:
        self.events.append({
            "ph": "X", "pid": pid, "tid": self.thread(pid, track), "name": name,
            "ts": start / 1000, "dur": length / 1000, "args": {"what": text},
        })  # fmt: skip

    def instant(self, pid: int, track: str, name: str, at: int, text: str) -> None:
        self.events.append({
            "ph": "i", "s": "t", "pid": pid, "tid": self.thread(pid, track), "name": name,
            "ts": at / 1000, "args": {"what": text},
        })  # fmt: skip


def chrome(
    program: Program, result: Result, driver: Sequence[Traced], device: Sequence[Traced]
) -> dict[str, Any]:
    """The whole trace as a JSON object."""
    out = Chrome()
    for i, (o, r) in enumerate(zip(program.ops, result.ops, strict=True)):
        if r.start_ns and r.status != RES_SKIPPED:
            name = f"{i + 1} {ops.of(o).name}"
            end = words.status(o, r)
            out.slice(1, f"process {o.proc}, thread {o.actor}", name, r.start_ns, r.time_ns,
                      words.sentence(o) + (f": {end}" if end else ""))  # fmt: skip
    for e in driver:
        out.instant(2, e.where, e.name.removeprefix("hmm_gpu_"), e.time_ns, e.args)
    alignment = align(driver, device)
    if alignment is not None:
        _device(out, device, alignment.offset)
    return {
        "traceEvents": out.events,
        "displayTimeUnit": "ns",
        "otherData": {
            "axis": "guest CLOCK_MONOTONIC",
            "device_clock": _said(alignment, bool(device)),
        },
    }


def _said(alignment: Alignment | None, any_events: bool) -> str:
    if alignment is None:
        return "no common event: device events left out" if any_events else "no device events"
    if alignment.error is None:
        return "bounded from one side only: error unknown"
    return f"error at most {alignment.error / 1000:.0f} us"


def _device(out: Chrome, device: Sequence[Traced], offset: int) -> None:
    """Launches and copies are slices, the rest instants."""
    open_: dict[tuple[str, int | None], Traced] = {}
    for e in device:
        name = e.name.removeprefix("hmm_gpu_")
        ctx = e.value("ctx")
        if name in ("launch", "copy"):
            open_[name, ctx] = e
        elif name in ("launch_done", "copy_done"):
            begin = open_.pop((name.removesuffix("_done"), ctx), None)
            if begin is not None:
                out.slice(3, f"context {ctx}", name.removesuffix("_done"),
                          begin.time_ns + offset, e.time_ns - begin.time_ns,
                          f"{begin.args}; {e.args}")  # fmt: skip
        else:
            out.instant(3, name, name, e.time_ns + offset, e.args)
    for (name, ctx), e in open_.items():
        out.instant(3, f"context {ctx}", f"{name} (not ended)", e.time_ns + offset, e.args)


def write(path: Path, trace: Mapping[str, Any]) -> None:
    """Raises OSError."""
    path.write_text(json.dumps(trace) + "\n")
