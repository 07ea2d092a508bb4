# SPDX-License-Identifier: GPL-2.0-or-later
"""What an oracle reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hmmbench.guest.program import MAX_REGIONS, PAGE, REGION_BASE, REGION_SIZE

_END = REGION_BASE + MAX_REGIONS * REGION_SIZE

#: Violation.key of what does not end.
NO_END = ("progress", "no end")


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

    @property
    def key(self) -> tuple[str, str]:
        """Which mistake it is, as far as can be told, whatever program shows it: the oracle, and
        what it complains of without numbers and places of the program."""
        return self.oracle, _KINDS.get(self.oracle, _check)(self.message)


def _check(message: str) -> str:
    """The device's checks name themselves; of others there is one kind."""
    name, colon, _ = message.partition(":")
    return name if colon else ""


def _values(message: str) -> str:
    return "ending" if " ended with " in message else "contents"


def _progress(message: str) -> str:
    return "died" if message.startswith("process ") else "no end"


def _leak(message: str) -> str:
    if message.startswith("left each time"):
        return "grows"
    if message.startswith("left of processes"):
        return "remains"
    return "unbound" if message.startswith("the driver was unbound") else "left"


#: The kernel's titles name kind and function, and nothing that changes (guest/splat.py).
_KINDS: dict[str, Callable[[str], str]] = {
    "values": _values, "progress": _progress, "leak": _leak, "kernel": str, "device": str,
}  # fmt: skip


def page_at(address: int) -> int:
    """The page of the regions at an address of a process, -1 if it is in none."""
    return (address - REGION_BASE) // PAGE if REGION_BASE <= address < _END else -1
