# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots: a machine saved with work in flight goes on in another QEMU as if nothing was."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from qtest_machine import BAR_VRAM, MIB, PAGE, Machine, eventually, hw
from qtest_programs import SPIN_IN_FIVE
from qtest_work import Launch, counts_on, spin, stops_and_goes_on

from hmmbench.vm.errors import VmDied

Start = Callable[..., Machine]


def save(machine: Machine, file: Path) -> None:
    """Stop, and write the machine to a file (mapped-ram, as the bench does)."""
    machine.qmp("stop")
    for name in ("mapped-ram",):
        machine.qmp(
            "migrate-set-capabilities",
            {"capabilities": [{"capability": name, "state": True}]},
        )
    machine.qmp("migrate", {"uri": f"file:{file}"})
    eventually("saved", lambda: _migration(machine) != "active")
    assert _migration(machine) == "completed", machine.qmp("query-migrate")


def _migration(machine: Machine) -> str:
    status = machine.qmp("query-migrate").get("status", "setup")
    return "active" if status in ("setup", "device") else str(status)


def load(start: Start, file: Path, saved: Machine, device: str = "") -> Machine:
    """A machine with the state of the file, stopped."""
    machine = start(device, "-incoming", "defer")
    machine.continue_from(saved)
    machine.qmp(
        "migrate-set-capabilities",
        {"capabilities": [{"capability": "mapped-ram", "state": True}]},
    )
    machine.qmp("migrate-incoming", {"uri": f"file:{file}"})
    eventually("loaded", lambda: machine.qmp("query-status")["status"] in ("paused", "postmigrate"))
    return machine


def test_outstanding_faults_survive(machine: Machine, start: Start, tmp_path: Path) -> None:
    machine.gpu.start()
    launch = Launch(machine)
    launch.begin(machine.gpu)
    word = spin(machine)
    counters = machine.gpu.counters()
    file = tmp_path / "state"
    save(machine, file)
    counted = machine.load(word, 8)
    machine.close()
    other = load(start, file, machine)
    assert other.load(word, 8) == counted
    kept = ("faults", "pending_faults", "stalled_warps", "active_ctxs")
    assert {n: other.gpu.counters()[n] for n in kept} == {n: counters[n] for n in kept}
    other.qmp("cont")
    counts_on(other, word, counted)
    launch.finish(other)


def test_registers_vram_and_msix_survive(machine: Machine, start: Start, tmp_path: Path) -> None:
    machine.gpu.start()
    machine.gpu.w32(hw.HG_REG_SCRATCH, 0xCAFE)
    far = 48 * MIB
    machine.store(BAR_VRAM + 8 * MIB, 0x1234, 8)
    context = machine.gpu.context(0, priv=True)
    source = machine.alloc()
    machine.write(source, b"far away" * 8)
    to_vram = hw.HG_SPACE_SYS << hw.HG_COPY_SRC_SHIFT | hw.HG_SPACE_VRAM << hw.HG_COPY_DST_SHIFT
    context.submit(hw.HG_OP_COPY | to_vram, source, far, 64)
    context.finish()
    file = tmp_path / "state"
    save(machine, file)
    machine.close()
    other = load(start, file, machine)
    other.qmp("cont")
    assert other.gpu.r32(hw.HG_REG_SCRATCH) == 0xCAFE
    assert other.load(BAR_VRAM + 8 * MIB, 8) == 0x1234
    context.gpu = other.gpu
    target = other.alloc(align=MIB)
    to_ram = hw.HG_SPACE_VRAM << hw.HG_COPY_SRC_SHIFT | hw.HG_SPACE_SYS << hw.HG_COPY_DST_SHIFT
    context.submit(hw.HG_OP_COPY | to_ram, far, target, 64)
    context.fence(hw.HG_FENCE_IRQ)
    eventually("MSI-X after the restore", lambda: other.msi_arrived(hw.HG_VEC_FENCE))
    assert other.read(target, 64) == b"far away" * 8


def test_many_saves_of_a_running_machine(machine: Machine, start: Start, tmp_path: Path) -> None:
    """A chain: each machine is restored from the one before while the device counts."""
    machine.gpu.start()
    launch = Launch(machine)
    launch.begin(machine.gpu)
    word = spin(machine)
    for number in range(5):
        file = tmp_path / f"state{number}"
        save(machine, file)
        counted = machine.load(word, 8)
        machine.close()
        machine = load(start, file, machine)
        machine.qmp("cont")
        counts_on(machine, word, counted)
    launch.finish(machine)


def test_pages_written_during_migration_are_sent_again(start: Start, tmp_path: Path) -> None:
    """The machine runs while it is saved: what the device writes after a page was sent counts.

    VRAM is larger than RAM and therefore sent first; it is empty, that takes no time. RAM full
    of ones at 40 MB/s takes about a second; the counted word lies near its start.
    """
    machine = start("vram-size=128M")
    machine.enumerate()
    machine.gpu.start()
    word = spin(machine)
    filled = 16 * MIB
    machine.request(f"memset {filled:#x} {40 * MIB:#x} 0x11")
    vram = machine.gpu.r64(hw.HG_REG_VRAM_SIZE) - PAGE
    machine.qmp("migrate-set-parameters", {"max-bandwidth": 40_000_000})
    file = tmp_path / "state"
    machine.qmp("migrate", {"uri": f"file:{file}"})
    eventually("under way", lambda: machine.qmp("query-migrate").get("status") == "active")
    time.sleep(0.4)
    context = machine.gpu.context(0, priv=True)
    to_vram = hw.HG_SPACE_SYS << hw.HG_COPY_SRC_SHIFT | hw.HG_SPACE_VRAM << hw.HG_COPY_DST_SHIFT
    context.submit(hw.HG_OP_COPY | to_vram, filled, vram, PAGE)
    context.finish()
    assert _migration(machine) == "active"  # else the test shows nothing
    eventually("saved", lambda: _migration(machine) != "active")
    assert _migration(machine) == "completed"
    counted = machine.load(word, 8)
    machine.close()
    other = start("vram-size=128M", "-incoming", f"file:{file}")
    other.continue_from(machine)
    eventually("loaded", lambda: other.qmp("query-status")["status"] == "running")
    other.qmp("stop")
    assert other.load(word, 8) >= counted
    context.gpu = other.gpu
    other.qmp("cont")
    target = other.alloc(align=MIB)
    to_ram = hw.HG_SPACE_VRAM << hw.HG_COPY_SRC_SHIFT | hw.HG_SPACE_SYS << hw.HG_COPY_DST_SHIFT
    context.submit(hw.HG_OP_COPY | to_ram, vram, target, PAGE)
    context.finish()
    assert other.read(target, PAGE) == b"\x11" * PAGE


def test_a_standing_deterministic_machine_is_saved_whole(start: Start, tmp_path: Path) -> None:
    """A stop leaves engines in the middle of accesses to memory; what they still write when they
    are parked for the save is in it."""
    machine = start("deterministic=on")
    machine.enumerate()
    machine.gpu.start()
    word = spin(machine, wait=False, program=SPIN_IN_FIVE)
    late = 0
    for number in range(8):
        # the clock of a loaded machine begins again: 12, 13, 14, ... rounds
        for _ in range(12 * (number + 1) + number * (number + 1) // 2):
            machine.clock_step(10_000)
        machine.qmp("stop")
        counted = machine.load(word, 8)
        assert counted > 0
        file = tmp_path / f"state{number}"
        save(machine, file)
        saved = machine.load(word, 8)
        late += saved > counted
        machine.close()
        machine = load(start, file, machine, "deterministic=on")
        assert machine.load(word, 8) == saved
        machine.qmp("cont")
    assert late  # else the test shows nothing


def test_stopped_machine_is_still(machine: Machine) -> None:
    machine.gpu.start()
    word = spin(machine)
    stops_and_goes_on(machine, word, 30)


def plain_save(machine: Machine, file: Path) -> None:
    """As save(), as one stream."""
    machine.qmp("stop")
    machine.qmp("migrate", {"uri": f"file:{file}"})
    eventually("saved", lambda: _migration(machine) != "active")
    assert _migration(machine) == "completed"


@pytest.mark.parametrize("device", ["sms=4", "warps=4", "vram-size=32M", "ces=3"])
def test_another_configuration_refuses_the_state(
    machine: Machine, start: Start, tmp_path: Path, device: str
) -> None:
    file = tmp_path / "state"
    plain_save(machine, file)
    machine.close()

    def load_it() -> None:
        other = start(device, "-incoming", f"file:{file}")
        eventually("refused", lambda: other.qmp("query-status") is None)

    with pytest.raises(VmDied) as caught:
        load_it()
    assert caught.value.exit_status == 1, caught.value
