# SPDX-License-Identifier: GPL-2.0-or-later
"""What several threads did at once, word by word: the part of the values oracle for races."""

from __future__ import annotations

import errno

from hmmbench.guest.program import (
    PAGE,
    RES_KILLED,
    Acc,
    Ast,
    Op,
    OpResult,
)
from hmmbench.model import ops
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess, GpuFill, target
from hmmbench.model.page import ANY, M64, AnyValue, Page, Val, World, show
from hmmbench.model.race import READS
from hmmbench.model.reshape import Reshaped
from hmmbench.model.space import (
    ANON,
    REGION_PAGES,
    REGION_SHIFT,
    Process,
    Space,
    Vma,
    gp_of,
    place,
)
from hmmbench.oracle.endings import job_end, union
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
from hmmbench.oracle.telling import (
    Contradiction,
    acc_name,
    ast_name,
    at,
    describe,
    reported,
    status_name,
    story,
    why,
    wrong,
)


class Meeting:
    """Everything that several threads did in one phase, word by word."""

    def __init__(
        self, space: Space, ops: list[Op], first_op: int, shaped: Reshaped | None = None
    ) -> None:
        self.space = space
        # pages of files that the phase changes
        self.shaped = shaped or Reshaped(space)
        self.ops = ops
        # words whose history was too entangled to judge
        self.undecided = 0
        self.first_op = first_op
        # (id of page, word) -> accesses; pages are kept alive by `pages`
        self.words: dict[tuple[int, int], list[HistoryEvent]] = {}
        self.pages: dict[int, Page] = {}
        self.where: dict[int, tuple[int, int]] = {}
        self.certain_write: set[int] = set()
        self.maybe_write: set[int] = set()
        # (process, gp) -> protections that the phase sets, in order: (actor, op, prot)
        self.perm_changes: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        # ... that are replaced by new ones: (actor, op, how often)
        self.zeroed: dict[tuple[int, int], list[tuple[int, int, int]]] = {}

    def announce(self, o: Op, seq: int) -> None:
        """An mm operation of this phase that accesses may race with."""
        proc = self.space.procs[o.proc]
        start, end = gp_of(o.region, o.off), gp_of(o.region, o.off) + o.len // PAGE
        actor = o.proc << 4 | o.actor
        prot = ops.of(o).protects(o)
        for v in proc.overlapping(start, end):
            for gp in range(max(v.start, start), min(v.end, end)):
                if prot is not None:
                    self.perm_changes.setdefault((o.proc, gp), []).append((actor, seq, prot))
                if ops.of(o).zeroes(o) and v.kind in ANON:
                    self.zeroed.setdefault((o.proc, gp), []).append(
                        (actor, seq, ops.of(o).takes)
                    )  # fmt: skip

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
            missing = self.shaped.missing(vma, gp)
            shaped = missing is not None
            beyond = vma is not None and vma.beyond(gp) and not shaped
            if st == Ast.DONE and may and vma is not None and not beyond:
                if not shaped:
                    self._add(i, o, seq, actor, 0, step, gp, vma, off, kind, value, expect, got)
                elif need == 2:
                    self.shaped.written(vma, gp, off >> 3 & 511)
            elif st == Ast.SIGBUS and may and (missing or beyond):
                pass
            elif st == Ast.SIGSEGV and may_fail:
                if may and vma is not None and not shaped and not beyond:
                    failed = FAILED_READ if need == 1 else FAILED_WRITE
                    self._add(i, o, seq, actor, 0, step, gp, vma, off, failed, 0, 0, None)
            else:
                raise Contradiction(
                    i, f"CPU {acc_name(kind)} of {at(region, off)} ({why(vma, gp)}) ended with "
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
            missing = self.shaped.missing(vma, gp)
            beyond = missing is None and vma is not None and vma.beyond(gp)
            if not changing:
                may = vma is not None and bool(vma.prot & need) and not beyond
                if may and not missing:
                    continue
            else:
                prots = self._prots(o.proc, gp, vma)
                if all(p & need for p in prots) and not beyond and not missing:
                    continue
                may = any(p & need for p in prots) and not beyond
            bad.add(gp)
            if not may:
                stopped.add(lane)
                blocked[lane] = step
        if dying:
            if r.status not in (0, RES_KILLED) and r.status > 0:
                raise Contradiction(i, f"{describe(o)} ended with {status_name(r.status)}")
        else:
            job_end(self.space, i, o, r, bad, must=bool(stopped))
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
            if self.shaped.missing(vma, gp) is not None:
                if kind not in READS:
                    self.shaped.written(vma, gp, off >> 3 & 511)
                continue
            self._add(
                i, o, seq, actor, lane, step, gp, vma, off, kind, value, expect,
                None if optional else result, optional,
            )  # fmt: skip

    def copy(self, i: int, o: Op, r: OpResult, seq: int) -> None:
        """Admission made sure that nobody else writes either range in this phase."""
        fill = o.op == GpuFill.number
        proc = self.space.procs[o.proc]
        to_region, to_off = target(o)
        actor = o.proc << 4 | o.actor
        bad = self._taken(o.proc, to_region, to_off, o.len, 2)
        if not fill:
            bad |= self._taken(o.proc, o.region, o.off, o.len, 1)
        # Somebody takes the memory, before the copy or after it.
        job_end(self.space, i, o, r, bad, must=False)
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
            self._add(
                i, o, seq, actor, 0, k, gp, vma, off, Acc.WRITE, value, 0, None, r.status != 0
            )

    def _taken(self, proc: int, region: int, off: int, length: int, need: int) -> set[int]:
        """Pages of the range in which an access that needs `need` may be refused."""
        find = self.space.procs[proc].find
        return {
            gp
            for gp in range(gp_of(region, off), gp_of(region, off + length - 1) + 1)
            if not all(p & need for p in self._prots(proc, gp, find(gp)))
        }

    def twin(self, o: Op) -> Process:
        """The child of a fork of this phase, before `finish`: of what others write meanwhile it
        has, word by word, what was there at some moment."""
        parent = self.space.procs[o.proc]
        child = parent.fork(o.arg)
        for (key, word), events in self.words.items():
            proc, gp = self.where[key]
            written = [e for e in events if e.kind not in READS and e.kind < PERM_BEGIN]
            if proc != o.proc or parent.private.get(gp) is not self.pages[key] or not written:
                continue
            page = child.private[gp]
            if page.follows:
                page.loosen()
            elif not page.plain:
                page.fill(ANY)
            else:
                w = page.worlds[0]
                value = w.vals.get(word, w.base)
                for e in written:
                    value = union(value, _left(e))
                page.put(word, value)
        return child

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

    def _new(self, proc: int, gp: int) -> int:
        """What is in each word of the page when it comes to be."""
        vma = self.space.procs[proc].find(gp)
        return vma.fill if vma is not None else 0

    def _zero_rest(self, proc: int, gp: int, touched: dict[int, set[int]]) -> None:
        """MADV_DONTNEED in the phase: the words nobody accessed are zeros now."""
        process = self.space.procs[proc]
        page = process.private.get(gp)
        if page is None:
            return
        words = touched.get(id(page), set())
        keep = {w: v for w, v in page.worlds[0].vals.items() if w in words}
        page.fill(self._new(proc, gp))
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
        for actor, seq, takes in zeroed:
            # (Before what the same operation does to the protection.)
            for step in range(-2 * takes, 0, 2):
                new = HistoryEvent(ZERO_BEGIN, self._new(proc, gp), 0, None, actor, seq, 0, step)
                gone = HistoryEvent(ZERO_END, 0, 0, None, actor, seq, 0, step + 1)
                events = [*events, new, gone]
        try:
            if overlapping or len({actor for actor, _, _ in zeroed}) > 1:
                raise Undecided  # several changes at a time are not modelled
            finals = final_values(initial, events, perms)
        except Undecided:
            self.undecided += 1
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
            op = self.ops[e.source[0]]
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
        op = self.ops[i]
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


def _left(e: HistoryEvent) -> Val:
    """What a write or an atomic may leave in its word."""
    if e.kind in (Acc.WRITE, Acc.XCHG, Acc.CAS):
        return e.value
    if e.kind == Acc.ADD and e.result is not None and not e.optional:
        return (e.result + e.value) & M64
    return ANY
