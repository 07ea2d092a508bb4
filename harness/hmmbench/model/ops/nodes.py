# SPDX-License-Identifier: GPL-2.0-or-later
"""Where system memory is: move_pages, mbind, NUMA balancing, and blocks of memory that go.

With one node they go through the same code and move nothing.  What move_pages says of a page (6.12
and 7.3, mm/migrate.c): the node it is on; -ENOENT: nothing is there, or it is in VRAM, whose entry
folio_walk_start() passes over; -EFAULT: no area, or the page of zeroes; -EACCES: others have it,
too; -EBUSY: it is isolated already.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

from hmmbench.guest.program import MIGRATE_DEVICE, PAGE, Acc, Op, OpResult
from hmmbench.model.drawing import REGIONS, WORDS, Draw, usable, writable
from hmmbench.model.ops.base import PERHAPS, RANGE, Field, Operation, pages, ranged, shorter
from hmmbench.model.scenes import racer
from hmmbench.model.space import HUGETLB, Process, Space

#: Pages of one operation (MAX_MOVED of ops/nodes.c).
MOST = 512

#: What is said of a page that was not moved; EAGAIN: the guest, of those never asked about.
_NOT = frozenset(
    {-errno.ENOENT, -errno.EFAULT, -errno.EACCES, -errno.EBUSY, -errno.EAGAIN, -errno.ENOMEM}
)

_GROUP = "migration"


def _beside(g: Draw, proc: Process, o: Op, start: int, end: int) -> list[Op]:
    """The operation, beside a job that uses the pages, or before it."""
    vma = proc.find(start)
    assert vma is not None
    gps, words = list(range(start, min(end, start + 4))), [g.rng.choice(WORDS) for _ in range(2)]
    g.after = [racer(g, proc, 0, vma, gps, words, True), g.touch(proc, vma, start, start + 1,
                                                                 Acc.READ)]  # fmt: skip
    if g.rng.random() < 0.5:
        return [o]
    pause = g.op("sleep", proc, a=g.rng.choice((50, 200, 700)))
    return [pause, o, racer(g, proc, 1, vma, gps, words, True)]


class _Moves(Operation):
    """It moves pages of a range, or would."""

    since = 4
    group = _GROUP
    races = True
    areas = True
    optional = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not ranged(o) or o.len > MOST * PAGE or o.region >= REGIONS or o.arg > 7:
            return False
        there = p.overlapping(*pages(o))
        return p.covered(*pages(o)) and all(v.kind not in HUGETLB for v in there)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return None if racing else PERHAPS

    def impossible(self, row: str, kind: int, at: int) -> str | None:
        return "not for hugetlb" if kind in HUGETLB else None

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        small = [v for v in writable(proc) or usable(proc) if v.kind not in HUGETLB]
        if not small:
            return []
        vma = rng.choice(small)
        start, end = g.span(vma)
        end = min(end, start + MOST)
        if rng.random() < 0.4:
            g.first([g.ranged("migrate", proc, start, end, arg=MIGRATE_DEVICE)])
        o = g.ranged(self.name, proc, start, end, arg=rng.choice((0, 1, 1)))
        return _beside(g, proc, o, start, end)


class MovePages(_Moves):
    number, name = 84, "move_pages"
    weight = 3
    rows = ("move_pages",)
    fields = (*RANGE, Field("node", "arg"), Field("all", "a"))

    def judge(self, o: Op, r: OpResult, racing: bool) -> str:
        if r.status:
            return ""
        count = o.len // PAGE
        if len(r.data) != 4 * count:
            return f"answered {len(r.data)} bytes for {count} pages"
        for said in struct.unpack(f"<{count}i", r.data):
            if said not in _NOT and not 0 <= said < max(r.aux0, 1):
                return f"says {said} of a page, of {r.aux0} nodes"
        return ""

    def sentence(self, o: Op, at: str) -> str:
        return f"asks the kernel to move {at} to node {o.arg} (move_pages)"


class Bind(_Moves):
    number, name = 85, "bind"
    weight = 2
    rows = ("mbind",)
    fields = (*RANGE, Field("node", "arg"))

    def apply(self, space: Space, p: Process, o: Op) -> None:
        # Areas of different policies are not one.
        p.split(*pages(o))

    def sentence(self, o: Op, at: str) -> str:
        return f"prefers node {o.arg} for {at}, and moves it there (mbind)"


class NumaBalance(Operation):
    """Pages go to the node whose CPU uses them; entries are taken away to learn that.

    It is off where a program begins: of one node always, of two by vm/kinds.py.
    """

    number, name = 86, "numa_balance"
    since = 4
    weight = 1
    fields = (Field("on", "arg"),)
    races = True
    wanted = False
    optional = True

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return PERHAPS

    def apply(self, space: Space, p: Process, o: Op) -> None:
        space.balanced |= bool(o.arg)

    def sentence(self, o: Op, at: str) -> str:
        return f"turns NUMA balancing {'on' if o.arg else 'off'}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        return [g.op("numa_balance", proc, arg=int(g.rng.random() < 0.8))]


class Offline(Operation):
    """A block of memory is emptied, goes, and comes back.  It has to be of ZONE_MOVABLE, which the
    machine `movable` has (vm/kinds.py) and no other."""

    number, name = 89, "offline"
    since = 4
    weight = 1
    fields = (Field("block", "arg"),)
    races = True
    wanted = False
    optional = True
    once = True

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        return o.arg < 64

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        # (That it could not be emptied is no status.)
        return PERHAPS

    def takes_ms(self, o: Op) -> int:
        # OFFLINE_S of ops/nodes.c.
        return 2500

    def beside(self, space: Space, p: Process, o: Op, gpu: frozenset[int]) -> bool:
        # A reserved hugetlb page of the block is passed over while the block is isolated
        # (dequeue_hugetlb_folio_node_exact(), mm/hugetlb.c): who touches it gets SIGBUS.
        return not any(v.kind in HUGETLB for q in space.alive() for v in q.vmas)

    def sentence(self, o: Op, at: str) -> str:
        return "takes a block of memory out of the machine, and puts it back"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        """Beside a job whose pages may be there."""
        o = g.op("offline", proc, arg=g.rng.randrange(4))
        job = g.draw("gpu_access", proc)
        for one in job:
            one.actor = 1
        return [o, *job]


OPERATIONS = (MovePages(), Bind(), NumaBalance(), Offline())
