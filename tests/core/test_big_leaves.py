# SPDX-License-Identifier: GPL-2.0-or-later
"""Leaves of 64 KiB: 16 entries that are one, in the TLBs and in what an invalidation removes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hg_lib import FULL, HW, PAGE, SYS, VRAM, Device
from test_audit import CpuTable, leaf, names, program, records
from test_walk_cache import CODE, DATA, OUT, Space

BIG = HW.HG_PTE_BIG
SIZE = 16 * PAGE


def made(**cfg: Any) -> tuple[Device, Space]:
    dev = Device(sms=1, misused=True, **{"big_pages": True} | cfg)
    dev.enable_faults()
    return dev, Space(dev, 3)


def frames(dev: Device, value: int) -> int:
    """64 KiB of RAM, aligned, each page of which begins with value + its number."""
    at = dev.alloc(32) + SIZE - 1 & -SIZE
    for n in range(16):
        dev.write(at + n * PAGE, struct.pack("<Q", value + n))
    return at


def write(s: Space, at: int, flags: int = FULL, which: range = range(16)) -> None:
    """Map them at DATA."""
    for n in which:
        s.t.map(DATA + n * PAGE, at + n * PAGE, flags | SYS | BIG)


def test_one_entry_is_all_sixteen() -> None:
    """The others are not even there: what is cached is what the first access has walked."""
    dev, s = made()
    with dev:
        assert dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_BIG_PAGES
        write(s, frames(dev, 100), which=range(5, 6))
        assert s.read(DATA + 5 * PAGE) == 105
        assert [s.read(DATA + n * PAGE) for n in range(16)] == [*range(100, 116)]
        assert s.read(DATA + SIZE) is None
        assert s.read(DATA - PAGE) is None


@pytest.mark.parametrize("part", [0, 7, 15])
def test_any_part_removes_all(part: int) -> None:
    dev, s = made()
    with dev:
        write(s, frames(dev, 100))
        assert [s.read(DATA + n * PAGE) for n in range(16)] == [*range(100, 116)]
        write(s, frames(dev, 200))
        s.invalidate(DATA - PAGE, PAGE)
        s.invalidate(DATA + SIZE, PAGE)
        assert [s.read(DATA + n * PAGE) for n in range(16)] == [*range(100, 116)]
        s.invalidate(DATA + part * PAGE, PAGE)
        assert [s.read(DATA + n * PAGE) for n in range(16)] == [*range(200, 216)]


def test_what_one_that_is_left_brings_back() -> None:
    """A driver that clears one page of the 16 and invalidates it is not rid of it."""
    dev, s = made()
    with dev:
        write(s, frames(dev, 100))
        s.t.unmap(DATA + 3 * PAGE)
        s.invalidate(DATA + 3 * PAGE, PAGE)
        assert s.read(DATA + 3 * PAGE) is None
        assert s.read(DATA + 4 * PAGE) == 104
        assert s.read(DATA + 3 * PAGE) == 103, "stale"


@pytest.mark.parametrize("equal", [False, True])
def test_full_audit(equal: bool) -> None:
    """It takes them for what the device does: the low bits of a frame are the page's own."""
    dev, s = made()
    with dev:
        cpu = CpuTable(dev)
        program(dev, cpu.root)
        at = frames(dev, 100)
        for n in range(16):
            s.t.map(DATA + n * PAGE, at + n * PAGE * (not equal), FULL | SYS | BIG)
            cpu.put(DATA + n * PAGE, 0, leaf("present", 0, (at >> 12) + n, True))
        assert [s.read(DATA + n * PAGE) for n in range(16)] == [*range(100, 116)]
        s.t.unmap(CODE)
        s.t.unmap(OUT)
        dev.lib.hg_audit_full(dev.dev)
        assert names(dev) == []
        cpu.put(DATA + 3 * PAGE, 0, leaf("present", 0, at >> 12, True))
        dev.lib.hg_audit_full(dev.dev)
        assert names(dev) == ["mirror-system-other-frame"]


def test_a_violation_names_the_pages_own_frame() -> None:
    """Whichever page of the leaf was walked, and is in the TLB."""
    dev, s = made()
    with dev:
        cpu = CpuTable(dev)
        program(dev, cpu.root)
        at = frames(dev, 100)
        write(s, at)
        for n in range(16):
            cpu.put(DATA + n * PAGE, 0, leaf("present", 0, (at >> 12) + n + (n == 5), True))
        assert dev.lib.hg_audit_set(dev.dev, b"access") == 0
        assert s.read(DATA + 3 * PAGE) == 103
        s.read(DATA + 5 * PAGE)
        pages = {int(v["address"], 16): v for v in records(dev)["violations"]}
        assert DATA + 3 * PAGE not in pages
        seen = pages[DATA + 5 * PAGE]
        assert seen["check"] == "mirror-system-other-frame"
        assert int(seen["gpu_pte"], 16) & HW.HG_PTE_FRAME_MASK == at + 5 * PAGE


def test_the_end_of_vram() -> None:
    dev, s = made()
    with dev:
        dev.vram[-SIZE:] = 0
        dev.vram[-8:].view("<u8")[0] = 0
        dev.vram[-PAGE : -PAGE + 8].view("<u8")[0] = 77
        s.t.map(DATA, len(dev.vram) - SIZE, FULL | VRAM | BIG)
        assert s.read(DATA + 15 * PAGE) is None, "its own entry is not there"
        assert s.read(DATA) == 0
        assert s.read(DATA + 15 * PAGE) == 77


def test_saved() -> None:
    dev, s = made()
    with dev:
        write(s, frames(dev, 100))
        assert s.read(DATA) == 100
        state = dev.save()
        dev.load(state)
        assert dev.save() == state
        write(s, frames(dev, 200))
        assert s.read(DATA + 9 * PAGE) == 109
        s.invalidate(DATA + 9 * PAGE, PAGE)
        assert s.read(DATA) == 200


def test_without_them() -> None:
    dev, s = made(big_pages=False)
    with dev:
        assert not dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_BIG_PAGES
        write(s, frames(dev, 100), which=range(5, 6))
        assert s.read(DATA + 5 * PAGE) == 105
        assert s.read(DATA + 6 * PAGE) is None
        assert s.read(DATA) is None
