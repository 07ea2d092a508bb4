# SPDX-License-Identifier: GPL-2.0-or-later
"""Both page tables of an address, read from a machine that stands: the GPU's and the CPU's.

The GPU's root of each address space is in its registers.  So is the CPU's, which the driver tells
the device for the mirror audit, together with the kernel's encodings of entries that are not
present (docs/audit.md); where it does not, the root is taken from the CPU's cr3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from hmmbench.base import paths
from hmmbench.device.cheader import Header, load

#: Reads physical memory: (address, bytes).  Raises an exception of its own if it cannot.
Reader = Callable[[int, int], bytes]

_X86_PRESENT, _X86_WRITE, _X86_PSE, _X86_FRAME = 1, 2, 0x80, 0x000FFFFFFFFFF000
_KINDS = (
    "in VRAM", "in VRAM, writable", "device-exclusive", "device-exclusive",
    "migrating", "migrating, exclusive", "migrating, writable",
)  # fmt: skip


@cache
def hardware() -> Header:
    """hmm_gpu_hw.h"""
    return load(paths.device_sources() / "include/hmm_gpu_hw.h")


@dataclass(frozen=True)
class Step:
    """One entry of a walk.  `at`: its physical address, -1 for a place in VRAM that is `vram`."""

    level: int
    at: int
    entry: int
    vram: int = -1


@dataclass(frozen=True)
class Walk:
    """The entries from the root on, and what the last one says."""

    root: int
    steps: tuple[Step, ...]
    meaning: str

    def to_json(self) -> dict[str, Any]:
        return {
            "root": f"{self.root:#x}",
            "steps": [
                {
                    "level": s.level, "entry": f"{s.entry:#018x}",
                    "at": f"VRAM {s.vram:#x}" if s.at < 0 else f"{s.at:#x}",
                }
                for s in self.steps
            ],
            "meaning": self.meaning,
        }  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    """The device of a machine that stands.

    read  -- physical memory, the device's registers included
    regs  -- where those are
    vram  -- where the part of VRAM is that the CPU reaches
    frame -- the physical address of one on the bus; raises LookupError
    """

    read: Reader
    regs: int
    vram: int
    frame: Callable[[int], int] = int

    def reg(self, offset: int) -> int:
        return int(struct.unpack("<I", self.read(self.regs + offset, 4))[0])

    def reg64(self, offset: int) -> int:
        """Its two halves: the machine stands, so that they belong together."""
        return self.reg(offset) | self.reg(offset + 4) << 32

    def _counts(self) -> tuple[int, int]:
        """Address spaces and contexts of this device: a read beyond them is a driver's mistake,
        which it would count."""
        caps = self.reg(hardware().HG_REG_CAPS + 4)
        return caps & 0xFFFF, caps >> 16

    def address_spaces(self) -> Iterator[tuple[int, int]]:
        """(ASID, root) of those that are enabled."""
        hw = hardware()
        count, _ = self._counts()
        size = count * hw.HG_ASID_STRIDE
        words = struct.unpack(f"<{size // 4}I", self._registers(hw.HG_REG_ASID, size))
        for asid in range(count):
            at = asid * hw.HG_ASID_STRIDE // 4
            root = words[at] | words[at + 1] << 32
            if root & hw.HG_ROOT_ENABLE:
                yield asid, root

    def contexts(self) -> list[dict[str, Any]]:
        """Those that are enabled or stopped by an error."""
        hw = hardware()
        found = []
        _, count = self._counts()
        for number in range(count):
            base = hw.HG_REG_CTX + number * hw.HG_CTX_STRIDE
            control, status = self.reg(base + hw.HG_CTX_CTRL), self.reg(base + hw.HG_CTX_STATUS)
            if not control & hw.HG_CTX_ENABLE and not status:
                continue
            found.append({
                "context": number, "asid": self.reg(base + hw.HG_CTX_ASID),
                "privileged": bool(control & hw.HG_CTX_PRIV),
                "active": bool(status & hw.HG_CTX_ACTIVE),
                "halted": bool(status & hw.HG_CTX_HALTED),
                "get": self.reg(base + hw.HG_CTX_GET), "put": self.reg(base + hw.HG_CTX_PUT),
                "error": hw.names("HG_ERR_").get(self.reg(base + hw.HG_CTX_ERROR), "?"),
                "error_address": f"{self.reg64(base + hw.HG_CTX_ERROR_ADDR):#x}",
            })  # fmt: skip
        return found

    def _registers(self, offset: int, size: int) -> bytes:
        return self.read(self.regs + offset, size)

    def _vram(self, offset: int, size: int) -> bytes:
        end = self.reg64(hardware().HG_REG_BAR2_SIZE)
        if offset + size > end:
            raise LookupError(f"VRAM {offset:#x} is beyond the part that the CPU reaches")
        return self.read(self.vram + offset, size)

    # -- walks

    def walk(self, root: int, address: int) -> Walk:
        """The GPU's."""
        hw = hardware()
        steps: list[Step] = []
        table, in_vram = root & hw.HG_PTE_FRAME_MASK, bool(root & hw.HG_ROOT_VRAM)
        if address >> hw.HG_VA_BITS:
            return Walk(root, (), "the address has more than 48 bits")
        for level in range(hw.HG_PT_LEVELS - 1, -1, -1):
            at = table + (address >> (hw.HG_PAGE_SHIFT + 9 * level) & 511) * 8
            try:
                at = at if in_vram else self.frame(at)
                data = self._vram(at, 8) if in_vram else self.read(at, 8)
            except LookupError as error:
                return Walk(root, tuple(steps), str(error))
            entry = int(struct.unpack("<Q", data)[0])
            steps.append(Step(level, -1 if in_vram else at, entry, at if in_vram else -1))
            leaf = not level or (level == 1 and bool(entry & hw.HG_PTE_HUGE))
            if leaf or not entry & hw.HG_PTE_VALID:
                return Walk(root, tuple(steps), gpu_meaning(entry, level, address))
            aperture = entry & hw.HG_PTE_APER_MASK
            if aperture not in (hw.HG_PTE_APER_VRAM, hw.HG_PTE_APER_SYS):
                return Walk(root, tuple(steps), f"a table in aperture {aperture >> 4}")
            table, in_vram = entry & hw.HG_PTE_FRAME_MASK, aperture == hw.HG_PTE_APER_VRAM
        raise AssertionError

    def cpu_root(self, asid: int) -> int | None:
        """What the driver told the device for its audit; None if it did not."""
        hw = hardware()
        root = self.reg64(hw.HG_REG_AUDIT_ASID + asid * 8)
        return root if root & hw.HG_AUDIT_ENABLE else None

    def walk_cpu(self, root: int, address: int) -> Walk:
        """The process's; `root` as cpu_root() gives it."""
        hw = hardware()
        levels = (root & hw.HG_AUDIT_LEVELS_MASK) >> hw.HG_AUDIT_LEVELS_SHIFT
        steps: list[Step] = []
        table = root & _X86_FRAME
        for level in range(levels - 1, -1, -1):
            at = table + (address >> (hw.HG_PAGE_SHIFT + 9 * level) & 511) * 8
            entry = int(struct.unpack("<Q", self.read(at, 8))[0])
            steps.append(Step(level, at, entry))
            if not level or not entry & _X86_PRESENT or (level <= 2 and entry & _X86_PSE):
                return Walk(root, tuple(steps), self._cpu_meaning(entry, level, address))
            table = entry & _X86_FRAME
        raise AssertionError

    def _cpu_meaning(self, entry: int, level: int, address: int) -> str:
        """As the audit decodes it (qemu-device/core/observe/audit.c), in words."""
        hw = hardware()
        if entry & _X86_PRESENT:
            words = f"frame {_frame(entry & _X86_FRAME, level, address):#x}"
            return words + (", writable" if entry & _X86_WRITE else ", read only")
        if not self.reg(hw.HG_REG_AUDIT_CTRL) & hw.HG_AUDIT_CTRL_READY:
            return "not present" if entry else "nothing"
        enc = [self.reg64(hw.HG_REG_AUDIT_ENC + n * 8) for n in range(hw.HG_NUM_ENC)]
        if not entry & ~enc[hw.HG_ENC_NONE_IGNORE]:
            return "nothing"
        inverted = bool(enc[hw.HG_ENC_FLAGS] & hw.HG_ENC_INVERT)
        value = ~entry if inverted else entry
        if entry & enc[hw.HG_ENC_PROTNONE] or (level and entry & enc[hw.HG_ENC_PSE]):
            frame = _frame(value & enc[hw.HG_ENC_PFN], level, address)
            kind = "no access (PROT_NONE or NUMA hint)"
            return f"frame {frame:#x}, " + (
                kind if entry & enc[hw.HG_ENC_PROTNONE] else "not present for a moment"
            )
        layout = enc[hw.HG_ENC_SWAP]
        kind_of = entry >> (layout & 63) & (1 << (layout >> 8 & 255)) - 1
        offset = value >> (layout >> 16 & 63) & (1 << (layout >> 24 & 255)) - 1
        frame = (offset & enc[hw.HG_ENC_SWAP_PFN]) << hw.HG_PAGE_SHIFT
        frame += address & (1 << (hw.HG_PAGE_SHIFT + 9 * level)) - 1 & ~0xFFF
        types = enc[hw.HG_ENC_TYPES]
        for n, words in enumerate(_KINDS):
            if types >> 8 * n & 255 == kind_of != 255:
                base = enc[hw.HG_ENC_DEV_PFN] << hw.HG_PAGE_SHIFT
                if n <= hw.HG_ENC_T_DEV_WRITE and frame >= base:
                    return f"VRAM {frame - base:#x} ({words})"
                return f"frame {frame:#x}, {words}"
        return f"swapped out (type {kind_of}, offset {offset:#x})"


def gpu_meaning(entry: int, level: int, address: int) -> str:
    """What a leaf of the GPU says of an address, in words."""
    hw = hardware()
    if not entry & hw.HG_PTE_VALID:
        return "not valid" if entry else "nothing"
    aperture = entry & hw.HG_PTE_APER_MASK
    where = {hw.HG_PTE_APER_VRAM: "VRAM", hw.HG_PTE_APER_SYS: "frame"}.get(aperture)
    if where is None:
        return f"aperture {aperture >> 4}, which faults"
    words = f"{where} {_frame(entry & hw.HG_PTE_FRAME_MASK, level, address):#x}"
    words += ", writable" if entry & hw.HG_PTE_WRITE else ", read only"
    return words + (", atomics" if entry & hw.HG_PTE_ATOMIC else "")


def _frame(frame: int, level: int, address: int) -> int:
    """Of the 4 KiB page at `address` in a leaf of this level."""
    size = 1 << (12 + 9 * level)
    return (frame & ~(size - 1)) + (address & size - 1 & ~0xFFF)
