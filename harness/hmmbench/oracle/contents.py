# SPDX-License-Identifier: GPL-2.0-or-later
"""The contents oracle: all of memory is what it ought to be, when a program is over.

READ_BACK reads whole pages, those words too that no program wrote, so that what was written
elsewhere, or did not come with its page, is seen although nobody asks for it.  What no program has
at all (`Result.strays`) the guest compares itself.
"""

from __future__ import annotations

import struct

from hmmbench.guest.program import PAGE, Acc, Op, OpResult, Result
from hmmbench.model.page import Page, World
from hmmbench.model.space import Process, Space, Vma, gp_of, place
from hmmbench.oracle.violation import Violation

_RUN = struct.Struct("<IIQ")
_UNREADABLE = 1 << 31
_WORDS = PAGE // 8


def check(space: Space, o: Op, r: OpResult) -> str:
    """What is wrong with the answer to a READ_BACK, or an empty string."""
    if r.status or len(r.data) % _RUN.size:
        return f"no contents: status {r.status}, {len(r.data)} bytes" if not r.status else ""
    proc = space.procs[o.proc]
    start = gp_of(o.region, o.off)
    found: dict[int, dict[int, int]] = {}
    for first, count, value in _RUN.iter_unpack(r.data):
        if count & _UNREADABLE:
            return f"not readable: {place(start + first // _WORDS)} of process {o.proc}"
        for at in range(first, first + count):
            found.setdefault(start + at // _WORDS, {})[at % _WORDS] = value
    for gp in range(start, start + o.len // PAGE):
        vma = proc.find(gp)
        got = found.get(gp, {})
        if vma is None or not (got or _known(proc, gp, vma)):
            continue
        page = proc.page(gp, vma)
        for word in _asked(page, got):
            value = got.get(word, 0)
            if not page.access(word, Acc.READ, 0, 0, value):
                return (
                    f"wrong contents: {place(gp)}+{word * 8:#x} of process {o.proc} is {value:#x},"
                    f" expected {page.possible(word)}"
                )
    return ""


def unreadable(r: OpResult) -> bool:
    """Whether a READ_BACK's answer has pages that could not be read."""
    return any(count & _UNREADABLE for _, count, _ in _RUN.iter_unpack(r.data))


def _known(proc: Process, gp: int, vma: Vma) -> bool:
    """Whether the page can be anything but zeros."""
    return (
        gp in proc.private
        or vma.fill != 0
        or (vma.obj is not None and gp + vma.delta in vma.obj.pages)
    )


def _content(world: World) -> World:
    return world if world.follow is None else world.follow.worlds[0]


def _asked(page: Page, got: dict[int, int]) -> list[int]:
    """Words that have to be looked at: elsewhere zero was read and nothing else is expected."""
    worlds = [_content(world) for world in page.worlds]
    if page.plain and isinstance(base := worlds[0].base, int):
        odd = {w for w in range(_WORDS) if got.get(w, 0) != base} if base else set(got)
        return sorted(odd.union(worlds[0].vals))
    if any(world.base != 0 for world in worlds):
        return list(range(_WORDS))
    return sorted(set(got).union(*(world.vals for world in worlds)))


def strays(result: Result) -> Violation | None:
    """What the guest found changed of memory that no program has."""
    if not result.strays:
        return None
    return Violation(
        "contents",
        f"stray write: {result.strays} words of memory that no program has were changed",
    )
