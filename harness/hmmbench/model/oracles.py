# SPDX-License-Identifier: GPL-2.0-or-later
"""Which oracles there are: their names in reports, and what each watches.

How one judges is `oracle/NAME.py`; `values` has two parts with a column of their own in the
table of cells, `status` and `mapping`, which report under its name.  `promise` and `account` are
judged by their operations (model/ops/).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Oracle:
    name: str
    #: a sentence for people
    words: str
    #: the device sees it, at the moment at which it happens; else it is judged when all is over
    device: bool = False
    #: what it finds leaves the machine fit for another program
    spares: bool = False


ORACLES = (
    Oracle(
        "values",
        "A read returned something that no order of the writes explains, or a call ended in a way "
        "the model does not allow, or the two page tables contradict each other.",
        spares=True,
    ),
    Oracle(
        "contents",
        "Memory was not what it ought to be when it was read again at a program's end, or memory "
        "that no program has was changed.",
        spares=True,
    ),
    Oracle(
        "promise",
        "Fresh memory that nothing stood in the way of did not go where the driver was to have it, "
        "or the driver did much more than was needed.",
        spares=True,
    ),
    Oracle(
        "account",
        "The kernel's accounts of a process's memory contradict one another, or what it did.",
        spares=True,
    ),
    Oracle(
        "mirror",
        "The GPU used a translation that the CPU's page table contradicts (docs/audit.md).",
        device=True,
        spares=True,
    ),
    Oracle(
        "protocol",
        "The device saw the driver do what no correct driver does (docs/checks.md).",
        device=True,
        spares=True,
    ),
    Oracle("progress", "Something waits for ever, or a process died by itself."),
    Oracle("leak", "Something is left in driver or device after every process has gone."),
    Oracle("kernel", "The guest kernel complained."),
    Oracle("device", "QEMU crashed."),
)

WORDS = {oracle.name: oracle.words for oracle in ORACLES}
#: Which of these judges an operation is its own to say; the others judge all of them.
BY_OPERATION = ("values", "status", "mapping", "contents", "promise", "account")
OF_ALL = tuple(oracle.name for oracle in ORACLES if oracle.name not in BY_OPERATION)
DEVICE = frozenset(oracle.name for oracle in ORACLES if oracle.device)
SPARING = frozenset(oracle.name for oracle in ORACLES if oracle.spares)
