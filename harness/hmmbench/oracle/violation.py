# SPDX-License-Identifier: GPL-2.0-or-later
"""What an oracle reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that cannot be.  `op`: index of the operation in the program, -1 if none."""

    oracle: str
    message: str
    op: int = -1
    details: str = ""
