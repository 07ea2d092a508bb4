# SPDX-License-Identifier: GPL-2.0-or-later
"""What the model can decide soundly: the filter between any list of operations and a program.

`normalise` takes operations from wherever they come (the generator, a shrinking recipe that
lost some, a hand-written file), drops those that make no sense where they stand and prunes
accesses whose outcome the checker could not judge.  What it lets through, the checker decides
without a false alarm.  The rules for one phase in which several threads meet:

* An unsettled page (MADV_FREE, a copy that may or may not have happened) is touched by one
  thread only, because its content depends on the order across words.
* A page of a private file mapping follows the file until it is written.  In a phase that
  accesses it through such a mapping nobody writes the file's page; then it does not matter
  when the copy happens.
* Accesses to half words only where one operation runs alone and one lane touches the word:
  mixed sizes have no simple order.
* At most RACE_LIMIT changes of one word, unless all are atomics (whose results give the order).
* A copy or fill is done in pieces which may be repeated after a fault, so nobody else writes
  what it reads or writes.
* mprotect, munmap and DONTNEED of private memory may race with accesses, from one actor.
  Other mm operations have phases of their own.
* A process closes its GPU only while none of its threads uses it.
* Of a query that meets others only the status is judged: its answer is of no known moment.
* A GPU program that does not end by itself is ended by what comes next; in between its process
  may wait for the jobs before it.  Elsewhere it gets a budget, and everything is waited for.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from itertools import groupby

from hmmbench.guest.program import (
    F_NOWAIT,
    GLOBAL_PAGES,
    HUGE,
    MAX_ACTORS,
    MAX_PROCS,
    MAX_REGIONS,
    PAGE,
    PROT_NONE,
    PROT_READ,
    PROT_RW,
    REGION_SIZE,
    STACK_PAGES,
    Acc,
    Access,
    Advice,
    MapKind,
    Op,
    OpKind,
)
from hmmbench.model.space import (
    ANON,
    FILE,
    FIXED,
    HUGETLB,
    REGION_SHIFT,
    SHARED,
    Process,
    Space,
    gp_of,
)

#: The two regions whose memory is there from the start.
STACK_REGION, GLOBAL_REGION = 14, 15
RACE_LIMIT = 6
#: 2 MiB pages all hugetlb mappings of a program may use together, copies by fork included.
HUGETLB_BUDGET = 4
#: Bytes of a copy that races (it is followed word by word).
RACING_COPY = 512

#: Instructions a thread of a program that spins and is not ended by what follows.
SPIN_BUDGET = 1_000_000

_READS = (Acc.READ, Acc.READ32)
_RACING = frozenset(
    {
        OpKind.NOP, OpKind.CPU_ACCESS, OpKind.GPU_ACCESS, OpKind.GPU_COPY, OpKind.GPU_FILL,
        OpKind.MIGRATE, OpKind.MADVISE, OpKind.MPROTECT, OpKind.MUNMAP, OpKind.EVICT,
        OpKind.SLEEP, OpKind.POLICY, OpKind.CLOSE_GPU, OpKind.QUERY,
    }
)  # fmt: skip
#: What opens the GPU, or needs it open.
_USES_GPU = frozenset(
    {
        OpKind.GPU_ACCESS, OpKind.GPU_COPY, OpKind.GPU_FILL, OpKind.MIGRATE, OpKind.POLICY,
        OpKind.QUERY,
    }
)  # fmt: skip
_MAIN_ONLY = frozenset({OpKind.FORK, OpKind.SPAWN, OpKind.EXIT})


def normalise(ops: Iterable[Op], file_pages: tuple[int, int, int, int]) -> list[Op]:
    """The sound part of `ops`, with phases renumbered from 0."""
    space = Space(file_pages)
    state = Admission(space)
    out: list[Op] = []
    phase = 0
    listed = list(ops)
    for _, group in groupby(listed, key=lambda o: o.phase):
        kept = state.phase(list(group))
        if not kept:
            continue
        for o in kept:
            o.phase = phase
        phase += 1
        out += kept
    return end_nowait(out)


def end_nowait(ops: list[Op]) -> list[Op]:
    """NOWAIT stays only before the operation that ends the job or waits for it; else it is waited
    for at once.  Nothing waits for a program that spins without a budget."""
    for i, o in enumerate(ops):
        if o.op == OpKind.GPU_ACCESS and o.flags & F_NOWAIT:
            if not _waited(ops, i) and not broken_off(ops, i):
                o.flags &= ~F_NOWAIT
        elif o.op == OpKind.WAIT_GPU:
            behind = i > 0 and ops[i - 1].op == OpKind.GPU_SPIN and ops[i - 1].proc == o.proc
            o.a = int(o.a == 1 and behind and _ended(ops, i))
    for i, o in enumerate(ops):
        if o.op == OpKind.GPU_SPIN and not _left_behind(ops, i) and not broken_off(ops, i):
            o.a = min(o.a or SPIN_BUDGET, SPIN_BUDGET)
    return ops


def _waited(ops: list[Op], i: int) -> bool:
    """Whether WAIT_GPU follows the job of operation i, perhaps after one that spins."""
    proc = ops[i].proc
    if i + 1 < len(ops) and ops[i + 1].op == OpKind.GPU_SPIN and ops[i + 1].proc == proc:
        i += 1
    return i + 1 < len(ops) and ops[i + 1].op == OpKind.WAIT_GPU and ops[i + 1].proc == proc


def _left_behind(ops: list[Op], i: int) -> bool:
    """Whether the next operation waits for what is before the program that spins, not for it."""
    n = ops[i + 1] if i + 1 < len(ops) else None
    return n is not None and n.op == OpKind.WAIT_GPU and n.proc == ops[i].proc and n.a == 1


def _ended(ops: list[Op], i: int) -> bool:
    """Whether all jobs of the process of operation i end after it: also by the program's end."""
    return i + 1 == len(ops) or broken_off(ops, i)


def broken_off(ops: list[Op], i: int) -> bool:
    """Whether what comes next ends the job of operation i, finished or not."""
    if i + 1 >= len(ops):
        return False
    n, proc = ops[i + 1], ops[i].proc
    if n.op == OpKind.CLOSE_GPU and n.proc == proc:
        # Alone: what runs beside it would see what the job still does.
        return i + 2 >= len(ops) or ops[i + 2].phase != n.phase
    return (n.op == OpKind.EXIT and n.proc == proc) or (n.op == OpKind.KILL and n.arg == proc)


class Admission:
    """The structure of memory along a program; `phase` filters the next phase and applies it."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def phase(self, ops: list[Op]) -> list[Op]:
        """The admissible part of the operations of one phase (changes them in place)."""
        if len({(o.proc, o.actor) for o in ops}) <= 1:
            out = []
            for o in ops:
                if self._admit(o):
                    out.append(o)
                    self.space.apply(o)
            return out
        return self._race(ops)

    def _alive(self, o: Op) -> bool:
        p = self.space.procs.get(o.proc)
        return p is not None and p.alive and o.actor < MAX_ACTORS

    def _admit(self, o: Op) -> bool:
        """One operation that runs alone."""
        if not self._alive(o) or (o.op in _MAIN_ONLY and o.actor):
            return False
        if o.op in (OpKind.CPU_ACCESS, OpKind.GPU_ACCESS):
            self._reachable(o)
            if o.op == OpKind.GPU_ACCESS:
                self._prune([o])
                self._mark_uncertain(o)
            return bool(o.acc)
        if o.op in (OpKind.GPU_COPY, OpKind.GPU_FILL):
            return self._copy(o)
        return admissible(self.space, o)

    def _reachable(self, o: Op) -> None:
        """Drop accesses outside regions, and to fixed regions that the process did not map.

        (The stack and the globals are there even when the program does not say so.)
        """
        proc = self.space.procs[o.proc]
        o.acc = [
            a for a in o.acc
            if _in_region(a)
            and (a[1] < STACK_REGION or a[0] == Acc.DELAY or proc.find(gp_of(a[1], a[3])))
        ]  # fmt: skip

    def _mark_uncertain(self, o: Op) -> None:
        """After a job that fails, or whose compare fails, a private file page may be a copy."""
        proc = self.space.procs[o.proc]
        fails = bool(o.flags & F_NOWAIT)
        private_file: set[int] = set()
        cas: set[int] = set()
        for kind, region, _, off, _, _ in o.acc:
            if kind == Acc.DELAY:
                continue
            gp = region << REGION_SHIFT | off >> 12
            vma = proc.find(gp)
            if vma is None or not vma.prot & (1 if kind in _READS else 2):
                fails = True
            elif vma.kind == MapKind.FILE_PRIVATE and kind not in _READS:
                private_file.add(gp)
                if kind == Acc.CAS:
                    cas.add(gp)
        proc.unsettled |= private_file if fails else cas

    def _copy(self, o: Op, racing: bool = False) -> bool:
        if o.off % 8 or o.len % 8 or o.a % 8 * (o.op == OpKind.GPU_COPY) or not o.len:
            return False
        fill = o.op == OpKind.GPU_FILL
        ends = [(o.region, o.off)] if fill else [(o.region, o.off), (o.arg, o.a)]
        proc = self.space.procs[o.proc]
        fails = False
        for which, (region, off) in enumerate(ends):
            if region >= MAX_REGIONS or off + o.len > REGION_SIZE:
                return False
            if region >= STACK_REGION and not proc.covered(
                gp_of(region, off), gp_of(region, off + o.len - 1) + 1
            ):
                return False
            writes = fill or which == 1
            for gp in range(gp_of(region, off), gp_of(region, off + o.len - 1) + 1):
                vma = proc.find(gp)
                if vma is None or not vma.prot & (2 if writes else 1):
                    fails = True
                if gp in proc.unsettled:
                    return False
        if fails and (o.len > PAGE or racing):
            return False
        if not fill and self._backing(o.proc, o.region, o.off, o.len) & self._backing(
            o.proc, o.arg, o.a, o.len
        ):
            return False
        if fails:
            region, off = ends[-1]
            for gp in range(gp_of(region, off), gp_of(region, off + o.len - 1) + 1):
                vma = proc.find(gp)
                if vma is not None and vma.kind == MapKind.FILE_PRIVATE:
                    proc.unsettled.add(gp)
        return True

    def _backing(self, proc: int, region: int, off: int, length: int) -> set[tuple[int, int]]:
        """Identities of the pages of a range: equal for every mapping of a shared page."""
        p = self.space.procs[proc]
        out: set[tuple[int, int]] = set()
        for gp in range(gp_of(region, off), gp_of(region, off + length - 1) + 1):
            vma = p.find(gp)
            if vma is None:
                continue
            out.add(_identity(proc, gp, vma.kind in SHARED, id(vma.obj), gp + vma.delta))
            if vma.kind == MapKind.FILE_PRIVATE:
                # It may still be the file's own page.
                out.add(_identity(proc, gp, True, id(vma.obj), gp + vma.delta))
        return out

    # -- several threads --

    def _race(self, ops: list[Op]) -> list[Op]:
        mm_actor: tuple[int, int] | None = None
        unmapped = False
        out: list[Op] = []
        with_gpu = {o.proc for o in ops if o.op in _USES_GPU}
        for o in ops:
            if not self._alive(o) or o.op not in _RACING or o.flags & F_NOWAIT:
                continue
            if o.op in (OpKind.MPROTECT, OpKind.MUNMAP) or (
                o.op == OpKind.MADVISE and o.a == Advice.DONTNEED
            ):
                who = (o.proc, o.actor)
                if unmapped or mm_actor not in (None, who) or not self._racing_mm(o):
                    continue
                mm_actor = who
                # What follows an munmap would be judged against the state before it.
                unmapped = o.op == OpKind.MUNMAP
                out.append(o)
            elif o.op in (OpKind.CPU_ACCESS, OpKind.GPU_ACCESS):
                self._reachable(o)
                o.acc = [a for a in o.acc if a[0] not in (Acc.READ32, Acc.WRITE32)]
                if o.acc:
                    out.append(o)
            elif o.op in (OpKind.GPU_COPY, OpKind.GPU_FILL):
                if o.len <= RACING_COPY and self._copy(o, True):
                    out.append(o)
            elif o.op == OpKind.CLOSE_GPU:
                if o.proc not in with_gpu:
                    out.append(o)
            elif (
                o.op == OpKind.MADVISE and o.a in (Advice.FREE, Advice.MERGEABLE)
            ) or not admissible(self.space, o):
                continue
            else:
                out.append(o)
        # Whether an operation is legal was judged against the state before the phase; an
        # munmap in it may take the ground from the others' calls, so their status is free
        # (legal_status with racing=True).
        mm = [o for o in out if o.op in (OpKind.MPROTECT, OpKind.MUNMAP)]
        if mm:
            changing = {
                gp for o in mm for gp in range(gp_of(o.region, o.off),
                                               gp_of(o.region, o.off) + o.len // PAGE)
            }  # fmt: skip
            out = [o for o in out if not self._copy_in(o, mm[0].proc, changing)]
        self._prune(out)
        out = [o for o in out if o.acc or o.op not in (OpKind.CPU_ACCESS, OpKind.GPU_ACCESS)]
        self._mark_racing(out, mm)
        for o in out:
            if o.op in (OpKind.MPROTECT, OpKind.MUNMAP, OpKind.MADVISE):
                self.space.apply(o)
        return out

    def _racing_mm(self, o: Op) -> bool:
        """Only private anonymous, settled memory; mprotect also shared memory."""
        if not admissible(self.space, o):
            return False
        start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
        proc = self.space.procs[o.proc]
        vmas = proc.overlapping(start, end)
        if end - start > 1024 or not proc.covered(start, end):
            return False
        if any(start <= gp < end for gp in proc.unsettled):
            return False
        if o.op == OpKind.MPROTECT:
            return all(v.kind in ANON or v.kind in SHARED for v in vmas)
        return all(v.kind == MapKind.ANON_PRIVATE for v in vmas) or (
            o.op == OpKind.MADVISE and all(v.kind in ANON for v in vmas)
        )

    @staticmethod
    def _copy_in(o: Op, proc: int, changing: set[int]) -> bool:
        if o.op not in (OpKind.GPU_COPY, OpKind.GPU_FILL) or o.proc != proc:
            return False
        ends = [(o.region, o.off)]
        if o.op == OpKind.GPU_COPY:
            ends.append((o.arg, o.a))
        return any(
            gp in changing
            for region, off in ends
            for gp in range(gp_of(region, off), gp_of(region, off + o.len - 1) + 1)
        )

    def _mark_racing(self, ops: list[Op], mm: list[Op]) -> None:
        for o in ops:
            if o.op == OpKind.GPU_ACCESS:
                self._mark_uncertain(o)
        if not mm:
            return
        # Jobs may fail in this phase: private file pages they write may or may not be copies.
        for o in ops:
            if o.op == OpKind.GPU_ACCESS:
                proc = self.space.procs[o.proc]
                for kind, region, _, off, _, _ in o.acc:
                    gp = region << REGION_SHIFT | off >> 12
                    vma = proc.find(gp)
                    if (
                        kind not in _READS and kind != Acc.DELAY and vma is not None
                        and vma.kind == MapKind.FILE_PRIVATE
                    ):  # fmt: skip
                        proc.unsettled.add(gp)

    def _prune(self, ops: list[Op]) -> None:
        """Drop accesses that the rules of this file's head forbid; first come, first served."""
        race = _Race(self.space)
        for o in ops:
            if o.op in (OpKind.GPU_COPY, OpKind.GPU_FILL):
                race.reserve(o)
        for o in ops:
            if o.op == OpKind.MADVISE and o.a == Advice.DONTNEED:
                race.zeroing(o)
        for seq, o in enumerate(ops):
            if o.op in (OpKind.CPU_ACCESS, OpKind.GPU_ACCESS):
                o.acc = race.filter(o, seq)


class _Race:
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
        ends = [(o.region, o.off, o.op == OpKind.GPU_FILL)]
        if o.op == OpKind.GPU_COPY:
            ends.append((o.arg, o.a, True))
        claims: dict[tuple[tuple[int, int], int], bool] = {}
        follow: set[tuple[int, int]] = set()
        proc = self.space.procs[o.proc]
        for region, off, writes in ends:
            for k in range(o.len // 8):
                gp = gp_of(region, off + 8 * k)
                vma = proc.find(gp)
                assert vma is not None
                ident = _identity(o.proc, gp, vma.kind in SHARED, id(vma.obj), gp + vma.delta)
                if vma.kind == MapKind.FILE_PRIVATE:
                    follow.add(_identity(o.proc, gp, True, id(vma.obj), gp + vma.delta))
                elif writes and self.file.get(ident) == "follow":
                    o.op = OpKind.NOP
                    return
                claims[(ident, (off + 8 * k) // 8 % 512)] = writes
        for key, writes in claims.items():
            if key in self.copied and (writes or self.copied[key]):
                o.op = OpKind.NOP
                return
        if any(self.file.get(f) == "write" for f in follow):
            o.op = OpKind.NOP
            return
        self.copied.update(claims)
        for f in follow:
            self.file[f] = "follow"
        for (ident, _), writes in claims.items():
            if writes and ident[0] < 0:
                self.file[ident] = "write"

    def filter(self, o: Op, seq: int) -> list[Access]:
        proc = self.space.procs[o.proc]
        gpu = o.op == OpKind.GPU_ACCESS
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
            write = kind not in _READS
            shared = vma.kind in SHARED
            ident = _identity(o.proc, gp, shared, id(vma.obj), gp + vma.delta)
            if vma.kind in FILE:
                file_page = _identity(o.proc, gp, True, id(vma.obj), gp + vma.delta)
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
        change = kind not in _READS
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


def _identity(proc: int, gp: int, shared: bool, obj: int, index: int) -> tuple[int, int]:
    """The page behind a mapping: negative first for shared objects, the process otherwise."""
    return (-obj, index) if shared else (proc, gp)


def _in_region(a: Access) -> bool:
    kind, region, _, off, _, _ = a
    if kind == Acc.DELAY:
        return True
    align = 4 if kind in (Acc.READ32, Acc.WRITE32) else 8
    size = REGION_SIZE
    if region >= STACK_REGION:
        size = (STACK_PAGES if region == STACK_REGION else GLOBAL_PAGES) * PAGE
    # (The agent wants room for a whole word behind half a one.)
    return region < MAX_REGIONS and off + 8 <= size and off % align == 0


# -- single operations --


def admissible(space: Space, o: Op) -> bool:
    """May this operation stand here?  (Not for accesses and copies.)"""
    check = _RULES.get(OpKind(o.op))
    p = space.procs[o.proc]
    if check is None or not check(space, p, o):
        return False
    if o.len and o.op != OpKind.MMAP and o.region >= STACK_REGION:
        start = gp_of(o.region, o.off)
        return p.covered(start, start + o.len // PAGE)
    return True


def _aligned_range(o: Op) -> bool:
    return (
        o.region < MAX_REGIONS
        and o.len > 0
        and o.off % PAGE == 0
        and o.len % PAGE == 0
        and o.off + o.len <= REGION_SIZE
    )


def _huge_ok(p: Process, start: int, end: int) -> bool:
    """Do the borders of the range cut no hugetlb page?"""
    return all(
        v.kind not in HUGETLB or (max(v.start, start) % 512 == 0 and min(v.end, end) % 512 == 0)
        for v in p.overlapping(start, end)
    )


def _no_fixed(p: Process, start: int, end: int) -> bool:
    return all(v.kind not in FIXED for v in p.overlapping(start, end))


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


def _mmap(space: Space, p: Process, o: Op) -> bool:
    if o.arg not in list(MapKind) or o.a not in (PROT_NONE, PROT_READ, PROT_RW):
        return False
    kind = MapKind(o.arg)
    if kind in FIXED:
        o.len = (STACK_PAGES if kind == MapKind.STACK else GLOBAL_PAGES) * PAGE
        o.off, o.a = 0, PROT_RW
        # The memory is there anyway; the operation clears it.  A child of fork has its parent's.
        if o.region != (STACK_REGION if kind == MapKind.STACK else GLOBAL_REGION):
            return False
        if any(v.kind == kind for v in p.vmas):
            return False
        if kind == MapKind.STACK and o.actor:
            return False
    if not _aligned_range(o) or o.len > 8 * HUGE:
        return False
    start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
    if (o.region >= STACK_REGION) != (kind in FIXED) or p.overlapping(start, end):
        return False
    if kind in FILE:
        if o.b >= len(space.files) or o.c % PAGE:
            return False
        return o.c // PAGE + o.len // PAGE <= space.files[o.b].npages
    if kind in HUGETLB:
        if o.off % HUGE or o.len % HUGE:
            return False
        return hugetlb_used(space) + o.len // HUGE <= HUGETLB_BUDGET
    return True


def _munmap(space: Space, p: Process, o: Op) -> bool:
    if not _aligned_range(o):
        return False
    start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
    return _huge_ok(p, start, end) and _no_fixed(p, start, end)


def _mprotect(space: Space, p: Process, o: Op) -> bool:
    if not _aligned_range(o) or o.a not in (PROT_NONE, PROT_READ, PROT_RW):
        return False
    start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
    return (
        p.covered(start, end)
        and _huge_ok(p, start, end)
        and all(v.kind != MapKind.STACK for v in p.overlapping(start, end))
    )


def _mremap(space: Space, p: Process, o: Op) -> bool:
    if not _aligned_range(o) or o.arg >= MAX_REGIONS or o.a % PAGE or o.b % PAGE or not o.b:
        return False
    if o.a + o.b > REGION_SIZE or o.b > 8 * HUGE:
        return False
    start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
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
    if o.c and (o.b != o.len or v.kind != MapKind.ANON_PRIVATE):
        return False
    # Growing a shared mapping would reach behind the end of its object.
    return o.b <= o.len or v.kind == MapKind.ANON_PRIVATE


def _madvise(space: Space, p: Process, o: Op) -> bool:
    if not _aligned_range(o) or o.a not in list(Advice):
        return False
    start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
    vmas = p.overlapping(start, end)
    if not vmas:
        return False
    if o.a == Advice.DONTNEED:
        return _huge_ok(p, start, end)
    if o.a == Advice.FREE:
        # Either all of it can be freed or the call is refused as a whole.
        return end - start <= 1024 and (
            all(v.kind in ANON for v in vmas)
            or (len(vmas) == 1 and vmas[0].kind not in ANON and p.covered(start, end))
        )
    if o.a in (Advice.HUGEPAGE, Advice.NOHUGEPAGE, Advice.MERGEABLE):
        return all(v.kind not in HUGETLB for v in vmas)
    return all(v.kind not in HUGETLB for v in vmas) or len(vmas) == 1


def _fork(space: Space, p: Process, o: Op) -> bool:
    if not 0 < o.arg < MAX_PROCS or o.arg in space.procs:
        return False
    if o.op == OpKind.SPAWN:
        return True
    private = sum(
        (v.end - v.start) // 512 for v in p.vmas if v.kind == MapKind.HUGETLB_PRIVATE
    )
    # A child's copy of a hugetlb page is not reserved: leave room for it.
    return hugetlb_used(space) + private <= HUGETLB_BUDGET


def _kill(space: Space, p: Process, o: Op) -> bool:
    victim = space.procs.get(o.arg)
    return victim is not None and victim.alive and o.arg != o.proc


def _ranged(space: Space, p: Process, o: Op) -> bool:
    return _aligned_range(o) and o.len <= 8 * HUGE


def _query(space: Space, p: Process, o: Op) -> bool:
    return _aligned_range(o) and o.len <= HUGE


def _always(space: Space, p: Process, o: Op) -> bool:
    return True


_RULES = {
    OpKind.NOP: _always,
    OpKind.MMAP: _mmap,
    OpKind.MUNMAP: _munmap,
    OpKind.MPROTECT: _mprotect,
    OpKind.MREMAP: _mremap,
    OpKind.MADVISE: _madvise,
    OpKind.MIGRATE: _ranged,
    OpKind.POLICY: _always,
    OpKind.EVICT: _always,
    OpKind.QUERY: _query,
    OpKind.FORK: _fork,
    OpKind.SPAWN: _fork,
    OpKind.EXIT: _always,
    OpKind.KILL: _kill,
    OpKind.WAIT_GPU: _always,
    OpKind.SLEEP: _always,
    OpKind.GPU_SPIN: _always,
    OpKind.CLOSE_GPU: _always,
    OpKind.KSM: _always,
}


# -- what the call may return --

_OK = frozenset({0})
#: The address space changed all the time; a signal came in between.
_TOO_FAST = frozenset({-errno.EBUSY, -errno.EINTR})


def legal_status(space: Space, o: Op, racing: bool = False) -> frozenset[int] | None:
    """Statuses with which the (admissible) operation may end; None: any.

    `racing`: others may change the address space at the same time.
    """
    if o.op in (OpKind.MMAP, OpKind.MREMAP, OpKind.FORK, OpKind.SPAWN, OpKind.MUNMAP):
        return _OK
    if o.op == OpKind.MPROTECT:
        return _OK
    p = space.procs[o.proc]
    start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
    if o.op == OpKind.MADVISE:
        vmas = p.overlapping(start, end)
        if racing and o.a != Advice.DONTNEED:
            return None
        if o.a in (Advice.HUGEPAGE, Advice.NOHUGEPAGE, Advice.MERGEABLE):
            return None
        if o.a == Advice.FREE and any(v.kind not in ANON for v in vmas):
            return frozenset({-errno.EINVAL})
        if o.a in (Advice.COLD, Advice.PAGEOUT) and any(v.kind in HUGETLB for v in vmas):
            return frozenset({-errno.EINVAL})
        return _OK if p.covered(start, end) else frozenset({-errno.ENOMEM})
    if o.op == OpKind.MIGRATE:
        if racing:
            return _OK | _TOO_FAST | {-errno.EFAULT, -errno.ENOMEM}
        return _OK if p.overlapping(start, end) else frozenset({-errno.EFAULT, 0})
    if o.op == OpKind.QUERY and racing:
        return _OK | _TOO_FAST
    if o.op in (OpKind.POLICY, OpKind.QUERY, OpKind.EVICT, OpKind.WAIT_GPU, OpKind.CLOSE_GPU):
        return _OK
    return None
