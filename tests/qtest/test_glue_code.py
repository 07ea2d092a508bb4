# SPDX-License-Identifier: GPL-2.0-or-later
"""A CPU that executes what the device writes: QEMU's translations of old code must go.

Real-mode firmware calls a routine in RAM for ever; the routine stores its number. The device
replaces the routine, and the CPU has to run the new one.
"""

from __future__ import annotations

from collections.abc import Callable

from qtest_machine import Machine, eventually, hw

GO, NUMBER, ROUTINE = 0x3000, 0x3010, 0x2000

LOOP = bytes.fromhex(
    "803e003000"  # loop: cmp byte [GO], 0
    "74f9"  # je loop
    "9a00200000"  # call far 0:ROUTINE
    "ebf2"  # jmp loop
)
RESET = bytes.fromhex("e90d00")  # at 0xfff0: jmp to 0
FIRMWARE = LOOP.ljust(0xFFF0, b"\xf4") + RESET.ljust(16, b"\xf4")


def _routine(number: int) -> bytes:
    """mov byte [NUMBER], number; retf"""
    return bytes.fromhex("c6061030") + bytes([number, 0xCB])


def test_code_written_by_the_device_is_executed(start: Callable[..., Machine]) -> None:
    machine = start(accel="tcg", firmware=FIRMWARE)
    machine.enumerate()
    machine.gpu.start()
    machine.write(ROUTINE, _routine(1))
    machine.store(GO, 1, 1)
    eventually("first routine runs", lambda: machine.load(NUMBER, 1) == 1)
    context = machine.gpu.context(0, priv=True)
    source = machine.alloc()
    ram = hw.HG_SPACE_SYS
    flags = ram << hw.HG_COPY_SRC_SHIFT | ram << hw.HG_COPY_DST_SHIFT
    for number in range(2, 30):
        code = _routine(number)
        machine.write(source, code)
        context.submit(hw.HG_OP_COPY | flags, source, ROUTINE, len(code))
        context.finish()
        eventually(
            f"routine {number} runs",
            lambda number=number: machine.load(NUMBER, 1) == number,  # type: ignore[misc]
            seconds=5,
        )
