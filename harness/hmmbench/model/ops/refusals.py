# SPDX-License-Identifier: GPL-2.0-or-later
"""Accesses that nobody can serve, in memory that the operation maps itself, beside one that may be.

The kernel says of some that they fail only when it is asked to make the page: behind the end of a
file, of large pages too.  A driver that takes that for a moment's trouble asks for ever, which the
progress oracle sees.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from hmmbench.guest.program import Op, OpResult
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import Field
from hmmbench.model.ops.trials import Trial, records
from hmmbench.model.space import Process, Space


class Word(IntEnum):
    """Where: enum refusal_word of agent/ops/refusals.c."""

    HUGETLB_END = 0
    PROTECTED_HUGE = 1
    FILE_END = 2


_WORDS: Final = {word.value: word.name.lower().replace("_", "-") for word in Word}

_LOOK = struct.Struct("<iIQQ")


@dataclass(frozen=True)
class Look:
    """struct look of agent/ops/refusals.c."""

    status: int
    refused: int
    at: int
    wanted: int

    def bad(self) -> str:
        """What is wrong with it; "": nothing."""
        if not self.refused:
            if self.status == 0:
                return ""
            return (
                "wrongly refused: a job that wrote what it may ended with error"
                f" {-self.status} at {self.at:#x}"
            )
        if self.status == 0:
            return "not stopped: a job wrote what nobody may"
        if self.status != -errno.EFAULT or self.at != self.wanted:
            return (
                f"wrong fault: a job that wrote what nobody may ended with error {-self.status} at"
                f" {self.at:#x}, not with a fault at {self.wanted:#x}"
            )
        return ""


class Refusal(Trial):
    number, name = 98, "refusal"
    weight = 2
    since = 5
    rows = ("refusal",)
    oracle = "values"
    fields = (Field("where", "arg", _WORDS),)

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return o.arg in _WORDS

    def seen(self, r: OpResult) -> Sequence[Look]:
        return [Look(*words) for words in records(_LOOK, r)]

    def sentence(self, o: Op, at: str) -> str:
        where = {
            Word.HUGETLB_END: "behind the end of a file of 2 MiB pages",
            Word.PROTECTED_HUGE: "in a 2 MiB page that may only be read",
            Word.FILE_END: "behind the end of a file",
        }[Word(o.arg)]
        return f"has a job write {where}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.op("refusal", proc, arg=g.rng.choice(list(_WORDS)))]


OPERATIONS = (Refusal(),)
