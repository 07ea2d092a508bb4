# SPDX-License-Identifier: GPL-2.0-or-later
"""GPU programs for tests of the VM layer: small, and with results that can be computed here."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hmmbench.guest.protocol import (
    MIGRATE_DEVICE,
    PAGE,
    PROT_RW,
    Acc,
    Access,
    Ast,
    MapKind,
    Op,
    OpKind,
    Program,
    Result,
)
from hmmbench.vm.machine import Machine


@dataclass
class Work:
    """A program and what its accesses must return, in the order of all its accesses."""

    program: Program
    expected: list[int]

    def check(self, result: Result) -> None:
        assert not result.timeout
        assert not result.live_nonzero
        assert result.died == 0
        assert [op.status for op in result.ops] == [0] * len(result.ops)
        seen = [access for op in result.ops for access in op.acc]
        assert [status for _, status, _ in seen] == [Ast.DONE] * len(seen)
        assert [value for value, _, _ in seen] == self.expected


def run(machine: Machine, program: Program, timeout: float = 120.0) -> Result:
    return Result.decode(machine.agent.program(program.encode(), timeout), program)


def mixed(seed: int, pages: int = 64, lanes: int = 128, each: int = 8) -> Work:
    """CPU writes; pages move to the device; GPU adds; CPU reads it all back.

    Each lane adds to words of its own, so what it sees and leaves is known.
    """
    rng = random.Random(seed)
    words = PAGE // 8
    assert lanes < words, "two lanes would share a word"
    values = [rng.getrandbits(64) for _ in range(pages)]
    write: list[Access] = [
        (Acc.WRITE, 0, 0, page * PAGE, value, 0) for page, value in enumerate(values)
    ]
    adds: list[Access] = []
    expected_adds = []
    memory: dict[int, int] = {page * PAGE: value for page, value in enumerate(values)}
    for lane in range(lanes):
        for _ in range(each):
            offset = rng.randrange(pages) * PAGE + 8 * (1 + lane)
            amount = rng.getrandbits(32)
            adds.append((Acc.ADD, 0, lane, offset, amount, 0))
            expected_adds.append(memory.get(offset, 0))
            memory[offset] = memory.get(offset, 0) + amount
    offsets = sorted(memory)
    reads: list[Access] = [(Acc.READ, 0, 0, offset, 0, 0) for offset in offsets]
    # What a write returns is not looked at by anybody: the agent answers 0.
    size = pages * PAGE
    half = pages // 2 * PAGE
    ops = [
        Op(OpKind.MMAP, len=size, arg=MapKind.ANON_PRIVATE, a=PROT_RW),
        Op(OpKind.CPU_ACCESS, phase=1, acc=write),
        Op(OpKind.MIGRATE, phase=2, len=half, arg=MIGRATE_DEVICE),
        Op(OpKind.GPU_ACCESS, phase=3, acc=adds),
        Op(OpKind.CPU_ACCESS, phase=4, acc=reads),
    ]
    expected = [0] * len(write) + expected_adds + [memory[offset] for offset in offsets]
    return Work(Program(ops, timeout_ms=60000, seed=seed), expected)
