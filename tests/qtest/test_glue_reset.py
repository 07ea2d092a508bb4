# SPDX-License-Identifier: GPL-2.0-or-later
"""Function-level reset, system reset and unplug, also in the middle of work."""

from __future__ import annotations

import time

import pytest
from qtest_machine import BAR_VRAM, GPU, PCI_COMMAND, Machine, eventually, hw
from qtest_work import Launch, spin

from hmmbench.vm.errors import QmpFailure


def _quiet(machine: Machine, word: int) -> None:
    """The device writes RAM no more."""
    before = machine.load(word, 8)
    time.sleep(0.05)
    assert machine.load(word, 8) == before


def _works_again(machine: Machine) -> None:
    machine.gpu.start()
    launch = Launch(machine)
    launch.begin(machine.gpu)
    launch.finish(machine)


def _power_on(machine: Machine) -> None:
    gpu = machine.gpu
    assert gpu.r32(hw.HG_REG_CTRL) == 0
    assert gpu.r32(hw.HG_REG_SCRATCH) == 0
    assert gpu.r32(hw.HG_REG_INTR_ENABLE) == 0
    assert gpu.r32(hw.HG_REG_INTR_STATUS) == 0
    for context in (0, 1):
        assert gpu.r32(hw.HG_REG_CTX + context * hw.HG_CTX_STRIDE + hw.HG_CTX_STATUS) == 0
    assert all(value == 0 for value in gpu.counters().values())


@pytest.mark.parametrize("how", ["flr", "system"])
def test_reset_in_the_middle_of_work(machine: Machine, how: str) -> None:
    """Two contexts: one stalled on faults, one running for ever. Then all is as at power-on."""
    machine.gpu.start()
    machine.gpu.w32(hw.HG_REG_SCRATCH, 9)
    machine.store(BAR_VRAM + 0x100, 0x77, 8)
    Launch(machine).begin(machine.gpu)
    word = spin(machine)
    if how == "flr":
        machine.flr()
        assert machine.config(GPU, PCI_COMMAND, 2) == 0
        _quiet(machine, word)
        machine.enable_device()
    else:
        machine.qmp("system_reset")
        eventually("reset", lambda: any(e["event"] == "RESET" for e in machine.events))
        _quiet(machine, word)
        machine.enumerate()
    _power_on(machine)
    assert machine.load(BAR_VRAM + 0x100, 8) == 0x77  # VRAM keeps its content
    _works_again(machine)


def test_flr_many_times_under_load(machine: Machine) -> None:
    for _ in range(20):
        machine.gpu.start()
        spin(machine)
        machine.flr()
        machine.enable_device()
        assert machine.gpu.r32(hw.HG_REG_ID) == hw.HG_ID_MAGIC
    _works_again(machine)


def test_unplug_in_the_middle_of_work(machine: Machine) -> None:
    machine.gpu.start()
    Launch(machine).begin(machine.gpu)
    word = spin(machine)
    machine.qmp("device_del", {"id": "gpu"})
    assert machine.load(word, 8) > 0  # the guest was only asked
    machine.eject()
    eventually("unplug", lambda: any(e["event"] == "DEVICE_DELETED" for e in machine.events))
    _quiet(machine, word)
    assert machine.config(GPU, 0) == 0xFFFF_FFFF
    with pytest.raises(QmpFailure):
        machine.gpu.counters()


def test_plug_again(machine: Machine) -> None:
    """A device that came late works, and its predecessor left nothing behind."""
    machine.gpu.start()
    spin(machine)
    for _ in range(3):
        machine.events.clear()
        machine.qmp("device_del", {"id": "gpu"})
        machine.eject()
        eventually("unplug", lambda: any(e["event"] == "DEVICE_DELETED" for e in machine.events))
        machine.power_on_slot()
        machine.qmp("device_add", {"driver": "hmm-gpu", "id": "gpu", "bus": "rp"})
        machine.enable_device()
        _works_again(machine)


def test_quit_in_the_middle_of_work(machine: Machine) -> None:
    """QEMU ends in good order: status 0, no complaint."""
    machine.gpu.start()
    Launch(machine).begin(machine.gpu)
    spin(machine)
    machine.qmp("quit")
    assert machine.wait_exit() == 0
    assert machine.log() == ""


def test_system_resets_under_load(machine: Machine) -> None:
    for _ in range(10):
        machine.events.clear()
        machine.gpu.start()
        spin(machine)
        machine.qmp("system_reset")
        eventually("reset", lambda: any(e["event"] == "RESET" for e in machine.events))
        machine.reset_allocator()
        machine.enumerate()
    _works_again(machine)
