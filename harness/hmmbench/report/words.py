# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations and page-table bits in plain words, for people who do not know the recipe format."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from hmmbench.guest.program import (
    F_CTX1,
    F_NOWAIT,
    MIGRATE_DEVICE,
    PAGE,
    POLICY_EXCLUSIVE,
    POLICY_MIGRATE,
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
    Access,
    Advice,
    Ast,
    MapKind,
    Op,
    OpKind,
    OpResult,
)
from hmmbench.model.cells import MAPPINGS

#: Accesses of one operation that are told one by one.
TOLD = 6

_PROT = {0: "no access", 1: "read-only", 3: "read and write"}


def place(region: int, off: int) -> str:
    """A page, and the byte in it where that matters."""
    rest = f" + {off % PAGE:#x}" if off % PAGE else ""
    return f"region {region}, page {off // PAGE}{rest}"


def page_name(text: str) -> str:
    """A place as messages write it (r4+0x3000) in words."""
    region, _, off = text.removeprefix("r").partition("+")
    return place(int(region), int(off, 0))


def span(region: int, off: int, length: int) -> str:
    first, last = off // PAGE, (off + max(length, 1) - 1) // PAGE
    if first == last:
        whole = "" if length >= PAGE else f" ({length} bytes at +{off % PAGE:#x})"
        return f"region {region}, page {first}{whole}"
    return f"region {region}, pages {first} to {last}"


def access(a: Access) -> str:
    """One access as a phrase: "writes 0x5 to region 1, page 0"."""
    kind, region, _, off, value, expect = a
    at = place(region, off)
    if kind == Acc.DELAY:
        return f"waits {value} turns"
    if kind == Acc.READ or kind == Acc.READ32:
        return f"reads {'32 bits of ' if kind == Acc.READ32 else ''}{at}"
    if kind == Acc.WRITE or kind == Acc.WRITE32:
        return f"writes {value:#x} to {'32 bits of ' if kind == Acc.WRITE32 else ''}{at}"
    if kind == Acc.ADD:
        return f"atomically adds {value:#x} to {at}"
    if kind == Acc.XCHG:
        return f"atomically exchanges {at} for {value:#x}"
    return f"atomically replaces {expect:#x} by {value:#x} in {at}"


def _accesses(o: Op) -> str:
    gpu = o.op == OpKind.GPU_ACCESS
    lanes = {a[2] for a in o.acc}
    told = [
        (f"lane {a[2]} " if gpu and len(lanes) > 1 else "") + access(a) for a in o.acc[:TOLD]
    ]
    if len(o.acc) > TOLD:
        told.append(f"and {len(o.acc) - TOLD} more accesses")
    return "; then ".join(told) if len(lanes) <= 1 or not gpu else "; ".join(told)


def sentence(o: Op) -> str:
    """What an operation does, as a sentence without its subject's number."""
    kind = OpKind(o.op)
    at = span(o.region, o.off, o.len)
    if kind == OpKind.MMAP:
        what = MAPPINGS[MapKind(o.arg)] if o.arg in list(MapKind) else f"kind {o.arg}"
        return f"maps {what} memory, {_PROT.get(o.a, hex(o.a))}, at {at}"
    if kind == OpKind.MPROTECT:
        return f"changes the protection of {at} to {_PROT.get(o.a, hex(o.a))}"
    if kind == OpKind.MREMAP:
        left = ", leaving the old range mapped and empty" if o.c else ""
        return f"moves {at} to {span(o.arg, o.a, o.b)} (mremap){left}"
    if kind == OpKind.MADVISE:
        name = Advice(o.a).name if o.a in list(Advice) else str(o.a)
        return f"advises the kernel: MADV_{name} for {at}"
    if kind == OpKind.CPU_ACCESS:
        return f"CPU {_accesses(o)}"
    if kind == OpKind.GPU_ACCESS:
        second = " in its second context" if o.flags & F_CTX1 else ""
        wait = ", and it is not waited for" if o.flags & F_NOWAIT else ""
        return f"GPU{second} {_accesses(o)}{wait}"
    if kind == OpKind.GPU_COPY:
        return f"GPU copies {at} to {span(o.arg, o.a, o.len)}"
    if kind == OpKind.GPU_FILL:
        return f"GPU fills {at} with {o.a:#x}"
    if kind == OpKind.MIGRATE:
        where = "VRAM" if o.arg == MIGRATE_DEVICE else "system memory"
        return f"asks the driver to migrate {at} to {where}" + (" and map it" if o.a else "")
    if kind == OpKind.POLICY:
        migrates = o.arg & POLICY_MIGRATE
        how = "migrate pages to VRAM" if migrates else "map pages where they are"
        exclusive = ", atomics take them exclusively" if o.arg & POLICY_EXCLUSIVE else ""
        return f"sets the policy for GPU faults: {how}{exclusive}"
    if kind == OpKind.EVICT:
        return f"evicts {o.a or 'all'} pages from VRAM"
    if kind == OpKind.KILL:
        return f"kills process {o.arg}"
    if kind == OpKind.SLEEP:
        return f"sleeps {o.a} \N{MICRO SIGN}s"
    if kind == OpKind.WAIT_GPU:
        but = " but the last" + (f" {o.a}" if o.a > 1 else "") if o.a else ""
        return f"waits for its GPU jobs{but}"
    if kind == OpKind.KSM:
        return "runs the page merger" if o.a else "stops the page merger"
    simple = {
        OpKind.MUNMAP: f"unmaps {at}", OpKind.QUERY: f"asks for the page tables of {at}",
        OpKind.FORK: f"forks: process {o.arg} is its copy", OpKind.EXIT: "exits",
        OpKind.SPAWN: f"process {o.arg} is started",
        OpKind.GPU_SPIN: "GPU runs an endless program", OpKind.NOP: "does nothing",
        OpKind.CLOSE_GPU: "closes its GPU file",
    }  # fmt: skip
    return simple[kind]


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
    if o.op == OpKind.MIGRATE and not out:
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
