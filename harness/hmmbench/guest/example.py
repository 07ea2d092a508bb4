# SPDX-License-Identifier: GPL-2.0-or-later
"""EXAMPLE: a program and all that surrounds it, as one request to the guest's agent.

The numbers mirror ``guest-driver/user/agent/protocol.h``; tests/host/guest/test_protocol.py
compares them.
On an exact machine, in steps:

    vm.post(EXAMPLE, Example(program, stand=True).encode())
    if vm.go() == STAND_ENDED:    # all has ended, nobody has gone: look at the device
        vm.go()                   # settled
    kind, _, body = vm.take()
    answer = Answer.decode(answered(EXAMPLE, kind, body), program)

A request that is refused is answered at once, without the first stand.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hmmbench.guest.program import Program, Result

EF_DELAYS = 1
EF_VRAM = 2
EF_POINTS = 4
EF_STAND = 8
EF_WATCH = 16

_EXAMPLE = struct.Struct("<4I2Q")
_ANSWER = struct.Struct("<4I")

#: What HELLO must answer, beside those of hmmbench.guest.program
STRUCT_SIZES = {"example": _EXAMPLE.size, "example_result": _ANSWER.size}


@dataclass(frozen=True, slots=True)
class Example:
    """One request.

    delays -- text for the driver's file `delays` ("clear" and lines); None: they stay as they are
    vram   -- limit in pages for the driver's file `vram_limit`; None: it stays as it is
    points -- answer what the driver counted at its delay points
    stand  -- the machine stands when all operations have ended, before anybody is let go
    watch_ms -- how often the driver looks again by itself (0: never); None: it stays as it is
    """

    program: Program
    delays: str | None = None
    vram: int | None = None
    points: bool = False
    stand: bool = False
    watch_ms: int | None = None

    def encode(self) -> bytes:
        """The payload of HB_MSG_EXAMPLE. Raises ValueError as Program.encode does."""
        program = self.program.encode()
        delays = b"" if self.delays is None else self.delays.encode()
        flags = (
            (EF_DELAYS if self.delays is not None else 0)
            | (EF_VRAM if self.vram is not None else 0)
            | (EF_POINTS if self.points else 0)
            | (EF_STAND if self.stand else 0)
            | (EF_WATCH if self.watch_ms is not None else 0)
        )
        head = _EXAMPLE.pack(
            flags, len(delays), len(program), self.watch_ms or 0, self.vram or 0, 0
        )
        return head + delays + program

    @staticmethod
    def decode(data: bytes) -> Example:
        """The inverse of `encode` (for executors written in Python). Raises ValueError."""
        if len(data) < _EXAMPLE.size:
            raise ValueError("example: short header")
        flags, delays_len, program_len, watch_ms, vram, _ = _EXAMPLE.unpack_from(data)
        at = _EXAMPLE.size + delays_len
        if len(data) != at + program_len:
            raise ValueError("example: length does not match its header")
        return Example(
            Program.decode(data[at:]),
            data[_EXAMPLE.size : at].decode() if flags & EF_DELAYS else None,
            vram if flags & EF_VRAM else None,
            bool(flags & EF_POINTS),
            bool(flags & EF_STAND),
            watch_ms if flags & EF_WATCH else None,
        )


@dataclass(slots=True)
class Answer:
    """What came back of an example.

    counters -- the driver's, all of the text, when everything had settled; "" without driver
    points   -- the driver's file `delays` then, if asked for (hmmbench.example.delays.parse)
    mark     -- number of the mark behind all that the kernel printed (Agent.printed); 0: nothing
    """

    result: Result
    counters: str = ""
    points: str = ""
    mark: int = 0

    def encode(self) -> bytes:
        """The wire form (for executors written in Python)."""
        parts = [self.result.encode(), self.counters.encode(), self.points.encode()]
        return b"".join([_ANSWER.pack(*map(len, parts), self.mark), *parts])

    @staticmethod
    def decode(data: bytes, program: Program) -> Answer:
        """The answer to an example with `program`.

        Raises ValueError when the answer is malformed or of another program.
        """
        if len(data) < _ANSWER.size:
            raise ValueError("example's answer: short header")
        *lengths, mark = _ANSWER.unpack_from(data)
        if len(data) != _ANSWER.size + sum(lengths):
            raise ValueError("example's answer: length does not match its header")
        parts, at = [], _ANSWER.size
        for length in lengths:
            parts.append(data[at : at + length])
            at += length
        result, counters, points = parts
        return Answer(
            Result.decode(result, program),
            counters.decode("utf-8", "replace"),
            points.decode("utf-8", "replace"),
            mark,
        )
