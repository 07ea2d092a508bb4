# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's accounts of a process: what may be, and what may not."""

from __future__ import annotations

import struct

import pytest

from hmmbench.example.judge import judge
from hmmbench.example.target import Execution
from hmmbench.guest.program import PAGE, PROT_RW, Acc, Ast, MapKind, Op, OpResult, Program, Result
from hmmbench.model.ops.accounts import NOT_SCANNED, Account
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.oracle.violation import Violation

PRESENT, SWAPPED, FILE = 1 << 63, 1 << 62, 1 << 61
SCAN = {PRESENT: 1 << 3, SWAPPED: 1 << 4, FILE: 1 << 2}
SUMS = (400, 80, 20, 500, 400, 0)


def both(*flags: int, zero: bool = False) -> tuple[int, int]:
    """What pagemap and a scan say of a page."""
    return sum(flags), sum(SCAN[f] for f in flags) | zero << 5


def found(
    kind: MapKind, *entries: tuple[int, int], sums: tuple[int, ...] = SUMS, written: bool = True
) -> Violation | None:
    """Two pages of this kind, the first of which was written, and such an answer."""
    write = (int(Acc.WRITE), 0, 0, 8, 7, 0)
    ops = [
        Op(Mmap.number, phase=0, len=2 * PAGE, arg=kind, a=PROT_RW),
        Op(CpuAccess.number, phase=1, acc=[write] if written else []),
        Op(Account.number, phase=2, len=2 * PAGE, arg=1),
    ]
    data = struct.pack("<6Q", *sums) + b"".join(struct.pack("<QQ", *e) for e in entries)
    results = [
        OpResult(), OpResult(acc=[(0, int(Ast.DONE), 1)] if written else []),
        OpResult(aux0=2, data=data),
    ]  # fmt: skip
    outcome = judge(Execution(Program(ops, (8, 8, 8, 8)), Result(results)))
    assert (outcome.accounts, outcome.accounts_taken) == (1, 1)
    return outcome.violations[0] if outcome.violations else None


@pytest.mark.parametrize(("kind", "first", "second"), [
    (MapKind.ANON_PRIVATE, both(PRESENT), both()),
    (MapKind.ANON_PRIVATE, both(SWAPPED), both(PRESENT, zero=True)),
    # the large zero page counts as of a file for one of them
    (MapKind.ANON_PRIVATE, both(PRESENT), (PRESENT | FILE, 1 << 3 | 1 << 5)),
    # a kernel that does not scan
    (MapKind.ANON_PRIVATE, (SWAPPED, NOT_SCANNED), (PRESENT | FILE, NOT_SCANNED)),
    (MapKind.ANON_SHARED, both(PRESENT, FILE), both()),
    (MapKind.FILE_SHARED, both(), both(PRESENT, FILE)),
    (MapKind.FILE_PRIVATE, both(SWAPPED), both(PRESENT, FILE)),
])  # fmt: skip
def test_what_may_be(
    kind: MapKind, first: tuple[int, int], second: tuple[int, int]
) -> None:
    assert found(kind, first, second) is None


@pytest.mark.parametrize(("kind", "first", "second", "what"), [
    (MapKind.ANON_PRIVATE, both(), both(), "it was written, and is nowhere"),
    (MapKind.ANON_PRIVATE, both(PRESENT, SWAPPED), both(), "present and swapped"),
    (MapKind.ANON_PRIVATE, (PRESENT, 1 << 4), both(), "do not agree whether it is present"),
    (MapKind.ANON_PRIVATE, both(PRESENT), (SWAPPED, 0), "do not agree whether it is swapped"),
    (MapKind.ANON_PRIVATE, both(PRESENT, FILE), both(), "it is private, and a page of a file"),
    (MapKind.ANON_SHARED, both(PRESENT), both(), "it is no page of its file"),
    (MapKind.FILE_PRIVATE, both(PRESENT, FILE), both(), "it is private, and a page of a file"),
    (MapKind.FILE_PRIVATE, both(), both(), "it was written, and is nowhere"),
])  # fmt: skip
def test_what_may_not(
    kind: MapKind, first: tuple[int, int], second: tuple[int, int], what: str
) -> None:
    wrong = found(kind, first, second)
    assert wrong is not None
    assert wrong.key == ("account", "wrong account")
    assert what in wrong.message


def test_what_was_not_written_may_be_nowhere() -> None:
    assert found(MapKind.ANON_PRIVATE, both(), both(), written=False) is None


@pytest.mark.parametrize(("sums", "what"), [
    ((404, 80, 20, 500, 400, 0), "anonymous memory"),
    ((400, 80, 24, 500, 400, 0), "memory of files"),
    ((404, 80, 20, 500, 400, 4), ""),
    ((0, 0, 0, 500, 400, 0), ""),
])  # fmt: skip
def test_sums(sums: tuple[int, ...], what: str) -> None:
    wrong = found(MapKind.ANON_PRIVATE, both(PRESENT), both(), sums=sums)
    assert (wrong.message if wrong else "").startswith(what)
    assert bool(wrong) == bool(what)


def test_where_something_moves_nothing_is_judged() -> None:
    program = Program([Op(Mmap.number, len=PAGE, a=PROT_RW), Op(Account.number, 0, 0, 1, len=PAGE)])
    outcome = judge(Execution(program, Result([OpResult(), OpResult()])))
    assert (outcome.accounts, outcome.accounts_taken) == (1, 0)
    assert not outcome.violations
