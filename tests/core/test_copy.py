# SPDX-License-Identifier: GPL-2.0-or-later
"""Copy engines against numpy."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hg_lib import FULL, HW, PAGE, RAM_BASE, RAM_SIZE, SYS, VRAM, VRAM_SIZE, Ctx, Device, Tables
from hypothesis import given, settings
from hypothesis import strategies as st

VA = 0x3000_0000
PAGES = 6
SPACES = [HW.HG_SPACE_VIRT, HW.HG_SPACE_VRAM, HW.HG_SPACE_SYS]


@given(data=st.data(), seed=st.integers(0, 2**31), direct=st.booleans(), lazy=st.booleans())
@settings(max_examples=80)
def test_copies_against_numpy(data: st.DataObject, seed: int, direct: bool, lazy: bool) -> None:
    """Lists of copies and fills over the three spaces, any alignment, pages present or faulting."""
    rng = np.random.default_rng(seed)
    with Device(direct=direct, utlb_entries=4) as dev:
        dev.enable_faults(16)
        t = Tables(dev, 1)
        c = Ctx(dev, 0, 1, priv=True)
        sys_at = dev.alloc(PAGES)
        vram_at = 1 << 20
        frames = [dev.alloc() if n % 2 else dev.alloc_vram() for n in range(PAGES)]

        def fix(va: int) -> None:
            n = (va - VA) // PAGE
            t.map(va, frames[n], FULL | (SYS if n % 2 else VRAM))

        if not lazy:
            for n in range(PAGES):
                fix(VA + n * PAGE)
        size = PAGES * PAGE
        model = {s: rng.integers(0, 256, size, dtype=np.uint8) for s in SPACES}
        dev.ram[sys_at - RAM_BASE :][:size] = model[HW.HG_SPACE_SYS]
        dev.vram[vram_at:][:size] = model[HW.HG_SPACE_VRAM]

        def virt_page(n: int) -> np.ndarray:
            mem, off = (dev.ram, frames[n] - RAM_BASE) if n % 2 else (dev.vram, frames[n])
            return mem[off : off + PAGE]

        for n in range(PAGES):
            virt_page(n)[:] = model[HW.HG_SPACE_VIRT][n * PAGE : (n + 1) * PAGE]
        base = {HW.HG_SPACE_VIRT: VA, HW.HG_SPACE_VRAM: vram_at, HW.HG_SPACE_SYS: sys_at}
        segs, total = [], 0
        for _ in range(data.draw(st.integers(1, 5))):
            dst = data.draw(st.sampled_from(SPACES))
            n = data.draw(st.one_of(st.integers(0, 64), st.integers(0, 3 * PAGE)))
            to = data.draw(st.integers(0, size - n))
            if data.draw(st.integers(0, 3)) == 0:
                n, to = n & ~7, to & ~7
                pattern = data.draw(st.integers(0, 2**64 - 1))
                segs.append((pattern, base[dst] + to, n,
                             HW.HG_COPY_FILL | dst << HW.HG_COPY_DST_SHIFT))  # fmt: skip
                fill = np.frombuffer(struct.pack("<Q", pattern) * (n // 8), dtype=np.uint8)
                model[dst][to : to + n] = fill
            else:
                src = data.draw(st.sampled_from(SPACES))
                at = data.draw(st.integers(0, size - n))
                if src == dst and abs(at - to) < n:
                    continue  # overlap is not defined
                flags = src << HW.HG_COPY_SRC_SHIFT | dst << HW.HG_COPY_DST_SHIFT
                segs.append((base[src] + at, base[dst] + to, n, flags))
                model[dst][to : to + n] = model[src][at : at + n].copy()
            total += n
        if not segs:
            return
        if len(segs) == 1 and data.draw(st.booleans()):
            s, d, n, flags = segs[0]
            rep = c.copy(s, d, n, flags=flags)
        else:
            at = dev.alloc()
            dev.write(at, b"".join(struct.pack("<4Q", *s) for s in segs))
            rep = dev.alloc()
            c.push([HW.HG_OP_COPY_LIST, at, len(segs), 0, 0, 0, 0, rep])
            c.ring_doorbell()
        dev.service(lambda f: fix(f.addr), lambda: dev.report(rep).complete)
        assert dev.report(rep).status == 0
        virt = np.concatenate([virt_page(n) for n in range(PAGES)])
        assert np.array_equal(virt, model[HW.HG_SPACE_VIRT])
        assert np.array_equal(dev.vram[vram_at:][:size], model[HW.HG_SPACE_VRAM])
        assert np.array_equal(dev.ram[sys_at - RAM_BASE :][:size], model[HW.HG_SPACE_SYS])
        assert dev.counter("copy_bytes") == total


def test_stalled_copy_lets_others_go_on() -> None:
    """A copy that waits for a page does not hold up another context's on the same engine."""
    with Device() as dev:
        dev.enable_faults()
        t = Tables(dev, 1)
        a, b = Ctx(dev, 1, 1), Ctx(dev, 2, 1)
        src = dev.alloc(2)
        for k in range(2):
            t.map(VA + k * PAGE, src + k * PAGE, FULL | SYS)
        dev.write(src, b"x" * 100)
        first = a.copy(VA, VA + 0x10_0000, 64)
        second = b.copy(VA, VA + PAGE, 64)
        dev.run(lambda: dev.report(second).complete)
        assert dev.read(src + PAGE, 64) == b"x" * 64
        assert not dev.report(first).complete
        (f,) = dev.take_faults()
        assert (f.engine, f.unit, f.access) == (HW.HG_ENGINE_CE, 1, HW.HG_ACCESS_WRITE)
        t.map(f.addr, dev.alloc(), FULL | SYS)
        dev.replay(HW.HG_REPLAY_START_ACK_ALL)
        dev.run(lambda: dev.report(first).complete)
        assert dev.rd(HW.HG_REG_REPLAY_DONE, 8) == 1


def test_copy_cancel() -> None:
    with Device() as dev:
        dev.enable_faults()
        Tables(dev, 1)
        c = Ctx(dev, 1, 1)
        rep, after = c.copy(VA + 5, VA + 0x10_0000, 64), c.copy(VA, VA, 0)
        dev.run()
        faults = dev.take_faults()
        assert {f.access for f in faults} == {HW.HG_ACCESS_READ, HW.HG_ACCESS_WRITE}
        dev.cancel(HW.HG_CANCEL_ADDR, 1, VA)
        dev.run(lambda: dev.report(after).complete)
        r = dev.report(rep)
        assert (r.status, r.reason, r.addr) == (HW.HG_ERR_FAULT, HW.HG_REASON_PTE, VA + 5)
        assert dev.report(after).status == 0
        assert dev.counter("pending_faults") == 0


BIG = HW.HG_COPY_MAX_BYTES


@pytest.mark.parametrize(
    ("priv", "src", "dst", "n", "ss", "ds", "flags"),
    [
        (False, 0, VA, 8, "VRAM", "VIRT", 0),
        (False, VA, RAM_BASE, 8, "VIRT", "SYS", 0),
        (True, VRAM_SIZE - 4, RAM_BASE, 8, "VRAM", "SYS", 0),
        (True, 2**64 - 4, 0, 8, "SYS", "VRAM", 0),
        (True, 2**64 - 4, 0, 8, "VIRT", "VRAM", 0),
        (True, RAM_BASE, 0, BIG + 1, "SYS", "VRAM", 0),
        (True, RAM_BASE, 0, 8, "SYS", "VRAM", 1 << 20),
        (True, 1, 4, 8, "VIRT", "VRAM", HW.HG_COPY_FILL),
        (True, 1, 8, 12, "VIRT", "VRAM", HW.HG_COPY_FILL),
    ],
)
def test_bad_copies_halt_the_context(priv: bool, src: int, dst: int, n: int, ss: str, ds: str,
                                     flags: int) -> None:  # fmt: skip
    with Device() as dev:
        Tables(dev, 1)
        c = Ctx(dev, 1, 1, priv=priv)
        before = dev.ram.copy()
        rep = c.copy(src, dst, n, HW[f"HG_SPACE_{ss}"], HW[f"HG_SPACE_{ds}"], flags)
        dev.run()
        assert not dev.report(rep).complete
        assert c.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_HALTED
        assert c.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_DESC
        assert np.count_nonzero(dev.ram != before) <= 64  # the descriptor


def test_copy_from_nowhere_ends_the_job() -> None:
    with Device(misused=True) as dev:
        c = Ctx(dev, 1, 0, priv=True)
        rep = c.copy(RAM_BASE + RAM_SIZE - PAGE, 0, 2 * PAGE, HW.HG_SPACE_SYS, HW.HG_SPACE_VRAM)
        dev.run(lambda: dev.report(rep).complete)
        r = dev.report(rep)
        assert (r.status, r.reason) == (HW.HG_ERR_FAULT, HW.HG_REASON_POISON)
        assert r.addr == RAM_BASE + RAM_SIZE
        assert not c.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_HALTED


def test_injected_partial_copy() -> None:
    with Device() as dev:
        dev.inject("copy nth=1 partial=5000")
        c = Ctx(dev, 1, 0, priv=True)
        src = dev.alloc(3)
        dev.write(src, b"\xaa" * 3 * PAGE)
        rep = c.copy(src, 0x10_0000, 3 * PAGE, HW.HG_SPACE_SYS, HW.HG_SPACE_VRAM)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == HW.HG_ERR_FAULT
        assert int(np.count_nonzero(dev.vram[0x10_0000:])) == 5000
