# SPDX-License-Identifier: GPL-2.0-or-later
"""Queues of jobs: what comes after what, and what is left when one goes.

Tried with queues and memory that the operation itself makes.  Jobs of one queue run in their order;
a job that waits for a syncobj runs when the job is over that is to tell it, however that ended; a
queue that is destroyed ends its jobs, and whoever asks for it then, or in that moment, is told so.
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
    """What is tried: enum queue_word of agent/ops/queues.c.

    CHAIN -- two queues, by syncobjs
    ENDS  -- what another queue's job waits for never ends, and its queue is destroyed
    GONE  -- one thread destroys it while another submits and waits
    FULL  -- many jobs wait, some of which fail, and more of another queue wait for the last of
             them than there is room for, until a signal
    """

    ORDER = 0
    CHAIN = 1
    ENDS = 2
    GONE = 3
    FULL = 4


_WORDS: Final = {word.value: word.name.lower() for word in Word}

#: Of a full queue, whose results are looked at.
JOBS = 90

#: Pages of each piece of memory, at most.
MAX_PAGES = 16

_LOOK = struct.Struct("<IiIIQQ")


class Step(IntEnum):
    """Of struct look: a comparison, and the answers of calls."""

    CONTENT = 0
    TOLD = 1
    ENDED = 2
    ASKED = 3
    WAITED = 4
    DESTROYED = 5
    AGAIN = 6
    RESULT = 7
    EARLY = 8


_GOES = frozenset({0, -errno.ENOENT, -errno.ECANCELED})

#: What is answered, and by whom.
_ANSWERS: Final = {
    Step.TOLD: ("the syncobj of a job that is over", frozenset({0})),
    Step.EARLY: ("who waits for a job that has not ended", frozenset({-errno.ETIME})),
    Step.ENDED: ("a job that waited for another queue's", frozenset({0})),
    Step.ASKED: ("who submits to a queue that goes", _GOES),
    Step.WAITED: ("who waits for a job of a queue that goes", _GOES),
    Step.DESTROYED: ("who destroys a queue", frozenset({0})),
    Step.AGAIN: ("who destroys it once more", frozenset({-errno.ENOENT})),
}


@dataclass(frozen=True)
class Look:
    """struct look of agent/ops/queues.c; `at`: a word."""

    step: int
    status: int
    wrong: int
    at: int
    got: int
    wanted: int

    def bad(self) -> str:
        """What is wrong with it; "": nothing."""
        if self.step == Step.CONTENT:
            if not self.wrong:
                return ""
            return (
                f"out of order: word {self.at} is {self.got:#x} behind a job that has made it"
                f" {self.wanted:#x} ({self.wrong} words)"
            )
        if self.step == Step.RESULT:
            asked = f"a fault at {self.wanted:#x}" if self.wanted else "success"
            return (
                f"another's result: job {self.at} of {JOBS} ended with error {-self.status} at"
                f" {self.got:#x}, expected {asked}"
            )
        who, right = _ANSWERS[Step(self.step)]
        if self.status in right:
            return ""
        wanted = " or ".join(str(-status) for status in sorted(right, reverse=True))
        return f"wrong answer: {who} gets error {-self.status}, not {wanted}"


class Queue(Trial):
    number, name = 97, "queue"
    weight = 3
    since = 5
    rows = ("queues",)
    fields = (Field("word", "arg", _WORDS), Field("len", "len", hex=True))

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return o.arg in _WORDS and o.len % PAGE == 0 and 0 < o.len <= MAX_PAGES * PAGE

    def seen(self, r: OpResult) -> Sequence[Look]:
        return [Look(*words) for words in records(_LOOK, r)]

    def sentence(self, o: Op, at: str) -> str:
        return {
            Word.ORDER: "tries whether jobs of one queue run in their order",
            Word.CHAIN: "tries whether jobs of two queues run in the order of their syncobjs",
            Word.ENDS: "destroys a queue whose job another queue waits for",
            Word.GONE: "destroys queues that another thread uses",
            Word.FULL: "fills queues with jobs, some of which fail",
        }[Word(o.arg)]

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        size = g.rng.choice((1, 2, 5, MAX_PAGES))
        often = (Word.CHAIN, Word.ENDS, Word.GONE, Word.GONE)
        word = g.rng.choice((Word.ORDER, Word.FULL, *often, *often))
        return [g.op("queue", proc, arg=int(word), len=size * PAGE)]


OPERATIONS = (Queue(),)
