# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything read again at a program's end, and memory that no program has."""

from __future__ import annotations

import struct

import pytest
from fake import FakeTarget

from hmmbench.campaign.generate import blocks, program
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import PAGE, PROT_RW, Acc, MapKind, Op, OpResult, Program, Result
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.promises import ReadBack
from hmmbench.model.ops.uffd import How, Uffd
from hmmbench.oracle import contents
from hmmbench.oracle.values import Checker

VALUE = 5 << 32


def run(*, found: bytes, kind: MapKind = MapKind.ANON_PRIVATE, status: int = 0) -> tuple[str, str]:
    """What the oracles say of two pages, of which one word was written, that read so; with which
    name."""
    ops = [
        Op(Mmap.number, len=2 * PAGE, a=PROT_RW, arg=int(kind)),
        Op(CpuAccess.number, phase=1, acc=[(Acc.WRITE, 0, 0, PAGE + 16, VALUE, 0)]),
        Op(ReadBack.number, phase=2, len=2 * PAGE),
    ]
    results = [
        OpResult(), OpResult(acc=[(0, 1, 0)]), OpResult(status=status, aux0=2, data=found)
    ]  # fmt: skip
    said = Checker(Program(ops, (4, 0, 0, 0)), Result(results)).run()
    return (said.oracle, said.message) if said else ("", "")


def word(at: int, value: int, count: int = 1) -> bytes:
    return struct.pack("<IIQ", at, count, value)


RIGHT = word(512 + 2, VALUE)


@pytest.mark.parametrize("kind", [MapKind.ANON_PRIVATE, MapKind.FILE_PRIVATE, MapKind.ANON_SHARED])
def test_what_was_written_and_nothing_else(kind: MapKind) -> None:
    assert run(found=RIGHT, kind=kind) == ("", "")
    for wrong, what in [
        (b"", "expected 0x500000000"),
        (word(512 + 2, 7), "is 0x7, expected 0x500000000"),
        # A word that no program asks for, in a page that none touched, and many of them.
        (word(3, 9) + RIGHT, "r0+0x0+0x18 of process 0 is 0x9, expected 0x0"),
        (RIGHT + word(512 + 3, 9, 500), "is 0x9, expected 0x0"),
        (struct.pack("<IIQ", 512, 1 << 31 | 1, 3), "not readable: r0+0x1000"),
    ]:
        oracle, said = run(found=wrong, kind=kind)
        assert oracle == "contents"
        assert what in said


def test_a_call_that_fails_is_a_status() -> None:
    assert run(found=b"", status=-28)[0] != ""


def test_what_a_process_serves_is_no_zero() -> None:
    """Nobody touched the page, but whoever reads it gets what the process brings (userfaultfd)."""
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW, arg=int(MapKind.ANON_PRIVATE)),
        Op(Uffd.number, phase=1, len=PAGE, arg=How.MISSING, a=VALUE),
        Op(ReadBack.number, phase=2, len=PAGE),
    ]
    for found, oracle in ((word(0, VALUE, 512), ""), (b"", "contents")):
        results = [OpResult(), OpResult(), OpResult(aux0=1, data=found)]
        said = Checker(Program(ops, (4, 0, 0, 0)), Result(results)).run()
        assert (said.oracle if said else "") == oracle


def test_stray_writes() -> None:
    assert contents.strays(Result([])) is None
    found = contents.strays(Result([], strays=3))
    assert found is not None
    assert found.key == ("contents", "stray write")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sound_machine_is_silent(seed: int) -> None:
    target = FakeTarget(seed=seed)
    read = 0
    for data in blocks(seed, 0, 60, 4):
        made = program(data, grammar=4)
        outcome = judge(target.execute(made, Environment()))
        assert outcome.violations == []
        assert outcome.pages_read == outcome.pages_to_read
        read += outcome.pages_read > 0
    assert read > 25
