# SPDX-License-Identifier: GPL-2.0-or-later
"""What a campaign did and found: it fills this, and the report draws it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hmmbench.example.portrait import Portrait
from hmmbench.model.cells import Coverage
from hmmbench.oracle.violation import Violation

#: Kinds of machine, in results.
EXACT, THREADS = "exact", "threads"


@dataclass
class Finding:
    """A violation and what was kept of it.

    shown_by   -- kinds of machine on which it was seen; the recipe is of the last
    looked_for -- executions in which exact machines looked for what threads had found
    """

    violation: Violation
    recipe: Path
    folder: Path
    operations: int
    rate: float
    portrait: Portrait | None = None
    shown_by: tuple[str, ...] = (THREADS,)
    looked_for: int = 0

    def to_json(self) -> dict[str, object]:
        return {
            "oracle": self.violation.oracle,
            "message": self.violation.message,
            "details": self.violation.details,
            "recipe": str(self.recipe),
            "operations": self.operations,
            "rate": round(self.rate, 3),
            "shown_by": list(self.shown_by),
            "looked_for": self.looked_for,
        }


@dataclass
class Tally:
    """What a campaign did."""

    examples: int = 0
    operations: int = 0
    gpu_accesses: int = 0
    undecided: int = 0
    promises: int = 0
    promises_tried: int = 0
    stores: int = 0
    stores_there: int = 0
    pages_to_read: int = 0
    pages_read: int = 0
    censuses: int = 0
    censuses_taken: int = 0
    accounts: int = 0
    accounts_taken: int = 0
    run_s: float = 0.0
    #: CPU seconds of bench and machines, in all of it
    cpu_s: float = 0.0
    #: seconds, CPU seconds and examples until the first violation (0: none); seconds for making
    #: them small
    found_s: float = 0.0
    found_cpu_s: float = 0.0
    found_examples: int = 0
    shrunk_s: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    #: rule or delay point -> examples that ran with it
    injected: Counter[str] = field(default_factory=Counter)
    delayed: Counter[str] = field(default_factory=Counter)
    #: (seconds since the start, operations, examples), at most some hundreds
    pace: list[tuple[float, int, int]] = field(default_factory=list)
    #: of feedback: inputs that reached something new, and all that was reached
    reached: dict[str, int] = field(default_factory=dict)
    #: what machines failed with; where something was found, that goes first
    failed: list[str] = field(default_factory=list)

    @property
    def finding(self) -> Finding | None:
        """The smallest of those that repeat, or the first."""
        repeating = [found for found in self.findings if found.rate]
        if repeating:
            return min(repeating, key=lambda found: found.operations)
        return self.findings[0] if self.findings else None
