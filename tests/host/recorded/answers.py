# SPDX-License-Identifier: GPL-2.0-or-later
"""Recorded answers of machines, and what the oracles say of them: README.md beside this file.

A file is xz over records, each two parts with their length before them (4 bytes, little-endian):
what is known of the answer as JSON, and the answer as the agent sent it, its times set to zero
(no oracle reads them, and they are what does not compress).
"""

from __future__ import annotations

import hashlib
import json
import lzma
import struct
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import recording

from hmmbench.example.judge import judge
from hmmbench.example.target import Execution
from hmmbench.guest.program import Program, Result
from hmmbench.oracle.violation import Violation

#: One file for each kernel.
FILES = {name: recording.HERE / f"answers-{name}.xz" for name in ("lts", "latest")}

SOUND = "sound"

_LENGTH = struct.Struct("<I")


@dataclass
class Verdict:
    """What `judge` says, in words of this file: oracle, message by hash, operation."""

    violations: list[tuple[str, str, int]] = field(default_factory=list)
    operations: int = 0
    gpu_accesses: int = 0
    undecided: int = 0
    tainted: bool = False


@dataclass
class Answer:
    """One execution.

    number  -- of the recorded program
    driver  -- the mutant, or SOUND
    said    -- what the machine itself reported: oracle, message, operation
    tainted -- and whether it was used up by that
    """

    number: int
    driver: str
    said: list[tuple[str, str, int]]
    tainted: bool
    verdict: Verdict
    result: bytes = b""

    @property
    def program(self) -> Program:
        return recording.generate(self.number)

    def judged(self) -> Verdict:
        """The verdict of the code as it is."""
        program = self.program
        outcome = judge(
            Execution(
                program, Result.decode(self.result, program),
                [Violation(oracle, message, op) for oracle, message, op in self.said],
                self.tainted,
            )
        )  # fmt: skip
        return Verdict(
            [(v.oracle, short(v.message), v.op) for v in outcome.violations],
            outcome.operations, outcome.gpu_accesses, outcome.undecided, outcome.tainted,
        )  # fmt: skip


def short(message: str) -> str:
    return hashlib.sha256(message.encode()).hexdigest()[:16]


def of(number: int, driver: str, done: Execution) -> Answer | None:
    """The record of an execution; None if the machine gave no answer."""
    if done.result is None:
        return None
    result = done.result
    result.elapsed_ns = 0
    for one in result.ops:
        one.time_ns = one.start_ns = 0
    said = [(v.oracle, v.message, v.op) for v in done.violations]
    answer = Answer(number, driver, said, done.tainted, Verdict(), result.encode())
    answer.verdict = answer.judged()
    return answer


def write(path: Path, answers: Iterable[Answer]) -> None:
    parts = []
    for one in sorted(answers, key=lambda a: (a.driver, a.number)):
        known = asdict(one)
        del known["result"]
        for part in (json.dumps(known, sort_keys=True).encode(), one.result):
            parts += [_LENGTH.pack(len(part)), part]
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0}]
    path.write_bytes(lzma.compress(b"".join(parts), filters=filters))


def read(path: Path) -> Iterator[Answer]:
    data, at = lzma.decompress(path.read_bytes()), 0

    def part() -> bytes:
        nonlocal at
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + length
        return data[at - length : at]

    while at < len(data):
        yield _answer(json.loads(part()), part())


def _answer(known: dict[str, Any], result: bytes) -> Answer:
    known["said"] = [(o, m, op) for o, m, op in known["said"]]
    verdict = known["verdict"]
    verdict["violations"] = [(o, m, op) for o, m, op in verdict["violations"]]
    return Answer(**{**known, "verdict": Verdict(**verdict), "result": result})
