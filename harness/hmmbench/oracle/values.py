# SPDX-License-Identifier: GPL-2.0-or-later
"""The values oracle: can the model explain every result of a program?

Walks the program phase by phase.  Operations of one thread are followed exactly; where
several threads met (actors of one phase, lanes of one launch) each word's history is given
to `history`.  Stops at the first contradiction: what comes after it would be judged against
a state that is no longer known.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from itertools import groupby

from hmmbench.guest.program import (
    F_NOWAIT,
    PAGE,
    RES_SKIPPED,
    Acc,
    Ast,
    Op,
    OpResult,
    Program,
    Result,
)
from hmmbench.model import admit, ops
from hmmbench.model.cells import Coverage
from hmmbench.model.mishaps import AWAY, Mishaps
from hmmbench.model.ops import of
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, GpuCopy, GpuFill, target
from hmmbench.model.ops.moving import Evict, Policy, Query
from hmmbench.model.ops.pins import PinIo
from hmmbench.model.ops.processes import Fork
from hmmbench.model.ops.promises import Promise, ReadBack
from hmmbench.model.oracles import WORDS
from hmmbench.model.race import READS
from hmmbench.model.reshape import Reshaped
from hmmbench.model.space import REGION_SHIFT, Space, Vma, gp_of
from hmmbench.oracle import contents, mapping
from hmmbench.oracle.endings import bad_pages, copy_range, gpu_ended, job_end
from hmmbench.oracle.meeting import Meeting
from hmmbench.oracle.telling import (
    Contradiction,
    acc_name,
    ast_name,
    at,
    describe,
    first_page,
    refusal,
    reported,
    status_name,
    why,
    wrong,
)
from hmmbench.oracle.violation import Violation


class Checker:
    """One program and its result; `rules`: of the device, in force meanwhile.

    `undecided` counts words whose history was too entangled to judge, `accesses` what was
    judged.
    """

    def __init__(
        self, program: Program, result: Result, coverage: Coverage | None = None,
        rules: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.program = program
        self.result = result
        self.coverage = coverage
        self.space = Space(program.file_pages)
        self.space.mishaps = Mishaps(rules)
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
                self.space.mishaps.begin(any(of(o).takes_gpu for _, o, _ in items))
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
            if self.space.mishaps.hurts and any(_gave_up(o, r) for _, o, r in items):
                # What it did before that nobody knows, and so not what comes behind it.
                return None
            return Violation(c.oracle, c.message, c.op, page=first_page(c.message))
        return None

    # -- one operation at a time --

    def _one(self, i: int, o: Op, r: OpResult) -> None:
        kind = o.op
        if r.status == RES_SKIPPED:
            raise Contradiction(i, f"{describe(o)} was not run")
        if kind == CpuAccess.number:
            self._cpu(i, o, r)
        elif kind == GpuAccess.number:
            meeting = Meeting(self.space, self.program.ops, i)
            dying = bool(o.flags & F_NOWAIT) and admit.broken_off(self.program.ops, i)
            meeting.gpu(i, o, r, 0, dying)
            self._finish(meeting)
            gpu_ended(self.space, o, dying or r.status != 0)
        elif kind == GpuCopy.number or kind == GpuFill.number:
            self._copy(i, o, r)
        else:
            self.status(i, o, r)
            if ops.of(o).absent(r):
                return
            if kind == Query.number:
                bad = mapping.check(self.space, o, r)
                if bad:
                    raise Contradiction(i, bad)
            elif kind == ReadBack.number and (bad := contents.check(self.space, o, r)):
                raise Contradiction(i, bad, ReadBack.oracle)
            bad = ops.of(o).explain(self.space, o, r)
            if bad and (own := ops.of(o).oracle) in WORDS and own != "values":
                raise Contradiction(i, bad, own)
            if bad:
                raise Contradiction(i, f"{describe(o)} {bad}")
            if not (o.op == Promise.number and r.status):
                ops.apply(self.space, o)

    def _finish(self, meeting: Meeting) -> None:
        try:
            meeting.finish()
        finally:
            self.undecided += meeting.undecided

    def status(self, i: int, o: Op, r: OpResult, racing: bool = False) -> None:
        if self._moot(o, r):
            return
        legal = ops.of(o).statuses(self.space, o, racing)
        if legal is not None and r.status not in legal:
            raise Contradiction(
                i, f"{describe(o)} ended with {status_name(r.status)}, expected "
                + " or ".join(status_name(s) for s in sorted(legal)),
            )  # fmt: skip
        bad = ops.of(o).judge(o, r, racing)
        if bad and (own := ops.of(o).oracle) in WORDS:
            # Which mistake it is stands before a colon; not each is about memory of the program.
            what = describe(o) if ops.of(o).ranges(o) else f"{ops.of(o).name} of process {o.proc}"
            raise Contradiction(i, f"{bad} ({what})", own)
        if bad:
            raise Contradiction(i, f"{describe(o)} {bad}")

    def _moot(self, o: Op, r: OpResult) -> bool:
        """Whether nothing is said of its answer: the device is taken away meanwhile, or misbehaves
        so that promises are off."""
        mishaps = self.space.mishaps
        judged = mishaps.promises if o.op == Promise.number else mishaps.trials
        if of(o).trial and (mishaps.away or not judged):
            if o.op == Promise.number and r.status:
                # Perhaps it has set its policy.
                self.space.procs[o.proc].exclusive = None
            return True
        needs = ops.of(o).uses_gpu or o.op in (Evict.number, CloseGpu.number)
        return mishaps.away and needs and r.status in AWAY

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
            if vma is None or not vma.allows(gp, 1 if kind in READS else 2):
                expected = refusal(vma, gp, kind)
                if st != expected:
                    raise Contradiction(
                        i, f"CPU {acc_name(kind)} of {at(region, off)} ({why(vma, gp)}) ended with "
                        f"{ast_name(st)}{reported(kind, got, st)}, expected {ast_name(expected)}",
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
        to_region, to_off = target(o)
        bad = bad_pages(self.space, o.proc, to_region, to_off, o.len, 2)
        if not fill:
            bad |= bad_pages(self.space, o.proc, o.region, o.off, o.len, 1)
        job_end(self.space, i, o, r, bad)
        copy_range(proc, o, r.status != 0)
        gpu_ended(self.space, o, r.status != 0)

    # -- several at once --

    def _race(self, items: list[tuple[int, Op, OpResult]]) -> None:
        shaped = Reshaped(self.space, (o for _, o, _ in items))
        meeting = Meeting(self.space, self.program.ops, items[0][0], shaped)
        structural: list[Op] = []
        for seq, (_, o, r) in enumerate(items):
            if ops.of(o).changes(o) and not ops.of(o).absent(r):
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
                if not ops.of(o).absent(r):
                    structural.append(o)
        twins = [meeting.twin(o) for o in structural if o.op == Fork.number]
        self._finish(meeting)
        for _, o, r in items:
            gpu_ended(self.space, o, r.status != 0)
        policies = [o.proc for o in structural if o.op == Policy.number]
        # Not told, as the device was away, and perhaps another one before it.
        failed = [o.proc for _, o, r in items if o.op == Policy.number and r.status]
        for o in structural:
            if not ops.of(o).zeroes(o) or ops.of(o).protects(o) is not None:
                ops.apply(self.space, o)
            else:
                start = gp_of(o.region, o.off)
                self.space.procs[o.proc].let_go(start, start + o.len // PAGE)
        for child in twins:
            # What may have been copied late in its parent was so perhaps before the fork.
            child.write_faulted(self.space.procs[child.number].late, True)
            shaped.trim(child)
            self.space.procs[child.number] = child
        shaped.blur()
        for proc in policies:
            if policies.count(proc) > 1 or proc in failed:
                # Which came last?
                self.space.procs[proc].exclusive = None


#: How that is told; who died of it did the rest not.
_NOT_HAD = (-errno.EIO, -errno.EFAULT, -errno.ENOMEM, RES_SKIPPED)


def _gave_up(o: Op, r: OpResult) -> bool:
    """Whether it, or a part of it, was told that it cannot have a page."""
    return (
        r.status in _NOT_HAD
        or any(st == Ast.SIGBUS for _, st, _ in r.acc)
        # A call that got a part of it.
        or (o.op == PinIo.number and r.aux0 < o.len)
        or (o.op == ReadBack.number and contents.unreadable(r))
    )
