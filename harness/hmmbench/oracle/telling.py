# SPDX-License-Identifier: GPL-2.0-or-later
"""How the values oracle says what it found: contradictions, and their words."""

from __future__ import annotations

import errno
import re

from hmmbench.guest.program import RES_KILLED, RES_SKIPPED, Acc, Ast, Op, OpResult
from hmmbench.model import ops
from hmmbench.model.page import Page
from hmmbench.model.race import READS
from hmmbench.model.space import Vma, gp_of
from hmmbench.oracle.history import (
    FAILED_READ,
    FAILED_WRITE,
    PERM_BEGIN,
    PERM_END,
    ZERO_BEGIN,
    ZERO_END,
    HistoryEvent,
)


class Contradiction(Exception):
    """Raised inside the walk of the values oracle; becomes the Violation.

    `oracle`: whose words these are, if an operation has one of its own.
    """

    def __init__(self, op: int, message: str, oracle: str = "values") -> None:
        super().__init__(message)
        self.op = op
        self.message = message
        self.oracle = oracle


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


def why(vma: Vma | None, gp: int) -> str:
    if vma is None:
        return "hole"
    end = ", behind the end of its file" if vma.beyond(gp) else ""
    return ("PROT_NONE", "read-only", "?", "read-write")[vma.prot & 3] + end


def refusal(vma: Vma | None, gp: int, kind: int) -> Ast:
    """The signal of a CPU's access that is not allowed."""
    permitted = vma is not None and vma.prot & (1 if kind in READS else 2)
    return Ast.SIGBUS if permitted else Ast.SIGSEGV


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
