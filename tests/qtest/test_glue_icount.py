# SPDX-License-Identifier: GPL-2.0-or-later
"""deterministic=on under -icount: the same run again, to the instruction.

The CPU's own firmware brings the device up, gives it work and counts the turns of its waiting
loop; nobody outside touches the machine meanwhile. The count and the device's clock must repeat.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from qtest_machine import (
    BAR_MSIX,
    BAR_REGS,
    GPU,
    MIB,
    PCI_COMMAND,
    PCI_COMMAND_MASTER,
    PCI_COMMAND_MEMORY,
    RINGS,
    ROOT_PORT,
    Bdf,
    Machine,
    eventually,
    hw,
)

TURNS, TIME, DONE, FENCE = 0x3000, 0x3004, 0x3010, 0x3020
TABLE = 0x1000

# Flat 32-bit mode; then from the table at 0xf1000 pairs (configuration address, value), 0, and
# pairs (physical address, value), 0; then count turns until FENCE is not 0, and halt.
PROGRAM = bytes.fromhex(
    "fa 2e660f01169000"  # cli; lgdt cs:[0x90]
    "0f20c0 0c01 0f22c0 66ea18000f000800"  # cr0.pe = 1; jmp 8:0xf0018
    "66b81000 8ed8 8ec0 8ed0 bc00800000"  # ds = es = ss = 16; esp = 0x8000
    "be00100f00"  # esi = 0xf1000
    "ad 85c0 740f baf80c0000 ef ad bafc0c0000 ef ebec"  # lods; out 0xcf8; lods; out 0xcfc
    "ad 85c0 7405 89c7 a5 ebf6"  # lods; edi = eax; movs
    "31db 43 833d2030000000 74f6"  # ebx = 0; do ebx++ while [FENCE] == 0
    "a1280000e0 891d00300000 a304300000"  # [TURNS] = ebx; [TIME] = HG_REG_TIME
    "c7051030000001000000 f4 ebfd"  # [DONE] = 1; hlt
    "8d742600 90"
    "0000000000000000 ffff0000009bcf00 ffff00000093cf00"  # GDT at 0x78
    "1700 78000f00"  # its register, at 0x90
)
RESET = bytes.fromhex("e90d00")  # at 0xfff0: jmp to 0


def _config(bdf: Bdf, offset: int, value: int) -> tuple[int, int]:
    bus, slot, function = bdf
    return 0x8000_0000 | bus << 16 | slot << 11 | function << 8 | offset, value


def _firmware() -> bytes:
    """The program and its table: PCI as in Machine.enumerate(), then 8 copies and a fence."""
    command = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER
    window = BAR_REGS >> 16 & 0xFFF0
    config = [
        _config(ROOT_PORT, 0x18, 0x0001_0100),
        _config(ROOT_PORT, 0x20, (window + 0x30) << 16 | window),
        _config(ROOT_PORT, PCI_COMMAND, command),
        _config(GPU, 0x10 + 4 * hw.HG_BAR_REGS, BAR_REGS),
        _config(GPU, 0x10 + 4 * hw.HG_BAR_MSIX, BAR_MSIX),
        _config(GPU, PCI_COMMAND, command),
    ]
    to_vram = hw.HG_SPACE_SYS << hw.HG_COPY_SRC_SHIFT | hw.HG_SPACE_VRAM << hw.HG_COPY_DST_SHIFT
    ring = b"".join(
        struct.pack("<8Q", hw.HG_OP_COPY | to_vram, 16 * MIB, n * MIB, MIB, 0, 0, 0, 0)
        for n in range(8)
    ) + struct.pack("<8Q", hw.HG_OP_FENCE, FENCE, 1, 0, 0, 0, 0, 0)
    memory = [
        (RINGS + 4 * n, word)
        for n, word in enumerate(struct.unpack(f"<{len(ring) // 4}I", ring))
        if word
    ]
    memory += [
        (BAR_REGS + hw.HG_REG_CTRL, hw.HG_CTRL_ENABLE),
        (BAR_REGS + hw.HG_REG_CTX + hw.HG_CTX_RING_BASE, RINGS),
        (BAR_REGS + hw.HG_REG_CTX + hw.HG_CTX_RING_BASE + 4, 0),
        (BAR_REGS + hw.HG_REG_CTX + hw.HG_CTX_RING_SIZE, 64),
        (BAR_REGS + hw.HG_REG_CTX + hw.HG_CTX_CTRL, hw.HG_CTX_ENABLE | hw.HG_CTX_PRIV),
        (BAR_REGS + hw.HG_REG_DOORBELL, 9),
    ]
    table = b"".join(struct.pack("<II", *pair) for pair in config) + bytes(4)
    table += b"".join(struct.pack("<II", *pair) for pair in memory) + bytes(4)
    image = PROGRAM.ljust(TABLE, b"\xf4") + table
    return image.ljust(0xFFF0, b"\xf4") + RESET.ljust(16, b"\xf4")


def test_icount_run_repeats(start: Callable[..., Machine]) -> None:
    firmware = _firmware()
    seen = []
    for _ in range(3):
        machine = start(
            "deterministic=on,seed=3",
            *("-icount", "shift=5,sleep=off"),
            accel="tcg,thread=single",
            firmware=firmware,
        )
        eventually("the firmware is done", lambda m=machine: bool(m.load(DONE, 4)))  # type: ignore[misc]
        seen.append((machine.load(TURNS, 4), machine.load(TIME, 4), dict(machine.gpu.counters())))
        machine.close()
    turns, _, counters = seen[0]
    assert turns > 100  # the CPU ran beside the device
    assert counters["copy_bytes"] == 8 * MIB
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
