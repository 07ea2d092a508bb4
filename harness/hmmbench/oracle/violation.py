# SPDX-License-Identifier: GPL-2.0-or-later
"""What an oracle reports."""

from __future__ import annotations

from dataclasses import dataclass

from hmmbench.guest.program import MAX_REGIONS, PAGE, REGION_BASE, REGION_SIZE

_END = REGION_BASE + MAX_REGIONS * REGION_SIZE


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that cannot be.

    op   -- index of the operation in the program, -1 if it is not known
    page -- the page of the regions where it was seen (as `model.space.gp_of`), -1 likewise
    """

    oracle: str
    message: str
    op: int = -1
    details: str = ""
    page: int = -1


def page_at(address: int) -> int:
    """The page of the regions at an address of a process, -1 if it is in none."""
    return (address - REGION_BASE) // PAGE if REGION_BASE <= address < _END else -1
