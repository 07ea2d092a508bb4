# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs are run on.

`Target` is the whole interface between the campaign (or replay, or shrinking) and the machine:
tests put a machine written in Python there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hmmbench.example.delays import Point
from hmmbench.example.event import TimedEvent
from hmmbench.example.recipe import Environment
from hmmbench.example.seen import Seen
from hmmbench.guest.program import Program, Result
from hmmbench.oracle.violation import Violation


@dataclass
class Execution:
    """What came back of one program; `judge` makes an Outcome of it.

    result      -- None: the machine did not answer
    violations  -- what the machine itself said (splats, death, hang)
    tainted     -- the machine may not be used for another example
    points      -- the driver's delay points, if any was set
    met         -- of an exact machine's schedule: a CPU was held at the first address while
                   another passed the second
    seen        -- of an exact machine, if that was asked for
    """

    program: Program
    result: Result | None = None
    violations: list[Violation] = field(default_factory=list)
    tainted: bool = False
    points: list[Point] = field(default_factory=list)
    met: frozenset[tuple[int, int]] = frozenset()
    seen: Seen | None = None
    #: rules of the device that were in force
    inject: tuple[str, ...] = ()
    #: oracles that did not look
    unseen: frozenset[str] = frozenset()


class Target(Protocol):
    """Runs one program in one environment.

    `execute` is the machine's part and may be called in another thread, one call at a time, while
    the oracles judge the execution before.
    """

    def execute(self, program: Program, environment: Environment) -> Execution: ...

    def renew(self) -> None:
        """Continue in a fresh copy of the machine."""

    def end(self) -> None:
        """Nothing more is wanted of this target, whatever it does in another thread: `execute`
        ends soon, by an error perhaps, and no machine is started after it."""

    def keep(self, folder: Path) -> None:
        """Save the evidence of the latest execution."""

    def watch(self) -> None:
        """Trace the driver from here on."""

    def watched(self) -> list[TimedEvent]:
        """What the driver traced since `watch`; empty where it cannot be had."""
