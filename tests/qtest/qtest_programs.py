# SPDX-License-Identifier: GPL-2.0-or-later
"""Small GPU programs as RISC-V words, put together by hand (RISC-V manual, volume I, 2.2)."""

from __future__ import annotations

import struct

from qtest_machine import hw

ZERO, T0, T1, T2, A0 = 0, 5, 6, 7, 10


def _i(opcode: int, funct3: int, rd: int, rs1: int, imm: int) -> int:
    return (imm & 0xFFF) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode


def addi(rd: int, rs1: int, imm: int) -> int:
    """rd = rs1 + imm"""
    return _i(0x13, 0, rd, rs1, imm)


def slli(rd: int, rs1: int, shift: int) -> int:
    """rd = rs1 << shift"""
    return _i(0x13, 1, rd, rs1, shift)


def add(rd: int, rs1: int, rs2: int) -> int:
    """rd = rs1 + rs2"""
    return rs2 << 20 | rs1 << 15 | rd << 7 | 0x33


def mul(rd: int, rs1: int, rs2: int) -> int:
    """rd = rs1 * rs2"""
    return 1 << 25 | rs2 << 20 | rs1 << 15 | rd << 7 | 0x33


def ld(rd: int, rs1: int, offset: int) -> int:
    """rd = 64 bits at rs1 + offset"""
    return _i(0x03, 3, rd, rs1, offset)


def sd(rs2: int, rs1: int, offset: int) -> int:
    """64 bits at rs1 + offset = rs2"""
    return (offset >> 5 & 0x7F) << 25 | rs2 << 20 | rs1 << 15 | 3 << 12 | (offset & 31) << 7 | 0x23


def amoadd_d(rd: int, rs2: int, rs1: int) -> int:
    """rd = 64 bits at rs1; 64 bits at rs1 += rs2"""
    return rs2 << 20 | rs1 << 15 | 3 << 12 | rd << 7 | 0x2F


def csrr(rd: int, csr: int) -> int:
    """rd = csr"""
    return _i(0x73, 2, rd, 0, csr)


def jump(offset: int) -> int:
    """Jump by offset bytes (less than 2 KiB)."""
    imm = offset & 0x1F_FFFF
    word = (imm >> 20 & 1) << 31 | (imm >> 1 & 0x3FF) << 21 | (imm >> 11 & 1) << 20
    return word | (imm >> 12 & 0xFF) << 12 | 0x6F


def code(*words: int) -> bytes:
    """The words as memory."""
    return struct.pack(f"<{len(words)}I", *words)


#: Thread t adds 1 to the 64-bit word t, counted over all blocks, at the address in a0.
INCREMENT = code(
    csrr(T0, hw.HG_CSR_BID),
    csrr(T1, hw.HG_CSR_NTID),
    mul(T0, T0, T1),
    csrr(T1, hw.HG_CSR_TID),
    add(T0, T0, T1),
    slli(T0, T0, 3),
    add(T0, T0, A0),
    ld(T1, T0, 0),
    addi(T1, T1, 1),
    sd(T1, T0, 0),
    hw.HG_INSN_EXIT,
)

#: Thread t of a block adds 1 to the first 64-bit word of page t at the address in a0.
INCREMENT_PAGES = code(
    csrr(T0, hw.HG_CSR_TID),
    slli(T0, T0, 12),
    add(T0, T0, A0),
    addi(T1, ZERO, 1),
    amoadd_d(ZERO, T1, T0),
    hw.HG_INSN_EXIT,
)

#: Every thread adds 1 to the 64-bit word at a0, for ever.
SPIN = code(
    addi(T1, ZERO, 1),
    amoadd_d(ZERO, T1, A0),
    jump(-4),
)

#: The same in a loop of five steps (deterministic mode): rounds of them end anywhere in it.
SPIN_IN_FIVE = code(
    addi(T1, ZERO, 1),
    amoadd_d(ZERO, T1, A0),
    jump(-8),
)
