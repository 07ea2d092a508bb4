# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest, or a host that fails, does to the device; and that none of it costs more than a
little.

What could hang runs in a process of its own, with the core's count of what one hold of its lock
looks at (base/lock.h)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hg_lib import (
    FULL,
    HW,
    PAGE,
    RAM_BASE,
    RAM_SIZE,
    SYS,
    Ctx,
    Device,
    Edit,
    Tables,
    ffi,
    library,
)

COUNTED = (
    ("base/lock.h", "#ifdef HG_COUNT_WORK", "#if 1"),
    ("base/lock.c", "#ifdef HG_COUNT_WORK", "#if 1"),
)

# the first of them lasts: it copies VRAM to VRAM, while the second looks who else is there
COPY_OF_ALL = """
for n, space, src, size in ((4, HW.HG_SPACE_VRAM, 0, 4 << 20),
                            (5, HW.HG_SPACE_SYS, 1 << 40, 1 << 30)):
    c = Ctx(dev, n, 7, priv=True)
    at = dev.alloc(4096 * 32 // PAGE)
    seg = struct.pack("<4Q", src, src + size, size,
                      space << HW.HG_COPY_SRC_SHIFT | space << HW.HG_COPY_DST_SHIFT)
    dev.write(at, seg * 4096)
    c.push([HW.HG_OP_COPY_LIST, at, 4096, 0, 0, 0, 0, 0])
    c.ring_doorbell()
    dev.step(64)
state = dev.save()
dev.load(state)
"""

# one copies, and the other contexts wait for it, with as long a list each
COPIES_OF_ALL_CONTEXTS = """
at = dev.alloc(4096 * 32 // PAGE)
dev.write(at, struct.pack("<4Q", 0, 4 << 20, 4 << 20, HW.HG_SPACE_VRAM << HW.HG_COPY_SRC_SHIFT |
                          HW.HG_SPACE_VRAM << HW.HG_COPY_DST_SHIFT) * 4096)
for n in range(HW.HG_NUM_CTXS):
    c = Ctx(dev, n, 7, size=2, priv=True)
    c.push([HW.HG_OP_COPY_LIST, at, 4096, 0, 0, 0, 0, 0])
    c.ring_doorbell()
    dev.step(64)
state = dev.save()
assert len(state) > HW.HG_NUM_CTXS * 4096 * 32
dev.load(state)
"""

TABLES_OF_THEMSELVES = """
t = Tables(dev, 7)
dev.write(t.root, struct.pack("<Q", t.root | HW.HG_PTE_VALID | SYS) * 512)
dev.wr(HW.HG_REG_AUDIT_ENC + 8 * HW.HG_ENC_PRESENT, 1, 8)
dev.wr(HW.HG_REG_AUDIT_ENC + 8 * HW.HG_ENC_PFN, HW.HG_PTE_FRAME_MASK, 8)
dev.wr(HW.HG_REG_AUDIT_CTRL, 1)
dev.wr(HW.HG_REG_AUDIT_ASID + 8 * 7, 1 << 45 | 4 << 4 | 1, 8)  # no RAM there: each walk fails
dev.lib.hg_audit_set(dev.dev, b"fill")
dev.wr(HW.HG_REG_AUDIT_CMD, 1)
dev.lib.hg_audit_full(dev.dev)
"""


def ends(text: str, edits: tuple[Edit, ...] = COUNTED) -> None:
    """Run `text` with a device `dev`, each hold of its lock counted; it must end, and soon."""
    program = (
        "import struct\n"
        "from hg_lib import *\n"
        f"with Device(misused=True, audit_cmd=True, edits={edits!r}) as dev:\n"
        + "".join(f"    {line}\n" for line in text.strip().splitlines())
    )
    library(edits)  # compiled outside of the time limit
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_copy_of_all_memory_is_looked_at_in_a_moment() -> None:
    ends(COPY_OF_ALL)


def test_copies_of_all_contexts_are_loaded_in_a_moment() -> None:
    ends(COPIES_OF_ALL_CONTEXTS)


def test_an_event_needs_no_name_of_before() -> None:
    nameless = ("observe/inject.c", '{ "ring.launch", "launch", ', '{ "ring.launch", NULL, ')
    ends(
        """
dev.inject("walk delay=7; ring.launch delay=5")
assert [line.split()[0] for line in dev.injected().splitlines()] == ["mmu.walk", "ring.launch"]
try:
    dev.inject("launch delay=5")
except ValueError as error:
    assert "unknown event" in str(error)
else:
    raise AssertionError
        """,
        (nameless,),
    )


def test_walks_that_fail_use_up_the_full_audit() -> None:
    ends(TABLES_OF_THEMSELVES)


@pytest.mark.parametrize(("allowed", "mode"), [(False, b"access"), (True, b"off")])
def test_the_guest_asks_for_an_audit_only_if_the_host_has_it(allowed: bool, mode: bytes) -> None:
    with Device(audit_cmd=allowed) as dev:
        dev.lib.hg_audit_set(dev.dev, mode)
        dev.wr(HW.HG_REG_AUDIT_CMD, 1)
        assert dev.counter("guest_errors") == 1
        if allowed:
            dev.lib.hg_audit_set(dev.dev, b"access")
            dev.wr(HW.HG_REG_AUDIT_CMD, 1)
            assert dev.counter("guest_errors") == 1


def test_frames_of_the_cpus_tables_are_pages() -> None:
    """A walk reads them by host atomics, which have to be aligned."""
    with Device() as dev:
        at = HW.HG_REG_AUDIT_ENC + 8 * HW.HG_ENC_PFN
        dev.wr(at, HW.HG_PTE_FRAME_MASK, 8)
        assert dev.counter("guest_errors") == 0
        for n, bad in enumerate((HW.HG_PTE_FRAME_MASK | 1, 0xFFF, 1 << 63)):
            dev.wr(at, bad, 8)
            assert dev.counter("guest_errors") == n + 1
        assert dev.rd(at, 8) == HW.HG_PTE_FRAME_MASK


def sync(dev: Device, c: Ctx, window: int) -> None:
    dev.wr(c.base + HW.HG_CTX_CTRL, 0)
    dev.wr(c.base + HW.HG_CTX_SYNC, window, 8)
    dev.wr(c.base + HW.HG_CTX_CTRL, HW.HG_CTX_ENABLE)
    c.put = 0


def test_words_and_reports_are_where_the_context_may_write() -> None:
    with Device() as dev:
        c = Ctx(dev, 3, 1)
        mine, other = dev.alloc(), dev.alloc()
        sync(dev, c, mine | 12)
        assert dev.rd(c.base + HW.HG_CTX_SYNC, 8) == mine | 12
        c.push([HW.HG_OP_FENCE, mine + PAGE - 8, 5])
        c.push([HW.HG_OP_WAIT, mine + PAGE - 8, 5])
        c.push([HW.HG_OP_COPY, 0, 0, 0, 0, 0, 0, mine])
        c.ring_doorbell()
        dev.run()
        assert dev.rd(c.base + HW.HG_CTX_GET) == 3
        for words in ([HW.HG_OP_FENCE, other, 5], [HW.HG_OP_WAIT, other, 0],
                      [HW.HG_OP_COPY, 0, 0, 0, 0, 0, 0, mine + PAGE - 32],
                      [HW.HG_OP_LAUNCH, 0, 0, 1 << 32 | 1, 0, 0, 0, mine - 64]):  # fmt: skip
            sync(dev, c, mine | 12)
            c.push(words)
            c.ring_doorbell()
            state = dev.save()
            dev.load(state)
            dev.run()
            assert dev.rd(c.base + HW.HG_CTX_STATUS) & HW.HG_CTX_HALTED, words
            assert dev.rd(c.base + HW.HG_CTX_ERROR) == HW.HG_ERR_DESC
        assert dev.u64(other) == 0
        before = dev.counter("guest_errors")
        dev.wr(c.base + HW.HG_CTX_CTRL, 0)
        for bad in (mine | 11, mine | 53, (mine & ~8191) + PAGE | 13, mine | 1 << 6 | 12):
            dev.wr(c.base + HW.HG_CTX_SYNC, bad, 8)
        assert dev.counter("guest_errors") == before + 4


def test_a_duplicate_interrupt_comes_behind_the_first() -> None:
    """At once they would be one for whoever takes them, and the status is of one event."""
    with Device() as dev:
        c = Ctx(dev, 1, 1)
        dev.host.manual = True
        dev.host.now = 1000
        dev.inject("irq match=1 count=1 duplicate")
        dev.wr(HW.HG_REG_INTR_ENABLE, 1 << HW.HG_VEC_FENCE)
        c.push([HW.HG_OP_FENCE | HW.HG_FENCE_IRQ, dev.alloc(), 1])
        c.ring_doorbell()
        while dev.step(64):
            if dev.host.irq[HW.HG_VEC_FENCE]:
                break
        dev.step(64)
        assert dev.host.irq[HW.HG_VEC_FENCE] == 1
        dev.wr(HW.HG_REG_INTR_STATUS, 1 << HW.HG_VEC_FENCE)
        dev.load(dev.save())
        dev.host.now += 1_000_000
        dev.step(64)
        assert dev.host.irq[HW.HG_VEC_FENCE] == 2
        assert dev.rd(HW.HG_REG_INTR_STATUS) == 0


def test_no_thread_for_an_engine_is_no_device() -> None:
    lib = library()
    for n in (1, 4):
        host = lib.th_new(RAM_BASE, RAM_SIZE, 2 << 20)
        host.no_thread = n
        config = ffi.new("HgConfig *")
        lib.hg_config_default(config)
        err = ffi.new("char[200]")
        assert lib.th_device(host, config, 1, err, 200) == ffi.NULL
        assert b"thread" in ffi.string(err)
        host.dev = ffi.NULL
        lib.th_free(host)


def test_ram_that_is_aligned_otherwise_is_left_to_the_host() -> None:
    """An aligned word of the bus would be none in memory, and atomics need it to be."""
    with Device() as dev:
        dev.lib.hg_ram_remove(dev.dev, RAM_BASE, RAM_SIZE)
        dev.lib.hg_ram_add(
            dev.dev, RAM_BASE, RAM_SIZE - PAGE, dev.host.ram + 4, False, dev.host
        )
        t = Tables(dev, 1)
        frame = dev.alloc()
        t.map(0x1000, frame, FULL | SYS)
        c = Ctx(dev, 1, 1)
        c.push([HW.HG_OP_FENCE, frame, 0x1234])
        c.ring_doorbell()
        dev.run()
        assert dev.u64(frame) == 0x1234


def test_no_state_is_larger_than_the_largest() -> None:
    """All contexts have a launch whose first fetch has stalled."""
    with Device(sms=4, warps=16) as dev:
        for n in range(HW.HG_NUM_CTXS):
            c = Ctx(dev, n, 1, size=2)
            c.push([HW.HG_OP_LAUNCH, 0x1000, 0, 64 | 32 << 32, 0, 1024 << 32, 0, 0])
            c.ring_doorbell()
        dev.run()
        size, most = dev.lib.hg_save_size(dev.dev), dev.lib.hg_save_max(dev.dev)
        assert 64 << 20 < size <= most < 2 * size


def test_whether_a_reset_loses_vram_can_be_read() -> None:
    for lost in (False, True):
        with Device(reset_loses_vram=lost) as dev:
            features = dev.rd(HW.HG_REG_FEATURES)
            assert bool(features & HW.HG_FEATURE_RESET_LOSES_VRAM) == lost
            state = dev.save()
        with Device(reset_loses_vram=not lost) as other, pytest.raises(ValueError, match="loss"):
            other.load(state)
