# SPDX-License-Identifier: GPL-2.0-or-later
"""Who touches what in one phase: accesses whose outcome nobody could judge are dropped.

First come, first served; the rules are in the head of admit.py.
"""

from __future__ import annotations

from hmmbench.guest.program import PAGE, Acc, Access, MapKind, Op
from hmmbench.model.ops.jobs import GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.processes import Nop
from hmmbench.model.space import FILE, REGION_SHIFT, SHARED, Space, gp_of

#: Changes of one word, unless all are atomics.
RACE_LIMIT = 6

READS = (Acc.READ, Acc.READ32)


class Race:
    """Who touches what in one phase."""

    def __init__(self, space: Space) -> None:
        self.space = space
        # unsettled pages -> the one thread that may touch them
        self.owner: dict[tuple[int, int], tuple[int, int]] = {}
        # file page -> "follow" or "write"
        self.file: dict[tuple[int, int], str] = {}
        # word -> [thread or None if several, changes, only atomics, half words]
        self.words: dict[tuple[int, int, int], _Word] = {}
        # pages of racing copies: (page, word) read or written by a copy
        self.copied: dict[tuple[tuple[int, int], int], bool] = {}
        self.zeroed: set[tuple[int, int]] = set()

    def zeroing(self, o: Op) -> None:
        start = gp_of(o.region, o.off)
        self.zeroed.update((o.proc, gp) for gp in range(start, start + o.len // PAGE))

    def reserve(self, o: Op) -> None:
        """Words of a copy: the source may be read by others, the target too, neither written.

        A copy that conflicts with an earlier one becomes a fill or copy of nothing: len 0
        operations are refused by the driver, so it turns into a NOP.
        """
        ends = [(o.region, o.off, o.op == GpuFill.number)]
        if o.op == GpuCopy.number:
            ends.append((o.arg, o.a, True))
        claims: dict[tuple[tuple[int, int], int], bool] = {}
        follow: set[tuple[int, int]] = set()
        proc = self.space.procs[o.proc]
        for region, off, writes in ends:
            for k in range(o.len // 8):
                gp = gp_of(region, off + 8 * k)
                vma = proc.find(gp)
                assert vma is not None
                ident = identity(o.proc, gp, vma.kind in SHARED, id(vma.obj), gp + vma.delta)
                if vma.kind == MapKind.FILE_PRIVATE:
                    follow.add(identity(o.proc, gp, True, id(vma.obj), gp + vma.delta))
                elif writes and self.file.get(ident) == "follow":
                    o.op = Nop.number
                    return
                claims[(ident, (off + 8 * k) // 8 % 512)] = writes
        for key, writes in claims.items():
            if key in self.copied and (writes or self.copied[key]):
                o.op = Nop.number
                return
        if any(self.file.get(f) == "write" for f in follow):
            o.op = Nop.number
            return
        self.copied.update(claims)
        for f in follow:
            self.file[f] = "follow"
        for (ident, _), writes in claims.items():
            if writes and ident[0] < 0:
                self.file[ident] = "write"

    def filter(self, o: Op, seq: int) -> list[Access]:
        proc = self.space.procs[o.proc]
        gpu = o.op == GpuAccess.number
        out: list[Access] = []
        last = -1
        vma = None
        for a in o.acc:
            kind, region, lane, off, _value, _expect = a
            if kind == Acc.DELAY:
                out.append(a)
                continue
            gp = region << REGION_SHIFT | off >> 12
            if gp != last:
                last = gp
                vma = proc.find(gp)
            if vma is None:
                out.append(a)
                continue
            thread = (seq, lane if gpu else 0)
            if proc.unsettled and gp in proc.unsettled:
                if self.owner.setdefault((o.proc, gp), thread) != thread:
                    continue
                if (o.proc, gp) in self.zeroed:
                    continue
            write = kind not in READS
            shared = vma.kind in SHARED
            ident = identity(o.proc, gp, shared, id(vma.obj), gp + vma.delta)
            if vma.kind in FILE:
                file_page = identity(o.proc, gp, True, id(vma.obj), gp + vma.delta)
                if shared and write:
                    if self.file.setdefault(file_page, "write") != "write":
                        continue
                elif not shared and self.file.setdefault(file_page, "follow") != "follow":
                    continue
            word = off >> 3 & 511
            if self.copied:
                claim = self.copied.get((ident, word))
                if claim is not None and write:
                    continue
            kept = self._word(ident, word, thread, a)
            if kept is not None:
                out.append(kept)
        return out

    def _word(
        self, ident: tuple[int, int], word: int, thread: tuple[int, int], a: Access
    ) -> Access | None:
        kind, _region, _lane, _off, _value, _expect = a
        half = kind in (Acc.READ32, Acc.WRITE32)
        w = self.words.get((*ident, word))
        if w is None:
            w = self.words[(*ident, word)] = _Word(thread)
            w.half = half
        elif w.thread != thread:
            if w.half:
                return None
            w.several = True
        if half and w.several:
            return None
        if half:
            w.half = True
        change = kind not in READS
        if change:
            w.changes += 1
            w.plain |= kind == Acc.WRITE
            if w.several and w.changes > RACE_LIMIT and w.plain:
                w.changes -= 1
                return None
        w.events += 1
        if w.several and w.events > 40:
            return None
        return a


class _Word:
    __slots__ = ("changes", "events", "half", "plain", "several", "thread")

    def __init__(self, thread: tuple[int, int]) -> None:
        self.thread = thread
        self.several = False
        self.changes = 0
        self.events = 0
        self.plain = False
        self.half = False


def identity(proc: int, gp: int, shared: bool, obj: int, index: int) -> tuple[int, int]:
    """The page behind a mapping: negative first for shared objects, the process otherwise."""
    return (-obj, index) if shared else (proc, gp)
