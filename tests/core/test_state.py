# SPDX-License-Identifier: GPL-2.0-or-later
"""Save and load: a device loaded at any step goes on exactly as the saved one; bad states
are refused and leave a working device."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hg_asm import (
    BARRIER,
    EXIT,
    Item,
    amo,
    assemble,
    branch,
    csr,
    csrr,
    fload,
    fp,
    fstore,
    i,
    li,
    load,
    lr,
    r,
    sc,
    store,
)
from hg_lib import FULL, HW, PAGE, SYS, VRAM, Ctx, Device, Tables, map_code
from hypothesis import given, settings
from hypothesis import strategies as st

DATA = 0x20_0000
CODE = 0x1_0000
PAGES = 12


def busy_program() -> bytes:
    """Touches many pages, loops, diverges, adds atomically, waits at a barrier."""
    body: list[Item] = [
        csrr(5, "tid"),
        csrr(6, "bid"),
        i("slli", 7, 5, 7),  # 128 bytes apart: a block of 96 threads spans 3 pages
        r("add", 7, 7, 10),
        i("slli", 8, 6, 3),
        r("add", 7, 7, 8),
        i("slli", 22, 5, 7),
        r("add", 22, 22, 10),  # the thread's own, whatever its block
        i("andi", 21, 5, 3),
        csr("csrrw", 0, "frm", 21),  # lanes round differently
        fp("fcvt_l", "d", 1, 5),
        fp("fcvt_l", "s", 2, 6),
        i("andi", 11, 5, 7),  # divergent trip counts
        i("addi", 20, 0, 6),
        "again:",
        load("ld", 9, 7),
        i("addi", 9, 9, 1),
        store("sd", 9, 7),
        fp("fsqrt", "d", 1, 1),
        fp("fdiv", "s", 2, 2, 2),  # of block 0: invalid
        fp("fcvt_f", "d", 3, 2),
        fp("fadd", "d", 1, 1, 3),
        i("addi", 20, 20, -1),
        branch("bne", 20, 0, "again"),
        "loop:",
        i("addi", 11, 11, -1),
        i("addi", 12, 12, 3),
        branch("bge", 11, 0, "loop"),
        BARRIER,
        csrr(13, "ntid"),
        i("addi", 14, 10, 120),
        amo("amoadd", "d", 15, 13, 14),
        "retry:",
        i("addi", 16, 10, 112),
        lr("d", 17, 16),
        i("addi", 17, 17, 1),
        sc("d", 18, 17, 16),
        branch("bne", 18, 0, "retry"),
        fstore("d", 1, 22, 96),
        fload("d", 4, 22, 96),
        csrr(23, "fcsr"),
        fp("fcvt_l", "d", 5, 23),
        fp("fmul", "d", 4, 4, 5),
        fstore("d", 4, 22, 104),
        i("slli", 19, 5, 2),
        r("add", 19, 19, 10),
        i("addi", 19, 19, 2040),
        store("sw", 12, 19, 7),  # misaligned, some straddle a page
        EXIT,
    ]
    return assemble(body)


class World:
    """A device with work on two contexts and a copy engine, and a driver that answers faults
    as a function of the device alone (so it needs no state of its own)."""

    def __init__(self, seed: int, fill: bool = True) -> None:
        self.dev = Device(seed=seed, utlb_entries=8, utlb_misses=3, l2tlb_entries=16, warps=4)
        dev = self.dev
        dev.enable_faults(4)  # small: overflows happen
        self.tables = Tables(dev, 5)
        self.mapped: set[int] = set()
        self.frames = [dev.alloc() for _ in range(PAGES)]
        code = dev.alloc()
        a, b = Ctx(dev, 2, 5, size=8), Ctx(dev, 9, 5, size=8)
        p = Ctx(dev, 0, 0, size=8, priv=True)
        self.reports = []
        # tables for all pages exist before the first step; leaves come with faults
        for n in range(PAGES):
            self.tables.unmap(DATA + n * PAGE)
        dev.write(code, busy_program())
        self.tables.map(CODE, code, HW.HG_PTE_VALID | SYS)
        if fill:
            self.reports.append(a.launch(CODE, DATA, grid=12, block=96))
            self.reports.append(b.launch(CODE, DATA + 4 * PAGE, grid=3, block=40))
            self.reports.append(b.copy(DATA + 100, DATA + 8 * PAGE + 3, 2 * PAGE + 77))
            self.reports.append(
                p.copy(self.frames[0], 0x3000, 3 * PAGE, HW.HG_SPACE_SYS, HW.HG_SPACE_VRAM)
            )

    def answer(self) -> None:
        """One batch of fault service."""
        kinds = (HW.HG_REPLAY_START, HW.HG_REPLAY_START_ACK_ALL)
        for f in self.dev.take_faults(limit=3):
            n = (f.addr - DATA) // PAGE
            self.tables.map(f.addr, self.frames[n], FULL | SYS)
        self.dev.replay(kinds[self.dev.rd(HW.HG_REG_REPLAY_SEQ, 8) & 1])

    def turn(self, n: int) -> None:
        """One step of the whole world: engines, fault service, now and then an eviction."""
        self.dev.step(37)
        if n % 3 == 2:
            self.answer()
        if n % 7 == 1 and n < 400:
            va = DATA + n % PAGES * PAGE
            self.tables.unmap(va)
            self.dev.invalidate(HW.HG_INVAL_RANGE, 5, va, PAGE)

    def done(self) -> bool:
        return all(self.dev.report(r).complete for r in self.reports)

    def clone(self, seed: int, state: bytes) -> World:
        """Another device with this state, memory and clock."""
        w = World(seed, fill=False)
        w.dev.ram[:] = self.dev.ram
        w.dev.vram[:] = self.dev.vram
        w.dev.load(state)
        w.dev.host.now = self.dev.host.now
        w.reports, w.frames = self.reports, self.frames
        return w


def finish(w: World, first: int) -> None:
    for n in range(first, 3000):
        w.turn(n)
        if w.done():
            return
    raise AssertionError("the work does not end")


@given(at=st.integers(0, 200), seed=st.integers(0, 50))
@settings(max_examples=30)
def test_loaded_device_continues_identically(at: int, seed: int) -> None:
    a = World(seed)
    try:
        for n in range(at):
            a.turn(n)
        now = a.dev.host.now
        state = a.dev.save()
        a.dev.host.now = now
        b = a.clone(seed, state)
        try:
            logged = int(a.dev.host.logged)
            b.dev.host.now = a.dev.host.now = now
            assert b.dev.save() == state
            b.dev.host.now = a.dev.host.now = now
            b_logged = int(b.dev.host.logged)
            finish(a, at)
            finish(b, at)
            assert [tuple(x) for x in log_from(a.dev, logged)] == log_from(b.dev, b_logged)
            assert np.array_equal(a.dev.ram, b.dev.ram)
            assert np.array_equal(a.dev.vram, b.dev.vram)
            assert a.dev.save() == b.dev.save()
            for rep in a.reports:
                assert a.dev.report(rep).status == HW.HG_ERR_NONE
        finally:
            b.dev.close()
    finally:
        a.dev.close()


def log_from(dev: Device, first: int) -> list[tuple[int, ...]]:
    out: list[tuple[int, ...]] = []
    for n in range(first, int(dev.host.logged)):
        e = dev.host.log[n % 65536]
        out.append((e.ev, e.a, e.b, e.c, e.d))
    return out


def test_result_of_the_work_is_right() -> None:
    """The scenario itself computes what it should (else identical runs prove little)."""
    w = World(3)
    try:
        finish(w, 0)
        dev = w.dev
        assert dev.report(w.reports[0]).instrs > 12 * 96 * 20
        # amoadd of ntid by 12 * 96 threads, LR/SC increments by as many
        assert dev.u64(w.frames[0] + 120) == 12 * 96 * 96
        assert dev.u64(w.frames[0] + 112) == 12 * 96
        assert dev.u64(w.frames[4] + 120) == 3 * 40 * 40
        assert dev.u64(w.frames[4] + 112) == 3 * 40
        assert dev.counter("faults_dropped") > 0
        assert dev.counter("faults") > 0
        assert dev.counter("stalled_warps") == 0
        assert dev.counter("pending_faults") == 0
    finally:
        w.dev.close()


@given(data=st.data())
@settings(max_examples=100)
def test_mutated_state_is_refused_or_harmless(data: st.DataObject) -> None:
    """Any change of the bytes either fails with a message or gives a device that runs."""
    state = bytearray(_state())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(state) - 1))
        state[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 7, 1000]))
    # A changed count or address is what the checks are there for: they may speak.
    with Device(utlb_entries=8, utlb_misses=3, l2tlb_entries=16, warps=4, misused=True) as dev:
        message = ""
        try:
            dev.load(bytes(state[: len(state) - cut]))
        except ValueError as e:
            message = str(e)
            refused = True
        else:
            refused = False
        if refused:
            assert message
            assert dev.rd(HW.HG_REG_CTRL) == 0
            assert dev.rd(HW.HG_REG_INVAL_SEQ, 8) == 0
        for _ in range(20):
            dev.step(200)
        dev.wr(HW.HG_REG_REPLAY, HW.HG_REPLAY_START)
        dev.step(500)
        for n in range(HW.HG_NUM_CTXS):
            dev.wr(HW.HG_REG_CTX + n * HW.HG_CTX_STRIDE + HW.HG_CTX_CTRL, 0)
        assert dev.counter("stalled_warps") == 0
        assert dev.counter("active_ctxs") == 0
        dev.save()


_cached: list[bytes] = []


def _state() -> bytes:
    if not _cached:
        w = World(1)
        for n in range(1000):
            w.turn(n)
            if n >= 4 and w.dev.counter("stalled_warps"):
                break
        assert w.dev.counter("stalled_warps")
        _cached.append(w.dev.save())
        w.dev.close()
    return _cached[0]


def test_other_configuration_is_refused_by_name() -> None:
    with (
        Device(utlb_entries=8, utlb_misses=3, l2tlb_entries=16, warps=8) as dev,
        pytest.raises(ValueError, match="number of warps is 4, this device has 8"),
    ):
        dev.load(_state())


def test_memory_of_another_form_is_refused_by_name() -> None:
    with Device() as dev:
        state = dev.save()
    with (
        Device(bar2_size=1 << 20) as dev,
        pytest.raises(ValueError, match="BAR 2 size is 8388608, this device has 1048576"),
    ):
        dev.load(state)
    with (
        Device(coherent=True) as dev,
        pytest.raises(ValueError, match="coherence is 0, this device has 1"),
    ):
        dev.load(state)


def sections(state: bytes) -> list[tuple[str, int, int]]:
    """Tag, place of the length, and length of each, after magic and version."""
    found, at = [], 16
    while at < len(state):
        (length,) = struct.unpack_from("<I", state, at + 4)
        found.append((state[at : at + 4].decode(), at + 4, length))
        at += 8 + length
    assert at == len(state)
    return found


def test_sections_have_tags_and_lengths() -> None:
    tags = [tag for tag, _, _ in sections(_state())]
    assert tags == [
        "CONF", "REGS", "RING", "L2TB", "DATA", "ENGN", "CTXS", "INJC", "CHCK", "TABL", "AUDT",
    ]  # fmt: skip


@pytest.mark.parametrize("change", ["version", "other", "missing", "longer", "shorter"])
def test_what_is_no_state_of_this_device_is_refused_by_name(change: str) -> None:
    state = bytearray(_state())
    tag, at, length = sections(bytes(state))[6]
    assert tag == "CTXS"
    if change == "version":
        state[8:16] = (17).to_bytes(8, "little")
        said = "version is 17, this device has 18"
    elif change == "other":
        state[at - 4 : at] = b"NEW\x01"
        said = r"section 'NEW\?' where this device has 'CTXS'"
    elif change == "missing":
        del state[at - 4 : at + 4 + length]
        said = "section 'INJC' where this device has 'CTXS'"
    elif change == "longer":
        state[at : at + 4] = (length + 8).to_bytes(4, "little")
        state[at + 4 + length : at + 4 + length] = bytes(8)
        said = "8 bytes too many in section 'CTXS'"
    else:
        state[at : at + 4] = (len(state)).to_bytes(4, "little")
        said = "cut short in section 'CTXS'"
    with (
        Device(utlb_entries=8, utlb_misses=3, l2tlb_entries=16, warps=4) as dev,
        pytest.raises(ValueError, match=said),
    ):
        dev.load(bytes(state))


def test_vram_is_not_part_of_the_state() -> None:
    with Device() as dev:
        t = Tables(dev, 1, vram=True)
        t.map(CODE, 0, HW.HG_PTE_VALID | VRAM)
        size = len(dev.save())
    assert size < 200_000


def test_reservation_survives() -> None:
    """Saved between LR and SC, loaded elsewhere: the SC still knows what the LR read."""
    code = assemble([lr("d", 5, 10), *li(6, 200), "l:", i("addi", 6, 6, -1),
                     branch("bne", 6, 0, "l"), i("addi", 5, 5, 1), sc("d", 7, 5, 10),
                     store("sd", 7, 10, 8), EXIT])  # fmt: skip
    with Device() as dev, Device() as other:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, code)
        page = dev.alloc()
        t.map(DATA, page, FULL | SYS)
        dev.write(page, b"\x29" + bytes(7) + b"\xff" * 8)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=1)
        while dev.counter("atomics") == 0:
            dev.step(1)
        other.ram[:] = dev.ram
        other.load(dev.save())
        other.run(lambda: bool(other.report(rep).complete))
        assert other.u64(page) == 0x2A
        assert other.u64(page + 8) == 0


def test_decoded_instructions_survive() -> None:
    """The instruction cache is state: it keeps what it decoded until it is invalidated."""
    code = assemble([i("addi", 5, 5, 1), store("sd", 5, 10), EXIT])
    other = assemble([i("addi", 5, 5, 2), store("sd", 5, 10), EXIT])
    with Device() as dev:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, code)
        page = dev.alloc()
        t.map(DATA, page, FULL | SYS)
        c = Ctx(dev, 1, 1)
        rep = c.launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(rep).complete)
        # change the code in memory: the instruction cache keeps the old until fence.i
        for p in range(1, dev.next_page // PAGE):
            if dev.ram[p * PAGE : p * PAGE + len(code)].tobytes() == code:
                dev.ram[p * PAGE : p * PAGE + len(code)] = np.frombuffer(other, dtype=np.uint8)
        state = dev.save()
        dev.load(state)
        rep = c.launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.u64(page) == 1
        dev.invalidate(HW.HG_INVAL_RANGE, 1, CODE, 1)
        rep = c.launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.u64(page) == 2
