# SPDX-License-Identifier: GPL-2.0-or-later
"""The mirror oracle: what the device saw when it compared its translations with the CPU's.

The device does the work (qemu-device/core/observe/audit.c, docs/audit.md); this reads its answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hmmbench.oracle import misuse
from hmmbench.oracle.misuse import WORDS
from hmmbench.oracle.violation import Violation, page_at

#: Modes of `run --audit`, from nothing to everything.
MODES = ("off", "sampled", "fill", "access")


#: How names of this oracle's checks begin; but those that have words elsewhere are not.
_CHECKS = ("mirror-", "vram-")


@dataclass
class Audit:
    """The device's text, read.  `total` counts violations that fell out of its ring, too."""

    checks: int = 0
    undecided: int = 0
    total: int = 0
    ready: bool = False
    found: list[dict[str, Any]] = field(default_factory=list)
    #: records of the protocol checks, which have an oracle of their own
    protocol: list[dict[str, Any]] = field(default_factory=list)
    #: protocol check -> times that it came to a bound and did not look (docs/checks.md)
    unlooked: dict[str, int] = field(default_factory=dict)


def read(text: str) -> Audit:
    """The property `violations` of the device.  Raises ValueError if it is not its JSON."""
    data = json.loads(text)
    ours: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for v in data["violations"]:
        name = str(v["check"])
        (ours if name.startswith(_CHECKS) and name not in WORDS else others).append(v)
    return Audit(
        int(data["checks"]), int(data["undecided"]), int(data["total"]), bool(data["ready"]),
        ours, others, data["unlooked"],
    )  # fmt: skip


def check(audit: Audit) -> Violation | None:
    """The first one tells most; the others are in the details."""
    if not audit.found:
        return None
    v = audit.found[0]
    where = "at rest" if v["at_rest"] else f"{v['engine']} {v['unit']} warp {v['warp']}"
    message = (
        f"{v['check']}: {v['access']} at {v['address']} by {where} used GPU entry "
        f"{v['gpu_pte']}, the CPU's is {v['cpu_entry']} (level {v['cpu_level']})"
    )
    lines = [f"{audit.total} violations"] + [json.dumps(v) for v in audit.found[:16]]
    return Violation(
        "mirror", message, details="\n".join(lines), page=page_at(int(str(v["address"]), 0))
    )


def seen(audit: Audit) -> Violation | None:
    """The first of all that the device saw: of this oracle's checks, or of the protocol's."""
    return check(audit) or next(iter(misuse.check(audit.protocol)), None)
