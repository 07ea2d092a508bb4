# SPDX-License-Identifier: GPL-2.0-or-later
"""Events of an exact machine's device, with their virtual times: what it did, and who in it.

An entry is written by qemu-device/qemu/hmm-gpu-trace.c (struct HmmGpuKept).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: struct HmmGpuKept, 48 bytes.
ENTRY = np.dtype([("ns", "<u8"), ("arg", "<u8", 4), ("what", "<u4"), ("pad", "<u4")])


class Kind(enum.IntEnum):
    """HgTraceEvent of hmm_gpu_core.h."""

    MMIO_READ = 0
    MMIO_WRITE = 1
    FAULT = 2
    FAULT_DROPPED = 3
    REPLAY = 4
    CANCEL = 5
    INVAL_START = 6
    INVAL_DONE = 7
    LAUNCH = 8
    LAUNCH_DONE = 9
    COPY = 10
    COPY_DONE = 11
    FENCE = 12
    PREEMPT = 13
    TLB_FILL = 14
    GUEST_ERROR = 15
    IRQ = 16
    INJECT = 17
    RESET = 18
    VIOLATION = 19


#: With {low} and {high}, the halves of the first argument.
_TEXT: dict[int, str] = {
    Kind.FAULT: "fault at {1:#x}, address space {high}",
    Kind.FAULT_DROPPED: "fault at {1:#x} is dropped: the ring is full",
    Kind.REPLAY: "replay {1}",
    Kind.CANCEL: "accesses to {1:#x} are cancelled",
    Kind.INVAL_START: "invalidation {3} begins: {2:#x} bytes from {1:#x}, address space {high}",
    Kind.INVAL_DONE: "invalidations up to {0} are complete",
    Kind.LAUNCH: "context {0} launches a program",
    Kind.LAUNCH_DONE: "the program of context {0} has ended after {2} instructions",
    Kind.COPY: "context {0} copies {3:#x} bytes from {1:#x} to {2:#x}",
    Kind.COPY_DONE: "the copy of context {0} has ended",
    Kind.FENCE: "context {0} writes the fence {2}",
    Kind.PREEMPT: "context {1} comes in place of {0}",
    Kind.TLB_FILL: "{1:#x} comes into the TLB: entry {2:#x}",
    Kind.GUEST_ERROR: "the driver's mistake {0} at {1:#x}",
    Kind.IRQ: "interrupt {0} is raised",
    Kind.INJECT: "rule {0} is applied",
    Kind.RESET: "the device is reset",
    Kind.VIOLATION: "a check finds something at {1:#x}: GPU entry {2:#x}, the CPU's {3:#x}",
}

#: What a source is: engine->kind of types/engine.h; in that order the engines are numbered.
_FRONT_END = 2


@dataclass(frozen=True)
class Happened:
    """One event.  `engine`: its name where one engine did it, "interrupts" or "front end"."""

    ns: int
    kind: int
    engine: str
    text: str


def read(path: Path, engines: Sequence[str]) -> list[Happened]:
    """What a machine with these engines wrote.  Raises ValueError if the file is cut short."""
    data = path.read_bytes()
    if len(data) % ENTRY.itemsize:
        raise ValueError(f"{path} holds no events of the device: {len(data)} bytes")
    return [_happened(entry, engines) for entry in np.frombuffer(data, ENTRY)]


def _happened(entry: np.void, engines: Sequence[str]) -> Happened:
    kind, args = int(entry["what"]), [int(arg) for arg in entry["arg"]]
    text = _TEXT.get(kind, f"event {kind}").format(
        *args, low=args[0] & 0xFFFFFFFF, high=args[0] >> 32 & 0xFFFF
    )
    return Happened(int(entry["ns"]), kind, _engine(kind, args[0], engines), text)


def _engine(kind: int, first: int, engines: Sequence[str]) -> str:
    if kind == Kind.IRQ:
        return "interrupts"
    if kind in (Kind.FAULT, Kind.FAULT_DROPPED, Kind.TLB_FILL):
        unit, number = first & 0xFF, first >> 8 & 0xFF
        if unit < _FRONT_END:
            name = ("SM", "copy engine")[unit] + f" {number}"
            return name if name in engines else engines[-1]
    return engines[-1]
