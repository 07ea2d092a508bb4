# SPDX-License-Identifier: GPL-2.0-or-later
"""A change of the memory map costs a CPU no access: tcg-memory-map.patch (build/qemu/).

tests/vm/test_map_change.py shows it with a guest, where it takes luck.  Here the CPU reads its
local APIC at the end of a block of slow instructions, again and again, and the device's BARs are
switched off and on from outside: nearly each switch comes in the midst of a block, behind whose
end the CPU's TLB is flushed.  In a QEMU without the patch that read goes elsewhere, or QEMU ends
itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from qtest_machine import (
    BAR_MSIX,
    BAR_REGS,
    ECAM,
    GPU,
    PCI_COMMAND,
    PCI_COMMAND_MEMORY,
    ROOT_PORT,
    Machine,
    eventually,
    hw,
)
from test_glue_icount import RESET, TABLE, _config

READ, EXPECTED, TURNS, DONE, STOP = 0x3000, 0x3004, 0x3010, 0x3014, 0x3020
#: Without the patch one machine of ten shows nothing, however often (why is not known yet); the
#: others do within some hundred.
MACHINES, SWITCHES = 4, 300

#: The APIC's version, which never changes.
VERSION = 0xFEE0_0030

# Flat 32-bit mode; then pairs (configuration address, value) from the table at 0xf1000, 0.
PROGRAM = bytes.fromhex(
    "fa 2e660f01161808"  # cli; lgdt cs:[0x818]
    "0f20c0 0c01 0f22c0 66ea18000f000800"  # cr0.pe = 1; jmp 8:0xf0018
    "66b81000 8ed8 8ec0 8ed0 bc00800000"  # ds = es = ss = 16; esp = 0x8000
    "be00100f00"  # esi = 0xf1000
    "ad 85c0 740f baf80c0000 ef ad bafc0c0000 ef ebec"  # lods; out 0xcf8; lods; out 0xcfc
    "8b2d3000e0fe dbe3 d9e8 31d2"  # ebp = [VERSION]; fninit; fld1; edx = 0
)
PROGRAM += 400 * bytes.fromhex("d9f0")  # f2xm1
PROGRAM += bytes.fromhex(
    "8b1d3000e0fe 42 891510300000"  # ebx = [VERSION]; [TURNS] = ++edx
    "39eb 750d 833d2030000000 0f84c2fcffff"  # again while ebx == ebp and [STOP] == 0
    "891d00300000 892d04300000"  # [READ] = ebx; [EXPECTED] = ebp
    "c7051430000001000000 f4 ebfd"  # [DONE] = 1; hlt
)
GDT = bytes.fromhex("0000000000000000 ffff0000009bcf00 ffff00000093cf00")
GDT_REGISTER = bytes.fromhex("1700 00080f00")  # at 0x818: of the table at 0xf0800


def _firmware() -> bytes:
    window = BAR_REGS >> 16 & 0xFFF0
    config = [
        (0x8000_0064, 0),
        (0x8000_0060, ECAM | 1),
        _config(ROOT_PORT, 0x18, 0x0001_0100),
        _config(ROOT_PORT, 0x20, (window + 0x30) << 16 | window),
        _config(ROOT_PORT, PCI_COMMAND, PCI_COMMAND_MEMORY),
        _config(GPU, 0x10 + 4 * hw.HG_BAR_REGS, BAR_REGS),
        _config(GPU, 0x10 + 4 * hw.HG_BAR_MSIX, BAR_MSIX),
        _config(GPU, PCI_COMMAND, PCI_COMMAND_MEMORY),
    ]
    table = b"".join(struct.pack("<II", *pair) for pair in config) + bytes(4)
    image = (PROGRAM.ljust(0x800, b"\xf4") + GDT + GDT_REGISTER).ljust(TABLE, b"\xf4") + table
    return image.ljust(0xFFF0, b"\xf4") + RESET.ljust(16, b"\xf4")


def switched(machine: Machine) -> tuple[int, int, int]:
    """What the CPU's last read gave, what the first did, and how many there were."""
    eventually("the CPU is at work", lambda: machine.load(TURNS, 4) > 0)
    for n in range(SWITCHES):
        machine.set_config(GPU, PCI_COMMAND, PCI_COMMAND_MEMORY * (n % 2), 2)
        turns = machine.load(TURNS, 4)
        # Some blocks, so that the TLB is that of the map as it is.
        eventually(
            "the CPU goes on",
            lambda turns=turns: machine.load(TURNS, 4) > turns + 2 or machine.load(DONE, 4),  # type: ignore[misc]
        )
    machine.store(STOP, 1, 4)
    eventually("the firmware is done", lambda: bool(machine.load(DONE, 4)))
    return machine.load(READ, 4), machine.load(EXPECTED, 4), machine.load(TURNS, 4)


def test_the_access_behind_a_change_is_the_one_that_was_meant(
    start: Callable[..., Machine],
) -> None:
    for _ in range(MACHINES):
        read, expected, turns = switched(start(accel="tcg", firmware=_firmware()))
        assert expected & 0xFF == 0x14  # an integrated APIC's
        assert hex(read) == hex(expected), f"after {turns} reads"
