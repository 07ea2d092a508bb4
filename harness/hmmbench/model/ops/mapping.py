# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations on mappings: mmap, munmap, mprotect, mremap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hmmbench.guest.program import (
    HUGE,
    MAX_REGIONS,
    PAGE,
    PROT_NONE,
    PROT_READ,
    PROT_RW,
    REGION_SIZE,
    MapKind,
    Op,
    OpResult,
)
from hmmbench.model import scenes, upheaval
from hmmbench.model.belief import ABSENT, Belief, touched
from hmmbench.model.drawing import FILE_PAGES, REGIONS, Draw
from hmmbench.model.ops.base import (
    GLOBAL_REGION,
    HUGETLB_BUDGET,
    OK,
    PROTS,
    RANGE,
    STACK_REGION,
    Field,
    Operation,
    aligned,
    changeable,
    changed,
    fixed_pages,
    flags_of,
    huge_ok,
    hugetlb_used,
    no_fixed,
    pages,
    sealed,
    settled,
    shorter,
)
from hmmbench.model.phrases import KINDS, PROTECTION, span
from hmmbench.model.space import (
    ANON,
    FILE,
    FIXED,
    GUARDED,
    HUGETLB,
    MERGEABLE,
    POISONED,
    SEALED,
    SERVED,
    SHARED,
    Process,
    SharedObject,
    Space,
    Vma,
    gp_of,
    place,
)

_PROT = Field("prot", "a", PROTS)

GROUP = "address space"


class Mmap(Operation):
    number, name = 1, "mmap"
    weight = 18
    rows = ("mmap",)
    group = GROUP
    fields = (
        *RANGE, Field("kind", "arg", {k: k.name.lower() for k in MapKind}), _PROT,
        Field("file", "b"), Field("file_off", "c", hex=True),
    )  # fmt: skip
    shapes = True
    areas = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if o.arg not in list(MapKind) or o.a not in (PROT_NONE, PROT_READ, PROT_RW):
            return False
        kind = MapKind(o.arg)
        if kind in FIXED:
            o.len = fixed_pages(kind) * PAGE
            o.off, o.a = 0, PROT_RW
            # The memory is there anyway; the operation clears it.  A child of fork has its
            # parent's.
            if o.region != (STACK_REGION if kind == MapKind.STACK else GLOBAL_REGION):
                return False
            if any(v.kind == kind for v in p.vmas):
                return False
            if kind == MapKind.STACK and o.actor:
                return False
        if not aligned(o) or o.len > 8 * HUGE:
            return False
        if (o.region >= STACK_REGION) != (kind in FIXED) or not self._place(p, o):
            return False
        if kind in FILE:
            if o.b >= len(space.files) or o.c % PAGE:
                return False
            return o.c // PAGE + o.len // PAGE <= space.files[o.b].capacity
        if kind in HUGETLB:
            if o.off % HUGE or o.len % HUGE:
                return False
            return hugetlb_used(space) + o.len // HUGE <= HUGETLB_BUDGET
        return True

    def _place(self, p: Process, o: Op) -> bool:
        """Is the place one where it maps?"""
        return not p.overlapping(*pages(o))

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def apply(self, space: Space, p: Process, o: Op) -> None:
        kind = MapKind(o.arg)
        npages = o.len // PAGE
        start = gp_of(o.region, o.off)
        prot = o.a
        if kind in FIXED:
            npages = fixed_pages(kind)
            start, prot = gp_of(o.region, 0), PROT_RW
        p.unmap(start, start + npages)
        obj: SharedObject | None = None
        delta = 0
        if kind in FILE:
            obj, delta = space.files[o.b], o.c // PAGE - start
        elif kind in SHARED:
            obj, delta = SharedObject(f"shared@{place(start)}", npages), -start
        p.add(Vma(start, start + npages, kind, prot, obj, delta))

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        b.rows["mmap"] += 1
        b.cells["mmap", o.arg, ABSENT] += 1

    def impossible(self, row: str, kind: int, at: int) -> str:
        return "" if at == ABSENT else "a new mapping has no pages"

    def simpler(self, o: Op) -> Iterator[Op]:
        if o.arg and o.arg < 6:
            yield replace(o, arg=0, b=0, c=0)

    def sentence(self, o: Op, at: str) -> str:
        what = KINDS[MapKind(o.arg)] if o.arg in list(MapKind) else f"kind {o.arg}"
        return f"maps {what} memory, {PROTECTION.get(o.a, hex(o.a))}, at {at}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        r = rng.random()
        region = rng.randrange(REGIONS)
        slot = rng.randrange(4) * HUGE
        pages = rng.choice((1, 2, 4, 8, 16))
        prot = PROT_RW if rng.random() < 0.9 else rng.choice((PROT_READ, PROT_NONE))
        o = g.op("mmap", proc, region=region, off=slot, len=pages * PAGE, a=prot)
        if r < 0.42:
            o.arg = MapKind.ANON_PRIVATE
            if rng.random() < 0.35:
                # room for 2 MiB pages
                o.len = rng.choice((HUGE, 2 * HUGE))
        elif r < 0.54:
            o.arg = MapKind.ANON_SHARED
        elif r < 0.84:
            o.arg = MapKind.FILE_PRIVATE if r < 0.7 else MapKind.FILE_SHARED
            o.b = rng.choice((0, 0, 0, 1))
            limit = FILE_PAGES[o.b]
            first = rng.choice((0, 0, 1, limit - pages))
            o.c = first * PAGE
        elif r < 0.9:
            o.arg = rng.choice((MapKind.HUGETLB_PRIVATE, MapKind.HUGETLB_SHARED))
            o.len = HUGE
            o.a = PROT_RW
        elif r < 0.95:
            o.arg, o.region = MapKind.STACK, STACK_REGION
        else:
            o.arg, o.region = MapKind.GLOBAL, GLOBAL_REGION
        return [o]


class Replace(Mmap):
    """mmap over what is there, in one call; what was there is gone."""

    number, name = 25, "replace"
    since = 4
    weight = 4
    rows = ("mmap over",)
    races = True
    alone = True

    def _place(self, p: Process, o: Op) -> bool:
        there = p.overlapping(*pages(o))
        return bool(there) and huge_ok(p, *pages(o)) and no_fixed(p, *pages(o))

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return o.arg not in FIXED and super().admit(space, p, o) and changeable(p, o)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return changed(space, o)

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if not sealed(p, o):
            super().apply(space, p, o)

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        """Others see nothing but that the pages are new."""
        same = (
            v.kind == MapKind.ANON_PRIVATE and v.prot == o.a and not v.flags
            for v in p.overlapping(*pages(o))
        )
        return o.arg == MapKind.ANON_PRIVATE and settled(p, o) and all(same)

    def zeroes(self, o: Op) -> bool:
        return True

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        start, end = touched(o)
        b.range(self.rows[0], start, end)
        b.forget(start, end)

    def impossible(self, row: str, kind: int, at: int) -> str | None:  # type: ignore[override]
        return "stack and globals stay where they are" if kind in FIXED else None

    def sentence(self, o: Op, at: str) -> str:
        return f"{super().sentence(o, at)}, over what is there"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        if rng.random() < 0.3:
            return upheaval.again(g, proc)
        vma = g.pick(proc)
        start, end = g.span(vma)
        kind = MapKind.ANON_PRIVATE if rng.random() < 0.6 else rng.choice(tuple(MapKind)[:6])
        if kind in HUGETLB:
            start, end = start // 512 * 512, start // 512 * 512 + 512
        if vma.kind in HUGETLB and start % 512 + end % 512:
            start, end = vma.start, vma.end
        o = g.ranged("replace", proc, start, end, arg=kind, a=PROT_RW)
        if kind in FILE:
            o.b = 1
            o.c = rng.choice((0, 1, 5)) * PAGE
        return [o]


class Munmap(Operation):
    number, name = 2, "munmap"
    weight = 6
    rows = ("munmap",)
    unmaps = True
    group = GROUP
    #: shared: beside others it may take shared memory, too (grammar 4).
    fields = (*RANGE, Field("shared", "a"))
    races = True
    shapes = True
    areas = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return aligned(o) and changeable(p, o) and no_fixed(p, *pages(o))

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return changed(space, o)

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        kinds = {MapKind.ANON_PRIVATE, *(SHARED if o.a else ())}
        known = all(v.kind in kinds for v in p.overlapping(*pages(o)))
        return known and settled(p, o) and not sealed(p, o)

    def protects(self, o: Op) -> int:
        return PROT_NONE

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if not sealed(p, o):
            p.unmap(*pages(o))

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        b.forget(*touched(o))

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return "stack and globals stay where they are" if kind in FIXED else None

    def sentence(self, o: Op, at: str) -> str:
        return f"unmaps {at}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        if g.rng.random() < 0.1:
            return scenes.wide(g, proc)
        vma = g.pick(proc)
        start, end = g.span(vma)
        return [g.ranged("munmap", proc, start, end)]


class Mprotect(Operation):
    number, name = 3, "mprotect"
    weight = 14
    rows = ("mprotect",)
    group = GROUP
    fields = (*RANGE, _PROT)
    races = True
    shapes = True
    areas = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not aligned(o) or o.a not in (PROT_NONE, PROT_READ, PROT_RW):
            return False
        start, end = pages(o)
        return (
            p.covered(start, end)
            and changeable(p, o)
            and all(v.kind != MapKind.STACK for v in p.overlapping(start, end))
        )

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return changed(space, o)

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        known = (v.kind in ANON or v.kind in SHARED for v in p.overlapping(*pages(o)))
        return settled(p, o) and all(known) and not flags_of(p, o) & {SEALED, GUARDED}

    def protects(self, o: Op) -> int:
        return o.a

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if sealed(p, o):
            return
        p.forget_clean(*pages(o))
        for v in p.split(*pages(o)):
            if GUARDED in v.flags:
                v.behind = o.a
            else:
                v.prot = o.a

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return "the stack's protection stays" if kind == MapKind.STACK else None

    def sentence(self, o: Op, at: str) -> str:
        return f"changes the protection of {at} to {PROTECTION.get(o.a, hex(o.a))}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        if rng.random() < 0.08:
            return scenes.regain(g, proc)
        vma = g.pick(proc)
        weak = [v for v in proc.vmas if v.prot != PROT_RW]
        if weak and rng.random() < 0.5:
            vma = rng.choice(weak)
            prot = PROT_RW
            start, end = vma.start, vma.end
        else:
            prot = rng.choice((PROT_READ, PROT_READ, PROT_READ, PROT_NONE, PROT_RW))
            start, end = g.span(vma)
        return [g.ranged("mprotect", proc, start, end, a=prot)]


class Mremap(Operation):
    number, name = 4, "mremap"
    weight = 7
    rows = ("mremap",)
    group = GROUP
    fields = (
        *RANGE, Field("to_region", "arg"), Field("to_off", "a", hex=True),
        Field("new_len", "b", hex=True), Field("dontunmap", "c"),
    )  # fmt: skip
    shapes = True
    races = True
    areas = True
    alone = True
    unmaps = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not aligned(o) or o.arg >= MAX_REGIONS or o.a % PAGE or o.b % PAGE or not o.b:
            return False
        if o.a + o.b > REGION_SIZE or o.b > 8 * HUGE:
            return False
        start, end = pages(o)
        to, to_end = gp_of(o.arg, o.a), gp_of(o.arg, o.a) + o.b // PAGE
        if start < to_end and to < end:
            return False
        vmas = p.overlapping(start, end)
        if len(vmas) != 1 or not p.covered(start, end):
            return False
        v = vmas[0]
        if v.kind in FIXED or v.kind in HUGETLB or p.overlapping(to, to_end):
            return False
        if o.arg >= STACK_REGION:
            return False
        if v.flags & {POISONED, *SERVED} or (GUARDED in v.flags and o.b > o.len):
            return False
        if o.c and (o.b != o.len or v.kind != MapKind.ANON_PRIVATE):
            return False
        # Growing a shared mapping would reach behind the end of its object.
        return o.b <= o.len or v.kind == MapKind.ANON_PRIVATE

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        """A move, and no more: where the pages were nothing is, and what was in them when they
        left is where they are."""
        known = {MapKind.ANON_PRIVATE, *SHARED} - HUGETLB
        (v,) = p.overlapping(*pages(o))
        return (
            settled(p, o) and v.kind in known and o.b == o.len and not o.c
            and not v.flags & {SEALED, GUARDED}
        )  # fmt: skip

    def protects(self, o: Op) -> int:
        return PROT_NONE

    def lands(self, o: Op) -> tuple[int, int]:
        to = gp_of(o.arg, o.a)
        return to, to + o.b // PAGE

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return changed(space, o)

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if sealed(p, o):
            return
        start, end = pages(o)
        to = gp_of(o.arg, o.a)
        count = o.b // PAGE
        p.unmap(to, to + count)
        (old,) = p.split(start, end)
        move = min(count, end - start)
        shift = to - start
        contents = {gp + shift: pg for gp, pg in p.private.items() if start <= gp < start + move}
        marks = {gp + shift for gp in p.unsettled if start <= gp < start + move}
        late = {gp + shift for gp in p.late if start <= gp < start + move}
        pinned = {gp + shift: k for gp, k in p.pinned.items() if start <= gp < start + move}
        kind, prot, obj, delta, large = old.kind, old.prot, old.obj, old.delta, old.large
        flags, behind = old.flags, old.behind
        if p.was_paged(start, end):
            p.paged.append((to, to + count))
        if o.c:
            p.drop_pages(start, end)
            if GUARDED in old.flags:
                old.prot = old.behind
            old.flags &= {MERGEABLE}  # the others go with its pages
        else:
            p.unmap(start, end)
        new = Vma(to, to + count, kind, prot, obj, delta - shift, large, flags)
        new.behind = behind
        p.add(new)
        p.private.update(contents)
        p.pinned.update(pinned)
        p.unsettled |= marks
        p.late |= late
        for gp in contents.keys() & p.late:
            p.private[gp].loosen()

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return [(o.region, o.off, o.len), (o.arg, o.a, o.b)]

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        super().meet(b, o, r, racing)
        if r.status:
            return
        start, end = touched(o)
        to = gp_of(o.arg, o.a)
        moved = {gp + to - start: at for gp, at in b.pages.items() if start <= gp < end}
        b.forget(start, end)
        kept = to + o.b // PAGE
        b.pages.update({gp: at for gp, at in moved.items() if gp < kept})

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        if kind in FIXED:
            return "stack and globals stay where they are"
        return "not for hugetlb" if kind in HUGETLB else None

    def sentence(self, o: Op, at: str) -> str:
        left = ", leaving the old range mapped and empty" if o.c else ""
        return f"moves {at} to {span(o.arg, o.a, o.b)} (mremap){left}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        vma = g.pick(proc)
        start, end = g.span(vma)
        region = rng.randrange(REGIONS)
        length = (end - start) * PAGE
        # Beside or across 2 MiB borders, as page tables move whole or piecewise.
        to = rng.randrange(4) * HUGE + rng.choice((0, 0, 16, 255)) * PAGE
        new = length
        r = rng.random()
        dontunmap = 0
        if r < 0.15 and length > PAGE:
            new = length - PAGE
        elif r < 0.3 and vma.kind == MapKind.ANON_PRIVATE:
            new = length + 2 * PAGE
        elif r < 0.45 and vma.kind == MapKind.ANON_PRIVATE:
            dontunmap = 1
        return [g.ranged("mremap", proc, start, end, arg=region, a=to, b=new, c=dontunmap)]


OPERATIONS = (Mmap(), Munmap(), Mprotect(), Mremap(), Replace())
