# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations on where memory is: migration, policy, eviction, and asking for it."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

from hmmbench.guest.program import (
    HUGE,
    MIGRATE_DEVICE,
    MIGRATE_MAP,
    MIGRATE_SYSTEM,
    PAGE,
    POLICY_EXCLUSIVE,
    POLICY_MAP,
    POLICY_MIGRATE,
    Q_CPU_DEVICE,
    Q_CPU_READ,
    Op,
    OpResult,
)
from hmmbench.model.belief import (
    MOVABLE,
    SWAPPED,
    SYSTEM,
    UNKNOWN,
    VRAM,
    Belief,
    Cell,
    touched,
)
from hmmbench.model.drawing import SEEN, Draw, offset, writable
from hmmbench.model.ops.base import (
    OK,
    RANGE,
    TOO_FAST,
    Field,
    Operation,
    aligned,
    pages,
    ranged,
    shorter,
)
from hmmbench.model.space import REGION_PAGES, REGION_SHIFT, SHARED, Process, Space


class Migrate(Operation):
    number, name = 10, "migrate"
    weight = 30
    rows = ("migrate to VRAM", "migrate to system")
    group = "migration"
    fields = (*RANGE, Field("to", "arg", {0: "system", 1: "device"}), Field("map", "a"))
    races = True
    uses_gpu = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return ranged(o)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        if racing:
            return OK | TOO_FAST | {-errno.EFAULT, -errno.ENOMEM}
        there = space.procs[o.proc].overlapping(*pages(o))
        return OK if there else frozenset({-errno.EFAULT, 0})

    def judge(self, o: Op, r: OpResult, racing: bool) -> str:
        # (While others pull pages back, one may move more than once.)
        if racing or r.status or r.aux0 <= o.len // PAGE:
            return ""
        return f"says it moved {r.aux0} of {o.len // PAGE} pages"

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        start, end = pages(o)
        held = space.procs[o.proc].pinned.items()
        # (What a pipe has may be in VRAM.)
        pinned = sum(start <= gp < end and k >= 0 for gp, k in held)
        # (`aux0` may have a page twice: where VRAM is short, what moved goes and moves again.)
        if o.arg != MIGRATE_DEVICE or r.status or r.aux1 >= pinned:
            return ""
        return f"says that {r.aux1} pages are not where they should be; {pinned} are pinned"

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def row(self, o: Op) -> str:
        return self.rows[0] if o.arg == MIGRATE_DEVICE else self.rows[1]

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        if r.status != 0:
            return
        start, end = touched(o)
        if o.arg == MIGRATE_DEVICE:
            whole = r.aux0 == end - start and not racing
            for v in b.proc.overlapping(start, end):
                if v.kind in MOVABLE:
                    b.put(range(max(v.start, start), min(v.end, end)), VRAM if whole else UNKNOWN)
            return
        there = [
            gp for gp, at in b.pages.items() if at in (VRAM, UNKNOWN) and start <= gp < end
        ]  # fmt: skip
        b.put(there, UNKNOWN if racing or r.aux1 else SYSTEM)

    def sentence(self, o: Op, at: str) -> str:
        where = "VRAM" if o.arg == MIGRATE_DEVICE else "system memory"
        return f"asks the driver to migrate {at} to {where}" + (" and map it" if o.a else "")

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        private = [v for v in proc.vmas if v.kind not in SHARED]
        vma = g.pick(proc) if not private or rng.random() < 0.2 else rng.choice(private)
        start, end = g.span(vma)
        if rng.random() < 0.15:
            end = min(end + 4, (start | (REGION_PAGES - 1)) + 1)
        to = MIGRATE_DEVICE if rng.random() < 0.7 else MIGRATE_SYSTEM
        flag = MIGRATE_MAP if to == MIGRATE_DEVICE and rng.random() < 0.4 else 0
        return [g.ranged("migrate", proc, start, end, arg=to, a=flag)]


#: Migration at faults finds the most; exclusive access changes what atomics do, in either.
POLICIES = (
    POLICY_MAP, POLICY_MIGRATE, POLICY_MIGRATE, POLICY_MAP | POLICY_EXCLUSIVE,
    POLICY_MIGRATE | POLICY_EXCLUSIVE,
)  # fmt: skip


class Policy(Operation):
    number, name = 11, "policy"
    weight = 3
    fields = (
        Field("policy", "arg", {
            0: "map", 1: "migrate", 2: "map-exclusive", 3: "migrate-exclusive",
        }),
    )  # fmt: skip
    races = True
    # Two may race: which came last is not known.
    lays = False
    uses_gpu = True
    shapes = True

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg & POLICY_EXCLUSIVE:
            p.exclusive = True
        elif p.exclusive:
            # A fault that is being served meanwhile may take its page after that.
            p.exclusive = None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        if r.status == 0:
            (b.migrate.add if o.arg & POLICY_MIGRATE else b.migrate.discard)(o.proc)

    def sentence(self, o: Op, at: str) -> str:
        migrates = o.arg & POLICY_MIGRATE
        how = "migrate pages to VRAM" if migrates else "map pages where they are"
        exclusive = ", atomics take them exclusively" if o.arg & POLICY_EXCLUSIVE else ""
        return f"sets the policy for GPU faults: {how}{exclusive}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        policy = rng.choice(POLICIES)
        private = writable(proc)
        if policy & POLICY_MIGRATE and private and rng.random() < 0.4:
            # Where VRAM is short, the two ends of a copy may drive one another out.
            src, dst = (g.page_of(rng.choice(private)) for _ in range(2))
            g.after = [g.ranged(
                "gpu_copy", proc, src, src + 1, arg=dst >> REGION_SHIFT, a=offset(dst)
            )]  # fmt: skip
        return [g.op("policy", proc, arg=policy)]


class Evict(Operation):
    number, name = 12, "evict"
    weight = 2
    rows = ("evict",)
    group = "migration"
    fields = (Field("pages", "a"),)
    races = True

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        """Pages of all processes."""
        cells: set[Cell] = set()
        for number, theirs in b.all_pages.items():
            owner = b.space.procs.get(number)
            there = [gp for gp, at in theirs.items() if at == VRAM]
            for gp in there:
                vma = owner.find(gp) if owner else None
                if vma is not None:
                    cells.add(("evict", int(vma.kind), VRAM))
            theirs.update(dict.fromkeys(there, UNKNOWN if o.a or r.status else SYSTEM))
        b.count(cells)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return "eviction concerns pages in VRAM" if at != VRAM else None

    def sentence(self, o: Op, at: str) -> str:
        return f"evicts {o.a or 'all'} pages from VRAM"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.op("evict", proc, a=g.rng.choice((0, 1, 4, 64)))]


class Query(Operation):
    number, name = 13, "query"
    weight = 12
    rows = ("query",)
    group = "query"
    oracle = "mapping"
    fields = RANGE
    races = True
    uses_gpu = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return aligned(o) and o.len <= HUGE

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK | TOO_FAST if racing else OK

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        """It says where each page is; one with contents that was advised to go, and is not there
        for who may read it, is swapped."""
        super().meet(b, o, r, racing)
        if racing or r.status != 0 or len(r.data) % 4:
            return
        words = struct.unpack(f"<{len(r.data) // 4}I", r.data)
        for gp, q in enumerate(words, touched(o)[0]):
            if q & Q_CPU_DEVICE:
                b.pages[gp] = VRAM
            elif q & Q_CPU_READ:
                b.pages[gp] = SYSTEM
            elif (o.proc, gp) in b.advised and b.pages.get(gp) == UNKNOWN and _readable(b, gp):
                b.pages[gp] = SWAPPED
            elif gp in b.pages and b.pages[gp] != SWAPPED:
                del b.pages[gp]

    def sentence(self, o: Op, at: str) -> str:
        return f"asks for the page tables of {at}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        vma = g.pick(proc)
        start, end = g.span(vma)
        end = min(end, start + SEEN)
        if g.rng.random() < 0.3:
            end = min(end + 4, (start | (REGION_PAGES - 1)) + 1)
        return [g.ranged("query", proc, start, end)]


def _readable(b: Belief, gp: int) -> bool:
    vma = b.proc.find(gp)
    return vma is not None and bool(vma.prot & 1)


OPERATIONS = (Migrate(), Policy(), Evict(), Query())
