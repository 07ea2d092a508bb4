# SPDX-License-Identifier: GPL-2.0-or-later
"""What is recorded, and how it is read: README.md beside this file.

All that the recordings need of the bench is imported here and in record.py, so that moving a
module of the bench changes these lines and no recording.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from hmmbench.campaign.generate import program, size_of
from hmmbench.guest.program import Program

HERE = Path(__file__).parent

#: The versions of the grammar of which programs are recorded, and the one of the answers' own.
GRAMMARS = (1, 2, 3, 4, 5)
GRAMMAR = 1
#: Recorded programs of each: the numbers 0 to COUNT - 1.
COUNT = 10_000
#: Bytes kept of a program's hash: 10,000 of them meet by chance once in 10^11 recordings.
KEPT = 8
#: Steps of a program.  Not the generator's own limits: these belong to the recording.
FEWEST, MOST = 40, 100
#: A test compares one program (or answer) of so many, unless it is told to compare all.
SHARDS = 10
ALL = "HMMBENCH_FULL"


def block(number: int) -> bytes:
    """The bytes that program `number` is made from, the same wherever SHAKE-256 is.

    Not Hypothesis's, as a campaign's are: those change with its version.
    """
    data = hashlib.shake_256(b"hmmbench program %d" % number).digest(2 + size_of(MOST))
    steps = FEWEST + int.from_bytes(data[:2], "little") % (MOST - FEWEST + 1)
    return data[2 : 2 + size_of(steps)]


def programs(grammar: int) -> Path:
    """Where those of a version are."""
    return HERE / f"programs-{grammar}.bin"


def generate(number: int, grammar: int = GRAMMAR) -> Program:
    """The program of that number, as the bench makes it now."""
    return program(block(number), number, grammar)


def digest(number: int, grammar: int = GRAMMAR) -> bytes:
    """What is kept of a program: the first bytes of its message's SHA-256."""
    return hashlib.sha256(generate(number, grammar).encode()).digest()[:KEPT]


def differing(recorded: bytes, numbers: Iterable[int], grammar: int = GRAMMAR) -> list[int]:
    """The numbers whose programs are no longer the recorded ones."""
    return [n for n in numbers if digest(n, grammar) != recorded[n * KEPT : (n + 1) * KEPT]]


def shard(count: int, sources: Iterable[Path]) -> Iterator[int]:
    """The numbers to compare now, of 0 to count - 1.

    All of them with `test --full`.  Else every tenth, beginning at one that changes with
    `sources`: each change of the code is held against another tenth, and a failure repeats.
    """
    if os.environ.get(ALL):
        return iter(range(count))
    sha = hashlib.sha256()
    for path in sorted(sources):
        sha.update(path.read_bytes())
    return iter(range(sha.digest()[0] % SHARDS, count, SHARDS))
