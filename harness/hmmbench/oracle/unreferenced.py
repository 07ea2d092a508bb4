# SPDX-License-Identifier: GPL-2.0-or-later
"""The leak oracle in a debug kernel: memory to which no pointer is left (kmemleak).

Once a machine, at its end: a scan looks at all of its memory.  What it says of a module's
allocations counts; of the kernel's own it is known to be mistaken now and then.
"""

from __future__ import annotations

import re
from itertools import pairwise

from hmmbench.oracle.violation import Violation
from hmmbench.vm.machine import Machine

#: An object is told of five seconds after it was allocated, by a second scan that finds it as it
#: was (mm/kmemleak.c).  Seconds for all of that; a scan takes some, under emulation.
_SCRIPT = """
f=/sys/kernel/debug/kmemleak
sleep 5.5
echo scan >$f && sleep 0.1 && echo scan >$f && cat $f
"""
_SECONDS = 300

_HEAD = re.compile(r"^unreferenced object ", re.MULTILINE)
#: A frame of a module's, the innermost first.
_OF_A_MODULE = re.compile(r"^\s.*?\b(\w+)\+0x[0-9a-f]+/0x[0-9a-f]+ \[(\w+)\]", re.MULTILINE)


def objects(text: str) -> list[tuple[str, str]]:
    """Of what kmemleak says, what a module has allocated: where (function and module), and all
    that is said of it."""
    starts = [m.start() for m in _HEAD.finditer(text)] + [len(text)]
    parts = [text[a:b] for a, b in pairwise(starts)]
    found = [(_OF_A_MODULE.search(part), part) for part in parts]
    return [(f"{at[1]} of {at[2]}", part) for at, part in found if at is not None]


def check(vm: Machine) -> Violation | None:
    """Raises VmError."""
    found = objects(vm.agent.check(_SCRIPT, _SECONDS))
    if not found:
        return None
    return Violation(
        "leak",
        f"nobody knows {len(found)} objects any more, the first of {found[0][0]}",
        details="\n".join(part for _, part in found[:20]),
    )
