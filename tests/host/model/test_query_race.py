# SPDX-License-Identifier: GPL-2.0-or-later
"""A QUERY beside other threads: its two looks have to be of one moment."""

from __future__ import annotations

import struct

import pytest

from hmmbench.guest.program import (
    PAGE,
    PROT_RW,
    Q_CPU_DEVICE,
    Q_CPU_READ,
    Q_CPU_WRITE,
    Q_GPU_VALID,
    Q_GPU_VRAM,
    Q_GPU_WRITE,
    Op,
    OpResult,
    Program,
    Result,
)
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Migrate, Query
from hmmbench.oracle.mapping import check_racing
from hmmbench.oracle.values import Checker

CPU, GPU = Q_CPU_READ | Q_CPU_WRITE, Q_GPU_VALID | Q_GPU_WRITE


def answer(*flags: int) -> OpResult:
    return OpResult(status=0, data=struct.pack(f"<{len(flags)}I", *flags))


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (CPU, ""),
        (CPU | GPU, ""),
        (CPU | Q_CPU_DEVICE | GPU | Q_GPU_VRAM, ""),
        (CPU | Q_CPU_DEVICE, ""),
        # what is exclusively the GPU's, or gained after the look
        (GPU, ""),
        (GPU | Q_GPU_VRAM, ""),
        # what the GPU has, the CPU had before it
        (Q_CPU_READ | GPU, "only read"),
        (Q_CPU_READ | Q_GPU_VALID, ""),
        (CPU | Q_GPU_VALID, ""),
        # what can only have moved
        (CPU | GPU | Q_GPU_VRAM, "maps VRAM"),
        (CPU | Q_CPU_DEVICE | GPU, "maps system memory"),
    ],
)
def test_one_moment(flags: int, found: str) -> None:
    said = check_racing(Op(Query.number, len=2 * PAGE), answer(CPU, flags))
    assert found in said
    assert bool(said) == bool(found)
    if found:
        assert "r0+0x1000" in said


def test_an_answer_that_is_too_short() -> None:
    assert "answered 4 bytes" in check_racing(Op(Query.number, len=2 * PAGE), answer(CPU))
    assert not check_racing(Op(Query.number, len=PAGE), OpResult(status=-4))


@pytest.mark.parametrize("actor", [0, 1])
def test_the_oracle_asks_for_it(actor: int) -> None:
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW),
        Op(Query.number, phase=1, len=PAGE, actor=actor),
        Op(Migrate.number, phase=1, len=PAGE),
    ]
    results = [answer(), answer(CPU | GPU | Q_GPU_VRAM), answer()]
    found = Checker(Program(ops), Result(ops=results)).run()
    assert found is not None
    assert "maps VRAM" in found.message
    assert ("beside others" in found.message) == bool(actor)
