# SPDX-License-Identifier: GPL-2.0-or-later
"""How GPU jobs end, and what copies and jobs that end leave in memory."""

from __future__ import annotations

import errno

from hmmbench.guest.program import ERR_FAULT, PAGE, Acc, Op, OpResult
from hmmbench.model.ops.jobs import GpuAccess, GpuCopy, GpuFill, target
from hmmbench.model.page import ANY, AnyValue, Page, Val
from hmmbench.model.race import READS
from hmmbench.model.space import Process, Space, gp_of, place
from hmmbench.oracle.telling import Contradiction, describe, fault_place, status_name


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
    proc = space.procs[o.proc]
    proc.write_faulted(pages, failed)
    if any(o is one for one in space.mishaps.excused):
        # Admission did not know that it may fail: of what is not word by word, nothing is left.
        for gp in pages & proc.private.keys():
            if not proc.private[gp].plain:
                proc.private[gp].blur()


def copy_range(proc: Process, o: Op, failed: bool) -> None:
    """The effect of GPU_COPY or GPU_FILL on the pages, page by page; `failed`: of a job that
    ended with a fault somewhere."""
    fill = o.op == GpuFill.number
    to_region, to_off = target(o)
    done = 0
    while done < o.len:
        off, src_off = to_off + done, o.off + done
        n = min(o.len - done, PAGE - off % PAGE)
        source: Page | None = None
        if not fill:
            n = min(n, PAGE - src_off % PAGE)
            sgp = gp_of(o.region, src_off)
            svma = proc.find(sgp)
            if svma is not None and svma.allows(sgp, 1):
                source = proc.page(sgp, svma)
        done += n
        gp = gp_of(to_region, off)
        vma = proc.find(gp)
        if vma is None or not vma.allows(gp, 2) or not (fill or source is not None):
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
        if v is None or not v.allows(gp, need):
            out.add(gp)
    return out


def job_end(
    space: Space, i: int, o: Op, r: OpResult, bad: set[int], must: bool = True
) -> None:
    """How a GPU job may end: well, or (`must`: has to) with a fault in one of `bad`, or by a
    mishap."""
    if r.status and space.mishaps.excuse(o, r, o.op != GpuAccess.number):
        return
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
