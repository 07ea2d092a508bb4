# SPDX-License-Identifier: GPL-2.0-or-later
"""The leak oracle: after an example nothing of it is left in driver or device."""

from __future__ import annotations

from hmmbench.guest.program import Result
from hmmbench.oracle.violation import Violation

_LIVE = "live_"

#: A line of the agent's (engine/remains.h): pages more than before the program.
_REMAINS = "remains"


def live(counters: str) -> dict[str, int]:
    """The gauges of the driver's counters text that are not zero."""
    out = {}
    for line in counters.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith(_LIVE) and value.strip() not in ("", "0"):
            out[name[len(_LIVE) :]] = int(value)
    return out


def remains(result: Result) -> Violation | None:
    """Memory of processes that are gone, by the kernel's counts alone: of one reference that was
    forgotten, on a page or on an address space, once is enough."""
    for line in result.counters_after.splitlines():
        name, *numbers = line.split() or [""]
        if name != _REMAINS or len(numbers) != 2:
            continue
        unmapped, tables = map(int, numbers)
        what = []
        if unmapped:
            what.append(f"{unmapped} pages that nobody maps")
        if tables:
            what.append(f"{tables} pages of page tables")
        return Violation("leak", f"left of processes that are gone: {' and '.join(what)}")
    return None


def check(result: Result) -> Violation | None:
    """`live_nonzero` is the agent's word that waiting did not help."""
    if result.live_unread:
        return Violation("leak", "all processes are gone, and the driver's counters cannot be read")
    if not result.live_nonzero:
        return None
    left = live(result.counters_after)
    what = ", ".join(f"{n} {name}" for name, n in left.items()) or "live counters"
    return Violation("leak", f"all processes are gone, but {what} are left")
