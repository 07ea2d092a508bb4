# SPDX-License-Identifier: GPL-2.0-or-later
"""Registers, contexts, rings, fences, waits, scheduling, disable, reset, injection grammar."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import hg_asm as asm
import pytest
from hg_asm import EXIT, assemble, branch, csrr
from hg_lib import FULL, HW, PAGE, RAM_BASE, RAM_SIZE, SYS, Ctx, Device, Tables, map_code
from hypothesis import given, settings
from hypothesis import strategies as st

from hmmbench.device import injection

CODE = 0x1_0000
DATA = 0x1000_0000
SPIN = assemble(["l:", asm.jal(0, "l")])
QUICK = assemble([csrr(5, "tid"), asm.i("addi", 5, 5, 1), asm.store("sd", 5, 10), EXIT])


def loop(n: int) -> bytes:
    """n rounds, then a store."""
    return assemble([*asm.li(5, n), "l:", asm.i("addi", 5, 5, -1), branch("bne", 5, 0, "l"),
                     *asm.li(6, 7), asm.store("sd", 6, 10), EXIT])  # fmt: skip


def ready(dev: Device, code: bytes) -> int:
    """Address space 1 with code and one data page; the page's bus address."""
    t = Tables(dev, 1)
    map_code(dev, t, CODE, code)
    page = dev.alloc()
    t.map(DATA, page, FULL | SYS)
    return page


def test_identity() -> None:
    with Device(sms=3, warps=5, ces=4) as dev:
        assert dev.rd(HW.HG_REG_ID) == HW.HG_ID_MAGIC
        assert dev.rd(HW.HG_REG_VERSION) == HW.HG_VERSION
        assert dev.rd(HW.HG_REG_CAPS) == 3 | 5 << 8 | 32 << 16 | 4 << 24
        assert dev.rd(HW.HG_REG_CAPS2) == 256 | 64 << 16
        assert dev.rd(HW.HG_REG_UTLB_MISSES) == 56
        assert dev.rd(HW.HG_REG_ID, 8) == HW.HG_ID_MAGIC | 1 << 32
        assert dev.rd(HW.HG_REG_STATUS) == HW.HG_STATUS_IDLE
        dev.wr(HW.HG_REG_CTRL, 0)
        assert dev.rd(HW.HG_REG_STATUS) == HW.HG_STATUS_IDLE | HW.HG_STATUS_PARKED
        assert dev.counter("guest_errors") == 0


@pytest.mark.parametrize(
    ("off", "size"), [(2, 4), (4, 8), (0, 2), (0, 1), (0xFFFFC, 8), (0x100000, 4), (2**63, 8)]
)
def test_bad_accesses(off: int, size: int) -> None:
    with Device() as dev:
        assert dev.rd(off, size) == 0
        dev.wr(off, 1, size)
        assert dev.counter("guest_errors") == 2


def test_two_halves() -> None:
    """A 64-bit register takes effect with its high half; registers do not share a latch."""
    with Device() as dev:
        a, b = HW.HG_REG_ASID + 16, HW.HG_REG_ASID + 32
        dev.wr(a, 0x1000_0001)
        dev.wr(b, 0x2000_0001)
        assert dev.rd(a, 8) == 0
        dev.wr(a + 4, 5)
        dev.wr(b + 4, 6)
        assert dev.rd(a, 8) == 0x5_1000_0001
        assert dev.rd(b, 8) == 0x6_2000_0001
        assert (dev.rd(a), dev.rd(a + 4)) == (0x1000_0001, 5)


@pytest.mark.parametrize(
    ("off", "value", "size"),
    [
        (HW.HG_REG_INVAL_CMD, 0, 4), (HW.HG_REG_INVAL_CMD, 4, 4), (HW.HG_REG_INVAL_ASID, 256, 4),
        (HW.HG_REG_REPLAY, 3, 4), (HW.HG_REG_CANCEL_CMD, 0, 4), (HW.HG_REG_CANCEL_CMD, 0x31, 4),
        (HW.HG_REG_FAULT + HW.HG_FAULT_SIZE, 3, 4),
        (HW.HG_REG_FAULT + HW.HG_FAULT_SIZE, 131072, 4),
        (HW.HG_REG_FAULT + HW.HG_FAULT_BASE, 0x10, 8), (HW.HG_REG_FAULT + HW.HG_FAULT_CTRL, 1, 4),
        (HW.HG_REG_FAULT + HW.HG_FAULT_GET, 0, 4), (HW.HG_REG_CTX + HW.HG_CTX_CTRL, 1, 4),
        (HW.HG_REG_CTX + HW.HG_CTX_RING_SIZE, 8192, 4), (HW.HG_REG_CTX + HW.HG_CTX_ASID, 256, 4),
        (HW.HG_REG_CTX + HW.HG_CTX_RING_BASE, 8, 8), (HW.HG_REG_DOORBELL, 1, 4),
        (HW.HG_REG_DOORBELL + 4, 1, 4), (HW.HG_REG_ASID + HW.HG_ASID_CTRL, 1, 4),
        (HW.HG_REG_INTR_ENABLE, 0x10, 4), (HW.HG_REG_CTRL, 4, 4), (HW.HG_REG_ID, 1, 4),
        (0x5000, 1, 4),
    ],
)  # fmt: skip
def test_bad_writes_count_and_do_nothing(off: int, value: int, size: int) -> None:
    with Device() as dev:
        dev.wr(off, value, size)
        assert dev.counter("guest_errors") == 1
        assert dev.rd(HW.HG_REG_INVAL_SEQ, 8) == 0
        assert dev.rd(HW.HG_REG_REPLAY_SEQ, 8) == 0
        assert dev.counter("active_ctxs") == 0


def test_jobs_in_order_with_fence_and_wait() -> None:
    """A launch, a fence with interrupt, a wait that another context's fence ends."""
    with Device() as dev:
        dev.wr(HW.HG_REG_INTR_ENABLE, 0xF)
        page = ready(dev, loop(500))
        a, b = Ctx(dev, 1, 1), Ctx(dev, 2, 1)
        sem = dev.alloc()
        b.push([HW.HG_OP_NOP])
        b.push([HW.HG_OP_WAIT, sem, 10])
        b.push([HW.HG_OP_FENCE, sem + 8, 99])
        b.ring_doorbell()
        for _ in range(50):
            dev.step(100)
        assert b.reg(HW.HG_CTX_GET) == 1
        rep = a.launch(CODE, DATA, grid=4, block=64)
        a.push([HW.HG_OP_FENCE | HW.HG_FENCE_IRQ, sem, 11])
        a.ring_doorbell()
        dev.run(lambda: dev.u64(sem) == 11)
        assert dev.report(rep).complete  # before the fence
        assert dev.u64(page) == 7
        dev.run(lambda: dev.u64(sem + 8) == 99)
        assert dev.host.irq[HW.HG_VEC_FENCE] == 1
        assert dev.rd(HW.HG_REG_STATUS) == HW.HG_STATUS_IDLE
        assert dev.counter("fences") == 2
        # a CPU may end a wait, too
        b.push([HW.HG_OP_WAIT, sem, 12])
        b.ring_doorbell()
        dev.step(1000)
        dev.write(sem, struct.pack("<Q", 2**63))
        dev.run(lambda: b.reg(HW.HG_CTX_GET) == 4)


@pytest.mark.parametrize(
    "words",
    [
        [7], [255], [HW.HG_OP_NOP | 1 << 8],
        [HW.HG_OP_LAUNCH, CODE, 0, 1 | 0 << 32], [HW.HG_OP_LAUNCH, CODE, 0, 0 | 1 << 32],
        [HW.HG_OP_LAUNCH, CODE, 0, 1 | 257 << 32], [HW.HG_OP_LAUNCH, CODE, 0, 1 | 1 << 63],
        [HW.HG_OP_LAUNCH, CODE, 0, 1 | 1 << 32, 0, HW.HG_SHARED_MAX + 1 << 32],
        [HW.HG_OP_LAUNCH, CODE, 0, 1 | 1 << 32, 0, 0, 0, 4],
        [HW.HG_OP_LAUNCH, CODE, 0, 1 | 1 << 32, 0, 0, 0, 2**64 - 8],
        [HW.HG_OP_FENCE, 4, 1], [HW.HG_OP_FENCE | 0x200, 8, 1], [HW.HG_OP_WAIT, 4, 1],
        [HW.HG_OP_COPY_LIST, RAM_BASE, 0], [HW.HG_OP_COPY_LIST, RAM_BASE, 4097],
        [HW.HG_OP_COPY_LIST, RAM_BASE + 4, 1],
        [HW.HG_OP_INVALIDATE, 0], [HW.HG_OP_INVALIDATE, 2 | 256 << 16],
        [HW.HG_OP_INVALIDATE, 1 << 2 | 1],
    ],
)  # fmt: skip
def test_bad_descriptors(words: list[int]) -> None:
    """The context halts at the descriptor, with code and interrupt; a restart works."""
    with Device() as dev:
        dev.wr(HW.HG_REG_INTR_ENABLE, 0xF)
        page = ready(dev, QUICK)
        c = Ctx(dev, 1, 1)
        c.push([HW.HG_OP_NOP])
        c.push(words)
        c.push([HW.HG_OP_NOP])
        c.ring_doorbell()
        dev.run()
        assert c.reg(HW.HG_CTX_GET) == 1
        assert c.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_DESC
        assert c.reg(HW.HG_CTX_STATUS) == HW.HG_CTX_ACTIVE | HW.HG_CTX_HALTED
        assert dev.host.irq[HW.HG_VEC_ERROR] == 1
        dev.wr(c.base + HW.HG_CTX_CTRL, 0)
        assert c.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_ACTIVE == 0
        dev.wr(c.base + HW.HG_CTX_CTRL, HW.HG_CTX_ENABLE)
        assert (c.reg(HW.HG_CTX_GET), c.reg(HW.HG_CTX_ERROR)) == (0, 0)
        c.put = 0
        rep = c.launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.u64(page) == 1


@pytest.mark.parametrize("which", ["ring", "fence", "report", "list", "wait"])
def test_bus_errors_halt(which: str) -> None:
    bad = RAM_BASE + RAM_SIZE
    with Device(misused=True) as dev:
        ready(dev, QUICK)
        c = Ctx(dev, 1, 1)
        if which == "ring":
            dev.wr(c.base + HW.HG_CTX_CTRL, 0)
            dev.wr(c.base + HW.HG_CTX_RING_BASE, bad, 8)
            dev.wr(c.base + HW.HG_CTX_CTRL, 1)
        words = {
            "ring": [0], "fence": [HW.HG_OP_FENCE, bad, 1], "wait": [HW.HG_OP_WAIT, bad, 1],
            "list": [HW.HG_OP_COPY_LIST, bad, 1],
            "report": [HW.HG_OP_LAUNCH, CODE, DATA, 1 | 1 << 32, 0, 0, 0, bad],
        }[which]  # fmt: skip
        c.push(words)
        c.ring_doorbell()
        dev.run()
        assert c.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_BUS
        assert c.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_HALTED


def test_invalidate_descriptor() -> None:
    with Device() as dev:
        ready(dev, QUICK)
        c = Ctx(dev, 1, 1)
        dev.inject("tlb_invalidate delay=50us")
        c.push([HW.HG_OP_INVALIDATE, HW.HG_INVAL_ASID | 1 << 16])
        c.ring_doorbell()
        while not dev.rd(HW.HG_REG_INVAL_SEQ, 8):
            dev.step_engine(4)
        assert dev.rd(HW.HG_REG_INVAL_SEQ, 8) == 1
        assert c.reg(HW.HG_CTX_GET) == 0
        dev.run(lambda: c.reg(HW.HG_CTX_GET) == 1)
        assert dev.rd(HW.HG_REG_INVAL_DONE, 8) == 1


def test_time_slices_preempt() -> None:
    """A kernel that never ends does not keep another context from finishing."""
    with Device(sms=1) as dev:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, SPIN)
        map_code(dev, t, CODE + PAGE, QUICK)
        page = dev.alloc()
        t.map(DATA, page, FULL | SYS)
        a, b = Ctx(dev, 1, 1), Ctx(dev, 2, 1)
        for c in (a, b):
            dev.wr(c.base + HW.HG_CTX_TIMESLICE, 20)
        a.launch(CODE, grid=100, block=256)
        dev.step(2000)
        rep = b.launch(CODE + PAGE, DATA, block=64)
        for _ in range(200):
            dev.step(100)
        assert dev.report(rep).complete
        assert dev.counter("preempts") >= 1
        assert a.reg(HW.HG_CTX_GET) == 0


def test_disable_aborts() -> None:
    with Device() as dev:
        ready(dev, SPIN)
        c = Ctx(dev, 1, 1)
        rep = c.launch(CODE, grid=9, block=96)
        dev.step(500)
        dev.wr(c.base + HW.HG_CTX_CTRL, 0)
        assert c.reg(HW.HG_CTX_STATUS) == HW.HG_CTX_ACTIVE  # until the SM has come to a safe point
        dev.step(1)
        assert c.reg(HW.HG_CTX_STATUS) == 0
        assert c.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_ABORTED
        before = dev.ram.copy()
        dev.step(5000)
        assert (before == dev.ram).all()
        assert not dev.report(rep).complete
        assert dev.rd(HW.HG_REG_STATUS) == HW.HG_STATUS_IDLE


def test_ctrl_enable_parks() -> None:
    with Device() as dev:
        ready(dev, SPIN)
        Ctx(dev, 1, 1).launch(CODE, block=32)
        dev.step(500)
        dev.wr(HW.HG_REG_CTRL, 0)
        assert dev.rd(HW.HG_REG_STATUS) == 0
        dev.step(1)
        assert dev.rd(HW.HG_REG_STATUS) == HW.HG_STATUS_PARKED
        n = dev.counter("instrs")
        dev.step(500)
        assert dev.counter("instrs") == n
        dev.wr(HW.HG_REG_CTRL, 1)
        dev.step(500)
        assert dev.counter("instrs") > n


@pytest.mark.parametrize("soft", [True, False])
def test_reset(soft: bool) -> None:
    """Registers, contexts, TLBs, counters are as new; VRAM stays."""
    with Device() as dev, Device(start=False) as fresh:
        dev.enable_faults()
        ready(dev, SPIN)
        dev.vram[1234] = 5
        Ctx(dev, 1, 1).launch(CODE, block=32)
        Ctx(dev, 2, 1).launch(0x7000_0000, block=32)
        dev.step(500)
        dev.replay(HW.HG_REPLAY_START_ACK_ALL)
        dev.invalidate(HW.HG_INVAL_ALL)
        if soft:
            dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
        else:
            dev.lib.hg_reset(dev.dev)
        assert dev.vram[1234] == 5
        assert dev.save() == fresh.save()


@given(seed=st.integers(0, 2**32), order=st.permutations(range(6)))
@settings(max_examples=20)
def test_determinism(seed: int, order: list[int]) -> None:
    """Equal inputs and seed: equal traces, to the last event."""

    def once() -> list[tuple[int, ...]]:
        with Device(seed=seed) as dev:
            dev.enable_faults()
            dev.inject("fault prob=0.3 duplicate; irq prob=0.5 delay=3us")
            t = Tables(dev, 1)
            map_code(dev, t, CODE, assemble([csrr(5, "tid"), asm.i("slli", 5, 5, 12),
                                             asm.r("add", 5, 5, 10), asm.store("sd", 5, 5),
                                             EXIT]))  # fmt: skip
            reps = [Ctx(dev, 1 + n, 1).launch(CODE, DATA, block=4) for n in order]
            frames: dict[int, int] = {}

            def fix(addr: int) -> None:
                frames.setdefault(addr, dev.alloc())
                t.map(addr, frames[addr], FULL | SYS)

            dev.service(lambda f: fix(f.addr), lambda: all(dev.report(r).complete for r in reps))
            total = int(dev.host.logged)
            return [tuple(getattr(dev.host.log[k], x) for x in ("ev", "a", "b", "c", "d"))
                    for k in range(total)]  # fmt: skip

    assert once() == once()


# -- injection --

@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("nonsense delay=1", "unknown event 'nonsense'"),
        ("fault", "no action for 'fault.entry'"),
        ("fault explode", "unknown word 'explode'"),
        ("fault lost", "this event has no action 'lost'"),
        ("copy delay", "needs a time"),
        ("copy delay=5 nth=1", "text after the action 'nth=1'"),
        ("copy nth=0 error", "bad number 'nth=0'"),
        ("copy nth=1 prob=0.5 error", "second selector"),
        ("copy prob=1.5 error", "probability must be 0..1"),
        ("copy prob=x error", "probability must be 0..1"),
        ("copy match=zz error", "bad match"),
        ("copy count=0 error", "bad count"),
        ("copy error=5", "bad argument"),
        ("copy delay=99999999999999999999999", "bad argument"),
        ("\n".join(["copy error"] * 65), "more than 64 rules"),
    ],
)  # fmt: skip
def test_bad_rules(rules: str, message: str) -> None:
    with Device() as dev:
        dev.inject("irq lost")
        with pytest.raises(ValueError, match=message):
            dev.inject(rules)
        assert dev.injected().startswith("irq.message lost #")  # the old list stays


@pytest.mark.parametrize(("before", "now"), injection.EVENTS.items())
def test_names_of_before_are_those_of_now(before: str, now: str) -> None:
    actions = {"fault": "drop", "dma_read": "error", "dma_write": "error"}
    rule = f"match=10/ff {actions.get(before, 'delay=7')}"
    with Device() as dev:
        dev.inject(f"{before} {rule}")
        old = dev.injected()
        assert old.startswith(f"{now} match=10/ff ")
        dev.inject(f"{now} {rule}")
        assert dev.injected() == old
    assert injection.translated(f"{before} {rule}") == f"{now} {rule}"
    assert injection.as_before(f"{now} {rule}") == f"{before} {rule}"


def test_names_in_lists() -> None:
    rules = "copy nth=2 error; walk delay=5\nmmu.walk prob=0.5 delay=1 # copy"
    now = "ce.copy nth=2 error; mmu.walk delay=5\nmmu.walk prob=0.5 delay=1 # copy"
    assert injection.translated(rules) == now
    assert injection.translated(now) == now
    assert injection.translated("no_such_event explode") == "no_such_event explode"


def test_rules_read_back() -> None:
    text = (
        "fault nth=3 duplicate; tlb_invalidate prob=0.25 delay=5us\n"
        "# a comment\n\ndma_read match=0x1000/fff000 count=7 error ; copy partial=12"
    )
    with Device() as dev:
        dev.inject(text)
        got = dev.injected()
        assert got.splitlines() == [
            "fault.entry nth=3 count=1 duplicate # seen=0 fired=0",
            "mmu.invalidate prob=0.250000000 delay=5000 # seen=0 fired=0",
            "bus.read match=1000/fff000 count=7 error # seen=0 fired=0",
            "ce.copy partial=12 # seen=0 fired=0",
        ]
        dev.inject(got)
        assert dev.injected() == got
        dev.inject("")
        assert dev.injected() == ""


def test_injected_doorbell_fence_launch_irq_replay() -> None:
    with Device(now_step=100) as dev:
        dev.enable_faults()
        dev.wr(HW.HG_REG_INTR_ENABLE, 0xF)
        page = ready(dev, QUICK)
        c = Ctx(dev, 1, 1)
        dev.inject(
            "doorbell nth=1 lost; launch delay=100us; fence delay=50us; irq match=1 duplicate"
        )
        rep = c.launch(CODE, DATA, block=1)
        dev.run()
        assert c.reg(HW.HG_CTX_PUT) == 0
        c.push([HW.HG_OP_FENCE | HW.HG_FENCE_IRQ, page + 64, 5])
        c.ring_doorbell()
        start = dev.host.now
        dev.run(lambda: dev.report(rep).complete)
        assert dev.host.now - start >= 100_000
        dev.run(lambda: dev.u64(page + 64) == 5)
        assert dev.host.now - start >= 150_000
        dev.run(lambda: dev.host.irq[HW.HG_VEC_FENCE] == 2)
        # Late ones say what was before the one that came at once.
        dev.inject("doorbell nth=1 delay=100us")
        c.push([HW.HG_OP_FENCE, page + 64, 6])
        c.ring_doorbell()
        c.push([HW.HG_OP_FENCE, page + 64, 7])
        c.ring_doorbell()
        dev.run(lambda: dev.u64(page + 64) == 7)
        put = c.reg(HW.HG_CTX_PUT)
        dev.run()
        assert (c.reg(HW.HG_CTX_PUT), c.reg(HW.HG_CTX_GET)) == (put, put)
        # Nor does a later one come after one that is not as late.
        dev.inject("doorbell nth=1 delay=100us; doorbell delay=10us")
        for value in (8, 9):
            c.push([HW.HG_OP_FENCE, page + 64, value])
            c.ring_doorbell()
        dev.run(lambda: dev.u64(page + 64) == 9)
        put = c.reg(HW.HG_CTX_PUT)
        dev.run()
        assert (c.reg(HW.HG_CTX_PUT), c.reg(HW.HG_CTX_GET)) == (put, put)
        dev.inject("replay nth=1 lost; irq nth=1 lost")
        rep = c.launch(0x7000_0000, block=1)
        dev.run()
        assert dev.host.irq[HW.HG_VEC_FAULT] == 0
        seq = dev.replay()
        assert dev.rd(HW.HG_REG_REPLAY_DONE, 8) == seq  # acknowledged, not done
        assert dev.counter("stalled_warps") == 1
        dev.replay()
        assert dev.counter("stalled_warps") == 0


def test_injected_bus_error_by_address() -> None:
    with Device() as dev:
        page = ready(dev, QUICK)
        c = Ctx(dev, 1, 1)
        dev.inject(f"dma_write match={page:x} error")
        rep = c.launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).reason == HW.HG_REASON_POISON
        dev.inject("")
        rep = c.launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == 0


# -- threads --

def wait(condition: Callable[[], bool]) -> None:
    """Up to a minute of host time."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the engines do not get there"
        time.sleep(0.0005)


def in_ring(c: Ctx, get: int) -> bool:
    """The context's next descriptor is this one."""
    return c.reg(HW.HG_CTX_GET) == get


def holds(dev: Device, addr: int, value: int) -> bool:
    """The word in RAM has this value."""
    return dev.u64(addr) == value


def test_threads_do_the_same_work() -> None:
    with Device(deterministic=False) as dev:
        dev.enable_faults()
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble([csrr(5, "tid"), asm.i("slli", 6, 5, 12),
                                         asm.r("add", 6, 6, 10), asm.store("sd", 5, 6),
                                         EXIT]))  # fmt: skip
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=3, block=64)
        frames: dict[int, int] = {}

        def step() -> bool:
            faults = dev.take_faults()
            for f in faults:
                frames.setdefault(f.addr, dev.alloc())
                t.map(f.addr, frames[f.addr], FULL | SYS)
            dev.replay(HW.HG_REPLAY_START_ACK_ALL)
            return bool(dev.report(rep).complete)

        wait(step)
        assert [dev.u64(frames[DATA + n * PAGE]) for n in range(64)] == list(range(64))
        wait(lambda: dev.rd(HW.HG_REG_REPLAY_DONE, 8) == dev.rd(HW.HG_REG_REPLAY_SEQ, 8))
        wait(lambda: bool(dev.rd(HW.HG_REG_STATUS) & HW.HG_STATUS_IDLE))


@pytest.mark.parametrize("what", ["fence", "launch", "copy", "wait"])
def test_threads_what_an_sm_leaves_behind(what: str) -> None:
    """The SM that ends a launch executes the ring; a delay or WAIT it meets is not lost with
    the front end asleep."""
    with Device(deterministic=False) as dev:
        page = ready(dev, QUICK)
        c = Ctx(dev, 1, 1)
        for n in range(20):
            done = page + 512
            dev.write(done, bytes(16))
            dev.inject("" if what == "wait" else f"{what} prob=0.7 delay=2ms")
            c.launch(CODE, DATA, block=1)
            if what == "wait":
                c.push([HW.HG_OP_WAIT, done + 8, 1])
            c.copy(DATA, DATA + 64, 8)
            c.push([HW.HG_OP_FENCE, done, n + 1])
            c.ring_doorbell()
            if what == "wait":
                at_wait = (4 * n + 1) % 64
                wait(partial(in_ring, c, at_wait))
                time.sleep(0.002)
                dev.write(done + 8, b"\1")
            wait(partial(holds, dev, done, n + 1))
            assert c.reg(HW.HG_CTX_STATUS) == HW.HG_CTX_ACTIVE


def test_threads_stop_park_and_invalidate_under_load() -> None:
    with Device(deterministic=False) as dev:
        ready(dev, SPIN)
        c = Ctx(dev, 1, 1)
        c.launch(CODE, grid=4, block=128)
        wait(lambda: dev.counter("instrs") > 1000)
        seq = dev.invalidate(HW.HG_INVAL_ALL)
        wait(lambda: dev.rd(HW.HG_REG_INVAL_DONE, 8) == seq)
        dev.lib.hg_stop(dev.dev)
        n = dev.counter("instrs")
        time.sleep(0.01)
        assert dev.counter("instrs") == n
        dev.lib.hg_start(dev.dev)
        wait(lambda: dev.counter("instrs") > n)
        dev.wr(HW.HG_REG_CTRL, 0)
        wait(lambda: bool(dev.rd(HW.HG_REG_STATUS) & HW.HG_STATUS_PARKED))
        dev.wr(HW.HG_REG_CTRL, 1)
        dev.wr(c.base + HW.HG_CTX_CTRL, 0)
        wait(lambda: not c.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_ACTIVE)


def test_fewer_address_spaces_and_contexts() -> None:
    """A device with few says so, and has no registers of those that it lacks."""
    with Device(asids=8, ctxs=4, misused=True) as dev:
        assert dev.rd(HW.HG_REG_CAPS2) == 8 | 4 << 16

        def refused(offset: int, value: int) -> bool:
            before = dev.counter("guest_errors")
            dev.wr(offset, value)
            return dev.counter("guest_errors") > before

        mode, ctx = HW.HG_REG_ASID + HW.HG_ASID_CTRL, HW.HG_REG_CTX + HW.HG_CTX_ASID
        for wrong, offset, value in (
            (False, mode + 7 * HW.HG_ASID_STRIDE, HW.HG_ASID_MODE_FATAL),
            (True, mode + 8 * HW.HG_ASID_STRIDE, HW.HG_ASID_MODE_FATAL),
            (False, HW.HG_REG_INVAL_ASID, 7), (True, HW.HG_REG_INVAL_ASID, 8),
            (False, HW.HG_REG_CANCEL_ASID, 7), (True, HW.HG_REG_CANCEL_ASID, 8),
            (False, ctx + 3 * HW.HG_CTX_STRIDE, 7), (True, ctx + 3 * HW.HG_CTX_STRIDE, 8),
            (True, ctx + 4 * HW.HG_CTX_STRIDE, 7),
        ):  # fmt: skip
            assert refused(offset, value) == wrong, (hex(offset), value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("sms", 0), ("sms", 17), ("warps", 33), ("ces", 1), ("ces", 5), ("utlb_entries", 0),
     ("utlb_misses", 0), ("l2tlb_entries", 0), ("bar2_size", 3 << 20),
     ("asids", 1), ("asids", 257), ("ctxs", 1), ("ctxs", 65)],
)  # fmt: skip
def test_bad_configuration(key: str, value: int) -> None:
    cfg: dict[str, Any] = {key: value}
    with pytest.raises(ValueError, match=key):
        Device(**cfg)
