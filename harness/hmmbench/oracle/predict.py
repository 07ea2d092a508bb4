# SPDX-License-Identifier: GPL-2.0-or-later
"""What each access of a program may see, known before it runs: for exported reproducers.

Coarser than the values oracle, which also knows what was seen before: where threads meet, only
the outcome is predicted (by the same search over legal orders), not each read.
"""

from __future__ import annotations

from itertools import groupby
from signal import Signals

from hmmbench.guest.program import F_NOWAIT, Acc, Ast, Op, Program
from hmmbench.model import ops
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.processes import Fork
from hmmbench.model.page import ANY, AnyValue, Page, Val, join, new_value, observed
from hmmbench.model.race import READS
from hmmbench.model.reshape import Reshaped
from hmmbench.model.space import REGION_SHIFT, Space
from hmmbench.oracle.endings import bad_pages, copy_range, gpu_ended
from hmmbench.oracle.history import HistoryEvent, Undecided, final_values, settle
from hmmbench.oracle.telling import refusal

#: More values than a reproducer can list are as good as any.
LIMIT = 16

#: For one access: the values it may see, None if any; refused: it has to fail.
Prediction = frozenset[int] | None


class Predictor:
    """Walks a program; `seen[i]` are the predictions of operation i, `refused[i]` how its accesses
    end that must fail, `fails[i]` whether a GPU job may or must end with an error."""

    def __init__(self, program: Program) -> None:
        self.space = Space(program.file_pages)
        self.program = program
        self.seen: list[list[Prediction]] = [[None] * len(o.acc) for o in program.ops]
        self.refused: list[list[Signals | None]] = [[None] * len(o.acc) for o in program.ops]
        #: -1: must succeed, 0: either, 1: must fail
        self.fails: list[int] = [-1] * len(program.ops)

    def run(self) -> Predictor:
        indexed = list(enumerate(self.program.ops))
        for _, group in groupby(indexed, key=lambda x: x[1].phase):
            items = list(group)
            if len({(o.proc, o.actor) for _, o in items}) == 1:
                for i, o in items:
                    self._phase([(i, o)])
            else:
                self._phase(items)
        return self

    def _phase(self, items: list[tuple[int, Op]]) -> None:
        moving = len(items) > 1 and any(
            ops.of(o).changes(o) or ops.of(o).takes_gpu or o.op == Fork.number for _, o in items
        )
        words: dict[tuple[int, int], list[tuple[int, int, HistoryEvent]]] = {}
        pages: dict[int, Page] = {}
        shaped = Reshaped(self.space, (o for _, o in items) if len(items) > 1 else ())
        for seq, (i, o) in enumerate(items):
            if o.op in (CpuAccess.number, GpuAccess.number):
                self._accesses(seq, i, o, words, pages, moving, shaped)
            elif o.op in (GpuCopy.number, GpuFill.number):
                self._copy(i, o, moving)
        for (key, word), events in words.items():
            self._word(pages[key], word, events, moving)
        for i, o in items:
            gpu_ended(self.space, o, self.fails[i] >= 0)
        for _, o in items:
            ops.apply(self.space, o)
        shaped.blur()

    def _accesses(
        self,
        seq: int,
        i: int,
        o: Op,
        words: dict[tuple[int, int], list[tuple[int, int, HistoryEvent]]],
        pages: dict[int, Page],
        moving: bool,
        shaped: Reshaped,
    ) -> None:
        proc = self.space.procs[o.proc]
        gpu = o.op == GpuAccess.number
        bad = maybe = False
        listed: list[tuple[int, Page, int, HistoryEvent]] = []
        for step, (kind, region, lane, off, value, expect) in enumerate(o.acc):
            if kind == Acc.DELAY:
                continue
            gp = region << REGION_SHIFT | off >> 12
            vma = proc.find(gp)
            missing = shaped.missing(vma, gp)
            if vma is not None and missing is not None and vma.prot & (1 if kind in READS else 2):
                maybe |= missing
                if kind not in READS:
                    shaped.written(vma, gp, off >> 3 & 511)
                continue
            if vma is None or not vma.allows(gp, 1 if kind in READS else 2):
                signal = "SIGBUS" if refusal(vma, gp, kind) == Ast.SIGBUS else "SIGSEGV"
                self.refused[i][step] = Signals[signal]
                bad = True
                continue
            page = proc.page(gp, vma)
            event = HistoryEvent(
                kind, value, expect, None, o.proc << 4 | o.actor, seq, lane if gpu else 0, step
            )
            event.view = off & 4
            listed.append((step, page, off >> 3 & 511, event))
        uncertain = (gpu and (bad or maybe)) or bool(o.flags & F_NOWAIT)
        if (moving or maybe) and not gpu:
            self.fails[i] = 0
        elif gpu:
            free = moving or maybe or o.flags & F_NOWAIT
            self.fails[i] = 0 if free else (1 if bad else -1)
        for step, page, word, event in listed:
            event.optional = uncertain
            pages[id(page)] = page
            words.setdefault((id(page), word), []).append((i, step, event))

    def _word(
        self, page: Page, word: int, events: list[tuple[int, int, HistoryEvent]], moving: bool
    ) -> None:
        first = events[0][2]
        single = all(
            (e.actor, e.op, e.lane) == (first.actor, first.op, first.lane) for _, _, e in events
        )
        changes = any(e.kind not in READS for _, _, e in events)
        if changes and first.optional:
            page.loosen()
            if page.follows:
                return
        if moving:
            if changes or not single:
                _smash(page, word)
            return
        if single and not first.optional and changes and events[0][2].kind not in READS:
            # The first thing is a write, and it is certain: nothing before it matters.
            page.own()
        if single and page.plain and not first.optional:
            for i, step, e in events:
                value = page.worlds[0].get(word)
                self.seen[i][step] = _options(value, e)
                page.worlds[0].vals[word] = _after(value, e)
            return
        if not changes:
            if page.plain:
                value = page.worlds[0].get(word)
                for i, step, e in events:
                    self.seen[i][step] = _options(value, e)
            return
        page.own()
        if not page.plain or any(e.kind in (Acc.READ32, Acc.WRITE32) for _, _, e in events):
            _smash(page, word)
            return
        for _, _, e in events:
            e.view = -1
        try:
            finals = final_values(page.worlds[0].get(word), [e for _, _, e in events])
        except Undecided:
            finals = ANY
        page.put(word, settle(finals))

    def _copy(self, i: int, o: Op, moving: bool) -> None:
        fill = o.op == GpuFill.number
        region, off = (o.region, o.off) if fill else (o.arg, o.a)
        bad = bad_pages(self.space, o.proc, region, off, o.len, 2)
        if not fill:
            bad |= bad_pages(self.space, o.proc, o.region, o.off, o.len, 1)
        self.fails[i] = 0 if moving else 1 if bad else -1
        copy_range(self.space.procs[o.proc], o, bool(bad) or moving)


def _smash(page: Page, word: int) -> None:
    page.own()
    page.put(word, ANY)


def _options(value: Val, e: HistoryEvent) -> Prediction:
    if isinstance(value, AnyValue) or e.kind in (Acc.WRITE, Acc.WRITE32):
        return None
    olds = {value} if isinstance(value, int) else value
    seen = frozenset(observed(e.kind, v, e.view == 4) for v in olds)
    return seen if len(seen) <= LIMIT else None


def _after(value: Val, e: HistoryEvent) -> Val:
    if e.kind in READS:
        return value
    if e.kind in (Acc.WRITE, Acc.XCHG):
        return e.value
    if isinstance(value, AnyValue):
        return ANY
    olds = {value} if isinstance(value, int) else value
    return join({new_value(e.kind, v, e.value, e.expect, e.view == 4) for v in olds})
