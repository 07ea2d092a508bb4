# SPDX-License-Identifier: GPL-2.0-or-later
"""What firmware and kernel see: identity, BARs, capabilities, properties, registers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from qtest_machine import (
    BAR_REGS,
    BAR_VRAM,
    CAP_EXP,
    CAP_MSIX,
    CAP_PM,
    EXT_CAP_AER,
    GPU,
    MIB,
    PCI_COMMAND,
    PCI_COMMAND_MASTER,
    PCI_COMMAND_MEMORY,
    Machine,
    hw,
)

from hmmbench.vm.errors import VmDied

Start = Callable[..., Machine]


def _bar_size(machine: Machine, bar: int, wide: bool) -> int:
    """Size by writing all ones, with decoding off, as firmware does."""
    at = 0x10 + 4 * bar
    command = machine.config(GPU, PCI_COMMAND, 2)
    machine.set_config(GPU, PCI_COMMAND, 0, 2)
    old = [machine.config(GPU, at), machine.config(GPU, at + 4)]
    machine.set_config(GPU, at, 0xFFFF_FFFF)
    mask = machine.config(GPU, at) & ~0xF
    if wide:
        machine.set_config(GPU, at + 4, 0xFFFF_FFFF)
        mask |= machine.config(GPU, at + 4) << 32
        machine.set_config(GPU, at + 4, old[1])
    machine.set_config(GPU, at, old[0])
    machine.set_config(GPU, PCI_COMMAND, command, 2)
    return (~mask & (0xFFFF_FFFF_FFFF_FFFF if wide else 0xFFFF_FFFF)) + 1


def test_identity(machine: Machine) -> None:
    assert machine.config(GPU, 0) == hw.HG_PCI_DEVICE_ID << 16 | hw.HG_PCI_VENDOR_ID
    assert machine.config(GPU, 8) == hw.HG_PCI_CLASS << 16 | hw.HG_VERSION
    assert machine.config(GPU, 0x3D, 1) == 0  # no INTx pin
    assert machine.gpu.r32(hw.HG_REG_ID) == hw.HG_ID_MAGIC
    assert machine.gpu.r32(hw.HG_REG_VERSION) == hw.HG_VERSION
    features = machine.gpu.r32(hw.HG_REG_FEATURES)
    assert not features & hw.HG_FEATURE_COHERENT
    assert features & hw.HG_FEATURE_AUDIT_BUS


def test_bars(start: Start) -> None:
    machine = start("vram-size=32M,bar-size=8M")
    machine.enumerate()
    types = {bar: machine.config(GPU, 0x10 + 4 * bar) & 0xF for bar in (0, 2, 4)}
    assert types == {hw.HG_BAR_REGS: 0, hw.HG_BAR_VRAM: 0xC, hw.HG_BAR_MSIX: 0}
    assert _bar_size(machine, hw.HG_BAR_REGS, wide=False) == hw.HG_BAR0_SIZE
    assert _bar_size(machine, hw.HG_BAR_VRAM, wide=True) == 8 * MIB
    assert machine.gpu.r64(hw.HG_REG_VRAM_SIZE) == 32 * MIB
    assert machine.gpu.r64(hw.HG_REG_BAR2_SIZE) == 8 * MIB


def test_coherent_memory_is_all_in_the_bar(start: Start) -> None:
    machine = start("vram-size=32M,coherent=on")
    machine.enumerate()
    assert _bar_size(machine, hw.HG_BAR_VRAM, wide=True) == 32 * MIB
    assert machine.gpu.r64(hw.HG_REG_BAR2_SIZE) == 32 * MIB
    assert machine.gpu.r32(hw.HG_REG_FEATURES) & hw.HG_FEATURE_COHERENT
    machine.store(BAR_VRAM + 32 * MIB - 8, 0x1122_3344_5566_7788, 8)
    assert machine.load(BAR_VRAM + 32 * MIB - 4, 4) == 0x1122_3344


def test_aperture_is_memory(machine: Machine) -> None:
    last = BAR_VRAM + 16 * MIB - 8
    machine.store(BAR_VRAM, 0x1122_3344_5566_7788, 8)
    machine.store(last, 0x99AA_BBCC_DDEE_FF00, 8)
    assert machine.load(BAR_VRAM + 4, 4) == 0x1122_3344
    assert machine.load(last, 8) == 0x99AA_BBCC_DDEE_FF00


def test_capabilities(machine: Machine) -> None:
    caps = machine.capabilities(GPU)
    assert {CAP_PM, CAP_EXP, CAP_MSIX} <= caps.keys()
    assert machine.config(GPU, caps[CAP_EXP] + 2, 2) >> 4 & 0xF == 0  # endpoint
    assert machine.config(GPU, caps[CAP_EXP] + 4) & 1 << 28  # FLR
    assert machine.config(GPU, caps[CAP_MSIX] + 2, 2) & 0x7FF == hw.HG_NUM_VECTORS - 1
    assert machine.config(GPU, caps[CAP_MSIX] + 4) & 7 == hw.HG_BAR_MSIX
    assert EXT_CAP_AER in machine.extended_capabilities(GPU)


@pytest.mark.parametrize("width", [4, 8])
def test_scratch_register(machine: Machine, width: int) -> None:
    at = BAR_REGS + hw.HG_REG_SCRATCH
    machine.store(at, 0xDEAD_BEEF, 4)
    assert machine.load(at, 4) == 0xDEAD_BEEF
    assert machine.load(at, width) & 0xFFFF_FFFF == 0xDEAD_BEEF


def test_bad_access_sizes_are_counted(machine: Machine) -> None:
    gpu = machine.gpu
    gpu.w32(hw.HG_REG_SCRATCH, 0x1234_5678)
    before = gpu.counter(hw.HG_CNT_GUEST_ERRORS)
    at = BAR_REGS + hw.HG_REG_SCRATCH
    assert machine.load(at, 1) == 0
    assert machine.load(at, 2) == 0
    machine.store(at, 0, 1)
    machine.store(at, 0, 2)
    machine.store(at + 2, 0xFFFF_FFFF, 4)  # crosses into the next register
    assert gpu.r32(hw.HG_REG_SCRATCH) == 0x1234_5678
    assert gpu.counter(hw.HG_CNT_GUEST_ERRORS) == before + 5


def test_memory_decoding_off(machine: Machine) -> None:
    machine.set_config(GPU, PCI_COMMAND, PCI_COMMAND_MASTER, 2)
    assert machine.gpu.r32(hw.HG_REG_ID) != hw.HG_ID_MAGIC


def test_d3hot_hides_the_registers(machine: Machine) -> None:
    control = machine.capabilities(GPU)[CAP_PM] + 4
    machine.gpu.w32(hw.HG_REG_SCRATCH, 77)
    machine.set_config(GPU, control, 3, 2)
    assert machine.gpu.r32(hw.HG_REG_ID) != hw.HG_ID_MAGIC
    machine.set_config(GPU, control, 0, 2)
    machine.set_config(GPU, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 2)
    assert machine.gpu.r32(hw.HG_REG_SCRATCH) == 77


def test_error_reported_by_aer(machine: Machine) -> None:
    """An error injected by QEMU's monitor shows in the device's own AER registers."""
    at = machine.extended_capabilities(GPU)[EXT_CAP_AER]
    control = machine.capabilities(GPU)[CAP_EXP] + 8
    machine.set_config(GPU, control, machine.config(GPU, control, 2) | 0xF, 2)
    assert machine.config(GPU, at + 4) == 0
    answer = machine.qmp(
        "human-monitor-command", {"command-line": "pcie_aer_inject_error gpu POISON_TLP"}
    )
    assert answer.startswith("OK"), answer
    assert machine.config(GPU, at + 4) == 1 << 12


def test_time_is_the_virtual_clock(machine: Machine) -> None:
    before = machine.gpu.r64(hw.HG_REG_TIME)
    machine.clock_step(1_000_000)
    assert machine.gpu.r64(hw.HG_REG_TIME) - before == 1_000_000


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ("vram-size=3M", "vram-size must be a multiple of 2 MiB"),
        ("vram-size=0", "vram-size must be a multiple of 2 MiB"),
        ("vram-size=4T", "at most 1 TiB"),
        ("bar-size=3M", "bar-size must be a power of two"),
        ("bar-size=128M", "bar-size must be a power of two"),
        ("vram-size=6M,coherent=on", "coherent=on: vram-size must be a power of two"),
        ("sms=0", "sms"),
        ("sms=17", "sms"),
        ("warps=33", "warps"),
        ("ces=1", "ces"),
        ("inject=no-such-event", "inject"),
    ],
)
def test_bad_property(start: Start, properties: str, words: str) -> None:
    with pytest.raises(VmDied) as caught:
        start(properties)
    assert words in str(caught.value)
    assert caught.value.exit_status == 1  # a message and an exit, no abort


def test_properties_are_described(machine: Machine) -> None:
    """Introspection makes an unrealized device: it has no GPU yet and must not need one."""
    listed = machine.qmp("device-list-properties", {"typename": "hmm-gpu"})
    names = {one["name"] for one in listed}
    assert {"vram-size", "bar-size", "sms", "deterministic", "seed", "inject"} <= names
