# SPDX-License-Identifier: GPL-2.0-or-later
"""Buffers: memory that a program asks for in VRAM, and that stays there (docs/libhmmgpu.md).

No address of a program is in one, and who has one is alone with it, so the guest knows what it has
to find: fresh ones are zero, what was written stays until it is written again, whatever else
happens to the device's memory, behind the last page there is nothing, and after the end neither.
Only our driver offers them; another's agent says that it has none.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from hmmbench.guest.program import PAGE, Op, OpResult
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import Field
from hmmbench.model.ops.trials import Trial, records
from hmmbench.model.space import Process, Space


class Word(IntEnum):
    """What is done: enum buffer_word of agent/ops/buffers.c.

    MAKE -- and jobs write right behind it, and behind the others
    FREE -- the newest is given back while jobs write it, and another writes it afterwards
    """

    MAKE = 0
    LOOK = 1
    FREE = 2


_WORDS: Final = {word.value: word.name.lower() for word in Word}

#: What is drawn.
_DRAWN: Final = (*(Word.MAKE,) * 3, *(Word.LOOK,) * 2, Word.FREE)

#: Pages of one, at most (agent/ops/buffers.c).
MAX_PAGES = 1280

#: Sizes in pages: few, and those that end where 2 MiB do, or not.
_FEW: Final = (1, 2, 3, 16, 33, 100)
_MANY: Final = (511, 512, 513, 700, 1024, 1100)

_LOOK = struct.Struct("<IIIiQQQ")


class Step(IntEnum):
    """Of struct look."""

    ZERO = 0
    FILLED = 1
    KEPT = 2
    PAST = 3
    UNDER = 4
    FREED = 5


@dataclass(frozen=True)
class Look:
    """struct look of agent/ops/buffers.c; `at` in bytes from the beginning."""

    step: int
    pages: int
    wrong: int
    status: int
    at: int
    got: int
    wanted: int

    def bad(self) -> str:
        """What is wrong with it; "": nothing."""
        if self.step in (Step.PAST, Step.FREED):
            return self._refused()
        if self.step == Step.UNDER:
            if self.status in (0, -errno.EFAULT):
                return ""
            return f"wrong fault: a job in it ended with error {-self.status} as it was given back"
        if not self.wrong:
            return ""
        what = {
            Step.ZERO: "a new one is not zero",
            Step.FILLED: "not what was just written",
        }.get(Step(self.step), "not what was in it")
        if self.at >= self.pages * PAGE:
            return f"{what}: the sum over {self.pages} pages is {self.got:#x}, not {self.wanted:#x}"
        return (
            f"{what}: at {self.at:#x} of {self.pages} pages there is {self.got:#x}, not"
            f" {self.wanted:#x} ({self.wrong} words)"
        )

    def _refused(self) -> str:
        where = "behind its end" if self.step == Step.PAST else "after it was given back"
        if self.status == 0:
            return f"not stopped: a job wrote {where}"
        if self.status != -errno.EFAULT:
            return f"wrong fault: a job that wrote {where} ended with error {-self.status}"
        if self.at // PAGE != self.wanted // PAGE:
            return f"wrong fault: a job that wrote {where} is told of one at {self.at:#x} of it"
        return ""


class Buffer(Trial):
    number, name = 96, "buffer"
    weight = 7
    since = 5
    rows = ("buffer",)
    fields = (Field("word", "arg", _WORDS), Field("len", "len", hex=True))

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.arg not in _WORDS or o.len % PAGE or o.len > MAX_PAGES * PAGE:
            return False
        return bool(o.len) == (o.arg == Word.MAKE)

    def seen(self, r: OpResult) -> Sequence[Look]:
        return [Look(*words) for words in records(_LOOK, r)]

    def walks(self, o: Op) -> int:
        # Some looks at all of it, or at two of them.
        return 4 * (o.len // PAGE if o.arg == Word.MAKE else MAX_PAGES)

    def sentence(self, o: Op, at: str) -> str:
        return {
            Word.MAKE: f"makes a buffer of {o.len // PAGE} pages in VRAM",
            Word.LOOK: "looks at its buffers in VRAM, and writes them anew",
            Word.FREE: "gives a buffer in VRAM back while jobs write it",
        }[Word(o.arg)]

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        word = rng.choice(_DRAWN)
        size = rng.choice(_MANY if rng.random() < 0.5 else _FEW) * PAGE
        if word == Word.FREE:
            # Mostly there is one then.
            g.first([g.op("buffer", proc, arg=int(Word.MAKE), len=size)])
        return [g.op("buffer", proc, arg=int(word), len=size if word == Word.MAKE else 0)]


OPERATIONS = (Buffer(),)
