# SPDX-License-Identifier: GPL-2.0-or-later
"""The values oracle: can the model explain every result of a program?

Walks the program phase by phase.  Operations of one thread are followed exactly; where
several threads met (actors of one phase, lanes of one launch) each word's history is given
to `history`.  Stops at the first contradiction: what comes after it would be judged against
a state that is no longer known.
"""

from __future__ import annotations

import errno
import re
from itertools import groupby

from hmmbench.guest.program import (
    ERR_FAULT,
    F_NOWAIT,
    PAGE,
    RES_KILLED,
    RES_SKIPPED,
    Acc,
    Advice,
    Ast,
    Op,
    OpResult,
    Program,
    Result,
)
from hmmbench.model import admit, ops
from hmmbench.model.cells import Coverage
from hmmbench.model.ops.advice import Madvise
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.mapping import Mprotect, Munmap
from hmmbench.model.ops.moving import Migrate, Policy, Query
from hmmbench.model.page import ANY, AnyValue, Page, Val, World, show
from hmmbench.model.space import ANON, REGION_PAGES, REGION_SHIFT, Process, Space, Vma, gp_of, place
from hmmbench.oracle import mapping
from hmmbench.oracle.history import (
    FAILED_READ,
    FAILED_WRITE,
    PERM_BEGIN,
    PERM_END,
    ZERO_BEGIN,
    ZERO_END,
    HistoryEvent,
    Undecided,
    final_values,
    settle,
)
from hmmbench.oracle.violation import Violation

READS = (Acc.READ, Acc.READ32)


class Contradiction(Exception):
    """Raised inside the walk; becomes the Violation."""

    def __init__(self, op: int, message: str) -> None:
        super().__init__(message)
        self.op = op
        self.message = message


class Checker:
    """One program and its result.

    `undecided` counts words whose history was too entangled to judge, `accesses` what was
    judged.
    """

    def __init__(
        self, program: Program, result: Result, coverage: Coverage | None = None
    ) -> None:
        self.program = program
        self.result = result
        self.coverage = coverage
        self.space = Space(program.file_pages)
        self.undecided = 0

    def run(self) -> Violation | None:
        ops, results = self.program.ops, self.result.ops
        indexed = list(enumerate(zip(ops, results, strict=True)))
        coverage = self.coverage
        if coverage is not None:
            coverage.start()
        try:
            for _, group in groupby(indexed, key=lambda x: x[1][0].phase):
                items = [(i, o, r) for i, (o, r) in group]
                if len({(o.proc, o.actor) for _, o, _ in items}) == 1:
                    for i, o, r in items:
                        if coverage is not None:
                            coverage.observe(self.space, o, r, False)
                        self._one(i, o, r)
                else:
                    if coverage is not None:
                        for _, o, r in items:
                            coverage.observe(self.space, o, r, True)
                    self._race(items)
        except Contradiction as c:
            return Violation("values", c.message, c.op, page=first_page(c.message))
        return None

    # -- one operation at a time --

    def _one(self, i: int, o: Op, r: OpResult) -> None:
        kind = o.op
        if r.status == RES_SKIPPED:
            raise Contradiction(i, f"{describe(o)} was not run")
        if kind == CpuAccess.number:
            self._cpu(i, o, r)
        elif kind == GpuAccess.number:
            meeting = Meeting(self, i)
            dying = bool(o.flags & F_NOWAIT) and admit.broken_off(self.program.ops, i)
            meeting.gpu(i, o, r, 0, dying)
            meeting.finish()
            gpu_ended(self.space, o, dying or r.status != 0)
        elif kind == GpuCopy.number or kind == GpuFill.number:
            self._copy(i, o, r)
        else:
            self.status(i, o, r)
            if kind == Query.number:
                bad = mapping.check(self.space, o, r)
                if bad:
                    raise Contradiction(i, bad)
            ops.apply(self.space, o)

    def status(self, i: int, o: Op, r: OpResult, racing: bool = False) -> None:
        legal = ops.of(o).statuses(self.space, o, racing)
        if legal is not None and r.status not in legal:
            raise Contradiction(
                i, f"{describe(o)} ended with {status_name(r.status)}, expected "
                + " or ".join(status_name(s) for s in sorted(legal)),
            )  # fmt: skip
        # (While others pull pages back, one may move more than once.)
        if o.op == Migrate.number and not racing and r.status == 0 and r.aux0 > o.len // PAGE:
            raise Contradiction(
                i, f"{describe(o)} says it moved {r.aux0} of {o.len // PAGE} pages"
            )

    def _cpu(self, i: int, o: Op, r: OpResult) -> None:
        if r.status not in (0, -errno.EFAULT):
            raise Contradiction(i, f"{describe(o)} ended with {status_name(r.status)}")
        proc = self.space.procs[o.proc]
        last = -1
        vma: Vma | None = None
        for (kind, region, _, off, value, expect), (got, st, _) in zip(o.acc, r.acc, strict=True):
            if kind == Acc.DELAY:
                continue
            gp = region << REGION_SHIFT | off >> 12
            if gp != last:
                last = gp
                vma = proc.find(gp)
            if vma is None or not vma.prot & (1 if kind in READS else 2):
                if st != Ast.SIGSEGV:
                    raise Contradiction(
                        i, f"CPU {acc_name(kind)} of {at(region, off)} ({why(vma)}) ended with "
                        f"{ast_name(st)}{reported(kind, got, st)}, expected SIGSEGV",
                    )  # fmt: skip
                continue
            if st != Ast.DONE:
                raise Contradiction(
                    i, f"CPU {acc_name(kind)} of {at(region, off)} ended with {ast_name(st)}, "
                    "but the access is allowed",
                )  # fmt: skip
            page = proc.page(gp, vma)
            word = off >> 3 & 511
            if kind == Acc.CAS and not page.plain:
                # The processor's compare is a write also when it fails.
                page.own()
            if not page.access(word, kind, value, expect, got, bool(off & 4)):
                raise Contradiction(i, wrong("CPU", kind, region, off, got, page))

    def _copy(self, i: int, o: Op, r: OpResult) -> None:
        """GPU_COPY or GPU_FILL, alone."""
        proc = self.space.procs[o.proc]
        fill = o.op == GpuFill.number
        to_region, to_off = (o.region, o.off) if fill else (o.arg, o.a)
        bad = bad_pages(self.space, o.proc, to_region, to_off, o.len, 2)
        if not fill:
            bad |= bad_pages(self.space, o.proc, o.region, o.off, o.len, 1)
        self._job_end(i, o, r, bad)
        copy_range(proc, o, r.status != 0)
        gpu_ended(self.space, o, r.status != 0)

    def _job_end(self, i: int, o: Op, r: OpResult, bad: set[int], must: bool = True) -> None:
        """How a GPU job may end: well, or (`must`: has to) with a fault in one of `bad`."""
        if r.status == 0:
            if bad and must:
                pages = ", ".join(map(place, sorted(bad)[:4]))
                raise Contradiction(
                    i, f"{describe(o)} succeeded although it may not touch {pages}"
                )
            return
        if not bad:
            raise Contradiction(
                i, f"{describe(o)} failed with {status_name(r.status)} (GPU error {r.gpu_status}, "
                f"reason {r.reason}, at {fault_place(r)}), every access in it is allowed",
            )  # fmt: skip
        if r.status != -errno.EFAULT or r.gpu_status != ERR_FAULT:
            raise Contradiction(
                i, f"{describe(o)} failed with {status_name(r.status)} (GPU error {r.gpu_status}), "
                "expected a fault",
            )  # fmt: skip
        if r.fault_region < 0 or gp_of(r.fault_region, r.fault_addr) not in bad:
            pages = ", ".join(map(place, sorted(bad)[:4]))
            raise Contradiction(
                i, f"{describe(o)} reports a fault at {fault_place(r)}, "
                f"it may only fault in {pages}",
            )  # fmt: skip

    # -- several at once --

    def _race(self, items: list[tuple[int, Op, OpResult]]) -> None:
        meeting = Meeting(self, items[0][0])
        structural: list[Op] = []
        for seq, (_, o, _) in enumerate(items):
            if o.op in (Mprotect.number, Munmap.number) or (
                o.op == Madvise.number and o.a == Advice.DONTNEED
            ):
                meeting.announce(o, seq)
        for seq, (i, o, r) in enumerate(items):
            if r.status == RES_SKIPPED:
                raise Contradiction(i, f"{describe(o)} was not run")
            if o.op == CpuAccess.number:
                meeting.cpu(i, o, r, seq)
            elif o.op == GpuAccess.number:
                meeting.gpu(i, o, r, seq, False)
            elif o.op in (GpuCopy.number, GpuFill.number):
                meeting.copy(i, o, r, seq)
            else:
                self.status(i, o, r, True)
                if o.op == Query.number and (bad := mapping.check_racing(o, r)):
                    raise Contradiction(i, bad)
                structural.append(o)
        meeting.finish()
        for _, o, r in items:
            gpu_ended(self.space, o, r.status != 0)
        policies = [o.proc for o in structural if o.op == Policy.number]
        for o in structural:
            if not (o.op == Madvise.number and o.a == Advice.DONTNEED):
                ops.apply(self.space, o)
        for proc in policies:
            if policies.count(proc) > 1:
                # Which came last?
                self.space.procs[proc].exclusive = None


class Meeting:
    """Everything that several threads did in one phase, word by word."""

    def __init__(self, checker: Checker, first_op: int) -> None:
        self.checker = checker
        self.space = checker.space
        self.first_op = first_op
        # (id of page, word) -> accesses; pages are kept alive by `pages`
        self.words: dict[tuple[int, int], list[HistoryEvent]] = {}
        self.pages: dict[int, Page] = {}
        self.where: dict[int, tuple[int, int]] = {}
        self.certain_write: set[int] = set()
        self.maybe_write: set[int] = set()
        # (process, gp) -> protections that the phase sets, in order: (actor, op, prot)
        self.perm_changes: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self.zeroed: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def announce(self, o: Op, seq: int) -> None:
        """An mm operation of this phase that accesses may race with."""
        proc = self.space.procs[o.proc]
        start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
        actor = o.proc << 4 | o.actor
        for v in proc.overlapping(start, end):
            for gp in range(max(v.start, start), min(v.end, end)):
                if o.op == Madvise.number:
                    if v.kind in ANON:
                        self.zeroed.setdefault((o.proc, gp), []).append((actor, seq))
                else:
                    prot = o.a if o.op == Mprotect.number else 0
                    self.perm_changes.setdefault((o.proc, gp), []).append((actor, seq, prot))

    def _page(self, proc: int, gp: int, vma: Vma) -> Page:
        page = self.space.procs[proc].page(gp, vma)
        key = id(page)
        if key not in self.pages:
            self.pages[key] = page
            self.where[key] = (proc, gp)
        return page

    def _prots(self, proc: int, gp: int, vma: Vma | None) -> list[int]:
        """Every protection the page has during the phase."""
        first = vma.prot if vma else 0
        return [first, *(p for _, _, p in self.perm_changes.get((proc, gp), ()))]

    def cpu(self, i: int, o: Op, r: OpResult, seq: int) -> None:
        actor = o.proc << 4 | o.actor
        if r.status not in (0, -errno.EFAULT):
            raise Contradiction(i, f"{describe(o)} ended with {status_name(r.status)}")
        for step, ((kind, region, _, off, value, expect), (got, st, _)) in enumerate(
            zip(o.acc, r.acc, strict=True)
        ):
            if kind == Acc.DELAY:
                continue
            gp = region << REGION_SHIFT | off >> 12
            vma = self.space.procs[o.proc].find(gp)
            need = 1 if kind in READS else 2
            prots = self._prots(o.proc, gp, vma)
            may, may_fail = any(p & need for p in prots), not all(p & need for p in prots)
            if st == Ast.DONE and may and vma is not None:
                self._add(i, o, seq, actor, 0, step, gp, vma, off, kind, value, expect, got)
            elif st == Ast.SIGSEGV and may_fail:
                if may and vma is not None:
                    failed = FAILED_READ if need == 1 else FAILED_WRITE
                    self._add(i, o, seq, actor, 0, step, gp, vma, off, failed, 0, 0, None)
            else:
                raise Contradiction(
                    i, f"CPU {acc_name(kind)} of {at(region, off)} ({why(vma)}) ended with "
                    f"{ast_name(st)}{reported(kind, got, st)}",
                )  # fmt: skip

    def gpu(self, i: int, o: Op, r: OpResult, seq: int, dying: bool) -> None:
        actor = o.proc << 4 | o.actor
        find = self.space.procs[o.proc].find
        changing = self.perm_changes
        bad: set[int] = set()
        stopped: set[int] = set()
        blocked: dict[int, int] = {}
        last = -1
        vma: Vma | None = None
        for step, (kind, region, lane, off, _, _) in enumerate(o.acc):
            if kind == Acc.DELAY or lane in stopped:
                continue
            gp = region << REGION_SHIFT | off >> 12
            if gp != last:
                last = gp
                vma = find(gp)
            need = 1 if kind in READS else 2
            if not changing:
                if vma is not None and vma.prot & need:
                    continue
                may = False
            else:
                prots = self._prots(o.proc, gp, vma)
                if all(p & need for p in prots):
                    continue
                may = any(p & need for p in prots)
            bad.add(gp)
            if not may:
                stopped.add(lane)
                blocked[lane] = step
        if dying:
            if r.status not in (0, RES_KILLED) and r.status > 0:
                raise Contradiction(i, f"{describe(o)} ended with {status_name(r.status)}")
        else:
            self.checker._job_end(i, o, r, bad, must=bool(stopped))
        complete = r.status == 0 and not dying
        over: set[int] = set()
        last = -1
        for step, ((kind, region, lane, off, value, expect), (got, st, _)) in enumerate(
            zip(o.acc, r.acc, strict=True)
        ):
            if kind == Acc.DELAY:
                continue
            if st == Ast.DONE:
                if lane in over or blocked.get(lane, step + 1) <= step:
                    raise Contradiction(
                        i, f"GPU lane {lane}: {acc_name(kind)} of {at(region, off)} is reported "
                        f"done{reported(kind, got, st)}, but the lane cannot have come so far",
                    )  # fmt: skip
                optional, result = False, got
            else:
                if complete:
                    raise Contradiction(
                        i, f"GPU lane {lane}: {acc_name(kind)} of {at(region, off)} was not done, "
                        "but the job succeeded",
                    )  # fmt: skip
                if lane in over and not dying:
                    continue
                over.add(lane)
                if kind in READS or blocked.get(lane) == step:
                    continue
                optional, result = True, 0
            gp = region << REGION_SHIFT | off >> 12
            if gp != last:
                last = gp
                vma = find(gp)
            if vma is None:
                continue
            self._add(
                i, o, seq, actor, lane, step, gp, vma, off, kind, value, expect,
                None if optional else result, optional,
            )  # fmt: skip

    def copy(self, i: int, o: Op, r: OpResult, seq: int) -> None:
        """Admission made sure that nobody else writes either range in this phase."""
        fill = o.op == GpuFill.number
        self.checker._job_end(i, o, r, set())
        proc = self.space.procs[o.proc]
        to_region, to_off = (o.region, o.off) if fill else (o.arg, o.a)
        actor = o.proc << 4 | o.actor
        for k in range(o.len // 8):
            off = to_off + 8 * k
            gp = gp_of(to_region, off)
            vma = proc.find(gp)
            assert vma is not None
            value = o.a
            if not fill:
                src_off = o.off + 8 * k
                sgp = gp_of(o.region, src_off)
                svma = proc.find(sgp)
                assert svma is not None
                v = proc.page(sgp, svma).worlds[0].get(src_off // 8 % 512)
                if not isinstance(v, int):
                    # Which of several values was copied is not known: nor is the target.
                    self._page(o.proc, gp, vma).own()
                    self._page(o.proc, gp, vma).put(off // 8 % 512, ANY)
                    self.words.pop((id(self._page(o.proc, gp, vma)), off // 8 % 512), None)
                    continue
                value = v
            self._add(i, o, seq, actor, 0, k, gp, vma, off, Acc.WRITE, value, 0, None)

    def _add(
        self,
        i: int,
        o: Op,
        seq: int,
        actor: int,
        lane: int,
        step: int,
        gp: int,
        vma: Vma,
        off: int,
        kind: int,
        value: int,
        expect: int,
        result: int | None,
        optional: bool = False,
    ) -> None:
        page = self._page(o.proc, gp, vma)
        key = id(page)
        if kind not in READS and kind < PERM_BEGIN:
            # A compare of the GPU that fails may or may not have made the private copy.
            failed = kind == Acc.CAS and result != expect and o.op == GpuAccess.number
            if optional or failed:
                self.maybe_write.add(key)
            else:
                self.certain_write.add(key)
        # `view` carries gp and the half-word until the word is judged.
        event = HistoryEvent(kind, value, expect, result, actor, seq, lane, step, optional, off & 4)
        event.cpu = o.op == CpuAccess.number
        event.source = (i, o.proc, gp)
        where = (key, off >> 3 & 511)
        events = self.words.get(where)
        if events is None:
            self.words[where] = [event]
        else:
            events.append(event)

    def finish(self) -> None:
        """Judge every word, and leave behind what it may hold now."""
        kept = self._own_pages()
        touched: dict[int, set[int]] = {}
        whole: dict[int, list[tuple[int, HistoryEvent]]] = {}
        for (key, word), events in self.words.items():
            page = self.pages[key]
            if self.zeroed:
                touched.setdefault(key, set()).add(word)
            if page.plain:
                self._word(page, key, word, events)
            else:
                whole.setdefault(key, []).extend((word, e) for e in events)
        for key, items in whole.items():
            # One thread, or only reads: the page's own order decides, word by word is not enough.
            items.sort(key=lambda x: (x[1].op, x[1].step))
            for word, e in items:
                self._in_order(self.pages[key], word, e)
        for proc, gp in self.zeroed:
            self._zero_rest(proc, gp, touched)
        for key, worlds in kept.items():
            self.pages[key].worlds += worlds

    def _own_pages(self) -> dict[int, list[World]]:
        """Private copies happen with the first write; see `admit` for why the order is free.

        Returns worlds to put back for pages that perhaps were never written.
        """
        kept: dict[int, list[World]] = {}
        for key in self.certain_write | self.maybe_write:
            page = self.pages[key]
            if page.plain or self._threads(key) <= 1:
                continue
            if key not in self.certain_write:
                kept[key] = page.copy().worlds
            page.own()
        return kept

    def _threads(self, key: int) -> int:
        return len(
            {
                (e.actor, e.op, e.lane)
                for (k, _), events in self.words.items()
                if k == key
                for e in events
            }
        )

    def _zero_rest(self, proc: int, gp: int, touched: dict[int, set[int]]) -> None:
        """MADV_DONTNEED in the phase: the words nobody accessed are zeros now."""
        process = self.space.procs[proc]
        page = process.private.get(gp)
        if page is None:
            return
        words = touched.get(id(page), set())
        keep = {w: v for w, v in page.worlds[0].vals.items() if w in words}
        page.fill(0)
        page.worlds[0].vals.update(keep)
        process.unsettled.discard(gp)

    def _word(self, page: Page, key: int, word: int, events: list[HistoryEvent]) -> None:
        proc, gp = self.where[key]
        if not (self.perm_changes or self.zeroed):
            first = events[0]
            if len(events) == 1 or all(
                e.actor == first.actor and e.op == first.op and e.lane == first.lane
                for e in events
            ):
                for e in events:
                    self._in_order(page, word, e)
                return
            if all(e.kind == Acc.READ for e in events):
                for e in events:
                    self._in_order(page, word, e)
                return
        initial = page.worlds[0].vals.get(word, page.worlds[0].base)
        perms, overlapping = self._views(events)
        zeroed = self.zeroed.get((proc, gp), ())
        for actor, seq in zeroed:
            events = [
                *events,
                HistoryEvent(ZERO_BEGIN, 0, 0, None, actor, seq, 0, 0),
                HistoryEvent(ZERO_END, 0, 0, None, actor, seq, 0, 1),
            ]
        try:
            if overlapping or len({actor for actor, _ in zeroed}) > 1:
                raise Undecided  # several changes at a time are not modelled
            finals = final_values(initial, events, perms)
        except Undecided:
            self.checker.undecided += 1
            page.put(word, ANY)
            return
        if not isinstance(finals, AnyValue) and not finals:
            raise Contradiction(
                self._op_of(events), f"no order explains what happened to {place(gp)}"
                f"+{word * 8:#x} (before: {show(initial)}): " + story(events),
            )  # fmt: skip
        page.put(word, settle(finals))

    def _views(self, events: list[HistoryEvent]) -> tuple[tuple[int, ...], bool]:
        """Number the changing views of this word, and append the changes as events.

        The views' protections before, and whether changes of one may have overlapped.
        """
        overlapping = False
        perms: list[int] = []
        index: dict[tuple[int, int], int] = {}
        extra: list[HistoryEvent] = []
        for e in events:
            _, proc, gp = e.source
            e.view = -1
            changes = self.perm_changes.get((proc, gp))
            if not changes:
                continue
            if (proc, gp) not in index:
                index[(proc, gp)] = len(perms)
                vma = self.space.procs[proc].find(gp)
                perms.append(vma.prot if vma else 0)
                overlapping |= len({actor for actor, _, _ in changes}) > 1
                for actor, seq, prot in changes:
                    view = len(perms) - 1
                    extra += [
                        HistoryEvent(PERM_BEGIN, prot, 0, None, actor, seq, 0, 0, False, view),
                        HistoryEvent(PERM_END, prot, 0, None, actor, seq, 0, 1, False, view),
                    ]
            e.view = index[(proc, gp)]
        events += extra
        return tuple(perms), overlapping

    def _in_order(self, page: Page, word: int, e: HistoryEvent) -> None:
        high = e.view == 4
        if e.kind == Acc.CAS and not page.plain:
            op = self.checker.program.ops[e.source[0]]
            if op.op == CpuAccess.number:
                page.own()
        if e.optional:
            page.maybe(word, e.kind, e.value, e.expect, high)
        elif e.kind < PERM_BEGIN and not page.access(
            word, e.kind, e.value, e.expect, e.result or 0, high
        ):
            self._wrong(page, word, e)

    def _wrong(self, page: Page, word: int, e: HistoryEvent) -> None:
        i, _, gp = e.source
        op = self.checker.program.ops[i]
        who = "CPU" if op.op == CpuAccess.number else f"GPU lane {e.lane}"
        raise Contradiction(
            i,
            wrong(
                who, e.kind, gp >> REGION_SHIFT, (gp & (REGION_PAGES - 1)) * PAGE + word * 8,
                e.result or 0, page,
            ),
        )  # fmt: skip

    def _op_of(self, events: list[HistoryEvent]) -> int:
        return max((e.source[0] for e in events if e.source[0] >= 0), default=self.first_op)


def gpu_ended(space: Space, o: Op, failed: bool) -> None:
    """What the end of a GPU job (nothing, if `o` is none) leaves in the fault buffer."""
    pages: set[int] = set()
    if o.op == GpuAccess.number:
        pages = {
            gp_of(region, off)
            for kind, region, _, off, _, _ in o.acc
            if kind not in READS and kind != Acc.DELAY
        }
    elif o.op in (GpuCopy.number, GpuFill.number):
        region, off = (o.region, o.off) if o.op == GpuFill.number else (o.arg, o.a)
        pages = set(range(gp_of(region, off), gp_of(region, off + o.len - 1) + 1))
    space.procs[o.proc].write_faulted(pages, failed)


def copy_range(proc: Process, o: Op, failed: bool) -> None:
    """The effect of GPU_COPY or GPU_FILL on the pages, page by page; `failed`: of a job that
    ended with a fault somewhere."""
    fill = o.op == GpuFill.number
    to_region, to_off = (o.region, o.off) if fill else (o.arg, o.a)
    done = 0
    while done < o.len:
        off, src_off = to_off + done, o.off + done
        n = min(o.len - done, PAGE - off % PAGE)
        source: Page | None = None
        if not fill:
            n = min(n, PAGE - src_off % PAGE)
            sgp = gp_of(o.region, src_off)
            svma = proc.find(sgp)
            if svma is not None and svma.prot & 1:
                source = proc.page(sgp, svma)
        done += n
        gp = gp_of(to_region, off)
        vma = proc.find(gp)
        if vma is None or not vma.prot & 2 or not (fill or source is not None):
            continue
        page = proc.page(gp, vma)
        if failed:
            _maybe_copied(page, source, o.a, off, src_off, n)
        else:
            _copied(page, source, o.a, off, src_off, n)


def _maybe_copied(
    page: Page, source: Page | None, pattern: int, off: int, src_off: int, n: int
) -> None:
    """A copy that failed somewhere: each word is old or new, the page copied or not."""
    before = page.copy()
    after = page.copy()
    _copied(after, source, pattern, off, src_off, n)
    keep = [] if before.plain else before.worlds
    page.own()
    new = after.worlds[0]
    for k in range(n // 8):
        word = off // 8 % 512 + k
        for w in page.worlds:
            w.vals[word] = union(w.vals.get(word, w.base), new.vals.get(word, new.base))
    page.worlds += keep


def _copied(
    page: Page, source: Page | None, pattern: int, off: int, src_off: int, n: int
) -> None:
    """n bytes within one page of each side; `source` None: a fill."""
    page.own()
    if source is None:
        if n == PAGE:
            page.fill(pattern)
            return
        for k in range(n // 8):
            page.put(off // 8 % 512 + k, pattern)
        return
    src = source.worlds[0] if source.worlds[0].follow is None else source.worlds[0].follow.worlds[0]
    if n == PAGE:
        page.fill(src.base)
        page.worlds[0].vals.update(src.vals)
        return
    for k in range(n // 8):
        page.put(off // 8 % 512 + k, src.vals.get(src_off // 8 % 512 + k, src.base))


def union(a: Val, b: Val) -> Val:
    """Either of two sets of values."""
    if isinstance(a, AnyValue) or isinstance(b, AnyValue):
        return ANY
    both = (frozenset({a}) if isinstance(a, int) else a) | (
        frozenset({b}) if isinstance(b, int) else b
    )
    return next(iter(both)) if len(both) == 1 else both


def bad_pages(space: Space, proc: int, region: int, off: int, length: int, need: int) -> set[int]:
    """Pages of the range in which an access that needs `need` is refused."""
    p = space.procs[proc]
    out = set()
    for gp in range(gp_of(region, off), gp_of(region, off + length - 1) + 1):
        v = p.find(gp)
        if v is None or not v.prot & need:
            out.add(gp)
    return out


# -- words for messages --


def acc_name(kind: int) -> str:
    return Acc(kind).name.lower()


def ast_name(st: int) -> str:
    return {0: "not done", 1: "success", 2: "SIGSEGV", 3: "SIGBUS"}.get(st, f"status {st}")


def at(region: int, off: int) -> str:
    return f"r{region}+{off:#x}"


def first_page(message: str) -> int:
    """The page of the first place that a message names, as `gp_of`; -1: it names none."""
    found = re.search(r"\br(\d+)\+(0x[0-9a-f]+)", message)
    return gp_of(int(found[1]), int(found[2], 16)) if found else -1


def reported(kind: int, got: int, st: int) -> str:
    if st != Ast.DONE or kind in (Acc.WRITE, Acc.WRITE32):
        return ""
    return f" (value {got:#x})"


def why(vma: Vma | None) -> str:
    return "hole" if vma is None else ("PROT_NONE", "read-only", "?", "read-write")[vma.prot & 3]


def wrong(who: str, kind: int, region: int, off: int, got: int, page: Page) -> str:
    return (
        f"{who} {acc_name(kind)} of {at(region, off)} found {got:#x}, "
        f"expected {page.possible(off >> 3 & 511)}"
    )


def status_name(s: int) -> str:
    if s == 0:
        return "success"
    if s == RES_SKIPPED:
        return "not run"
    if s == RES_KILLED:
        return "process ended"
    return errno.errorcode.get(-s, str(s))


def fault_place(r: OpResult) -> str:
    return at(r.fault_region, r.fault_addr) if r.fault_region >= 0 else hex(r.fault_addr)


def describe(o: Op) -> str:
    """An operation in a few words."""
    name = ops.of(o).name
    where = f" {at(o.region, o.off)} len {o.len:#x}" if o.len else ""
    return f"{name}{where} (process {o.proc})"


def story(events: list[HistoryEvent]) -> str:
    """The events of one word, thread by thread."""
    parts = []
    for e in sorted(events, key=lambda e: (e.actor, e.op, e.lane, e.step)):
        who = f"p{e.actor >> 4}.{e.actor & 15}" + (f"/lane {e.lane}" if e.lane else "")
        if e.kind in (PERM_END, ZERO_END):
            continue
        if e.kind == PERM_BEGIN:
            what = f"protect {e.value}"
        elif e.kind == ZERO_BEGIN:
            what = "replaced by zeroes"
        elif e.kind in (FAILED_READ, FAILED_WRITE):
            what = "refused " + ("read" if e.kind == FAILED_READ else "write")
        elif e.kind == Acc.READ:
            what = f"read {e.result or 0:#x}"
        elif e.kind == Acc.WRITE:
            what = f"write {e.value:#x}"
        else:
            got = "?" if e.result is None else hex(e.result)
            what = f"{acc_name(e.kind)} {e.value:#x} found {got}"
        parts.append(f"{who}: {what}" + (" (perhaps)" if e.optional else ""))
    return "; ".join(parts[:24]) + ("; ..." if len(parts) > 24 else "")
