# SPDX-License-Identifier: GPL-2.0-or-later
"""The mailbox device: its registers, its memory, and the machine that stands behind a write."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qtest_machine import BAR_REGS, GPU, PCI_COMMAND, PCI_COMMAND_MEMORY, Machine, eventually
from test_glue_migration import save

from hmmbench.base.paths import device_sources
from hmmbench.device import cheader
from hmmbench.vm.errors import VmDied

hm = cheader.load(device_sources() / "include" / "hmm_mailbox_hw.h")

MAILBOX = (0, 2, 0)
REGS = BAR_REGS + 0x100_0000
MEMORY = 0x10_0000_0000
#: No power of two: the BAR is larger.
SIZE = 0x21000

Start = Callable[..., "Shared"]


class Shared:
    """A machine with a mailbox, and the mailbox's memory as the host has it."""

    def __init__(self, start: Callable[..., Machine], file: Path, *args: str) -> None:
        self.file = file
        with file.open("ab") as out:
            out.truncate(SIZE)
        with file.open("r+b") as out:
            self.memory = mmap.mmap(out.fileno(), SIZE)
        backend = f"memory-backend-file,id=mb,mem-path={file},share=on,size={SIZE}"
        device = "hmm-mailbox,id=box,bus=pcie.0,addr=2,memdev=mb"
        self.machine = start("", "-object", backend, "-device", device, *args)

    def enable(self) -> None:
        """BARs and memory decoding, as firmware and `enable` of sysfs do."""
        machine = self.machine
        machine.set_config(MAILBOX, 0x10 + 4 * hm.HM_BAR_REGS, REGS)
        machine.set_config(MAILBOX, 0x10 + 4 * hm.HM_BAR_MEMORY, MEMORY & 0xFFFF_FFFF)
        machine.set_config(MAILBOX, 0x14 + 4 * hm.HM_BAR_MEMORY, MEMORY >> 32)
        machine.set_config(MAILBOX, PCI_COMMAND, PCI_COMMAND_MEMORY, 2)

    def reg(self, offset: int) -> int:
        return self.machine.load(REGS + offset, 4)

    def stand(self, why: int = 1) -> None:
        self.machine.store(REGS + hm.HM_REG_STAND, why, 4)

    @property
    def running(self) -> bool:
        return bool(self.machine.qmp("query-status")["running"])

    def stops(self) -> int:
        return sum(event["event"] == "STOP" for event in self.machine.events)


@pytest.fixture
def shared(start: Callable[..., Machine], tmp_path: Path) -> Start:
    """Makes machines with mailboxes, each of a file of its own name."""
    return lambda name="memory", *args: Shared(start, tmp_path / name, *args)


@pytest.fixture
def box(shared: Start) -> Shared:
    made = shared()
    made.machine.enumerate()
    made.enable()
    return made


def test_identity(box: Shared) -> None:
    config = box.machine.config
    assert config(MAILBOX, 0) == hm.HM_PCI_DEVICE_ID << 16 | hm.HM_PCI_VENDOR_ID
    assert config(MAILBOX, 8) == hm.HM_PCI_CLASS << 16 | hm.HM_VERSION
    assert config(MAILBOX, 0x3D, 1) == 0, "it has no interrupt"
    # 64 bit, prefetchable, of the next power of two
    assert config(MAILBOX, 0x18) & 0xF == 0xC
    box.machine.set_config(MAILBOX, 0x18, 0xFFFF_FFFF)
    assert config(MAILBOX, 0x18) & ~0xF == 0xFFFC_0000


def test_registers(box: Shared) -> None:
    assert box.reg(hm.HM_REG_ID) == hm.HM_ID_MAGIC
    assert box.reg(hm.HM_REG_VERSION) == hm.HM_VERSION
    assert box.reg(hm.HM_REG_SIZE) == SIZE
    assert box.reg(hm.HM_REG_STAND) == 0


def test_memory_is_one_for_both_sides(box: Shared) -> None:
    box.machine.write(MEMORY + 0x1000, b"from the guest")
    assert box.memory[0x1000 : 0x1000 + 14] == b"from the guest"
    box.memory[SIZE - 8 :] = b"the host"
    assert box.machine.read(MEMORY + SIZE - 8, 8) == b"the host"
    # Behind it is nothing.
    box.machine.write(MEMORY + SIZE, b"lost")
    assert box.machine.read(MEMORY + SIZE, 4) != b"lost"
    assert box.file.stat().st_size == SIZE


@pytest.mark.parametrize("why", [0, 1, 3, 0xFFFF_FFFF])
def test_it_stands_behind_the_write(box: Shared, why: int) -> None:
    stops = box.stops()
    box.stand(why)
    assert not box.running
    eventually("STOP", lambda: box.stops() == stops + 1)
    box.machine.qmp("cont")
    assert box.running
    box.stand(why)
    assert not box.running


def test_it_stands_as_often_as_it_is_told(box: Shared) -> None:
    """A second write while it stands (a guest cannot) is nothing."""
    stops = box.stops()
    box.stand()
    box.stand()
    box.machine.qmp("cont")
    assert box.running
    eventually("STOP", lambda: box.stops() == stops + 1)


def test_only_an_aligned_write_of_four_bytes_counts(box: Shared) -> None:
    for offset in range(hm.HM_REG_STAND - 8, hm.HM_REG_STAND + 8):
        for width in (1, 2, 4, 8):
            if (offset, width) != (hm.HM_REG_STAND, 4):
                box.machine.store(REGS + offset, 1, width)
                assert box.running, (offset, width)
    box.stand()
    assert not box.running


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    accesses=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 0x20), st.integers(0, hm.HM_BAR0_SIZE - 8)),
            st.integers(0, 2**64 - 1),
            st.sampled_from([1, 2, 4, 8]),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_any_access(box: Shared, accesses: list[tuple[int, int, int, bool]]) -> None:
    readable = {
        hm.HM_REG_ID: hm.HM_ID_MAGIC, hm.HM_REG_VERSION: hm.HM_VERSION, hm.HM_REG_SIZE: SIZE
    }  # fmt: skip
    for offset, value, width, write in accesses:
        if write:
            box.machine.store(REGS + offset, value, width)
            assert box.running != (offset == hm.HM_REG_STAND and width == 4)
            if not box.running:
                box.machine.qmp("cont")
        else:
            expected = readable.get(offset, 0) if width == 4 else 0
            assert box.machine.load(REGS + offset, width) == expected
    test_registers(box)


def test_reset_leaves_the_memory_alone(box: Shared) -> None:
    box.memory[0:4] = b"kept"
    box.machine.qmp("system_reset")
    eventually("reset", lambda: box.machine.config(MAILBOX, PCI_COMMAND, 2) in (0, 0xFFFF))
    assert box.memory[0:4] == b"kept"
    box.machine.enumerate()
    box.enable()
    assert box.machine.read(MEMORY, 4) == b"kept"
    test_registers(box)


def test_a_reset_of_the_gpu_is_not_its_business(box: Shared) -> None:
    box.machine.flr()
    assert box.machine.config(GPU, PCI_COMMAND, 2) & PCI_COMMAND_MEMORY == 0
    test_registers(box)
    box.memory[0:4] = b"kept"
    assert box.machine.read(MEMORY, 4) == b"kept"


def test_a_snapshot_has_the_memory(box: Shared, shared: Start, tmp_path: Path) -> None:
    data = os.urandom(SIZE)
    box.memory[:] = data
    box.stand(3)
    save(box.machine, tmp_path / "state")
    # What comes after it is not in it.
    box.memory[0:4] = b"late"
    box.machine.close()
    other = shared("other", "-incoming", "defer")
    other.machine.qmp(
        "migrate-set-capabilities",
        {"capabilities": [{"capability": "mapped-ram", "state": True}]},
    )
    other.machine.qmp("migrate-incoming", {"uri": f"file:{tmp_path / 'state'}"})
    eventually(
        "loaded",
        lambda: other.machine.qmp("query-status")["status"] in ("paused", "postmigrate"),
    )
    assert other.memory[:] == data
    assert not other.running
    other.machine.qmp("cont")
    # BARs and command are PCI's state.
    assert other.reg(hm.HM_REG_ID) == hm.HM_ID_MAGIC
    assert other.machine.read(MEMORY, SIZE) == data
    other.stand()
    assert not other.running


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-device", "hmm-mailbox"], "property 'memdev' is not set"),
        (
            ["-object", "memory-backend-ram,id=mb,size=4096",
             "-device", "hmm-mailbox,memdev=mb", "-device", "hmm-mailbox,memdev=mb"],
            "is in use already",
        ),
    ],
)  # fmt: skip
def test_refused(start: Callable[..., Machine], options: list[str], reason: str) -> None:
    with pytest.raises(VmDied, match=reason):
        start("", *options)


def test_it_cannot_be_plugged_later(shared: Start) -> None:
    made = shared()
    with pytest.raises(Exception, match="does not support hotplugging"):
        made.machine.qmp("device_del", {"id": "box"})
