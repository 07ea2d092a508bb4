# SPDX-License-Identifier: GPL-2.0-or-later
"""q35 with one hmm-gpu behind a root port, driven by a test instead of a guest.

Machine does what firmware and the kernel's PCI core do; Gpu what a driver does with
registers; both as small as the tests need. The map of RAM is in the constants below.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hmmbench.base.paths import device_sources
from hmmbench.device import cheader
from hmmbench.vm.qtest import FIRMWARE, Qtest

hw = cheader.load(device_sources() / "include" / "hmm_gpu_hw.h")

PAGE = 4096
MIB = 1 << 20
RAM_SIZE = 64 * MIB

# Physical addresses we, as firmware, give out.
ECAM = 0xB000_0000
BAR_REGS = 0xE000_0000
BAR_MSIX = 0xE020_0000
BAR_VRAM = 0x8_0000_0000

# Use of RAM. Pages for page tables and buffers come from POOL on.
MSI_PAGE = 0x20_0000
FAULT_RING = 0x21_0000
NRFAULT_RING = 0x22_0000
RINGS = 0x23_0000  # one page-aligned descriptor ring a context, 4 KiB each
POOL = 0x40_0000

ROOT_PORT = (0, 1, 0)
GPU = (1, 0, 0)

PCI_COMMAND = 0x04
PCI_COMMAND_MEMORY = 0x2
PCI_COMMAND_MASTER = 0x4
CAP_PM, CAP_EXP, CAP_MSIX = 0x01, 0x10, 0x11
EXT_CAP_AER = 0x01

Bdf = tuple[int, int, int]


def eventually(what: str, check: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until check() is true; fail the test after `seconds`."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.001)


class Machine(Qtest):
    """The virtual machine. `gpu` is usable after enumerate()."""

    def __init__(
        self,
        qemu: Path,
        device: str = "",
        *args: str,
        before: tuple[str, ...] = (),
        accel: str = "qtest",
        firmware: bytes = FIRMWARE,
    ) -> None:
        """device: properties of hmm-gpu, as after "-device hmm-gpu,"; args: more of QEMU's.

        before: arguments that must come before the devices.
        """
        option = "hmm-gpu,id=gpu,bus=rp" + ("," + device if device else "")
        super().__init__(
            qemu,
            [
                *("-m", f"{RAM_SIZE // MIB}M"),
                *before,
                # Unplug by the slot's own registers, not by ACPI: see Machine.eject.
                *("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"),
                *("-device", "pcie-root-port,id=rp,bus=pcie.0,addr=1,chassis=1"),
                *("-device", option),
                *args,
            ],
            accel=accel,
            firmware=firmware,
        )
        self._next_page = POOL
        self.gpu = Gpu(self)

    def alloc(self, size: int = PAGE, align: int = PAGE) -> int:
        """Physical address of fresh, zeroed RAM."""
        at = -(-self._next_page // align) * align
        self._next_page = at + -(-size // PAGE) * PAGE
        assert self._next_page <= RAM_SIZE
        return at

    def reset_allocator(self) -> None:
        """All of RAM from POOL on is free again, and zero."""
        self.request(f"memset {POOL:#x} {self._next_page - POOL:#x} 0")
        self._next_page = POOL

    def continue_from(self, other: Machine) -> None:
        """This machine has the RAM of another: do not give out again what that one gave out."""
        self._next_page = other._next_page

    # -- configuration space --

    def open_ecam(self) -> None:
        """Place the memory-mapped configuration space by the host bridge's PCIEXBAR."""
        for offset, value in ((0x64, 0), (0x60, ECAM | 1)):
            self.outl(0xCF8, 0x8000_0000 | offset)
            self.outl(0xCFC, value)

    def config(self, bdf: Bdf, offset: int, width: int = 4) -> int:
        """Read configuration space."""
        return self.load(_ecam(bdf) + offset, width)

    def set_config(self, bdf: Bdf, offset: int, value: int, width: int = 4) -> None:
        """Write configuration space."""
        self.store(_ecam(bdf) + offset, value, width)

    def capabilities(self, bdf: Bdf) -> dict[int, int]:
        """Capability id to offset."""
        found = {}
        at = self.config(bdf, 0x34, 1)
        while at:
            found[self.config(bdf, at, 1)] = at
            at = self.config(bdf, at + 1, 1)
        return found

    def extended_capabilities(self, bdf: Bdf) -> dict[int, int]:
        """Extended capability id to offset."""
        found = {}
        at = 0x100
        while at:
            header = self.config(bdf, at)
            if header in (0, 0xFFFF_FFFF):
                break
            found[header & 0xFFFF] = at
            at = header >> 20
        return found

    def enumerate(self) -> None:
        """Bring up bridge and device: buses, windows, BARs, bus mastering, MSI-X to RAM."""
        self.open_ecam()
        self.set_config(ROOT_PORT, 0x18, 0x0001_0100)  # primary 0, secondary 1, subordinate 1
        window = BAR_REGS >> 16 & 0xFFF0
        self.set_config(ROOT_PORT, 0x20, (window + 0x30) << 16 | window)
        low, high = BAR_VRAM & 0xFFFF_FFFF, BAR_VRAM >> 32
        prefetch = low >> 16 & 0xFFF0 | 1
        self.set_config(ROOT_PORT, 0x24, (prefetch | 0xFFF0) << 16 | prefetch)
        self.set_config(ROOT_PORT, 0x28, high)
        self.set_config(ROOT_PORT, 0x2C, high)
        self.set_config(ROOT_PORT, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 2)
        self.enable_device()

    def enable_device(self) -> None:
        """The device's own part of enumerate(), needed again after a reset of it."""
        for bar, address in (
            (hw.HG_BAR_REGS, BAR_REGS),
            (hw.HG_BAR_VRAM, BAR_VRAM),
            (hw.HG_BAR_MSIX, BAR_MSIX),
        ):
            self.set_config(GPU, 0x10 + 4 * bar, address & 0xFFFF_FFFF)
            if bar == hw.HG_BAR_VRAM:
                self.set_config(GPU, 0x14 + 4 * bar, address >> 32)
        self.set_config(GPU, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 2)
        self.enable_msix()

    def set_bus_master(self, on: bool) -> None:
        """The bus-master bit of the device."""
        bits = PCI_COMMAND_MEMORY | (PCI_COMMAND_MASTER if on else 0)
        self.set_config(GPU, PCI_COMMAND, bits, 2)

    # -- MSI-X: vector n writes n + 1 to word n of MSI_PAGE --

    def enable_msix(self) -> None:
        """Unmask every vector and aim it at RAM, where a test can see it arrive."""
        for vector in range(hw.HG_NUM_VECTORS):
            entry = BAR_MSIX + 16 * vector
            self.store(entry, MSI_PAGE + 4 * vector, 4)
            self.store(entry + 4, 0, 4)
            self.store(entry + 8, vector + 1, 4)
            self.store(entry + 12, 0, 4)
        control = self.capabilities(GPU)[CAP_MSIX] + 2
        self.set_config(GPU, control, 0x8000, 2)

    def msi_arrived(self, vector: int) -> bool:
        """Did the vector's message arrive since the last call? Clears it."""
        at = MSI_PAGE + 4 * vector
        value = self.load(at, 4)
        if value:
            assert value == vector + 1
            self.store(at, 0, 4)
        return value != 0

    # -- resets and hot plug --

    def flr(self) -> None:
        """Function-level reset of the device, and BARs and MSI-X again as after it."""
        control = self.capabilities(GPU)[CAP_EXP] + 8
        self.set_config(GPU, control, self.config(GPU, control, 2) | 0x8000, 2)

    def eject(self) -> None:
        """Answer an unplug request as the guest's pciehp does: slot power off."""
        slot_control = self.capabilities(ROOT_PORT)[CAP_EXP] + 0x18
        self.set_config(ROOT_PORT, slot_control, 0x0400 | 0x0300, 2)

    def power_on_slot(self) -> None:
        """The slot as pciehp leaves it for the next device."""
        slot_control = self.capabilities(ROOT_PORT)[CAP_EXP] + 0x18
        self.set_config(ROOT_PORT, slot_control, 0x0100, 2)


def _ecam(bdf: Bdf) -> int:
    bus, slot, function = bdf
    return ECAM | bus << 20 | slot << 15 | function << 12


class Gpu:
    """Registers, page tables and rings of the device."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine

    def r32(self, register: int) -> int:
        """32-bit register."""
        return self.m.load(BAR_REGS + register, 4)

    def w32(self, register: int, value: int) -> None:
        """32-bit register."""
        self.m.store(BAR_REGS + register, value, 4)

    def r64(self, register: int) -> int:
        """64-bit register."""
        return self.m.load(BAR_REGS + register, 8)

    def w64(self, register: int, value: int) -> None:
        """64-bit register."""
        self.m.store(BAR_REGS + register, value, 8)

    def counter(self, number: int) -> int:
        """HG_CNT_*."""
        return self.r64(hw.HG_REG_COUNTER + 8 * number)

    def counters(self) -> Mapping[str, int]:
        """All of them, by QOM."""
        found = self.m.qmp("qom-get", {"path": "/machine/peripheral/gpu", "property": "counters"})
        assert isinstance(found, dict)
        return found

    def start(self) -> None:
        """Engines, interrupts and both fault rings (64 entries) on."""
        for ring, base in ((hw.HG_REG_FAULT, FAULT_RING), (hw.HG_REG_NRFAULT, NRFAULT_RING)):
            self.w64(ring + hw.HG_FAULT_BASE, base)
            self.w32(ring + hw.HG_FAULT_SIZE, 64)
            self.w32(ring + hw.HG_FAULT_CTRL, hw.HG_FAULT_CTRL_ENABLE)
        self.w32(hw.HG_REG_INTR_ENABLE, (1 << hw.HG_NUM_VECTORS) - 1)
        self.w32(hw.HG_REG_CTRL, hw.HG_CTRL_ENABLE)

    def context(self, number: int, asid: int = 1, entries: int = 64, priv: bool = False) -> Context:
        """A context with an empty ring."""
        return Context(self, number, asid, entries, priv)

    def faults(self) -> Iterator[Fault]:
        """Take the entries of the replayable ring, as a driver does."""
        get = self.r32(hw.HG_REG_FAULT + hw.HG_FAULT_GET) & hw.HG_FAULT_INDEX_MASK
        put = self.r32(hw.HG_REG_FAULT + hw.HG_FAULT_PUT) & hw.HG_FAULT_INDEX_MASK
        while get != put:
            at = FAULT_RING + get * hw.HG_FAULT_ENTRY_SIZE
            self._wait_valid(at)
            fault = Fault.read(self.m, at)
            self.m.store(at + 4 * hw.HG_FE_FLAGS, 0, 4)
            get = (get + 1) % 64
            self.w32(hw.HG_REG_FAULT + hw.HG_FAULT_GET, get)
            yield fault

    def _wait_valid(self, at: int) -> None:
        flags = at + 4 * hw.HG_FE_FLAGS
        eventually("entry valid", lambda: bool(self.m.load(flags, 4) & hw.HG_FE_VALID))

    def replay(self, kind: int | None = None) -> None:
        """Replay and wait until it is done."""
        self.w32(hw.HG_REG_REPLAY, hw.HG_REPLAY_START_ACK_ALL if kind is None else kind)
        sequence = self.r64(hw.HG_REG_REPLAY_SEQ)

        def done() -> bool:
            # A context may have to wait for its time slice.
            self.m.clock_step(100_000)
            return self.r64(hw.HG_REG_REPLAY_DONE) >= sequence

        eventually("replay done", done)

    def invalidate(self, asid: int) -> None:
        """Invalidate an address space and wait until it is done."""
        self.w32(hw.HG_REG_INVAL_ASID, asid)
        self.w32(hw.HG_REG_INVAL_CMD, hw.HG_INVAL_ASID)
        sequence = self.r64(hw.HG_REG_INVAL_SEQ)
        eventually("invalidation done", lambda: self.r64(hw.HG_REG_INVAL_DONE) >= sequence)


class Fault:
    """One entry of a fault ring."""

    def __init__(self, words: tuple[int, ...]) -> None:
        self.address = words[hw.HG_FE_ADDR_LO] | words[hw.HG_FE_ADDR_HI] << 32
        self.asid = words[hw.HG_FE_ASID] & 0xFFFF
        self.context = words[hw.HG_FE_ASID] >> 16
        self.engine = words[hw.HG_FE_SOURCE] & 0xFF
        self.access = words[hw.HG_FE_INFO] & 0xF
        self.reason = words[hw.HG_FE_INFO] >> 4 & 0xFF
        self.flags = words[hw.HG_FE_FLAGS]

    @classmethod
    def read(cls, machine: Machine, at: int) -> Fault:
        """The entry at a physical address."""
        return cls(struct.unpack("<8I", machine.read(at, hw.HG_FAULT_ENTRY_SIZE)))


class AddressSpace:
    """Page tables of one ASID, in RAM."""

    def __init__(self, gpu: Gpu, asid: int = 1, mode: int | None = None) -> None:
        self.machine = gpu.m
        self._root = self.machine.alloc()
        base = hw.HG_REG_ASID + asid * hw.HG_ASID_STRIDE
        gpu.w32(base + hw.HG_ASID_CTRL, hw.HG_ASID_MODE_REPLAY if mode is None else mode)
        gpu.w64(base + hw.HG_ASID_ROOT, self._root | hw.HG_ROOT_ENABLE)

    def map(self, va: int, frame: int, flags: int | None = None) -> None:
        """Map one 4 KiB page. flags: HG_PTE_* besides VALID; default write, atomic, RAM."""
        if flags is None:
            flags = hw.HG_PTE_WRITE | hw.HG_PTE_ATOMIC | hw.HG_PTE_APER_SYS
        table = self._root
        for level in (3, 2, 1):
            at = table + 8 * (va >> (12 + 9 * level) & 511)
            entry = self.machine.load(at, 8)
            if not entry:
                entry = self.machine.alloc() | hw.HG_PTE_VALID | hw.HG_PTE_APER_SYS
                self.machine.store(at, entry, 8)
            table = entry & hw.HG_PTE_FRAME_MASK
        self.machine.store(table + 8 * (va >> 12 & 511), frame | flags | hw.HG_PTE_VALID, 8)


class Context:
    """One ring. submit() gives descriptors to the device, done() waits for a fence."""

    def __init__(self, gpu: Gpu, number: int, asid: int, entries: int, priv: bool) -> None:
        self.gpu, self._number, self._entries = gpu, number, entries
        self.registers = hw.HG_REG_CTX + number * hw.HG_CTX_STRIDE
        self.ring = RINGS + number * PAGE
        self._put = 0
        self._fence = gpu.m.alloc()
        self._value = 0
        gpu.w64(self.registers + hw.HG_CTX_RING_BASE, self.ring)
        gpu.w32(self.registers + hw.HG_CTX_RING_SIZE, entries)
        gpu.w32(self.registers + hw.HG_CTX_ASID, asid)
        bits = hw.HG_CTX_ENABLE | (hw.HG_CTX_PRIV if priv else 0)
        gpu.w32(self.registers + hw.HG_CTX_CTRL, bits)

    def submit(self, *words: int) -> None:
        """One descriptor of up to 8 words, and the doorbell."""
        self.gpu.m.request(self.prepare(*words))

    def prepare(self, *words: int) -> str:
        """One descriptor; the request that rings the doorbell for it."""
        data = struct.pack("<8Q", *words, *(0,) * (8 - len(words)))
        self.gpu.m.write(self.ring + self._put * hw.HG_DESC_SIZE, data)
        self._put = (self._put + 1) % self._entries
        doorbell = hw.HG_REG_DOORBELL + self._number * hw.HG_DOORBELL_STRIDE
        return f"writel {BAR_REGS + doorbell:#x} {self._put:#x}"

    def fence(self, flags: int = 0) -> int:
        """A fence after what was submitted; its value."""
        self._value += 1
        self.submit(hw.HG_OP_FENCE | flags, self._fence, self._value)
        return self._value

    def reached(self, value: int) -> bool:
        """Has the fence been executed?"""
        return self.gpu.m.load(self._fence, 8) >= value

    def finish(self) -> None:
        """Fence, and wait for it."""
        value = self.fence()
        eventually(f"fence {value} of context {self._number}", lambda: self.reached(value))

    def status(self) -> int:
        """HG_CTX_*."""
        return self.gpu.r32(self.registers + hw.HG_CTX_STATUS)

    def error(self) -> int:
        """HG_ERR_*."""
        return self.gpu.r32(self.registers + hw.HG_CTX_ERROR)


if sys.byteorder != "little":
    raise RuntimeError("these tests build memory images for a little-endian machine")
