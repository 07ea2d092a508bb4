# SPDX-License-Identifier: GPL-2.0-or-later
"""Misaligned accesses, and what ends a launch: each with its report (code, address, pc, block,
thread), and without harm to other contexts."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import hg_asm as asm
import pytest
from hg_asm import EBREAK, EXIT, FENCE, Item, assemble, branch, csrr, li
from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Report, Tables, map_code
from hypothesis import given, settings
from hypothesis import strategies as st

CODE = 0x1_0000
DATA = 0x40_0000
RO = HW.HG_PTE_VALID | SYS
SIZES = {"lb": 1, "lbu": 1, "lh": 2, "lhu": 2, "lw": 4, "lwu": 4, "ld": 8,
         "sb": 1, "sh": 2, "sw": 4, "sd": 8, "flw": 4, "fld": 8, "fsw": 4, "fsd": 8}  # fmt: skip
PATTERN = bytes((k * 73 + k // PAGE * 101 + 11) % 256 for k in range(2 * PAGE))


def access(name: str) -> Item:
    """The load or store at r6; what is stored comes from r7 or f7, what is loaded goes there."""
    if name[0] == "f":
        fmt = "s" if name[2] == "w" else "d"
        return asm.fload(fmt, 7, 6) if name[1] == "l" else asm.fstore(fmt, 7, 6)
    return asm.load(name, 7, 6) if name in asm.LOAD else asm.store(name, 7, 6)


@given(name=st.sampled_from(sorted(SIZES)), first=st.integers(PAGE - 80, PAGE - 1),
       stride=st.integers(1, 9), threads=st.integers(1, 32),
       mapped=st.sampled_from([(), (0,), (1,), (0, 1)]),
       order=st.permutations([0, 1]), direct=st.booleans(),
       wrong=st.sampled_from([None, 0, 1]))  # fmt: skip
@settings(max_examples=150)
def test_misaligned_accesses(name: str, first: int, stride: int, threads: int,
                             mapped: tuple[int, ...], order: list[int], direct: bool,
                             wrong: int | None) -> None:  # fmt: skip
    """Lanes access at first + tid * stride, in and over two pages of which any may be missing or
    (for stores) not writable; pages come one by one.  The memory is that of the accesses in lane
    order, the values those of the bytes."""
    size = SIZES[name]
    store = name.startswith(("s", "fs"))
    value = 0x1122334455667788
    items = [
        csrr(5, "tid"), *li(6, stride), asm.r("mul", 6, 5, 6), asm.r("add", 6, 6, 10),
        *li(7, value), asm.r("add", 7, 7, 5), asm.fp("fmv_x", "d", 7, 7), access(name),
        asm.i("slli", 5, 5, 4), *li(8, DATA + 4 * PAGE), asm.r("add", 5, 5, 8),
        asm.store("sd", 7, 5), asm.fstore("d", 7, 5, 8), EXIT,
    ]  # fmt: skip
    with Device(direct=direct, sms=1) as dev:
        dev.enable_faults()
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble(items))
        out = dev.alloc()
        t.map(DATA + 4 * PAGE, out, FULL | SYS)
        pages = [dev.alloc(), dev.alloc()]
        for k in (0, 1):
            dev.write(pages[k], PATTERN[k * PAGE : (k + 1) * PAGE])
            if k in mapped:
                t.map(DATA + k * PAGE, pages[k], RO if k == wrong else FULL | SYS)
        touched = {a // PAGE for n in range(threads)
                   for a in (first + n * stride, first + n * stride + size - 1)}  # fmt: skip
        reach = [first + n * stride for n in range(threads)]
        rep = Ctx(dev, 1, 1).launch(CODE, DATA + first, block=threads)
        dev.run()
        memory = bytearray(PATTERN)
        bad = {k for k in touched if k not in mapped or (store and k == wrong)}
        for n, at in enumerate(reach if store else []):
            if not {at // PAGE, (at + size - 1) // PAGE} & bad:
                memory[at : at + size] = (value + n).to_bytes(8, "little")[:size]
        for k in (0, 1):  # what may, has happened; nothing else has
            assert dev.read(pages[k], PAGE) == memory[k * PAGE : (k + 1) * PAGE]
        reported = {((f.addr - DATA) // PAGE, f.reason) for f in dev.take_faults()}
        assert reported == {
            (k, HW.HG_REASON_PTE if k not in mapped else HW.HG_REASON_WRITE) for k in bad
        }
        for k in order:
            t.map(DATA + k * PAGE, pages[k], FULL | SYS)
            dev.invalidate(HW.HG_INVAL_RANGE, 1, DATA, 2 * PAGE)
            dev.replay()
            dev.run()
            dev.take_faults()
        assert dev.report(rep).complete
        assert dev.report(rep).status == HW.HG_ERR_NONE
        got = struct.unpack(f"<{2 * threads}Q", dev.read(out, 16 * threads))
        if store:
            assert dev.counter("stores") == 3 * threads
            # lanes that waited come after those that did not: compare what all orders agree on
            if stride >= size:
                for n, at in enumerate(reach):
                    memory[at : at + size] = (value + n).to_bytes(8, "little")[:size]
                now = dev.read(pages[0], PAGE) + dev.read(pages[1], PAGE)
                assert now == memory
            return
        assert dev.counter("loads") == threads
        for n, at in enumerate(reach):
            v = int.from_bytes(PATTERN[at : at + size], "little")
            if name in ("lb", "lh", "lw") and v >> 8 * size - 1:
                v -= 1 << 8 * size
            if name == "flw":
                v |= 0xFFFFFFFF << 32
            assert got[2 * n + (name[0] == "f")] == v & 2**64 - 1


@pytest.mark.parametrize("width", ["w", "d"])
@pytest.mark.parametrize("name", [*sorted(asm.AMO), "lr", "sc"])
def test_misaligned_atomics_end_the_launch(name: str, width: str) -> None:
    """The report names the first lane of the instruction whose address is not natural; nothing
    was written, although lanes before it were aligned."""
    size = 4 if width == "w" else 8
    for off in range(1, size):
        insn = {"lr": asm.lr(width, 7, 6), "sc": asm.sc(width, 7, 7, 6)}.get(
            name
        ) or asm.amo(name, width, 7, 7, 6)  # fmt: skip
        items: list[Item] = [
            csrr(5, "tid"), asm.i("slli", 6, 5, 5), asm.r("add", 6, 6, 10), *li(7, 9),
            asm.r("slt", 8, 7, 5), *li(9, off), asm.r("mul", 8, 8, 9), asm.r("add", 6, 6, 8),
            insn,
        ]  # fmt: skip
        r, memory, _ = launch(items, block=64)
        assert (r.status, r.addr, r.thread) == (HW.HG_ERR_MISALIGNED, DATA + 10 * 32 + off, 10)
        assert r.pc == CODE + 4 * (len(items) - 1)
        assert memory == bytes(PAGE)


@dataclass
class Bystander:
    """What another context did meanwhile."""

    status: int
    total: int


def launch(items: list[Item], *, grid: int = 1, block: int = 1) -> tuple[
    Report, bytes, Bystander
]:  # fmt: skip
    """Run with a second context beside it that adds to a word; (report, data page, the other)."""
    with Device(sms=1) as dev:
        dev.enable_faults()
        t, u = Tables(dev, 1), Tables(dev, 2)
        map_code(dev, t, CODE, assemble([*items, EXIT]))
        map_code(dev, u, CODE, assemble([
            *li(7, 300), "l:", *li(6, 1), asm.amo("amoadd", "d", 0, 6, 10),
            asm.i("addi", 7, 7, -1), branch("bne", 7, 0, "l"), EXIT,
        ]))  # fmt: skip
        page, word = dev.alloc(), dev.alloc()
        t.map(DATA, page, FULL | SYS)
        u.map(DATA, word, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=grid, block=block)
        other = Ctx(dev, 2, 2).launch(CODE, DATA, block=64)
        for _ in range(1000):
            dev.step(200)
            for f in dev.take_faults():
                dev.cancel(HW.HG_CANCEL_ADDR, f.asid, f.addr)
            if dev.report(rep).complete and dev.report(other).complete:
                break
        assert dev.report(rep).complete
        beside = Bystander(dev.report(other).status, dev.u64(word))
        return dev.report(rep), dev.read(page, PAGE), beside


def only_thread(block: int, thread: int, then: list[Item]) -> list[Item]:
    """Just this thread executes ``then``."""
    return [
        csrr(5, "bid"), csrr(6, "tid"), *li(7, block), branch("bne", 5, 7, "skip"), *li(7, thread),
        branch("bne", 6, 7, "skip"), *then, "skip:",
    ]  # fmt: skip


BAD_CODE = 1 << 50
ENDS: list[tuple[str, list[Item], str, int | None, int | None]] = [
    # name, what the thread does (last item is it), error, addr, pc if not the last item's
    ("illegal", [FENCE, 0x0000_0057], "ILLEGAL", 0x57, None),
    ("ebreak", [EBREAK], "BREAK", 0, None),
    ("jal", [asm.jal_off(1, 2)], "MISALIGNED", None, None),
    ("jalr", [asm.i("addi", 5, 10, 6), asm.jalr(1, 5)], "MISALIGNED", DATA + 6, None),
    ("branch", [asm.branch_off("beq", 0, 0, 6)], "MISALIGNED", None, None),
    ("null load", [asm.load("ld", 5, 0, 8)], "FAULT", 8, None),
    ("null store", [asm.fstore("d", 5, 0, 8)], "FAULT", 8, None),
    ("beyond 48 bits", [*li(5, 1 << 48), asm.load("lb", 5, 5)], "FAULT", 1 << 48, None),
    ("into 48 bits", [*li(5, (1 << 48) - 4), asm.load("ld", 5, 5)], "FAULT", 1 << 48, None),
    ("end of memory", [*li(5, -4), asm.store("sd", 5, 5)], "FAULT", None, None),
    ("jump wild", [*li(5, BAD_CODE), asm.jalr(1, 5)], "FAULT", BAD_CODE, None),
    ("jump to null", [asm.jalr(1, 0)], "FAULT", 0, None),
    ("wild return", [*li(1, 0x7000), asm.jalr(0, 1)], "FAULT", 0x7000, None),
    # on foot, so to say: the address fetched is all there is
    ("straight jump", [*li(5, 1), asm.jal_off(1, 0x2_0000)], "FAULT", None, None),
]  # fmt: skip


@pytest.mark.parametrize("case", ENDS, ids=[e[0] for e in ENDS])
@pytest.mark.parametrize(("block", "thread"), [(0, 0), (2, 37), (1, 63)])
def test_report_of_an_error(case: tuple[str, list[Item], str, int | None, int | None], block: int,
                            thread: int) -> None:  # fmt: skip
    name, then, error, addr, pc = case
    items = only_thread(block, thread, then)
    r, _, beside = launch(items, grid=3, block=64)
    at = CODE + 4 * (len(items) - 2)  # the label is none
    assert r.status == HW[f"HG_ERR_{error}"], r
    assert (r.block, r.thread) == (block, thread)
    if name == "straight jump":
        assert r.addr == r.pc == at + 0x2_0000
        return
    assert r.pc == (at if pc is None else pc)
    if addr is not None:
        assert r.addr == addr
    elif error == "MISALIGNED":
        assert r.addr == at + (2 if name == "jal" else 6)
    elif name == "end of memory":
        assert r.addr == 2**64 - 4
    assert beside == Bystander(HW.HG_ERR_NONE, 64 * 300)


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("cancelled", [0, 1, 2, 3])
def test_a_wild_jump_is_that_of_its_lane(cancelled: int, moved: bool) -> None:
    """Lanes jump to missing pages, each from its own place; the report of the one whose page does
    not come names its jump, also if the device's state moved meanwhile."""
    page = 0x10_0000
    items: list[Item] = [csrr(5, "tid"), asm.i("slli", 6, 5, 12), *li(7, page),
                         asm.r("add", 6, 6, 7)]  # fmt: skip
    for lane in range(4):
        items += [*li(8, lane), branch("beq", 5, 8, f"lane{lane}")]
    jumps = []
    for lane in range(4):
        items.append(f"lane{lane}:")
        jumps.append(len([i for i in items if not isinstance(i, str)]))
        items.append(asm.jalr(lane % 2, 6))
    with Device(sms=1) as first, Device(sms=1) as second:
        first.enable_faults()
        t = Tables(first, 1)
        map_code(first, t, CODE, assemble(items))
        rep = Ctx(first, 1, 1).launch(CODE, DATA, block=4)
        first.run()
        dev = first
        if moved:
            second.ram[:] = first.ram
            second.load(first.save())
            second.next_page = first.next_page
            second.ring, second.ring_size = first.ring, first.ring_size
            dev = t.dev = second
        # one lane in a warp waits for its page at a time
        for _ in range(4):
            (fault,) = dev.take_faults()
            lane = (fault.addr - page) // PAGE
            if lane == cancelled:
                break
            there = dev.alloc()
            dev.write(there, assemble([EXIT]))
            t.map(fault.addr, there, HW.HG_PTE_VALID | SYS)
            dev.replay()
            dev.run()
        dev.cancel(HW.HG_CANCEL_GLOBAL, 1)
        dev.run()
        r = dev.report(rep)
        assert (r.status, r.addr, r.thread) == (HW.HG_ERR_FAULT, page + lane * PAGE, lane)
        assert r.pc == CODE + 4 * jumps[lane]


def test_running_into_a_missing_page_is_no_jump() -> None:
    """By the instruction before, after a jump to elsewhere; and to where nothing was launched."""
    items = [*li(5, CODE + PAGE - 8), asm.jalr(1, 5)]
    code = assemble(items).ljust(PAGE - 8, b"\0") + assemble([FENCE, FENCE])
    for entry, want in ((CODE, CODE + PAGE), (CODE + PAGE, CODE + PAGE)):
        with Device(sms=1) as dev:
            dev.enable_faults()
            t = Tables(dev, 1)
            map_code(dev, t, CODE, code)
            rep = Ctx(dev, 1, 1).launch(entry, DATA, block=1)
            dev.run()
            dev.cancel(HW.HG_CANCEL_GLOBAL, 1)
            dev.run()
            r = dev.report(rep)
            assert (r.status, r.addr, r.pc) == (HW.HG_ERR_FAULT, want, want)


def test_a_branch_not_taken_may_have_any_target() -> None:
    r, memory, _ = launch([asm.branch_off("bne", 0, 0, 6), *li(5, 77), asm.store("sd", 5, 10)])
    assert r.status == HW.HG_ERR_NONE
    assert memory[:8] == (77).to_bytes(8, "little")
