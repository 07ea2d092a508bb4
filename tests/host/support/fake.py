# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine in a few lines of Python that runs programs: frames, page tables, a GPU with stale
translations if asked for.  Written the way a kernel works (frames, PTEs, copy on write), unlike
the model, so that agreeing with it means something.  `bug` breaks it in one way.
"""

from __future__ import annotations

import errno
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hmmbench.example.event import TimedEvent
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Execution
from hmmbench.example.totals import Totals
from hmmbench.guest import program as P
from hmmbench.guest.program import Acc, MapKind, Op, OpResult, Program, Result
from hmmbench.model.ops.accounts import Account
from hmmbench.model.ops.advice import Advice, Madvise, Mlock, Zap
from hmmbench.model.ops.buffers import Buffer
from hmmbench.model.ops.dirty import Dirty
from hmmbench.model.ops.files import FileRead, FileWrite, Msync, Punch, Truncate
from hmmbench.model.ops.guard import Guard, Seal
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.lives import Exec, ReceiveGpu, SendGpu, UseHeld
from hmmbench.model.ops.mapping import Mmap, Mprotect, Mremap, Munmap, Replace
from hmmbench.model.ops.moving import Migrate, Query
from hmmbench.model.ops.nodes import MovePages
from hmmbench.model.ops.pins import WRITES, How, Pin, PinIo, Unpin
from hmmbench.model.ops.poison import Poison
from hmmbench.model.ops.processes import Exit, Fork, Kill, Spawn
from hmmbench.model.ops.promises import Promise, ReadBack
from hmmbench.model.ops.queues import Queue
from hmmbench.model.ops.reclaim import ProcessMadvise
from hmmbench.model.ops.refusals import Refusal
from hmmbench.model.ops.uffd import How as Uffd
from hmmbench.model.ops.uffd import Uffd as UffdOp

SHIFT = 14
M64 = (1 << 64) - 1

BUGS = (
    "stale_tlb",  # the GPU keeps translations after munmap, DONTNEED, mremap, fork
    "stale_after_migrate",  # ... after a migration
    "ro_writable",  # the GPU maps every page writable
    "cow_shared",  # a GPU write goes to the page shared with a child
    "lost_update",  # GPU atomics are two steps
    "mremap_loses",  # a moved page arrives empty
    "wrong_fault",  # a failed job reports another page
    "silent_fault",  # a refused GPU write is ignored and the job succeeds
    "leak",
    "unwatched",  # the GPU keeps an entry that may write when writes are to be told of
    "guard_mapped",  # a guard does not keep the GPU away
    "poison_read",  # nor does a page that is broken
)


@dataclass(eq=False)
class Frame:
    words: dict[int, int] = field(default_factory=dict)
    base: int = 0
    lazy: bool = False

    def get(self, w: int) -> int:
        return self.words.get(w, self.base)

    def copy(self) -> Frame:
        return Frame(dict(self.words), self.base)


@dataclass
class Mapping:
    kind: int
    prot: int
    obj: dict[int, Frame] | None
    index: int
    sealed: bool = False
    #: What a page that is missing is filled with, if the process does that itself.
    fill: int | None = None


class Proc:
    def __init__(self) -> None:
        #: Pages with a guard, and broken ones; protected and, told of a write, not any more; clean.
        self.guarded: set[int] = set()
        self.broken: set[int] = set()
        self.protected: set[int] = set()
        self.told: set[int] = set()
        self.clean: set[int] = set()
        self.vma: dict[int, Mapping] = {}
        self.cpu: dict[int, tuple[Frame, bool]] = {}
        self.gpu: dict[int, tuple[Frame, bool]] = {}
        #: Whose memory the files mirror that it was given.
        self.held: list[int] = []


SHARED = (MapKind.ANON_SHARED, MapKind.FILE_SHARED, MapKind.HUGETLB_SHARED)
FILE = (MapKind.FILE_PRIVATE, MapKind.FILE_SHARED)
ANON = (MapKind.ANON_PRIVATE, MapKind.STACK, MapKind.GLOBAL)


class Fault(Exception):
    """Refused; `how` a CPU's access ends."""

    how = P.Ast.SIGSEGV


class Bus(Fault):
    how = P.Ast.SIGBUS


class Clock:
    """Time as executions pass it: each takes so long, and nothing else takes any.

    How far a limit in seconds reaches is then a matter of executions, not of the host's speed.
    Machines of a campaign run in threads of their own: `now` is changed under the lock, and read
    by the campaign's thread without it, when it may be one execution behind.
    """

    EXECUTION_S = 0.005

    def __init__(self) -> None:
        self.now = 0.0
        self.lock = threading.Lock()

    def spend(self, seconds: float) -> None:
        with self.lock:
            self.now += seconds

    def monotonic(self) -> float:
        return self.now


CLOCK = Clock()


@contextmanager
def own_time() -> Iterator[None]:
    """Campaigns and their shrinking go by CLOCK meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("runner", "findings", "shrink", "exact_shrink"):
            patch.setattr(f"hmmbench.campaign.{name}.time", CLOCK)
        yield


class Fake:
    """Executor.run() of the fake machine; `calls` counts programs."""

    def __init__(self, bug: str = "", seed: int = 0, lacks: frozenset[str] = frozenset()) -> None:
        #: Operations that this kernel does not have.
        self.lacks = lacks
        assert bug == "" or bug in BUGS
        self.bug = bug
        self.rng = Random(seed)
        self.calls = 0

    def run(self, payload: bytes) -> bytes:
        self.calls += 1
        CLOCK.spend(CLOCK.EXECUTION_S)
        program = Program.decode(payload)
        self.procs: dict[int, Proc] = {0: Proc()}
        self.files: list[dict[int, Frame]] = [{} for _ in range(4)]
        self.sizes = list(program.file_pages)
        self.pinned: list[Frame] = []
        self.mail: list[int] = []
        #: What the fault buffer still has of jobs that may have ended.
        self.late: list[tuple[Proc, int]] = []
        results = [OpResult(acc=[(0, 0, 0)] * len(o.acc)) for o in program.ops]
        i = 0
        ops = program.ops
        while i < len(ops):
            j = i
            actors: dict[tuple[int, int], list[int]] = {}
            while j < len(ops) and ops[j].phase == ops[i].phase:
                actors.setdefault((ops[j].proc, ops[j].actor), []).append(j)
                j += 1
            self._interleave([self._actor(ops, results, idx) for idx in actors.values()])
            i = j
        looks = f"looks {program.again}\n" if program.again else ""
        return Result(
            results, live_nonzero=self.bug == "leak", counters_after=looks
        ).encode()

    def _interleave(self, threads: list[Iterator[None]]) -> None:
        while threads:
            t = self.rng.choice(threads)
            try:
                next(t)
            except StopIteration:
                threads.remove(t)

    def _actor(self, ops: list[Op], results: list[OpResult], idx: list[int]) -> Iterator[None]:
        for i in idx:
            o, r = ops[i], results[i]
            if o.proc not in self.procs:
                r.status = P.RES_SKIPPED
                continue
            yield from self._op(o, r)

    # -- memory --

    def _invalidate(self, p: Proc, gp: int, why: str = "stale_tlb") -> None:
        if self.bug != why:
            p.gpu.pop(gp, None)

    def _users(self, frame: Frame) -> int:
        return sum(1 for p in self.procs.values() for f, _ in p.cpu.values() if f is frame)

    def _fault(self, p: Proc, gp: int, write: bool) -> tuple[Frame, bool]:
        """What a page fault does; the resulting PTE."""
        m = p.vma.get(gp)
        if m is None or not m.prot & (2 if write else 1) or gp in p.guarded:
            raise Fault
        if gp in p.broken:
            raise Bus
        if write and gp in p.protected:
            p.protected.discard(gp)
            p.told.add(gp)
        if write:
            p.clean.discard(gp)
        if m.kind in FILE:
            assert m.obj is not None
            if m.index >= self._size(m.obj):
                raise Bus
        pte = p.cpu.get(gp)
        if m.kind in SHARED:
            assert m.obj is not None
            pte = (m.obj.setdefault(m.index, Frame()), bool(m.prot & 2))
        elif pte is None:
            if m.kind == MapKind.FILE_PRIVATE:
                assert m.obj is not None
                file_frame = m.obj.setdefault(m.index, Frame())
                pte = (file_frame.copy(), True) if write else (file_frame, False)
                if write:
                    self._invalidate(p, gp)
            else:
                pte = (Frame(base=m.fill or 0), bool(m.prot & 2))
        elif write and not pte[1]:
            frame = pte[0]
            is_file = m.kind == MapKind.FILE_PRIVATE and any(
                frame is f for f in (m.obj or {}).values()
            )
            if is_file or self._users(frame) > 1:
                frame = frame.copy()
                self._invalidate(p, gp)
            pte = (frame, True)
        p.cpu[gp] = pte
        return pte

    def _cpu_pte(self, p: Proc, gp: int, write: bool) -> Frame:
        pte = p.cpu.get(gp)
        m = p.vma.get(gp)
        if m is None or not m.prot & (2 if write else 1):
            raise Fault
        if pte is None or (write and not pte[1]) or gp in p.guarded | p.broken:
            pte = self._fault(p, gp, write)
        return pte[0]

    def _gpu_pte(self, p: Proc, gp: int, write: bool) -> Frame:
        pte = p.gpu.get(gp)
        if pte is None or (write and not pte[1]):
            if write and self.rng.random() < 0.3:
                self.late.append((p, gp))
            if self.bug == "cow_shared" and write and gp in p.cpu and p.vma[gp].prot & 2:
                f = p.cpu[gp][0]
                pte = (f, True)
            else:
                f, w = self._fault(p, gp, write)
                pte = (f, w or self.bug == "ro_writable")
            p.gpu[gp] = pte
        return pte[0]

    def _touch(self, frame: Frame, a: P.Access, split: bool) -> Iterator[int]:
        kind, _, _, off, value, expect = a
        w = off >> 3 & 511
        old = frame.get(w)
        if kind == Acc.READ:
            yield old
            return
        if kind == Acc.READ32:
            yield old >> 32 if off & 4 else old & 0xFFFFFFFF
            return
        new = value
        if kind == Acc.ADD:
            new = (old + value) & M64
        elif kind == Acc.CAS:
            new = value if old == expect else old
        elif kind == Acc.WRITE32:
            new = (
                (old & 0xFFFFFFFF) | value << 32 if off & 4 else (old & ~0xFFFFFFFF) | value
            ) & M64
        if split and kind in (Acc.ADD, Acc.XCHG, Acc.CAS):
            yield -1
        frame.lazy = False
        frame.words[w] = new
        yield 0 if kind in (Acc.WRITE, Acc.WRITE32) else old

    def _drop_lazy(self) -> None:
        for p in self.procs.values():
            for gp in list(p.cpu):
                f = p.cpu[gp][0]
                if f.lazy and f not in self.pinned and self.rng.random() < 0.3:
                    del p.cpu[gp]
                    self._invalidate(p, gp, "never")

    def _serve_late(self) -> None:
        """Faults are served also when nobody waits any more."""
        for entry in list(self.late):
            if self.rng.random() < 0.3:
                self.late.remove(entry)
                if entry[0] in self.procs.values():
                    with suppress(Fault):
                        self._fault(*entry, True)

    # -- operations --

    def _op(self, o: Op, r: OpResult) -> Iterator[None]:
        p = self.procs[o.proc]
        start = o.region << SHIFT | o.off // P.PAGE
        end = start + o.len // P.PAGE
        self._drop_lazy()
        self._serve_late()
        if o.op == CpuAccess.number:
            for k, a in enumerate(o.acc):
                yield
                if a[0] == Acc.DELAY:
                    r.acc[k] = (0, 1, k)
                    continue
                gp = a[1] << SHIFT | a[3] >> 12
                try:
                    f = self._cpu_pte(p, gp, a[0] not in (Acc.READ, Acc.READ32))
                    (v,) = self._touch(f, a, False)
                    r.acc[k] = (v, 1, k)
                except Fault as refused:
                    r.acc[k] = (0, refused.how, k)
        elif o.op == GpuAccess.number:
            yield from self._gpu(p, o, r)
        elif o.op in (GpuCopy.number, GpuFill.number):
            yield from self._copy(p, o, r)
        elif o.op == Mmap.number:
            self._mmap(p, o, start, end)
        elif o.op == Replace.number:
            if self._sealed(p, start, end):
                r.status = -errno.EPERM
            else:
                self._unmap(p, start, end)
                self._mmap(p, o, start, end)
        elif o.op == Zap.number:
            for gp in range(start, end):
                p.cpu.pop(gp, None)
                self._invalidate(p, gp)
        elif o.op == Munmap.number:
            if self._sealed(p, start, end):
                r.status = -errno.EPERM
            else:
                self._unmap(p, start, end)
        elif o.op == Mprotect.number:
            if self._sealed(p, start, end):
                r.status = -errno.EPERM
                return
            for gp in range(start, end):
                p.vma[gp].prot = o.a
                if gp in p.cpu:
                    p.cpu[gp] = (p.cpu[gp][0], False)
                self._invalidate(p, gp)
        elif o.op == Mremap.number:
            if self._sealed(p, start, end):
                r.status = -errno.EPERM
            else:
                self._mremap(p, o, start, end)
        elif o.op == Madvise.number:
            yield
            r.status = self._madvise(p, o, start, end)
        elif o.op == Migrate.number:
            if not any(gp in p.vma for gp in range(start, end)):
                r.status = -errno.EFAULT
            for gp in range(start, end):
                m = p.vma.get(gp)
                if m is None or m.kind in SHARED or gp not in p.cpu:
                    r.aux1 += o.arg == P.MIGRATE_DEVICE
                    continue
                old, writable = p.cpu[gp]
                if self._users(old) > 1 or old in self.pinned or m.kind == MapKind.FILE_PRIVATE:
                    r.aux1 += o.arg == P.MIGRATE_DEVICE
                    continue
                p.cpu[gp] = (old.copy(), writable)
                self._invalidate(p, gp, "stale_after_migrate")
                r.aux0 += 1
        elif o.op == PinIo.number:
            yield from self._pin_io(p, o, r)
        elif o.op == Pin.number:
            self.pinned = [self._fault(p, gp, True)[0] for gp in range(start, end)]
        elif o.op == Unpin.number:
            r.data = b"".join(
                f.get(w).to_bytes(8, "little") for f in self.pinned for w in range(512)
            )
            self.pinned = []
        elif o.op in (Truncate.number, Punch.number, FileWrite.number, FileRead.number):
            yield
            self._file(o, r)
        elif o.op == Mlock.number and o.a == 0:
            for gp in range(start, end):
                m = p.vma[gp]
                if m.kind in FILE and m.obj is not None and m.index >= self._size(m.obj):
                    r.status = -errno.ENOMEM
        elif o.op == Msync.number:
            if any(gp not in p.vma for gp in range(start, end)):
                r.status = -errno.ENOMEM
        elif o.op == Fork.number:
            self.procs[o.arg] = c = Proc()
            for gp, m in p.vma.items():
                c.vma[gp] = Mapping(m.kind, m.prot, m.obj, m.index, m.sealed)
            c.guarded, c.broken = set(p.guarded), set(p.broken)
            c.held = list(p.held)
            for gp, (f, writable) in list(p.cpu.items()):
                if f in self.pinned and p.vma[gp].kind not in SHARED:
                    # The child's copy is made at once.
                    c.cpu[gp], p.cpu[gp] = (f.copy(), False), (f, writable)
                    continue
                c.cpu[gp] = p.cpu[gp] = (f, False)
                self._invalidate(p, gp)
        elif o.op == Spawn.number:
            self.procs[o.arg] = Proc()
        elif o.op == SendGpu.number:
            self.mail.append(o.proc)
        elif o.op == ReceiveGpu.number:
            p.held.append(self.mail.pop(0))
        elif o.op == UseHeld.number:
            if o.arg > 1 and p.held[-1] != o.proc:
                r.status = -errno.EPERM
            if o.arg == 0:
                p.held.pop()
        elif o.op in (Exit.number, Exec.number):
            del self.procs[o.proc]
        elif o.op == Kill.number:
            del self.procs[o.arg]
        elif o.op == Query.number:
            out = []
            for gp in range(start, end):
                q = 0
                if gp in p.gpu:
                    q |= P.Q_GPU_VALID | (P.Q_GPU_WRITE if p.gpu[gp][1] else 0)
                if gp in p.cpu:
                    q |= P.Q_CPU_READ | (P.Q_CPU_WRITE if p.cpu[gp][1] else 0)
                out.append(q.to_bytes(4, "little"))
            r.data = b"".join(out)

        elif o.op in (UffdOp.number, Dirty.number, Guard.number, Poison.number):
            yield
            if {UffdOp.number: "uffd", Dirty.number: "dirty", Guard.number: "guard",
                    Poison.number: "poison"}[o.op] in self.lacks:  # fmt: skip
                r.status = -errno.EOPNOTSUPP
            else:
                self._watch(p, o, r, range(start, end))
        elif o.op == Seal.number:
            for gp in range(start, end):
                p.vma[gp].sealed = True
        elif o.op == MovePages.number:
            yield
            r.aux0 = 1
            r.data = b"".join(
                struct.pack("<i", 0 if gp in p.cpu else -errno.ENOENT) for gp in range(start, end)
            )
        elif o.op == ProcessMadvise.number:
            r.aux0 = o.len
        elif o.op in (Promise.number, Buffer.number, Queue.number, Refusal.number):
            # There is no VRAM here, and nothing that takes jobs.
            r.aux0 = 1
        elif o.op == Account.number:
            r.aux0 = end - start
            entries = [self._account(p, gp) for gp in range(start, end)]
            r.data = struct.pack("<6Q", 8, 4, 0, 12, 8, 0) + b"".join(entries)
        elif o.op == ReadBack.number:
            r.aux0 = end - start
            r.data = b"".join(self._read_back(p, start, end))

    @staticmethod
    def _sealed(p: Proc, start: int, end: int) -> bool:
        return any(gp in p.vma and p.vma[gp].sealed for gp in range(start, end))

    def _protect(self, p: Proc, gp: int) -> bool:
        """Its entries permit no write any more; whether there was one."""
        if gp not in p.cpu:
            return False
        p.cpu[gp] = (p.cpu[gp][0], False)
        self._invalidate(p, gp, "unwatched")
        return True

    def _watch(self, p: Proc, o: Op, r: OpResult, gps: range) -> None:
        """What makes accesses go by other rules."""
        if o.op == Dirty.number:
            if o.arg == 0:
                p.clean = {gp for gp in list(p.cpu) if self._protect(p, gp)}
            r.data = bytes((gp in p.clean) == (o.arg == 0) for gp in gps)
        elif o.op == Guard.number:
            for gp in gps:
                if o.arg == 0 and gp not in p.guarded:
                    self._give_up(p, gp, "guard_mapped")
                    p.guarded.add(gp)
                elif o.arg == 1:
                    p.guarded.discard(gp)
        elif o.op == Poison.number:
            r.data = bytes(len(gps)) if o.arg else b"\1" * len(gps)
            for gp in gps if o.arg == 0 else ():
                self._give_up(p, gp, "poison_read")
                p.broken.add(gp)
        elif o.arg == Uffd.PROTECT:
            p.told -= set(gps)
            there = {gp for gp in gps if self._protect(p, gp)}
            p.protected |= there
            r.data = bytes(gp in there for gp in gps)
        elif o.arg == Uffd.LOOK:
            r.data = bytes(gp in p.told for gp in gps)
        else:
            p.protected -= set(gps)
            for gp in gps:
                p.vma[gp].fill = o.a if o.arg == Uffd.MISSING else None
                if o.arg == Uffd.MISSING or (o.arg == Uffd.LEAVE and not o.a):
                    self._give_up(p, gp)

    def _give_up(self, p: Proc, gp: int, why: str = "stale_tlb") -> None:
        p.cpu.pop(gp, None)
        for pages in (p.protected, p.told, p.clean):
            pages.discard(gp)
        self._invalidate(p, gp, why)

    def _account(self, p: Proc, gp: int) -> bytes:
        """Nothing is in VRAM, or swapped; what the CPU has not looked at is not there."""
        if gp not in p.cpu:
            return struct.pack("<QQ", 0, 0)
        frame = p.cpu[gp][0]
        m = p.vma[gp]
        shared = m.obj is not None and m.obj.get(m.index) is frame
        return struct.pack("<QQ", 1 << 63 | shared << 61, 1 << 3 | shared << 2)

    def _read_back(self, p: Proc, start: int, end: int) -> Iterator[bytes]:
        for gp in range(start, end):
            frame = self._cpu_pte(p, gp, False)
            for word in range(512) if frame.base else sorted(frame.words):
                if value := frame.get(word):
                    yield struct.pack("<IIQ", (gp - start) * 512 + word, 1, value)

    def _gpu(self, p: Proc, o: Op, r: OpResult) -> Iterator[None]:
        lanes: dict[int, list[int]] = {}
        for k, a in enumerate(o.acc):
            lanes.setdefault(a[2], []).append(k)
        failed: list[int] = []

        def lane(ks: list[int]) -> Iterator[None]:
            for k in ks:
                yield
                a = o.acc[k]
                gp = a[1] << SHIFT | a[3] >> 12
                write = a[0] not in (Acc.READ, Acc.READ32)
                if a[0] == Acc.DELAY:
                    r.acc[k] = (0, 1, 0)
                    continue
                try:
                    f = self._gpu_pte(p, gp, write)
                except Fault:
                    if self.bug == "silent_fault":
                        r.acc[k] = (0, 1, 0)
                        continue
                    failed.append(gp)
                    return
                for v in self._touch(f, a, self.bug == "lost_update"):
                    if v < 0:
                        yield
                    else:
                        value = v
                if self.rng.random() < 0.9 or not failed:
                    r.acc[k] = (value, 1, 0)

        threads = [lane(ks) for ks in lanes.values()]
        while threads and not failed:
            t = self.rng.choice(threads)
            yield
            try:
                next(t)
            except StopIteration:
                threads.remove(t)
        if failed:
            self._fail(r, failed[0])

    def _fail(self, r: OpResult, gp: int) -> None:
        if self.bug == "wrong_fault":
            gp += 100
        r.status, r.gpu_status = -errno.EFAULT, P.ERR_FAULT
        r.fault_region, r.fault_addr = gp >> SHIFT, (gp & ((1 << SHIFT) - 1)) * P.PAGE

    def _copy(self, p: Proc, o: Op, r: OpResult) -> Iterator[None]:
        fill = o.op == GpuFill.number
        to_region, to = (o.region, o.off) if fill else (o.arg, o.a)
        at = 0
        while at < o.len:
            if at % 256 == 0:
                yield
            # To where others may come in between, or an end has another page.
            stop = min([o.len, at - at % 256 + 256] + [
                at + P.PAGE - (off + at) % P.PAGE for off in ([to] if fill else [o.off, to])
            ])  # fmt: skip
            sgp = o.region << SHIFT | (o.off + at) >> 12
            dgp = to_region << SHIFT | (to + at) >> 12
            ends = [(dgp, True)] if fill else [(sgp, False), (dgp, True)]
            # Both ends fault at once: one may be served before the other is refused.
            self.rng.shuffle(ends)
            frames: dict[bool, Frame] = {}
            for gp, write in ends:
                try:
                    frames[write] = self._gpu_pte(p, gp, write)
                except Fault:
                    self._fail(r, gp)
                    self.late.append((p, dgp))
                    break
            if len(frames) < len(ends):
                return
            f = frames[True]
            f.lazy = False
            words, v, w = (stop - at) >> 3, (o.off + at) >> 3 & 511, (to + at) >> 3 & 511
            if fill:
                f.words.update(dict.fromkeys(range(w, w + words), o.a))
            else:
                # Of one page, what it is after the fault.
                source = f if sgp == dgp else frames[False]
                for k in range(words):
                    f.words[w + k] = source.get(v + k)
            at = stop

    def _size(self, obj: dict[int, Frame]) -> int:
        return next(n for n, f in zip(self.sizes, self.files, strict=True) if f is obj)

    def _drop_file(self, obj: dict[int, Frame], start: int, end: int, copies: bool) -> None:
        """All mappings lose pages of a file, and their private copies of them."""
        for p in self.procs.values():
            for gp, m in p.vma.items():
                if m.obj is obj and start <= m.index < end and gp in p.cpu and (
                    copies or p.cpu[gp][0] is obj.get(m.index)
                ):  # fmt: skip
                    del p.cpu[gp]
                    self._invalidate(p, gp)
        for index in range(start, end):
            obj.pop(index, None)

    def _pin_io(self, p: Proc, o: Op, r: OpResult) -> Iterator[None]:
        """As the kernel gets hold of pages: one after the other, up to the first that it cannot."""
        write, done, words = o.arg in WRITES, 0, b""
        p = self.procs[o.b - 1] if o.b else p
        forced = o.arg in (How.PEEK, How.POKE)
        for at in range(o.off, o.off + o.len, 8):
            if at % P.PAGE == 0:
                yield
            gp = o.region << SHIFT | at // P.PAGE
            m = p.vma.get(gp)
            prot = m.prot if m else 0
            if m is not None and forced and (not write or m.kind not in SHARED):
                m.prot = P.PROT_RW
            try:
                frame = self._cpu_pte(p, gp, write)
            except Fault:
                break
            finally:
                if m is not None:
                    m.prot = prot
                    if gp in p.cpu and not prot & 2:
                        p.cpu[gp] = (p.cpu[gp][0], False)
            if write:
                frame.words[at // 8 % 512] = o.a
                frame.lazy = False
            else:
                words += frame.get(at // 8 % 512).to_bytes(8, "little")
            done += 8
        r.aux0, r.data = done, words
        if not done:
            r.status = -errno.EIO if forced else -errno.EFAULT

    def _file(self, o: Op, r: OpResult) -> None:
        obj, first, stop = self.files[o.b], o.c // P.PAGE, o.c + o.len
        if o.op == Truncate.number:
            self.sizes[o.b] = first
            self._drop_file(obj, first, 1 << SHIFT, True)
        elif o.op == Punch.number:
            self._drop_file(obj, -(-o.c // P.PAGE), stop // P.PAGE, False)
            self._fill_file(obj, o.c, min(stop, self.sizes[o.b] * P.PAGE), 0)
        elif o.op == FileWrite.number:
            self.sizes[o.b] = max(self.sizes[o.b], -(-stop // P.PAGE))
            self._fill_file(obj, o.c, stop, o.a)
        elif o.op == FileRead.number:
            r.data = b"".join(
                obj.setdefault(at // P.PAGE, Frame()).get(at // 8 % 512).to_bytes(8, "little")
                for at in range(o.c, min(stop, self.sizes[o.b] * P.PAGE), 8)
            )

    @staticmethod
    def _fill_file(obj: dict[int, Frame], start: int, end: int, value: int) -> None:
        for at in range(start, end, 8):
            obj.setdefault(at // P.PAGE, Frame()).words[at // 8 % 512] = value

    def _mmap(self, p: Proc, o: Op, start: int, end: int) -> None:
        obj: dict[int, Frame] | None = None
        first = 0
        if o.arg in (MapKind.FILE_PRIVATE, MapKind.FILE_SHARED):
            obj, first = self.files[o.b], o.c // P.PAGE
        elif o.arg in SHARED:
            obj = {}
        for gp in range(start, end):
            p.vma[gp] = Mapping(o.arg, o.a, obj, first + gp - start)
            assert gp not in p.cpu

    def _unmap(self, p: Proc, start: int, end: int) -> None:
        for gp in range(start, end):
            p.vma.pop(gp, None)
            p.guarded.discard(gp)
            p.broken.discard(gp)
            self._give_up(p, gp)

    def _mremap(self, p: Proc, o: Op, start: int, end: int) -> None:
        to = o.arg << SHIFT | o.a // P.PAGE
        count = o.b // P.PAGE
        self._unmap(p, to, to + count)
        kind, prot, obj, index = (
            p.vma[start].kind, p.vma[start].prot, p.vma[start].obj, p.vma[start].index,
        )  # fmt: skip
        for k in range(count):
            p.vma[to + k] = Mapping(kind, prot, obj, index + k)
            if start + k < end and start + k in p.guarded:
                p.guarded.add(to + k)
            if start + k < end and start + k in p.cpu and self.bug != "mremap_loses":
                p.cpu[to + k] = p.cpu[start + k]
        for gp in range(start, end):
            p.guarded.discard(gp)
            self._give_up(p, gp)
            if not o.c:
                del p.vma[gp]

    def _madvise(self, p: Proc, o: Op, start: int, end: int) -> int:
        hole = False
        for gp in range(start, end):
            m = p.vma.get(gp)
            if m is None:
                hole = True
                continue
            if o.a in (Advice.COLD, Advice.PAGEOUT) and m.kind in (
                MapKind.HUGETLB_PRIVATE, MapKind.HUGETLB_SHARED,
            ):  # fmt: skip
                return -errno.EINVAL
            if o.a == Advice.DONTNEED and m.kind not in SHARED:
                self._give_up(p, gp)
            elif o.a == Advice.FREE:
                if m.kind not in ANON:
                    return -errno.EINVAL
                if gp in p.cpu:
                    f, _w = p.cpu[gp]
                    if self._users(f) == 1:
                        f.lazy = True
                    self._invalidate(p, gp)
            elif o.a == Advice.PAGEOUT:
                self._invalidate(p, gp, "never")
        return -errno.ENOMEM if hole else 0


class FakeTarget:
    """The fake machine as a target; keeps the programs it ran."""

    def __init__(self, bug: str = "", seed: int = 1) -> None:
        self.machine = Fake(bug, seed)
        self.programs: list[bytes] = []
        self.environments: list[Environment] = []
        self.totals = Totals()

    def execute(self, program: Program, environment: Environment) -> Execution:
        payload = program.encode()
        self.programs.append(payload)
        self.environments.append(environment)
        program = replace(program, again=environment.again)
        return Execution(program, Result.decode(self.machine.run(program.encode()), program))

    def renew(self) -> None:
        pass

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass

    def watch(self) -> None:
        pass

    def watched(self) -> list[TimedEvent]:
        return []

    def keep(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)


def device_says(*found: dict[str, Any], **fields: Any) -> str:
    """The property `violations` of a device whose checks and audit have found these."""
    return json.dumps({
        "mode": "fill", "ready": True, "checks": 0, "undecided": 0, "unlooked": {},
        "total": len(found), "violations": found, **fields,
    })  # fmt: skip
