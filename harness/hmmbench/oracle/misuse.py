# SPDX-License-Identifier: GPL-2.0-or-later
"""The protocol oracle: what the device saw the driver do that no correct driver does.

The checks are the device's (docs/checks.md); here they get their words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hmmbench.oracle.violation import Violation, page_at

#: What happened, with the fields of the device's record.
WORDS = {
    "fence-backwards": "a fence of address space {asid} at {address:#x} went back from {a} to {b}",
    "doorbell-overrun": "context {address}: PUT {b} after {a} is more than the ring holds",
    "fault-get-range": "fault ring {address}: GET went from {a} to {b}, which is not behind PUT",
    "fault-unready": "fault ring {address}: entry {a} was taken before it was valid",
    "fault-valid-kept": "fault ring {address}: VALID of the entry at {a:#x} was never cleared",
    "copy-source-written": (
        "the GPU wrote {address:#x} of address space {asid} (PTE {a:#x}) while the driver"
        " copied that page away"
    ),
    "copy-target-used": (
        "the GPU used {address:#x} of address space {asid} (PTE {a:#x}) while the driver"
        " still copied to that page"
    ),
    "copy-overlap": "context {a} copies to or from frame {address:#x}, which is in another copy",
    "vram-free-used": (
        "the GPU used the free VRAM page {a:#x} (address {address:#x} of address space {asid})"
    ),
    "asid-reuse": "address space {asid} got a new root while TLBs may hold entries of the old one",
    "replay-stale": (
        "address {address:#x} of address space {asid} faults again and again on a stale TLB"
        " entry (PTE {a:#x}): replay without invalidation"
    ),
    "table-freed-used": (
        "the page table at {a:#x} (level {b}) was given back while the GPU may use it for"
        " {address:#x} and on in address space {asid}: no complete invalidation of all it covers"
    ),
    "dma-refused": "DMA to {address:#x}, which the bus refuses ({a} bytes)",
}


def check(records: Iterable[Mapping[str, Any]]) -> list[Violation]:
    """One violation a kind of mistake, the first first."""
    found: dict[str, Violation] = {}
    for record in records:
        name = str(record["check"])
        if name not in found:
            words = WORDS.get(name, "{check}").format(**record)
            found[name] = Violation(
                "protocol", f"{name}: {words}", details=str(dict(record)),
                page=page_at(int(record["address"])),
            )  # fmt: skip
    return list(found.values())
