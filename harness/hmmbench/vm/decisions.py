# SPDX-License-Identifier: GPL-2.0-or-later
"""What an exact machine decided: its log, and where two of them part.

An entry is written by qemu-device/qemu/hmm-exact-log.c (struct HmmExactEntry).
"""

from __future__ import annotations

import enum
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

#: struct HmmExactEntry, 40 bytes.
ENTRY = np.dtype(
    [("icount", "<u8"), ("ns", "<u8"), ("pc", "<u8"), ("arg", "<u8"), ("what", "u1"),
     ("who", "u1"), ("phase", "<u2"), ("passage", "<u4")]
)  # fmt: skip
#: What of it is an execution's, as in the machine's own hash.
_DECIDED = ["icount", "ns", "pc", "arg", "what", "who"]


class What(enum.IntEnum):
    """HmmExactWhat."""

    OVER = 0
    HALTED = 1
    PAUSED = 2
    AT_POINT = 3
    STANDS = 4
    HELD = 5
    SKIPPED = 6
    SPUN = 7
    ENGINE = 8
    IRQ = 9


_TEXT: dict[int, str] = {
    What.OVER: "CPU {who} runs {arg} instructions, to {pc:#x}: the slice is over",
    What.HALTED: "CPU {who} runs {arg} instructions, to {pc:#x}: it halts",
    What.PAUSED: "CPU {who} runs {arg} instructions, to {pc:#x}: it pauses",
    What.AT_POINT: "CPU {who} runs {arg} instructions, to {pc:#x}: a point where it is held",
    What.STANDS: "the machine stands ({arg})",
    What.HELD: "CPU {who} is held at {pc:#x} for {arg} ns",
    What.SKIPPED: "no CPU can run: {arg} ns are skipped",
    What.SPUN: "all CPUs only wait: {arg} ns are skipped",
    What.ENGINE: "engine {who} steps {arg}",
    What.IRQ: "interrupts {who:#x} arrive",
}


@dataclass(frozen=True)
class Decision:
    """One entry.  `icount`: instructions of all CPUs until then; `ns`: virtual time.

    `what`: a What, or a number that only another QEMU or a spoiled file has; `phase`, `passage`:
    how often anybody had come to `pc` in that phase of the program, where it was counted (0: not).
    """

    icount: int
    ns: int
    pc: int
    arg: int
    what: int
    who: int
    phase: int = 0
    passage: int = 0

    def __str__(self) -> str:
        text = _TEXT.get(self.what, "unknown entry {what} of {who}").format(
            who=self.who, arg=self.arg, pc=self.pc, what=self.what
        )
        return f"{text} (instruction {self.icount}, {self.ns} ns)"


#: Of a recipe, in its folder: what was decided when it failed.
KEPT = "decisions.log.gz"


def write(path: Path, log: np.ndarray) -> None:
    """For read(), compressed; the same bytes for the same log."""
    path.write_bytes(gzip.compress(log.tobytes(), mtime=0))


def read(path: Path) -> np.ndarray:
    """A log as an array of ENTRY, as the machine or write() left it.

    Raises ValueError if it is none, OSError if it cannot be read.
    """
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is no log of decisions: {error}") from error
    if len(data) % ENTRY.itemsize:
        raise ValueError(f"{path} is no log of decisions: {len(data)} bytes")
    return np.frombuffer(data, ENTRY)


def decision(entry: np.void) -> Decision:
    return Decision(
        int(entry["icount"]), int(entry["ns"]), int(entry["pc"]), int(entry["arg"]),
        int(entry["what"]), int(entry["who"]), int(entry["phase"]),
        int(entry["passage"]),
    )  # fmt: skip


@dataclass(frozen=True)
class Record:
    """All that a machine decided, and its own hash of that."""

    hash: int
    log: np.ndarray


@dataclass(frozen=True)
class Parting:
    """The first entry in which two logs differ, and what each has there (None: it has ended)."""

    number: int
    first: Decision | None
    second: Decision | None

    def __str__(self) -> str:
        return (
            f"decision {self.number}: {self.first or 'nothing more'}"
            f" / {self.second or 'nothing more'}"
        )


def part(first: np.ndarray, second: np.ndarray) -> Parting | None:
    """Where two logs part; None: they are equal, whatever was counted in either."""
    common = min(len(first), len(second))
    differs = np.flatnonzero(first[_DECIDED][:common] != second[_DECIDED][:common])
    if len(differs):
        at = int(differs[0])
    elif len(first) != len(second):
        at = common
    else:
        return None
    return Parting(
        at,
        decision(first[at]) if at < len(first) else None,
        decision(second[at]) if at < len(second) else None,
    )


#: Hashes of a machine's pages, by the block's name: hmm-exact-memory.c.
Pages = dict[str, np.ndarray]

_NAME = 64


def pages(path: Path) -> Pages:
    """The hashes of all pages, as the machine wrote them; ValueError if the file is cut short."""
    data = path.read_bytes()
    out: Pages = {}
    at = 0
    while at < len(data):
        name = data[at : at + _NAME].rstrip(b"\0").decode(errors="replace")
        count = int.from_bytes(data[at + _NAME : at + _NAME + 8], "little")
        at += _NAME + 8
        if at + 8 * count > len(data):
            raise ValueError(f"{path} is cut short: {len(data)} bytes")
        out[name] = np.frombuffer(data, "<u8", count, at)
        at += 8 * count
    return out


def differing(first: Pages, second: Pages) -> list[str]:
    """Names of pages that differ: "pc.ram page 0x1234"."""
    out = []
    for (name, a), (other, b) in zip_longest(first.items(), second.items(), fillvalue=("", None)):
        if name != other or a is None or b is None or len(a) != len(b):
            out.append(f"{name or other}: not in both")
            continue
        out += [f"{name} page {page:#x}" for page in np.flatnonzero(a != b).tolist()]
    return out


def names(addresses: Sequence[int]) -> str:
    """Addresses as the machine's properties take them."""
    return ",".join(f"{address:x}" for address in addresses)
