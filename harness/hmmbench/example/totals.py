# SPDX-License-Identifier: GPL-2.0-or-later
"""What driver and device counted, added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from hmmbench.oracle.violation import Violation


@dataclass
class Totals:
    """Counters over all machines of a target."""

    faults: int = 0
    replays: int = 0
    to_device: int = 0
    to_system: int = 0
    machines: int = 0
    lost: int = 0
    #: machines that were scanned at their end for memory that nobody knows (kmemleak)
    scans: int = 0
    #: and of which the kernel could not, though it has what it takes
    unscanned: int = 0
    #: what machines have died of in which nothing ran, or was left in one
    ends: list[Violation] = field(default_factory=list)
    #: every counter of driver and device ("dev_...")
    counts: Counter[str] = field(default_factory=Counter)
    audit_checks: int = 0
    audit_undecided: int = 0
    #: protocol check -> times that it came to a bound and did not look
    unlooked: Counter[str] = field(default_factory=Counter)
    #: what the bench reads of driver or device -> times that it was not there
    missing: Counter[str] = field(default_factory=Counter)
    #: executions of which the mirror audit was on and not ready
    unready: int = 0

    def __iadd__(self, other: Totals) -> Totals:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))
        return self
