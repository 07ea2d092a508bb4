# SPDX-License-Identifier: GPL-2.0-or-later
"""Work that reaches guest memory: rings, copies, fences, interrupts, and what is refused."""

from __future__ import annotations

import time
from random import Random

import pytest
from qtest_machine import (
    BAR_MSIX,
    BAR_REGS,
    BAR_VRAM,
    CAP_PM,
    GPU,
    MIB,
    PAGE,
    RAM_SIZE,
    Machine,
    eventually,
    hw,
)
from qtest_work import spin

SYS_TO_SYS = hw.HG_SPACE_SYS << hw.HG_COPY_SRC_SHIFT | hw.HG_SPACE_SYS << hw.HG_COPY_DST_SHIFT
SYS_TO_VRAM = hw.HG_SPACE_SYS << hw.HG_COPY_SRC_SHIFT | hw.HG_SPACE_VRAM << hw.HG_COPY_DST_SHIFT
VRAM_TO_SYS = hw.HG_SPACE_VRAM << hw.HG_COPY_SRC_SHIFT | hw.HG_SPACE_SYS << hw.HG_COPY_DST_SHIFT


@pytest.mark.parametrize("size", [1, 7, PAGE, 3 * PAGE + 5, MIB])
def test_copy_there_and_back(machine: Machine, size: int) -> None:
    """RAM to VRAM to RAM; seen in the aperture too; bytes around stay."""
    machine.gpu.start()
    context = machine.gpu.context(0, priv=True)
    data = Random(size).randbytes(size)
    source, target = machine.alloc(size), machine.alloc(size + 2 * PAGE) + PAGE
    machine.write(source, data)
    machine.write(target - 1, b"<")
    machine.write(target + size, b">")
    context.submit(hw.HG_OP_COPY | SYS_TO_VRAM, source, 0x3003, size)
    context.submit(hw.HG_OP_COPY | VRAM_TO_SYS, 0x3003, target, size)
    context.finish()
    assert machine.read(target - 1, size + 2) == b"<" + data + b">"
    assert machine.read(BAR_VRAM + 0x3003, size) == data


def test_vram_beyond_the_aperture(machine: Machine) -> None:
    machine.gpu.start()
    context = machine.gpu.context(0, priv=True)
    far = machine.gpu.r64(hw.HG_REG_VRAM_SIZE) - PAGE
    assert far > machine.gpu.r64(hw.HG_REG_BAR2_SIZE)
    source, target = machine.alloc(), machine.alloc()
    data = Random(2).randbytes(PAGE)
    machine.write(source, data)
    context.submit(hw.HG_OP_COPY | SYS_TO_VRAM, source, far, PAGE)
    context.submit(hw.HG_OP_COPY | VRAM_TO_SYS, far, target, PAGE)
    context.finish()
    assert machine.read(target, PAGE) == data


def test_fence_interrupt(machine: Machine) -> None:
    machine.gpu.start()
    context = machine.gpu.context(3)
    value = context.fence(hw.HG_FENCE_IRQ)
    eventually("MSI-X of the fence", lambda: machine.msi_arrived(hw.HG_VEC_FENCE))
    # Data before its interrupt.
    assert context.reached(value)
    status = machine.gpu.r32(hw.HG_REG_INTR_STATUS)
    assert status & 1 << hw.HG_VEC_FENCE
    machine.gpu.w32(hw.HG_REG_INTR_STATUS, status)
    assert not machine.gpu.r32(hw.HG_REG_INTR_STATUS) & 1 << hw.HG_VEC_FENCE


def test_each_fence_interrupts_again(machine: Machine) -> None:
    """No edge is lost between the engine's thread and the vector."""
    machine.gpu.start()
    context = machine.gpu.context(0)
    for _ in range(50):
        context.fence(hw.HG_FENCE_IRQ)
        eventually("MSI-X of the fence", lambda: machine.msi_arrived(hw.HG_VEC_FENCE))
        machine.gpu.w32(hw.HG_REG_INTR_STATUS, 1 << hw.HG_VEC_FENCE)


def test_masked_vector_is_sent_when_unmasked(machine: Machine) -> None:
    machine.gpu.start()
    control = BAR_MSIX + 16 * hw.HG_VEC_FENCE + 12
    machine.store(control, 1, 4)
    context = machine.gpu.context(0)
    context.fence(hw.HG_FENCE_IRQ)
    eventually("status", lambda: bool(machine.gpu.r32(hw.HG_REG_INTR_STATUS)))
    pending = BAR_MSIX + 0x800
    eventually("pending bit", lambda: bool(machine.load(pending, 4) & 1 << hw.HG_VEC_FENCE))
    assert not machine.msi_arrived(hw.HG_VEC_FENCE)
    machine.store(control, 0, 4)
    eventually("MSI-X after unmask", lambda: machine.msi_arrived(hw.HG_VEC_FENCE))


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(BAR_REGS + hw.HG_REG_SCRATCH, id="own-registers"),
        pytest.param(0xFEE0_0000, id="interrupt-controller"),
        pytest.param(0xFED0_0000, id="hpet"),
        pytest.param(RAM_SIZE + 16 * MIB, id="nothing"),
        pytest.param(2**52 - PAGE, id="end-of-addresses"),
        pytest.param(2**64 - 8, id="end-of-numbers"),
        pytest.param(0xFFFF_F000, id="firmware-flash"),
    ],
)
def test_write_to_what_is_no_ram_is_a_bus_error(machine: Machine, target: int) -> None:
    machine.gpu.start()
    machine.gpu.w32(hw.HG_REG_SCRATCH, 0x5A5A_5A5A)
    context = machine.gpu.context(0)
    context.submit(hw.HG_OP_FENCE, target, 0x1111_2222)
    eventually("halt", lambda: bool(context.status() & hw.HG_CTX_HALTED))
    assert context.error() in (hw.HG_ERR_BUS, hw.HG_ERR_DESC)
    assert machine.gpu.r32(hw.HG_REG_SCRATCH) == 0x5A5A_5A5A
    eventually("error interrupt", lambda: machine.msi_arrived(hw.HG_VEC_ERROR))


def test_rom_can_be_read_not_written(machine: Machine) -> None:
    """The BIOS image below 1 MiB is RAM that refuses writes."""
    machine.gpu.start()
    rom, target = 0xF_F000, machine.alloc()
    before = machine.read(rom, 64)
    assert any(before)
    reader = machine.gpu.context(0, priv=True)
    reader.submit(hw.HG_OP_COPY | SYS_TO_SYS, rom, target, 64)
    reader.finish()
    assert machine.read(target, 64) == before
    writer = machine.gpu.context(1, priv=True)
    writer.submit(hw.HG_OP_FENCE, rom, 0x0123_4567_89AB_CDEF)
    eventually("halt", lambda: bool(writer.status() & hw.HG_CTX_HALTED))
    assert machine.read(rom, 64) == before


def test_copy_across_the_end_of_ram(machine: Machine) -> None:
    machine.gpu.start()
    context = machine.gpu.context(0, priv=True)
    report = machine.alloc()
    context.submit(
        hw.HG_OP_COPY | SYS_TO_SYS, 0x100_0000, RAM_SIZE - PAGE, 2 * PAGE, 0, 0, 0, report
    )
    eventually("report", lambda: bool(machine.load(report + hw.HG_RPT_DONE, 8)))
    assert machine.load(report + hw.HG_RPT_STATUS, 4) != hw.HG_ERR_NONE


def test_bus_master_off(machine: Machine) -> None:
    """No access leaves the device; on again and restarted, it works."""
    machine.gpu.start()
    context = machine.gpu.context(0)
    context.finish()
    machine.set_bus_master(False)
    value = context.fence()
    eventually("halt", lambda: bool(context.status() & hw.HG_CTX_HALTED))
    assert context.error() == hw.HG_ERR_BUS
    assert not context.reached(value)
    assert not machine.msi_arrived(hw.HG_VEC_ERROR)  # a message is a write, too
    machine.set_bus_master(True)
    machine.gpu.w32(context.registers + hw.HG_CTX_CTRL, 0)
    again = machine.gpu.context(0)
    again.finish()


def test_d3hot_stops_dma(machine: Machine) -> None:
    """The bus-master bit is on, but a function that sleeps does not use it."""
    machine.gpu.start()
    word = spin(machine)
    control = machine.capabilities(GPU)[CAP_PM] + 4
    machine.set_config(GPU, control, 3, 2)
    counted = machine.load(word, 8)
    time.sleep(0.05)
    assert machine.load(word, 8) == counted
    machine.set_config(GPU, control, 0, 2)
    status = hw.HG_REG_CTX + hw.HG_CTX_STRIDE + hw.HG_CTX_ERROR
    eventually("the launch failed", lambda: machine.gpu.r32(status) != hw.HG_ERR_NONE)
    machine.gpu.context(0).finish()


def test_memory_written_by_cpu_and_device_meet(machine: Machine) -> None:
    """The ring follows RAM through the fast path while the CPU rewrites it."""
    machine.gpu.start()
    context = machine.gpu.context(0, priv=True, entries=8)
    source, target = machine.alloc(), machine.alloc()
    for i in range(100):
        machine.store(source, i * 0x0101_0101, 8)
        context.submit(hw.HG_OP_COPY | SYS_TO_SYS, source, target, 8)
        context.finish()
        assert machine.load(target, 8) == i * 0x0101_0101
