# SPDX-License-Identifier: GPL-2.0-or-later
"""Names of what the device can be made to do wrong (docs/device.md): `unit.event`.

Rules of before had a word alone. The device reads those, too; what is kept (recipes) is translated
on reading.
"""

from __future__ import annotations

import re

#: Name of before, and the one that it has now.
EVENTS = {
    "tlb_invalidate": "mmu.invalidate",
    "walk": "mmu.walk",
    "fault": "fault.entry",
    "replay": "fault.replay",
    "irq": "irq.message",
    "copy": "ce.copy",
    "dma_read": "bus.read",
    "dma_write": "bus.write",
    "doorbell": "ring.doorbell",
    "fence": "ring.fence",
    "launch": "ring.launch",
}
_BEFORE = {now: before for before, now in EVENTS.items()}

#: The event of each rule of a list.
_EVENT = re.compile(r"(?:^|(?<=[;\n]))(\s*)([\w.]+)")


def translated(rules: str) -> str:
    """The rules by the names of now."""
    return _EVENT.sub(lambda m: m[1] + EVENTS.get(m[2], m[2]), rules)


def as_before(rules: str) -> str:
    """The rules by the names of before: what is to be equal for checkouts of both times."""
    return _EVENT.sub(lambda m: m[1] + _BEFORE.get(m[2], m[2]), rules)
