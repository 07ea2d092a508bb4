# SPDX-License-Identifier: GPL-2.0-or-later
"""The leak oracle: after an example nothing of it is left in driver or device."""

from __future__ import annotations

from hmmbench.guest.program import Result
from hmmbench.oracle.violation import Violation

_LIVE = "live_"


def live(counters: str) -> dict[str, int]:
    """The gauges of the driver's counters text that are not zero."""
    out = {}
    for line in counters.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith(_LIVE) and value.strip() not in ("", "0"):
            out[name[len(_LIVE) :]] = int(value)
    return out


def check(result: Result) -> Violation | None:
    """`live_nonzero` is the agent's word that waiting did not help."""
    if result.live_unread:
        return Violation("leak", "all processes are gone, and the driver's counters cannot be read")
    if not result.live_nonzero:
        return None
    left = live(result.counters_after)
    what = ", ".join(f"{n} {name}" for name, n in left.items()) or "live counters"
    return Violation("leak", f"all processes are gone, but {what} are left")
