# SPDX-License-Identifier: GPL-2.0-or-later
"""DMA through an IOMMU: translated, refused, and never a deadlock with the main loop.

Each case under Intel's; with `test --full` under AMD's and the paravirtual one as well.

Layout of registers and tables: Intel VT-d specification, chapters 9 and 10 (legacy mode).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from qtest_machine import (
    BAR_REGS,
    CAP_EXP,
    ECAM,
    GPU,
    MIB,
    PCI_COMMAND,
    RAM_SIZE,
    Machine,
    eventually,
    hw,
)
from qtest_work import Launch, counts_on, spin, stops_and_goes_on

VTD = 0xFED9_0000
GCMD, GSTS, RTADDR, FSTS, FECTL, FEDATA, FEADDR = 0x18, 0x1C, 0x20, 0x34, 0x38, 0x3C, 0x40
CCMD, IOTLB = 0x28, 0xF8
TRANSLATE, SET_ROOT = 1 << 31, 1 << 30
READ, WRITE, LARGE = 1, 2, 1 << 7


class Iommu:
    """Identity map, in 2 MiB pages, of all RAM for the device; turned on."""

    NAME = "intel"

    def __init__(self, machine: Machine) -> None:
        self._m = machine
        root, context, top, middle = (machine.alloc() for _ in range(4))
        self._leaves = machine.alloc()
        for at in (root, context, top, middle):
            machine.request(f"memset {at:#x} 4096 0")
        machine.store(root + 16, context | 1, 8)  # bus 1
        machine.store(context, top | 1, 8)  # device 0, second-level translation
        machine.store(context + 8, 1 | 1 << 8, 8)  # three levels, domain 1
        machine.store(top, self._leaves | READ | WRITE, 8)
        for page in range(RAM_SIZE // (2 * MIB)):
            self.map(page)
        machine.store(VTD + RTADDR, root, 8)
        machine.store(VTD + GCMD, SET_ROOT, 4)
        machine.store(VTD + GCMD, TRANSLATE, 4)
        assert machine.load(VTD + GSTS, 4) & TRANSLATE

    def map(self, page: int, to: int | None = None) -> None:
        """Map a 2 MiB page of the device to one of RAM (default: the same)."""
        target = page if to is None else to
        self._m.store(self._leaves + 8 * page, target * 2 * MIB | LARGE | READ | WRITE, 8)
        self.flush()

    def unmap(self, page: int) -> None:
        """The device may not reach the 2 MiB page any more."""
        self._m.store(self._leaves + 8 * page, 0, 8)
        self.flush()

    def flush(self) -> None:
        """Context cache and IOTLB, globally."""
        self._m.store(VTD + CCMD, 1 << 63 | 1 << 61, 8)
        self._m.store(VTD + IOTLB, 1 << 63 | 1 << 60, 8)

    def off(self) -> None:
        """No translation any more."""
        self._m.store(VTD + GCMD, 0, 4)

    def interrupts(self) -> None:
        """One for each fault that it records, to where CPUs take them."""
        self._m.store(VTD + FEADDR, 0xFEE0_0000, 4)
        self._m.store(VTD + FEDATA, 0x41, 4)
        self._m.store(VTD + FECTL, 0, 4)

    def faults(self) -> bool:
        """Did the IOMMU record a fault? Clears its summary."""
        status = self._m.load(VTD + FSTS, 4)
        self._m.store(VTD + FSTS, status, 4)
        return status != 0


class AmdIommu(Iommu):
    """The same by AMD's: its manual, 2.2 (tables) and 3 (registers)."""

    NAME = "amd"
    BASE = 0xFED8_0000
    DEVICE_TABLE, EVENT_LOG, CONTROL = 0x00, 0x10, 0x18
    ON, LOGS = 1, 1 << 2
    RIGHTS = 1 << 61 | 1 << 62
    DEVICE = 0  # QEMU takes the number that the bus had before there was firmware

    def __init__(self, machine: Machine) -> None:
        self._m = machine
        table = machine.alloc(4 * 4096)
        top, self._leaves, self._log = (machine.alloc() for _ in range(3))
        for at in (top, self._leaves, self._log):
            machine.request(f"memset {at:#x} 4096 0")
        machine.request(f"memset {table:#x} {4 * 4096} 0")
        machine.store(top, self._leaves | 1 | 2 << 9 | self.RIGHTS, 8)
        machine.store(table + 32 * self.DEVICE + 8, 1, 8)
        machine.store(table + 32 * self.DEVICE, top | 3 | 3 << 9 | self.RIGHTS, 8)
        for page in range(RAM_SIZE // (2 * MIB)):
            self._put(page, page)
        machine.store(self.BASE + self.DEVICE_TABLE, table | 3, 8)
        machine.store(self.BASE + self.EVENT_LOG, self._log | 8 << 56, 8)
        machine.store(self.BASE + self.CONTROL, self.ON | self.LOGS, 8)

    def _put(self, page: int, target: int) -> None:
        self._m.store(self._leaves + 8 * page, target * 2 * MIB | 1 | self.RIGHTS, 8)

    def map(self, page: int, to: int | None = None) -> None:
        self._put(page, page if to is None else to)
        self.flush()

    def unmap(self, page: int) -> None:
        """By a table that is not there: only such a fault is recorded."""
        self._m.store(self._leaves + 8 * page, 1 << 9, 8)
        self.flush()

    def flush(self) -> None:
        """QEMU's forgets what it knows when it is turned on."""

    def off(self) -> None:
        self._m.store(self.BASE + self.CONTROL, 0, 8)

    def interrupts(self) -> None:
        self.message_to(0xFEE0_0000, 0x41)

    def faults(self) -> bool:
        return self._m.load(self._log, 8) != 0

    def message_to(self, address: int, data: int) -> None:
        """What it sends when it has recorded something: as a guest can set it."""
        function = next(
            (0, slot, 0) for slot in range(32)
            if self._m.config((0, slot, 0), 0) & 0xFFFF == 0x1022
        )  # fmt: skip
        at = self._m.config(function, 0x34, 1)
        while self._m.config(function, at, 1) != 0x05:
            at = self._m.config(function, at + 1, 1)
        self._m.set_config(function, at + 4, address)
        self._m.set_config(function, at + 8, 0)
        self._m.set_config(function, at + 12, data)
        self._m.set_config(function, at + 2, self._m.config(function, at + 2, 2) | 1, 2)


class VirtioIommu(Iommu):
    """The same by the paravirtual one: Virtio 1.2, 4.1 (PCI) and 5.13."""

    NAME = "virtio"
    FUNCTION = (0, 6, 0)
    REGISTERS = 0xE100_0000  # its BAR 4
    COMMON, NOTIFY = 1, 2
    ATTACH, MAP, UNMAP = 1, 3, 4
    DOMAIN, ENDPOINT = 1, 0x100  # bus 1

    def __init__(self, machine: Machine) -> None:
        self._m = machine
        machine.set_config(self.FUNCTION, 0x20, self.REGISTERS)
        machine.set_config(self.FUNCTION, 0x24, 0)
        machine.set_config(self.FUNCTION, PCI_COMMAND, 6, 2)
        at = machine.config(self.FUNCTION, 0x34, 1)
        place = {}
        while at:
            kind = machine.config(self.FUNCTION, at, 1)
            if kind == 0x09 and machine.config(self.FUNCTION, at + 4, 1) == 4:
                place[machine.config(self.FUNCTION, at + 3, 1)] = (
                    self.REGISTERS + machine.config(self.FUNCTION, at + 8)
                )
            at = machine.config(self.FUNCTION, at + 1, 1)
        self._common, self._notify = place[self.COMMON], place[self.NOTIFY]
        for status in (0, 1, 3):
            self._put(20, status, 1)
        for half, bits in ((0, 1 << 2), (1, 1)):  # MAP_UNMAP, VERSION_1
            self._put(8, half, 4)
            self._put(12, bits, 4)
        self._put(20, 11, 1)
        assert machine.load(self._common + 20, 1) & 8
        self._asked, self._buffer = 0, machine.alloc()
        self._rings = [self._queue(number) for number in range(2)]
        self._put(20, 15, 1)
        events, buffers = self._rings[1], machine.alloc()
        for number in range(16):
            self._descriptor(events, number, buffers + 64 * number, 64, 2)
            machine.store(events + 0x800 + 4 + 2 * number, number, 2)
        machine.store(events + 0x800 + 2, 16, 2)
        self._ask(struct.pack("<B3xIII4x", self.ATTACH, self.DOMAIN, self.ENDPOINT, 0))
        for page in range(RAM_SIZE // (2 * MIB)):
            self.map(page)

    def _put(self, offset: int, value: int, width: int) -> None:
        self._m.store(self._common + offset, value, width)

    def _queue(self, number: int) -> int:
        """Descriptors, then what is available at 0x800, then what is used at 0xc00."""
        at = self._m.alloc()
        self._put(22, number, 2)
        self._put(24, 16, 2)
        for offset, part in ((32, 0), (40, 0x800), (48, 0xC00)):
            self._put(offset, at + part, 4)
            self._put(offset + 4, 0, 4)
        self._put(28, 1, 2)
        return at

    def _descriptor(self, ring: int, number: int, at: int, size: int, flags: int) -> None:
        following = number + 1 if flags & 1 else 0
        data = struct.pack("<QIHH", at, size, flags, following)
        self._m.write(ring + 16 * number, data)

    def _ask(self, request: bytes) -> None:
        ring = self._rings[0]
        self._m.write(self._buffer, request + b"\xff" * 4)
        self._descriptor(ring, 0, self._buffer, len(request), 1)
        self._descriptor(ring, 1, self._buffer + len(request), 4, 2)
        self._m.store(ring + 0x800 + 4 + 2 * (self._asked % 16), 0, 2)
        self._asked += 1
        self._m.store(ring + 0x800 + 2, self._asked, 2)
        self._m.store(self._notify, 0, 2)
        used = ring + 0xC00 + 2
        eventually("answer", lambda: self._m.load(used, 2) == self._asked & 0xFFFF)
        assert self._m.load(self._buffer + len(request), 1) == 0, request

    def map(self, page: int, to: int | None = None) -> None:
        start = page * 2 * MIB
        target = start if to is None else to * 2 * MIB
        if to is not None:
            self.unmap(page)
        end = start + 2 * MIB - 1
        self._ask(struct.pack("<B3xIQQQI", self.MAP, self.DOMAIN, start, end, target, 3))

    def unmap(self, page: int) -> None:
        start = page * 2 * MIB
        self._ask(struct.pack("<B3xIQQ4x", self.UNMAP, self.DOMAIN, start, start + 2 * MIB - 1))

    def off(self) -> None:
        self._put(20, 0, 1)

    def interrupts(self) -> None:
        """None: QEMU's has no vectors."""

    def faults(self) -> bool:
        return self._m.load(self._rings[1] + 0xC00 + 2, 2) != 0


INTEL, AMD, VIRTIO = Iommu, AmdIommu, VirtioIommu
#: What QEMU gets for each: before its devices, and behind the others, whose slots it would take.
ARGUMENTS: dict[type[Iommu], tuple[tuple[str, ...], tuple[str, ...]]] = {
    INTEL: (("-device", "intel-iommu"), ()),
    AMD: ((), ("-device", "amd-iommu")),
    VIRTIO: ((), ("-device", "virtio-iommu-pci,addr=6")),
}
FULL = bool(os.environ.get("HMMBENCH_FULL"))
if FULL:
    pytestmark = pytest.mark.full("under QEMU's amd-iommu and virtio-iommu as well")


@pytest.fixture(params=ARGUMENTS if FULL else [INTEL], ids=lambda kind: str(kind.NAME))
def iommu(request: pytest.FixtureRequest) -> type[Iommu]:
    """Each that there is; only the full configuration of QEMU has others than Intel's."""
    kind: type[Iommu] = request.param
    return kind


@pytest.fixture
def behind(request: pytest.FixtureRequest, iommu: type[Iommu]) -> Iterator[Machine]:
    """A machine with it, off."""
    before, after = ARGUMENTS[iommu]
    qemu: Path = request.getfixturevalue("qemu" if iommu is INTEL else "full_qemu")
    with Machine(qemu, "", *after, before=before) as machine:
        machine.enumerate()
        yield machine


def test_work_through_the_iommu(behind: Machine, iommu: type[Iommu]) -> None:
    behind.gpu.start()
    iommu(behind)
    launch = Launch(behind)
    launch.begin(behind.gpu)
    spin(behind)
    launch.finish(behind)


def test_addresses_are_translated(behind: Machine, iommu: type[Iommu]) -> None:
    """What the device writes to one page of the bus arrives in another of RAM."""
    behind.gpu.start()
    on = iommu(behind)
    on.map(24, to=28)
    context = behind.gpu.context(0)
    context.submit(hw.HG_OP_FENCE, 48 * MIB + 8, 0x1234)
    context.finish()
    assert behind.load(48 * MIB + 8, 8) == 0
    assert behind.load(56 * MIB + 8, 8) == 0x1234


def frame(machine: Machine, address: int) -> int:
    """Where the device's accesses of a bus address lead to."""
    where = {"path": "/machine/peripheral/gpu", "property": "frame"}
    machine.qmp("qom-set", {**where, "value": address})
    found: int = machine.qmp("qom-get", where)
    return found


def test_who_asks_is_told_where_addresses_lead(behind: Machine, iommu: type[Iommu]) -> None:
    """As the mirror audit does: it compares frames."""
    nowhere = (1 << 64) - 1
    assert frame(behind, 48 * MIB + 8) in (48 * MIB + 8, nowhere), "the bus is not the device's yet"
    behind.gpu.start()
    on = iommu(behind)
    on.map(24, to=28)
    assert frame(behind, 48 * MIB + 8) == 56 * MIB + 8
    on.unmap(24)
    assert frame(behind, 48 * MIB + 8) == nowhere
    on.map(24, to=24)
    assert frame(behind, 48 * MIB + 8) == 48 * MIB + 8


def test_refused_by_the_iommu(behind: Machine, iommu: type[Iommu]) -> None:
    """An IOMMU fault is a bus error, and the IOMMU's own interrupt is no deadlock."""
    behind.gpu.start()
    on = iommu(behind)
    on.interrupts()
    on.unmap(24)
    context = behind.gpu.context(0)
    context.submit(hw.HG_OP_FENCE, 48 * MIB, 1)
    eventually("halt", lambda: bool(context.status() & hw.HG_CTX_HALTED))
    assert context.error() == hw.HG_ERR_BUS
    # QEMU 10.0's amd-iommu refuses it, and records nothing (its amdvi_test_mask() is always true)
    assert on.faults() or iommu is AMD


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(0xF_F000, id="rom"),
        pytest.param(BAR_REGS + hw.HG_REG_SCRATCH, id="own-registers"),
        pytest.param(0xFEE0_0000, id="interrupt-controller"),
    ],
)
def test_translated_to_what_is_no_ram(behind: Machine, iommu: type[Iommu], target: int) -> None:
    """The detour refuses what the direct way refuses."""
    behind.gpu.start()
    behind.gpu.w32(hw.HG_REG_SCRATCH, 0x5A5A_5A5A)
    before = behind.read(0xF_F000, 64)
    iommu(behind).map(24, to=target // (2 * MIB))
    context = behind.gpu.context(0)
    context.submit(hw.HG_OP_FENCE, 48 * MIB + target % (2 * MIB), 0x0123_4567)
    eventually("halt", lambda: bool(context.status() & hw.HG_CTX_HALTED))
    assert context.error() == hw.HG_ERR_BUS
    assert behind.gpu.r32(hw.HG_REG_SCRATCH) == 0x5A5A_5A5A
    assert behind.read(0xF_F000, 64) == before


def test_stop_reset_and_switch_under_load(behind: Machine, iommu: type[Iommu]) -> None:
    """Whoever waits for engines with the main loop's lock serves their accesses meanwhile."""
    behind.gpu.start()
    on = iommu(behind)
    word = spin(behind)
    for number in range(30):
        stops_and_goes_on(behind, word)
        if number % 5 == 0:
            # QEMU's IOMMU shows neither map for a moment: a running device would see an error.
            behind.qmp("stop")
            on.off()
            behind.qmp("cont")
            counted = behind.load(word, 8)
            counts_on(behind, word, counted)
            behind.qmp("stop")
            on = iommu(behind)
            behind.qmp("cont")
        if number % 10 == 9:
            behind.gpu.w32(hw.HG_REG_CTRL, hw.HG_CTRL_RESET)
            behind.gpu.start()
            word = spin(behind)
    behind.flr()
    behind.enable_device()
    behind.gpu.start()
    launch = Launch(behind)
    launch.begin(behind.gpu)
    launch.finish(behind)


def test_iommu_goes_and_comes_under_load(behind: Machine, iommu: type[Iommu]) -> None:
    """A running device may see an error while QEMU switches maps; the machine goes on."""
    for _ in range(10):
        behind.reset_allocator()
        behind.gpu.start()
        on = iommu(behind)
        spin(behind)
        on.off()
        assert behind.gpu.r32(hw.HG_REG_ID) == hw.HG_ID_MAGIC
        behind.flr()
        behind.enable_device()
    behind.gpu.start()
    behind.gpu.context(0).finish()


def test_unplug_behind_the_iommu(behind: Machine, iommu: type[Iommu]) -> None:
    behind.gpu.start()
    iommu(behind)
    spin(behind)
    behind.qmp("device_del", {"id": "gpu"})
    behind.eject()
    eventually("unplug", lambda: any(e["event"] == "DEVICE_DELETED" for e in behind.events))


if FULL:

    @pytest.mark.parametrize("iommu", [AMD], ids=[AMD.NAME], indirect=True)
    def test_flr_under_amd_iommu(behind: Machine, iommu: type[Iommu]) -> None:
        """The message for a fault resets the function whose access it was.

        The engine waits for the access, and so nobody can wait for the engine there. Not under
        the others: intel-iommu's message goes to the interrupt controller alone, and virtio-iommu
        has no vectors."""
        behind.gpu.start()
        on = AmdIommu(behind)
        on.unmap(24)
        bus, slot, function = GPU
        control = behind.capabilities(GPU)[CAP_EXP] + 8
        where = ECAM | bus << 20 | slot << 15 | function << 12 | control
        on.message_to(where, behind.config(GPU, control, 2) | 0x8000)
        context = behind.gpu.context(0)
        context.submit(hw.HG_OP_FENCE, 48 * MIB, 1)
        eventually("halt", lambda: bool(context.status() & hw.HG_CTX_HALTED))
        if not on.faults():
            pytest.skip("this QEMU's amd-iommu records no fault (amdvi_test_mask() is always true)")
        for number in range(1, 9):
            behind.gpu.context(number).submit(hw.HG_OP_FENCE, 48 * MIB, 1)
        behind.qmp("stop")  # waits for the engines, with accesses under way
        behind.qmp("cont")
        on.off()
        behind.flr()
        behind.enable_device()
        behind.gpu.start()
        behind.gpu.context(0).finish()
