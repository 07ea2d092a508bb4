# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations and page-table bits in plain words, for people who do not know the recipe format."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from hmmbench.guest.program import (
    Q_CPU_DEVICE,
    Q_CPU_ERROR,
    Q_CPU_READ,
    Q_CPU_WRITE,
    Q_GPU_ATOMIC,
    Q_GPU_HUGE,
    Q_GPU_VALID,
    Q_GPU_VRAM,
    Q_GPU_WRITE,
    RES_KILLED,
    RES_SKIPPED,
    Acc,
    Ast,
    Op,
    OpResult,
)
from hmmbench.model import ops
from hmmbench.model.ops.moving import Migrate
from hmmbench.model.phrases import TOLD, span


def sentence(o: Op) -> str:
    """What an operation does, as a sentence without its subject's number."""
    return ops.of(o).sentence(o, span(o.region, o.off, o.len))


def status(o: Op, r: OpResult) -> str:
    """How an operation ended, and what it saw."""
    if r.status == RES_SKIPPED:
        return "not run"
    if r.status == RES_KILLED:
        return "its process ended meanwhile"
    out = "" if r.status == 0 else errno.errorcode.get(-r.status, str(r.status))
    seen = []
    for a, (value, st, _) in zip(o.acc[:TOLD], r.acc[:TOLD], strict=True):
        if a[0] == Acc.DELAY:
            continue
        if st == Ast.DONE:
            if a[0] not in (Acc.WRITE, Acc.WRITE32):
                seen.append(f"{value:#x}")
        else:
            seen.append({0: "not done", 2: "SIGSEGV", 3: "SIGBUS"}.get(st, f"status {st}"))
    if o.op == Migrate.number and not out:
        return f"{r.aux0} pages moved, {r.aux1} did not"
    return ", ".join([*([out] if out else []), *(["saw " + ", ".join(seen)] if seen else [])])


def gpu_entry(q: int | None) -> str:
    """The GPU's half of a QUERY."""
    if q is None:
        return "not answered"
    if not q & Q_GPU_VALID:
        return "not mapped"
    parts = ["VRAM" if q & Q_GPU_VRAM else "system memory"]
    parts.append("writable" if q & Q_GPU_WRITE else "read-only")
    if q & Q_GPU_ATOMIC:
        parts.append("atomics")
    if q & Q_GPU_HUGE:
        parts.append("2 MiB entry")
    return ", ".join(parts)


def cpu_entry(q: int | None) -> str:
    """The CPU's half of a QUERY."""
    if q is None:
        return "not answered"
    if q & Q_CPU_ERROR:
        return "no access"
    if q & Q_CPU_DEVICE:
        return "device-private (VRAM)" + (", writable" if q & Q_CPU_WRITE else ", read-only")
    if q & Q_CPU_READ:
        return "system memory, " + ("writable" if q & Q_CPU_WRITE else "read-only")
    return "not present"


def seen_with(shown_by: Sequence[str], looked_for: int) -> str:
    """On which kinds of machine a violation was seen (tally.Finding); "": nothing to add."""
    if "threads" not in shown_by:
        return ""
    if "exact" in shown_by:
        return "found by machines with threads (threads.json); the recipe is an exact machine's"
    if not looked_for:
        return "seen with threads only; not looked for in exact machines"
    many = "execution" if looked_for == 1 else "executions"
    return f"seen with threads only; looked for in {looked_for} {many} of exact machines"
