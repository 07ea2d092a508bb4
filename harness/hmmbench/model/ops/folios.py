# SPDX-License-Identifier: GPL-2.0-or-later
"""Folios of all orders: pages are put together and moved about, and nothing in them changes."""

from __future__ import annotations

from collections.abc import Iterator

from hmmbench.guest.program import HUGE, MapKind, Op, OpResult
from hmmbench.model.belief import UNKNOWN, VRAM, Belief, touched
from hmmbench.model.drawing import Draw, huge
from hmmbench.model.ops.base import OK, RANGE, Field, Operation, flags_of, pages, ranged, shorter
from hmmbench.model.space import GUARDED, POISONED, Process, Space

#: Sizes of folios between a page and 2 MiB, in KiB, that the kernel makes of anonymous memory.
SIZES = (16, 32, 64, 256, 1024)

#: What is collapsed.
_KINDS = (MapKind.ANON_PRIVATE, MapKind.ANON_SHARED)

GROUP = "address space"


class Collapse(Operation):
    """MADV_COLLAPSE: 2 MiB each in one piece, from wherever its pages were."""

    number, name = 60, "collapse"
    since = 4
    weight = 3
    rows = ("collapse",)
    group = GROUP
    fields = RANGE
    races = True
    areas = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not ranged(o) or not p.covered(*pages(o)):
            return False
        return not flags_of(p, o) & {POISONED, GUARDED} and all(
            v.kind in _KINDS for v in p.overlapping(*pages(o))
        )  # fmt: skip

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        # No room for 2 MiB, pages of the GPU among them, memory: it need not work.
        return None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        start, end = touched(o)
        b.put([gp for gp, at in b.pages.items() if at == VRAM and start <= gp < end], UNKNOWN)

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, HUGE)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return None if kind in _KINDS else "of memory without file"

    def sentence(self, o: Op, at: str) -> str:
        return f"has the kernel make 2 MiB pages of {at} (MADV_COLLAPSE)"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        whole = huge(proc)
        if not whole:
            return []
        first = g.rng.choice(whole)
        vma = proc.find(first)
        assert vma is not None
        # In pieces, and used by the GPU as such.
        if g.rng.random() < 0.6:
            g.first([g.ranged("madvise", proc, first, first + 512,
                              a=g.word("madvise", "advice", "nohugepage"))])  # fmt: skip
            g.first(g.draw("gpu_access", proc))
            g.first([g.ranged("madvise", proc, first, first + 512,
                              a=g.word("madvise", "advice", "hugepage"))])  # fmt: skip
        g.after = g.draw("gpu_access", proc)
        return [g.ranged("collapse", proc, first, first + 512)]


class _Kernel(Operation):
    """The kernel does something of its own with all of memory."""

    since = 4
    races = True
    wanted = False

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK


class Compact(_Kernel):
    number, name = 61, "compact"
    weight = 1

    def sentence(self, o: Op, at: str) -> str:
        return "compacts memory: pages move within it"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """Beside a job and its faults."""
        pause = g.op("sleep", proc, a=g.rng.choice((0, 100, 500)))
        out = [pause, g.op("compact", proc), *g.draw("gpu_access", proc)]
        out[2].actor = 1
        return out


class Khugepaged(_Kernel):
    number, name = 62, "khugepaged"
    weight = 1

    def takes_ms(self, o: Op) -> int:
        # For khugepaged (op_khugepaged() of ops/folios.c).
        return 250

    def sentence(self, o: Op, at: str) -> str:
        return "lets the kernel look for memory to make 2 MiB pages of"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        whole = huge(proc)
        if not whole:
            return []
        first = g.rng.choice(whole)
        for advice in ("nohugepage", "hugepage"):
            if advice == "hugepage":
                g.first([g.ranged("gpu_fill", proc, first, first + 8, a=g.value << 32)])
            g.first([g.ranged("madvise", proc, first, first + 512,
                              a=g.word("madvise", "advice", advice))])  # fmt: skip
        g.after = g.draw("gpu_access", proc)
        return [g.op("khugepaged", proc)]


class Mthp(_Kernel):
    number, name = 63, "mthp"
    # 6.12 leaves such folios where they are (migrate_vma_collect_pmd()), 7.3 moves them to VRAM.
    weight = 1
    fields = (Field("kib", "a"),)

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return o.a == 0 or o.a in SIZES

    def apply(self, space: Space, p: Process, o: Op) -> None:
        # (Also when it is off again: what was made stays.)
        space.folios = True

    def sentence(self, o: Op, at: str) -> str:
        what = f"also folios of {o.a} KiB" if o.a else "no folios between a page and 2 MiB"
        return f"has the kernel make {what}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.op("mthp", proc, a=g.rng.choice((*SIZES, 0)))]


OPERATIONS = (Collapse(), Compact(), Khugepaged(), Mthp())
