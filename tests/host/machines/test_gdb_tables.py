# SPDX-License-Identifier: GPL-2.0-or-later
"""Page tables read from a machine that stands, where bus addresses are no physical ones."""

from __future__ import annotations

import struct

from hmmbench.vm.gdb.tables import Gpu, hardware

#: Of the GPU's tables and page, on the bus; in memory they are so much lower.
BUS, APART = 0xFFF0_0000, 0xF000_0000
ADDRESS = 0x2000_0040_3000


def test_a_walk_behind_an_iommu_reads_where_addresses_lead() -> None:
    hw = hardware()
    memory: dict[int, int] = {}
    for level in range(hw.HG_PT_LEVELS - 1, -1, -1):
        table = BUS + 0x1000 * (hw.HG_PT_LEVELS - level)
        at = table + (ADDRESS >> (12 + 9 * level) & 511) * 8
        memory[at - APART] = (table + 0x1000) | hw.HG_PTE_VALID | hw.HG_PTE_APER_SYS

    def read(address: int, length: int) -> bytes:
        return struct.pack("<Q", memory[address])

    asked: list[int] = []

    def frame(address: int) -> int:
        asked.append(address)
        if address < BUS:
            raise LookupError(f"bus address {address:#x} leads nowhere")
        return address - APART

    walk = Gpu(read, 0, 0, frame).walk(BUS + 0x1000, ADDRESS)
    assert len(walk.steps) == hw.HG_PT_LEVELS == len(asked)
    assert {step.at for step in walk.steps} == set(memory)
    walk = Gpu(read, 0, 0, frame).walk(0x1000, ADDRESS)
    assert (walk.steps, walk.meaning) == ((), f"bus address {asked[-1]:#x} leads nowhere")
