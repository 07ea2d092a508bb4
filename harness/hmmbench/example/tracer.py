# SPDX-License-Identifier: GPL-2.0-or-later
"""What driver and device trace while a program runs, as events on their own clocks.

The driver's come from tracefs (clock "mono": the guest's CLOCK_MONOTONIC), the device's from QEMU's
log, with the host's wall clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.example.event import TimedEvent
from hmmbench.vm.machine import Machine

#: Device events of a trace: not the registers, of which there are thousands.
DEVICE_EVENTS = tuple(
    f"hmm_gpu_{name}" for name in (
        "fault", "fault_dropped", "replay", "cancel", "inval_start", "inval_done", "launch",
        "launch_done", "copy", "copy_done", "fence", "preempt", "tlb_fill", "guest_error", "irq",
        "inject",
    )
)  # fmt: skip

_TRACEFS = "/sys/kernel/tracing"
_START = (
    f"cd {_TRACEFS} && echo mono > trace_clock && echo 1 > events/hmm_gpu/enable && "
    "echo > trace && echo 1 > tracing_on"
)

_FTRACE = re.compile(
    r"\s*(?P<task>.+)-(?P<pid>\d+)\s+\[(?P<cpu>\d+)\]\s+\S+\s+(?P<s>\d+)\.(?P<us>\d{6}): "
    r"(?P<name>hmm_gpu_\w+): (?P<args>.*)"
)
_QEMU = re.compile(r"\d+@(?P<s>\d+)\.(?P<us>\d{6}):(?P<name>hmm_gpu_\w+) (?P<args>.*)")
#: A number, as both write it.
NUMBER = r"(0x[0-9a-f]+|\d+)"


@dataclass(frozen=True)
class Traced:
    """One event of driver or device.  `time_ns` in the clock of its source."""

    time_ns: int
    name: str
    args: str
    where: str = ""

    def value(self, name: str) -> int | None:
        """A number among the arguments: "asid=3" or "asid 3"."""
        match = re.search(rf"\b{name}[= ]{NUMBER}", self.args)
        return int(match[1], 0) if match else None


def parse_ftrace(text: str) -> list[Traced]:
    """The driver's events in the text of tracefs; other lines are passed over."""
    return [
        Traced(_time(m), m["name"], m["args"], f"{m['task'].strip()}-{m['pid']}")
        for m in map(_FTRACE.match, text.splitlines())
        if m
    ]


def parse_qemu(text: str) -> list[Traced]:
    """The device's events in QEMU's log."""
    return [
        Traced(_time(m), m["name"], m["args"]) for m in map(_QEMU.match, text.splitlines()) if m
    ]


def _time(m: re.Match[str]) -> int:
    return int(m["s"]) * 10**9 + int(m["us"]) * 1000


class Tracer:
    """Tracing of one machine around executions.  Errors of tracefs are EnvironmentFailure."""

    def __init__(self, vm: Machine) -> None:
        self._vm = vm
        self._from = 0

    def start(self) -> None:
        """Forget what was traced, and trace from here on."""
        log = self._vm.folder / "trace.log"
        self._from = log.stat().st_size if log.exists() else 0
        done = self._vm.agent.execute(_START, 20)
        if done.status:
            raise EnvironmentFailure(f"the guest cannot trace: {done.output.strip()!r}")

    def driver(self) -> list[Traced]:
        """What the driver traced since `start`."""
        text = self._vm.agent.read_file(f"{_TRACEFS}/trace")
        return parse_ftrace(text.decode("utf-8", "replace"))

    def device(self) -> list[Traced]:
        """What the device traced since `start`, if QEMU was started with tracing."""
        log = self._vm.folder / "trace.log"
        if not log.exists():
            return []
        with log.open("rb") as file:
            file.seek(self._from)
            return parse_qemu(file.read().decode("utf-8", "replace"))


def page_events(driver: Sequence[Traced]) -> list[TimedEvent]:
    """For the page's timeline."""
    return [
        TimedEvent(e.time_ns, "driver", f"{e.name.removeprefix('hmm_gpu_')} {e.args}")
        for e in driver
    ]
