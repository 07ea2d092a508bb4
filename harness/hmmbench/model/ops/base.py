# SPDX-License-Identifier: GPL-2.0-or-later
"""What an operation is: a kind that programs are made of, and all that the bench knows of it.

A family of operations is one module beside this one; each operation is a class with one instance
there.  Everybody else asks: admission (may it stand here, which results are allowed), the model
(what does it do to memory), shrinking, recipes, report and export.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hmmbench.guest.program import (
    GLOBAL_PAGES,
    HUGE,
    MAX_REGIONS,
    PAGE,
    REGION_SIZE,
    STACK_PAGES,
    MapKind,
    Op,
    OpResult,
)
from hmmbench.model.belief import Belief, touched
from hmmbench.model.drawing import Draw
from hmmbench.model.space import FIXED, HUGETLB, SEALED, Process, Space, gp_of

#: The two regions whose memory is there from the start.
STACK_REGION, GLOBAL_REGION = 14, 15

#: 2 MiB pages all hugetlb mappings of a program may use together, copies by fork included.
HUGETLB_BUDGET = 4

#: Statuses: success; the address space changed all the time, or a signal came in between.
OK = frozenset({0})
TOO_FAST = frozenset({-errno.EBUSY, -errno.EINTR})
#: The guest, asked for what its kernel lacks.  It tried on memory of its own before it says so.
NOT_THERE = -errno.EOPNOTSUPP
PERHAPS = OK | {NOT_THERE}

PROTS = {0: "none", 1: "r", 3: "rw"}


@dataclass(frozen=True)
class Field:
    """A field of an operation: its name in recipes, and which of Op's it is.

    words -- names of its numbers
    hex   -- how people read it
    """

    name: str
    at: str
    words: Mapping[int, str] | None = None
    hex: bool = False


#: What most operations are about.
RANGE = (Field("region", "region"), Field("off", "off", hex=True), Field("len", "len", hex=True))


class Operation:
    """One kind.  The defaults are those of an operation that does nothing.

    number    -- as the agent knows it
    name      -- as recipes have it
    fields    -- what a recipe says of it, beside process, actor, phase and flags
    weight    -- how often it is drawn: of all steps of a program, in 256ths of grammar 1
    since     -- the version of the grammar with which it came, so that a seed of an older one
                 keeps its meaning
    changed   -- later versions, with which what it draws became another (`Draw.grammar`)
    races     -- it may stand in a phase with others
    uses_gpu  -- it opens the GPU, or needs it open
    main_only -- only a process's first thread does it
    wanted    -- a reproducer compares the result of its call with what the model allows
    rows      -- of the table of what a campaign met, in the order in which people look for them
    holes     -- addresses where nothing is mapped are a column of these rows
    group     -- of which part of that table
    oracle    -- which judges what it does or answers
    unmaps    -- behind it, in its phase, nothing is known of its memory
    lays      -- what it does in a phase with others counts for what is admitted after that, as it
                 does for what is judged
    shapes    -- it gives memory its shape, or jobs theirs: bold guesses while shrinking keep it
    areas     -- it is a system call on the process's areas, or on all of them
    alone     -- in a phase with others it is the only such call of its process: what it does
                 depends on how the areas are cut, or on what is in all of them
    reshapes  -- it changes file `b`, perhaps while others access that (model/reshape.py)
    steady    -- it stands beside nothing that changes mappings
    takes     -- how often it may take its pages (`zeroes`) before it is done with them
    optional  -- not each kernel has it: one that lacks it says NOT_THERE, and does nothing
    takes_gpu -- it takes the device away, from whoever has it open; one in a phase
    stale_ok  -- it may use the GPU's file that its process has of a device that was taken away
    trial     -- it tries something on memory of its own: nothing is said of what it tells where the
                 device misbehaves so that promises are off, or is taken away meanwhile
    once      -- the machine is another one after it, or it takes long: a program with it does not
                 run again, to see what it leaves (`again` of an environment)
    """

    number: int
    name: str
    fields: tuple[Field, ...] = ()
    weight = 0
    since = 1
    changed: tuple[int, ...] = ()
    races = False
    uses_gpu = False
    main_only = False
    wanted = True
    shapes = False
    areas = False
    alone = False
    unmaps = False
    reshapes = False
    steady = False
    takes = 1
    optional = False
    takes_gpu = False
    stale_ok = False
    trial = False
    once = False
    lays = True
    rows: tuple[str, ...] = ()
    holes = False
    group = ""
    oracle = "status"

    def word(self, field: str, word: str) -> int:
        """The number that a field has for a word.  Raises StopIteration if it knows none."""
        words = next(f.words for f in self.fields if f.name == field) or {}
        return next(number for number, text in words.items() if text == word)

    def absent(self, r: OpResult) -> bool:
        """Whether its answer says that this kernel lacks it."""
        return self.optional and r.status == NOT_THERE

    # -- drawing --

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """A step with it: operations of one phase; what is to stand before goes to g.first(),
        what is to follow to g.after.  None: it does not make sense here."""
        return []

    # -- the model --

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        """May it stand here, alone?  May change `o` so that it may."""
        return True

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        """With which it may end where it was admitted; None: any.

        racing -- others may change the address space at the same time
        """
        return None

    def takes_ms(self, o: Op) -> int:
        """How long it may wait by itself, with a driver that does its work."""
        return 0

    def walks(self, o: Op) -> int:
        """Pages that the GPU comes to in it, beside those that its fields name."""
        return 0

    def judge(self, o: Op, r: OpResult, racing: bool) -> str:
        """What is wrong with what it answers beside its status; "": nothing."""
        return ""

    def explain(self, space: Space, o: Op, r: OpResult) -> str:
        """What the model, as it is before it, says against its answer; "": nothing.

        Asked only where nothing runs beside it.  May learn from the answer.
        """
        return ""

    def apply(self, space: Space, p: Process, o: Op) -> None:
        """What it does when it succeeds, apart from accesses and copies."""

    def reshaped(self, o: Op, size: int) -> tuple[range, int]:
        """Of file `b`, of `size` pages: those whose content it changes, and its size then."""
        return range(0), size

    # -- what it may race with: the rules are in the head of admit.py --

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        """May it stand in a phase with others, where it may stand alone?  `gpu`: the processes
        that use the GPU in that phase."""
        return True

    def protects(self, o: Op) -> int | None:
        """The protection that it gives its pages while others access them; None: it leaves it."""
        return None

    def writes(self, o: Op) -> bool:
        """Whether it writes its range as a CPU does, without being followed word by word: nobody
        else is at those pages in its phase."""
        return False

    def zeroes(self, o: Op) -> bool:
        """Whether it takes its private pages away, which are zero when touched again."""
        return False

    def lands(self, o: Op) -> tuple[int, int] | None:
        """Pages [start, end) that come to be while others run, and that these leave alone."""
        return None

    def changes(self, o: Op) -> bool:
        """Whether accesses of its phase see a difference."""
        return self.zeroes(o) or self.protects(o) is not None

    # -- its form --

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        """The memory it names: region, offset and length in bytes of each."""
        return [(o.region, o.off, o.len)]

    def simpler(self, o: Op) -> Iterator[Op]:
        """Simpler ones of its kind, the boldest first."""
        return iter(())

    # -- what a campaign met (cells.py) --

    def row(self, o: Op) -> str | None:
        """Which of its rows it counts in."""
        return self.rows[0] if self.rows else None

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        """Counts the cells that it meets, and says where its pages are from now on."""
        row = self.row(o)
        if row is not None:
            b.range(row, *touched(o))

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        """Why a cell cannot be met ("": it can), for mapping kind and residency; None: as the
        common rules have it."""
        return None

    # -- for people --

    def sentence(self, o: Op, at: str) -> str:
        """What it does, without its subject's number; `at`: its range in words."""
        raise NotImplementedError


def shorter(o: Op, least: int) -> Iterator[Op]:
    """The same over less memory, in units of `least` bytes."""
    if o.len > least:
        yield replace(o, len=least)
        yield replace(o, len=o.len // (2 * least) * least)


def pages(o: Op) -> tuple[int, int]:
    """Its range in pages: [start, end)."""
    start = gp_of(o.region, o.off)
    return start, start + o.len // PAGE


def aligned(o: Op) -> bool:
    """Whether its range is whole pages of one region."""
    return (
        o.region < MAX_REGIONS
        and o.len > 0
        and o.off % PAGE == 0
        and o.len % PAGE == 0
        and o.off + o.len <= REGION_SIZE
    )


def ranged(o: Op) -> bool:
    """And of a size that programs use."""
    return aligned(o) and o.len <= 8 * HUGE


def huge_ok(p: Process, start: int, end: int) -> bool:
    """Do the borders of the range cut no hugetlb page?"""
    return all(
        v.kind not in HUGETLB or (max(v.start, start) % 512 == 0 and min(v.end, end) % 512 == 0)
        for v in p.overlapping(start, end)
    )


def flags_of(p: Process, o: Op) -> frozenset[str]:
    """What operations said of its range, or of a part of it."""
    return frozenset[str]().union(*(v.flags for v in p.overlapping(*pages(o))))


def sealed(p: Process, o: Op) -> bool:
    """Does its range have areas that stay as they are?"""
    return SEALED in flags_of(p, o)


def changeable(p: Process, o: Op) -> bool:
    """Do its borders cut no hugetlb page, and are all of its areas sealed, or none?  (The kernel
    may change those before the first that is.)"""
    evenly = not sealed(p, o) or all(SEALED in v.flags for v in p.overlapping(*pages(o)))
    return evenly and huge_ok(p, *pages(o))


def changed(space: Space, o: Op) -> frozenset[int]:
    """How a change of areas ends."""
    return frozenset({-errno.EPERM}) if sealed(space.procs[o.proc], o) else OK


def settled(p: Process, o: Op) -> bool:
    """Is its range mapped as a whole, not too large, and of known contents?"""
    start, end = pages(o)
    return (
        end - start <= 1024
        and p.covered(start, end)
        and not any(start <= gp < end for gp in p.unsettled)
    )


def no_fixed(p: Process, start: int, end: int) -> bool:
    return all(v.kind not in FIXED for v in p.overlapping(start, end))


def fixed_pages(kind: MapKind) -> int:
    """Of the stack, or of the globals."""
    return STACK_PAGES if kind == MapKind.STACK else GLOBAL_PAGES


def hugetlb_used(space: Space) -> int:
    """2 MiB pages that the program's mappings may need at once, at most."""
    shared: dict[int, int] = {}
    private = 0
    for p in space.alive():
        for v in p.vmas:
            if v.kind == MapKind.HUGETLB_SHARED and v.obj is not None:
                shared[id(v.obj)] = v.obj.npages // 512
            elif v.kind == MapKind.HUGETLB_PRIVATE:
                private += (v.end - v.start) // 512
    return private + sum(shared.values())
