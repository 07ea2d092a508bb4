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
  what it reads or writes.  It may race with what takes its memory, and fail; not with what
  makes it zero, or changes its file.
* mprotect, munmap, mremap, fork, and DONTNEED of private memory, or mmap over it, may race with
  accesses, from one actor.  mremap, mmap over what is there and fork are then the only call
  of their process on its areas, and nobody touches where mremap moves to.
* So may what changes files, from one actor (reshape.py).
  Other mm operations have phases of their own.
* Guards come and go beside accesses, as protection does, whose contents go with them; writes are
  protected against, and soft-dirty bits cleared, beside them too, and then nothing is known of
  what was written.  What serves faults, and what breaks memory, has a phase of its own.
* Nobody is to take a page that is missing for zeroes where its process fills it: such memory is not
  copied by fork, nor moved by mremap.
* Of sealed areas all of a range is sealed, or none; else who is refused may have done a part.
* An operation that this kernel lacks may have happened or not: what then is admitted holds in both.
* What the kernel writes for a call that gets hold of pages (pins.py), nobody else is at, and no
  fork of the process takes along.
* A process closes its GPU only while none of its threads uses it.
* The device is taken away (ops/device.py) beside anything that may race, once in a phase.  Whoever
  has its file open is to open it anew before it uses the GPU again.
* Of a query that meets others only the status is judged: its answer is of no known moment.
* A GPU program that does not end by itself is ended by what comes next; in between its process
  may wait for the jobs before it.  Elsewhere it gets a budget, and everything is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from hmmbench.guest.program import (
    F_NOWAIT,
    GLOBAL_PAGES,
    MAX_ACTORS,
    MAX_REGIONS,
    PAGE,
    REGION_SIZE,
    STACK_PAGES,
    Acc,
    Access,
    MapKind,
    Op,
)
from hmmbench.model.ops import apply
from hmmbench.model.ops import of as operation
from hmmbench.model.ops.base import STACK_REGION
from hmmbench.model.ops.device import Away, TakeGpu
from hmmbench.model.ops.jobs import (
    CloseGpu,
    CpuAccess,
    GpuAccess,
    GpuCopy,
    GpuFill,
    GpuSpin,
    WaitGpu,
)
from hmmbench.model.ops.lives import SendGpu
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.processes import Exit, Fork, Kill, Nop
from hmmbench.model.race import READS, Race, identity
from hmmbench.model.reshape import Reshaped
from hmmbench.model.space import REGION_SHIFT, SHARED, Space, gp_of

#: Bytes of a copy that races (it is followed word by word).
RACING_COPY = 512

#: Instructions a thread of a program that spins and is not ended by what follows.
SPIN_BUDGET = 1_000_000



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
        if o.op == GpuAccess.number and o.flags & F_NOWAIT:
            if not _waited(ops, i) and not broken_off(ops, i):
                o.flags &= ~F_NOWAIT
        elif o.op == WaitGpu.number:
            behind = i > 0 and ops[i - 1].op == GpuSpin.number and ops[i - 1].proc == o.proc
            o.a = int(o.a == 1 and behind and _ended(ops, i))
    for i, o in enumerate(ops):
        if o.op == GpuSpin.number and not _left_behind(ops, i) and not broken_off(ops, i):
            o.a = min(o.a or SPIN_BUDGET, SPIN_BUDGET)
    return ops


def _waited(ops: list[Op], i: int) -> bool:
    """Whether WAIT_GPU follows the job of operation i, perhaps after one that spins."""
    proc = ops[i].proc
    if i + 1 < len(ops) and ops[i + 1].op == GpuSpin.number and ops[i + 1].proc == proc:
        i += 1
    return i + 1 < len(ops) and ops[i + 1].op == WaitGpu.number and ops[i + 1].proc == proc


def _left_behind(ops: list[Op], i: int) -> bool:
    """Whether the next operation waits for what is before the program that spins, not for it."""
    n = ops[i + 1] if i + 1 < len(ops) else None
    return n is not None and n.op == WaitGpu.number and n.proc == ops[i].proc and n.a == 1


def _ended(ops: list[Op], i: int) -> bool:
    """Whether all jobs of the process of operation i end after it: also by the program's end."""
    return i + 1 == len(ops) or broken_off(ops, i)


def broken_off(ops: list[Op], i: int) -> bool:
    """Whether what comes next ends the job of operation i, finished or not."""
    if i + 1 >= len(ops):
        return False
    n, proc = ops[i + 1], ops[i].proc
    gone = n.op == TakeGpu.number and n.arg != Away.RELOAD
    if gone or (n.op == CloseGpu.number and n.proc == proc):
        # Alone: what runs beside it would see what the job still does.
        return i + 2 >= len(ops) or ops[i + 2].phase != n.phase
    ends = (n.op == Exit.number and n.proc == proc) or (n.op == Kill.number and n.arg == proc)
    if ops[i].op == GpuAccess.number and any(
        o.op == SendGpu.number and o.proc == proc for o in ops[:i]
    ):
        # Its file may live on: the job ends with the memory, not when somebody waits for it.
        return False
    return ends


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
                    apply(self.space, o)
            return out
        return self._race(ops)

    def _alive(self, o: Op) -> bool:
        p = self.space.procs.get(o.proc)
        return p is not None and p.alive and o.actor < MAX_ACTORS

    def _admit(self, o: Op) -> bool:
        """One operation that runs alone."""
        if not self._alive(o) or (operation(o).main_only and o.actor) or self._stale(o):
            return False
        if o.op in (CpuAccess.number, GpuAccess.number):
            self._reachable(o)
            if o.op == GpuAccess.number:
                self._prune([o])
                self._mark_uncertain(o)
            return bool(o.acc)
        if o.op in (GpuCopy.number, GpuFill.number):
            return self._copy(o)
        return admissible(self.space, o)

    def _stale(self, o: Op) -> bool:
        """Does it use the GPU by a file that may be of a device that was taken away?"""
        kind = operation(o)
        return kind.uses_gpu and not kind.stale_ok and self.space.procs[o.proc].stale > 0

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
            if vma is None or not vma.allows(gp, 1 if kind in READS else 2):
                fails = True
            elif vma.kind == MapKind.FILE_PRIVATE and kind not in READS:
                private_file.add(gp)
                if kind == Acc.CAS:
                    cas.add(gp)
        proc.unsettled |= private_file if fails else cas

    def _copy(self, o: Op, racing: bool = False) -> bool:
        if o.off % 8 or o.len % 8 or o.a % 8 * (o.op == GpuCopy.number) or not o.len:
            return False
        fill = o.op == GpuFill.number
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
                if vma is None or not vma.allows(gp, 2 if writes else 1):
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
            out.add(identity(proc, gp, vma.kind in SHARED, id(vma.obj), gp + vma.delta))
            if vma.kind == MapKind.FILE_PRIVATE:
                # It may still be the file's own page.
                out.add(identity(proc, gp, True, id(vma.obj), gp + vma.delta))
        return out

    # -- several threads --

    def _race(self, ops: list[Op]) -> list[Op]:
        mm_actor: tuple[int, int] | None = None
        file_actor: tuple[int, int] | None = None
        unmapped = False
        out: list[Op] = []
        gpu = frozenset(o.proc for o in ops if operation(o).uses_gpu)
        for o in ops:
            kind = operation(o)
            if not self._alive(o) or not kind.races or o.flags & F_NOWAIT:
                continue
            if (kind.main_only and o.actor) or self._stale(o):
                continue
            if kind.takes_gpu and any(operation(n).takes_gpu for n in out):
                continue
            if kind.areas and any(
                operation(n).areas and n.proc == o.proc and (kind.alone or operation(n).alone)
                for n in out
            ):
                continue
            if o.op in (CpuAccess.number, GpuAccess.number):
                self._reachable(o)
                o.acc = [a for a in o.acc if a[0] not in (Acc.READ32, Acc.WRITE32)]
                if o.acc:
                    out.append(o)
            elif o.op in (GpuCopy.number, GpuFill.number):
                if o.len <= RACING_COPY and self._copy(o, True):
                    out.append(o)
            elif kind.reshapes:
                if file_actor in (None, (o.proc, o.actor)) and self._beside(o, gpu):
                    file_actor = (o.proc, o.actor)
                    out.append(o)
            elif operation(o).changes(o):
                who = (o.proc, o.actor)
                if unmapped or mm_actor not in (None, who) or not self._beside(o, gpu):
                    continue
                mm_actor = who
                # What follows an munmap would be judged against the state before it.
                unmapped = operation(o).unmaps
                out.append(o)
            elif self._beside(o, gpu):
                out.append(o)
        # Whether an operation is legal was judged against the state before the phase; an
        # munmap in it may take the ground from the others' calls, so their status is free
        # (`statuses` with racing=True).
        mm = [o for o in out if operation(o).protects(o) is not None]
        changing = _touched(mm)
        zeroed = _touched(o for o in out if operation(o).zeroes(o))
        out = [o for o in out if not self._unsure_copy(o, out, changing, zeroed)]
        if any(operation(o).changes(o) for o in out):
            out = [o for o in out if not operation(o).steady]
        forks = {o.proc for o in out if o.op == Fork.number}
        out = [o for o in out if o.proc not in forks or not operation(o).writes(o)]
        shaped = Reshaped(self.space, out)
        if shaped.pages:
            out = [o for o in out if not self._copy_of(o, shaped)]
        self._keep_away(out)
        self._prune(out, shaped)
        out = [o for o in out if o.acc or o.op not in (CpuAccess.number, GpuAccess.number)]
        out = self._apart(out, shaped)
        self._mark_racing(out, bool(mm) or bool(shaped.pages))
        for o in out:
            if operation(o).lays:
                apply(self.space, o)
        return out

    def _beside(self, o: Op, gpu: frozenset[int]) -> bool:
        """May it stand here, in a phase with others?  (Not for accesses and copies.)"""
        p = self.space.procs[o.proc]
        return admissible(self.space, o) and operation(o).beside(self.space, p, o, gpu)

    def _unsure_copy(
        self, o: Op, others: list[Op], changing: set[tuple[int, int]],
        zeroed: set[tuple[int, int]],
    ) -> bool:  # fmt: skip
        """Is it a copy of which nobody knows what it copies, or whether it made a file's page
        private?"""
        if o.op not in (GpuCopy.number, GpuFill.number):
            return False
        ends = [(o.proc, gp) for region, off, n in operation(o).ranges(o)
                for gp in range(gp_of(region, off), gp_of(region, off + n - 1) + 1)]
        if o.op == GpuCopy.number and not zeroed.isdisjoint(ends):
            return True
        find = self.space.procs[o.proc].find
        private = any((v := find(gp)) and v.kind == MapKind.FILE_PRIVATE for _, gp in ends)
        forks = any(n.op == Fork.number and n.proc == o.proc for n in others)
        return private and (forks or not changing.isdisjoint(ends))

    @staticmethod
    def _keep_away(ops: list[Op]) -> None:
        """From where memory comes to lie in the phase."""
        for mover in ops:
            where = operation(mover).lands(mover)
            if where is None:
                continue
            for o in ops:
                if o is mover or o.proc != mover.proc:
                    continue
                o.acc = [a for a in o.acc if a[0] == Acc.DELAY
                         or not where[0] <= gp_of(a[1], a[3]) < where[1]]
                if o.op in (GpuCopy.number, GpuFill.number) and any(
                    gp_of(region, off) < where[1] and gp_of(region, off + n - 1) >= where[0]
                    for region, off, n in operation(o).ranges(o)
                ):
                    o.op = Nop.number

    def _apart(self, ops: list[Op], shaped: Reshaped) -> list[Op]:
        """Without those that write their range as a whole where another one is, too."""
        if not any(operation(o).writes(o) for o in ops):
            return ops
        taken: list[set[tuple[int, int]]] = []
        for o in ops:
            followed = bool(o.acc) or o.op in (GpuCopy.number, GpuFill.number)
            pages: set[tuple[int, int]] = set()
            if followed or operation(o).writes(o):
                for region, off, length in operation(o).ranges(o):
                    pages |= self._backing(o.proc, region, off, length)
            taken.append(pages)
        kept = []
        for k, o in enumerate(ops):
            if operation(o).writes(o) and (
                any(taken[k] & other for n, other in enumerate(taken) if n != k)
                or self._shaped(o, shaped)
            ):
                taken[k] = set()
            else:
                kept.append(o)
        return kept

    def _shaped(self, o: Op, shaped: Reshaped) -> bool:
        end = gp_of(o.region, o.off + o.len - 1) + 1
        vmas = self.space.procs[o.proc].overlapping(gp_of(o.region, o.off), end)
        return any(shaped.touches(v, gp_of(o.region, o.off), end) for v in vmas)

    def _copy_of(self, o: Op, shaped: Reshaped) -> bool:
        """A copy or fill of what changes meanwhile?"""
        if o.op not in (GpuCopy.number, GpuFill.number):
            return False
        target = replace(o, region=o.arg, off=o.a)
        return self._shaped(o, shaped) or (
            o.op == GpuCopy.number and self._shaped(target, shaped)
        )

    def _mark_racing(self, ops: list[Op], changing: bool) -> None:
        for o in ops:
            if o.op == GpuAccess.number:
                self._mark_uncertain(o)
        if not changing:
            return
        # Jobs may fail in this phase: private file pages they write may or may not be copies.
        for o in ops:
            if o.op == GpuAccess.number:
                proc = self.space.procs[o.proc]
                for kind, region, _, off, _, _ in o.acc:
                    gp = region << REGION_SHIFT | off >> 12
                    vma = proc.find(gp)
                    if (
                        kind not in READS and kind != Acc.DELAY and vma is not None
                        and vma.kind == MapKind.FILE_PRIVATE
                    ):  # fmt: skip
                        proc.unsettled.add(gp)

    def _prune(self, ops: list[Op], shaped: Reshaped | None = None) -> None:
        """Drop accesses that the rules of this file's head forbid; first come, first served."""
        race = Race(self.space)
        for obj, index in shaped.kept() if shaped else ():
            race.file[-obj, index] = "write"
        for o in ops:
            if o.op in (GpuCopy.number, GpuFill.number):
                race.reserve(o)
        for o in ops:
            if operation(o).zeroes(o):
                race.zeroing(o)
        for seq, o in enumerate(ops):
            if o.op in (CpuAccess.number, GpuAccess.number):
                o.acc = race.filter(o, seq)


def _touched(ops: Iterable[Op]) -> set[tuple[int, int]]:
    """The pages of their ranges, with their process."""
    return {
        (o.proc, gp)
        for o in ops
        for gp in range(gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE)
    }


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
    p = space.procs[o.proc]
    if not operation(o).admit(space, p, o):
        return False
    if o.len and o.op != Mmap.number and o.region >= STACK_REGION:
        start = gp_of(o.region, o.off)
        return p.covered(start, start + o.len // PAGE)
    return True
