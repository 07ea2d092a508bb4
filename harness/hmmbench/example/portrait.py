# SPDX-License-Identifier: GPL-2.0-or-later
"""A failing execution as people get to see it: what campaign/evidence.py gathers of one, and the
report draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hmmbench.device.events import Happened
from hmmbench.example.event import TimedEvent
from hmmbench.example.moment import Clock, Moment
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import Program, Result
from hmmbench.oracle.violation import Violation
from hmmbench.symbols.named import Place


@dataclass(frozen=True)
class PageEntry:
    """Both page tables at one page, in words."""

    where: str
    cpu: str
    gpu: str


class Naming(Protocol):
    """As symbols.named.Names."""

    def __call__(self, addresses: Iterable[int], source: bool = True) -> Mapping[int, Place]: ...


@dataclass(frozen=True)
class Decided:
    """What an exact machine did in an execution, by its own time (ns).

    log      -- decisions of its scheduler (decisions.ENTRY)
    happened -- in its device, whose `engines` have these names
    clock    -- brings the guest's times to its own; None: the guest did not come so far
    moment   -- of the violation, if it has one
    names    -- of places where CPUs stood
    """

    log: np.ndarray[Any, Any]
    happened: Sequence[Happened]
    engines: Sequence[str]
    clock: Clock | None
    moment: Moment | None
    names: Naming


@dataclass
class Portrait:
    """A failing execution: the recipe's program, its result, what was violated.

    `details` is for what the device recorded of the violation (lines of text), when it did;
    `when` is how the page tables' moment is called.
    """

    program: Program
    result: Result | None
    violation: Violation
    environment: Environment = field(default_factory=Environment)
    pages: list[PageEntry] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    #: what the driver traced meanwhile
    events: list[TimedEvent] = field(default_factory=list)
    when: str = "once the failing execution had come to its end"
    #: of an exact machine
    decided: Decided | None = None
