# SPDX-License-Identifier: GPL-2.0-or-later
"""A small RV64IMAFD assembler: one function an instruction format, labels by name.

``assemble`` takes a list of items: an encoded word, a label ("name:"), or a pair
(function of an offset, label) for branches and jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Fixup = tuple[Callable[[int], int], str]
Item = int | str | Fixup

EXIT = 0x0000000B
BARRIER = 0x0000100B
WARP_SYNC = 0x0200100B
ECALL = 0x00000073
EBREAK = 0x00100073
FENCE = 0x0FF0000F
FENCE_I = 0x0000100F

OP = {  # name: (funct7, funct3)
    "add": (0, 0), "sub": (0x20, 0), "sll": (0, 1), "slt": (0, 2), "sltu": (0, 3),
    "xor": (0, 4), "srl": (0, 5), "sra": (0x20, 5), "or": (0, 6), "and": (0, 7),
    "mul": (1, 0), "mulh": (1, 1), "mulhsu": (1, 2), "mulhu": (1, 3),
    "div": (1, 4), "divu": (1, 5), "rem": (1, 6), "remu": (1, 7),
}  # fmt: skip
OPW = {
    "addw": (0, 0), "subw": (0x20, 0), "sllw": (0, 1), "srlw": (0, 5), "sraw": (0x20, 5),
    "mulw": (1, 0), "divw": (1, 4), "divuw": (1, 5), "remw": (1, 6), "remuw": (1, 7),
}  # fmt: skip
OPI = {"addi": 0, "slti": 2, "sltiu": 3, "xori": 4, "ori": 6, "andi": 7}
SHIFT = {"slli": (0, 1), "srli": (0, 5), "srai": (0x10, 5)}
SHIFTW = {"slliw": (0, 1), "srliw": (0, 5), "sraiw": (0x20, 5)}
LOAD = {"lb": 0, "lh": 1, "lw": 2, "ld": 3, "lbu": 4, "lhu": 5, "lwu": 6}
STORE = {"sb": 0, "sh": 1, "sw": 2, "sd": 3}
BRANCH = {"beq": 0, "bne": 1, "blt": 4, "bge": 5, "bltu": 6, "bgeu": 7}
AMO = {
    "amoadd": 0x00, "amoswap": 0x01, "amoxor": 0x04, "amoor": 0x08, "amoand": 0x0C,
    "amomin": 0x10, "amomax": 0x14, "amominu": 0x18, "amomaxu": 0x1C,
}  # fmt: skip
CSR = {
    "fflags": 1, "frm": 2, "fcsr": 3,
    "cycle": 0xC00, "time": 0xC01, "instret": 0xC02, "tid": 0xCC0, "bid": 0xCC1,
    "ntid": 0xCC2, "nbid": 0xCC3, "lane": 0xCC4, "warp": 0xCC5, "sm": 0xCC6, "args": 0xCC7,
    "shared": 0xCC8,
}  # fmt: skip
FP = {  # name: (funct5, rs2 or None, funct3 or None if it is the rounding mode)
    "fadd": (0x00, None, None), "fsub": (0x01, None, None), "fmul": (0x02, None, None),
    "fdiv": (0x03, None, None), "fsqrt": (0x0B, 0, None),
    "fsgnj": (0x04, None, 0), "fsgnjn": (0x04, None, 1), "fsgnjx": (0x04, None, 2),
    "fmin": (0x05, None, 0), "fmax": (0x05, None, 1),
    "fle": (0x14, None, 0), "flt": (0x14, None, 1), "feq": (0x14, None, 2),
    "fcvt.w": (0x18, 0, None), "fcvt.wu": (0x18, 1, None), "fcvt.l": (0x18, 2, None),
    "fcvt.lu": (0x18, 3, None), "fcvt_w": (0x1A, 0, None), "fcvt_wu": (0x1A, 1, None),
    "fcvt_l": (0x1A, 2, None), "fcvt_lu": (0x1A, 3, None), "fcvt_f": (0x08, None, None),
    "fmv.x": (0x1C, 0, 0), "fclass": (0x1C, 0, 1), "fmv_x": (0x1E, 0, 0),
}  # fmt: skip
FMA = {"fmadd": 0x43, "fmsub": 0x47, "fnmsub": 0x4B, "fnmadd": 0x4F}
DYN = 7
SHUFFLE = {"idx": 0, "up": 1, "down": 2, "xor": 3}
VOTE = {"ballot": 0, "any": 1, "all": 2}


def r(name: str, rd: int, rs1: int, rs2: int) -> int:
    """Register-register operation."""
    if name in OP:
        f7, f3 = OP[name]
        op = 0x33
    else:
        f7, f3 = OPW[name]
        op = 0x3B
    return f7 << 25 | rs2 << 20 | rs1 << 15 | f3 << 12 | rd << 7 | op


def i(name: str, rd: int, rs1: int, imm: int) -> int:
    """Register-immediate operation, shifts included; imm is 12 bits signed."""
    if name in OPI:
        return (imm & 0xFFF) << 20 | rs1 << 15 | OPI[name] << 12 | rd << 7 | 0x13
    if name == "addiw":
        return (imm & 0xFFF) << 20 | rs1 << 15 | rd << 7 | 0x1B
    if name in SHIFT:
        f6, f3 = SHIFT[name]
        return f6 << 26 | (imm & 63) << 20 | rs1 << 15 | f3 << 12 | rd << 7 | 0x13
    f7, f3 = SHIFTW[name]
    return f7 << 25 | (imm & 31) << 20 | rs1 << 15 | f3 << 12 | rd << 7 | 0x1B


def load(name: str, rd: int, rs1: int, imm: int = 0) -> int:
    """Load."""
    return (imm & 0xFFF) << 20 | rs1 << 15 | LOAD[name] << 12 | rd << 7 | 0x03


def store(name: str, rs2: int, rs1: int, imm: int = 0) -> int:
    """Store of rs2 at rs1 + imm."""
    return (
        (imm >> 5 & 0x7F) << 25 | rs2 << 20 | rs1 << 15 | STORE[name] << 12
        | (imm & 31) << 7 | 0x23
    )  # fmt: skip


def lui(rd: int, imm20: int) -> int:
    """Upper immediate (20 bits)."""
    return (imm20 & 0xFFFFF) << 12 | rd << 7 | 0x37


def auipc(rd: int, imm20: int) -> int:
    """pc plus upper immediate."""
    return (imm20 & 0xFFFFF) << 12 | rd << 7 | 0x17


def jal_off(rd: int, off: int) -> int:
    """Jump by off bytes."""
    return (
        (off >> 20 & 1) << 31 | (off >> 1 & 0x3FF) << 21 | (off >> 11 & 1) << 20
        | (off >> 12 & 0xFF) << 12 | rd << 7 | 0x6F
    )  # fmt: skip


def branch_off(name: str, rs1: int, rs2: int, off: int) -> int:
    """Branch by off bytes."""
    return (
        (off >> 12 & 1) << 31 | (off >> 5 & 0x3F) << 25 | rs2 << 20 | rs1 << 15
        | BRANCH[name] << 12 | (off >> 1 & 0xF) << 8 | (off >> 11 & 1) << 7 | 0x63
    )  # fmt: skip


def jal(rd: int, label: str) -> Fixup:
    """Jump to a label."""
    return (lambda off: jal_off(rd, off)), label


def branch(name: str, rs1: int, rs2: int, label: str) -> Fixup:
    """Branch to a label."""
    return (lambda off: branch_off(name, rs1, rs2, off)), label


def jalr(rd: int, rs1: int, imm: int = 0) -> int:
    """Indirect jump."""
    return (imm & 0xFFF) << 20 | rs1 << 15 | rd << 7 | 0x67


def csrr(rd: int, name: str) -> int:
    """Read a CSR."""
    return CSR[name] << 20 | 2 << 12 | rd << 7 | 0x73


def csr(how: str, rd: int, name: str, src: int) -> int:
    """csrrw, csrrs, csrrc (src is a register), csrrwi, csrrsi, csrrci (src is the value)."""
    f3 = {"csrrw": 1, "csrrs": 2, "csrrc": 3, "csrrwi": 5, "csrrsi": 6, "csrrci": 7}[how]
    return CSR[name] << 20 | src << 15 | f3 << 12 | rd << 7 | 0x73


def fp(name: str, fmt: str, rd: int, rs1: int, rs2: int = 0, rm: int = DYN) -> int:
    """Floating-point operation of format "s" or "d".  fcvt.w and the like give an integer,
    fcvt_w and the like take one; fcvt_f takes the other format; fmv.x goes to an integer
    register, fmv_x comes from one."""
    f5, fixed, f3 = FP[name]
    code = "sd".index(fmt)
    if name == "fcvt_f":
        fixed = code ^ 1
    return (
        f5 << 27 | code << 25 | (rs2 if fixed is None else fixed) << 20 | rs1 << 15
        | (rm if f3 is None else f3) << 12 | rd << 7 | 0x53
    )  # fmt: skip


def fma(name: str, fmt: str, rd: int, rs1: int, rs2: int, rs3: int, rm: int = DYN) -> int:
    """Fused multiply-add family."""
    return (
        rs3 << 27 | "sd".index(fmt) << 25 | rs2 << 20 | rs1 << 15 | rm << 12 | rd << 7 | FMA[name]
    )


def fload(fmt: str, rd: int, rs1: int, imm: int = 0) -> int:
    """flw, fld."""
    return (imm & 0xFFF) << 20 | rs1 << 15 | (2 + "sd".index(fmt)) << 12 | rd << 7 | 0x07


def fstore(fmt: str, rs2: int, rs1: int, imm: int = 0) -> int:
    """fsw, fsd."""
    return (
        (imm >> 5 & 0x7F) << 25 | rs2 << 20 | rs1 << 15 | (2 + "sd".index(fmt)) << 12
        | (imm & 31) << 7 | 0x27
    )  # fmt: skip


def shuffle(how: str, rd: int, rs1: int, rs2: int) -> int:
    """rd = rs1 of the lane that rs2 chooses."""
    return SHUFFLE[how] << 25 | rs2 << 20 | rs1 << 15 | 2 << 12 | rd << 7 | 0x0B


def vote(what: str, rd: int, rs1: int) -> int:
    """rd from the lanes whose rs1 is not 0."""
    return VOTE[what] << 25 | rs1 << 15 | 3 << 12 | rd << 7 | 0x0B


def amo(name: str, width: str, rd: int, rs2: int, rs1: int) -> int:
    """Atomic on [rs1]; width "w" or "d"."""
    f3 = 2 if width == "w" else 3
    return AMO[name] << 27 | rs2 << 20 | rs1 << 15 | f3 << 12 | rd << 7 | 0x2F


def lr(width: str, rd: int, rs1: int) -> int:
    """Load reserved."""
    return 2 << 27 | rs1 << 15 | (2 if width == "w" else 3) << 12 | rd << 7 | 0x2F


def sc(width: str, rd: int, rs2: int, rs1: int) -> int:
    """Store conditional: rd is 0 when stored."""
    return 3 << 27 | rs2 << 20 | rs1 << 15 | (2 if width == "w" else 3) << 12 | rd << 7 | 0x2F


def li(rd: int, value: int) -> list[int]:
    """Any 64-bit constant."""
    value &= 2**64 - 1
    signed = value - 2**64 if value >> 63 else value
    if -2048 <= signed < 2048:
        return [i("addi", rd, 0, signed)]
    if -(2**31) <= signed < 2**31 - 2048:
        hi = (signed + 0x800) >> 12
        return [lui(rd, hi), i("addiw", rd, rd, signed - (hi << 12))]
    lo = signed & 0xFFF
    lo = lo - 4096 if lo >= 2048 else lo
    return [*li(rd, (signed - lo) >> 12), i("slli", rd, rd, 12), i("addi", rd, rd, lo)]


def assemble(items: Sequence[Item]) -> bytes:
    """The code bytes; KeyError names a missing label."""
    at: dict[str, int] = {}
    pc = 0
    for item in items:
        if isinstance(item, str):
            at[item.rstrip(":")] = pc
        else:
            pc += 4
    out = bytearray()
    for item in items:
        if isinstance(item, str):
            continue
        word = item if isinstance(item, int) else item[0](at[item[1]] - len(out))
        out += (word & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(out)
