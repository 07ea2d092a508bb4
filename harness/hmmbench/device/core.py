# SPDX-License-Identifier: GPL-2.0-or-later
"""A host for the device core: registers, RAM, VRAM, and what a driver would do with them.

``Device`` is a host with one block of RAM and VRAM, plus helpers to build page tables,
rings and launches.  Addresses of RAM are bus addresses from ``RAM_BASE``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from hmmbench.base import paths
from hmmbench.device import cheader
from hmmbench.device.library import Edit, ffi, library

HW = cheader.hardware()
#: Events that the log of tests/host.h keeps.
TH_LOG = cheader.load(paths.device_sources() / "tests" / "host.h").TH_LOG

RAM_BASE = 0x4000_0000
RAM_SIZE = 16 << 20
VRAM_SIZE = 8 << 20
PAGE = 4096

FULL = HW.HG_PTE_VALID | HW.HG_PTE_WRITE | HW.HG_PTE_ATOMIC
SYS = HW.HG_PTE_APER_SYS
VRAM = HW.HG_PTE_APER_VRAM


def trace_events() -> dict[str, int]:
    """HG_EV_* by name without the prefix."""
    text = (paths.device_sources() / "core" / "hmm_gpu_core.h").read_text()
    return {name: n for n, name in enumerate(re.findall(r"^\s+HG_EV_(\w+),", text, re.M))}


EV = trace_events()


class Fault:
    """One fault-ring entry."""

    def __init__(self, raw: bytes) -> None:
        w = struct.unpack(f"<{HW.HG_FAULT_ENTRY_SIZE // 4}I", raw)
        self.addr = w[HW.HG_FE_ADDR_LO] | w[HW.HG_FE_ADDR_HI] << 32
        self.time = w[HW.HG_FE_TIME_LO] | w[HW.HG_FE_TIME_HI] << 32
        # Fields of a word are as the comments of the header say (test_core_interface.py).
        space, source, info, flags = (
            w[at] for at in (HW.HG_FE_ASID, HW.HG_FE_SOURCE, HW.HG_FE_INFO, HW.HG_FE_FLAGS)
        )
        self.asid = space & 0xFFFF
        self.ctx = space >> 16
        self.engine = source & 0xFF
        self.unit = source >> 8 & 0xFF
        self.client = source >> 16 & 0xFF
        self.source = source & 0xFFFFFF
        self.access = info & 0xF
        self.reason = info >> 4 & 0xFF
        self.level = info >> 12 & 0xF
        self.valid = bool(flags & HW.HG_FE_VALID)
        self.replayable = bool(flags & HW.HG_FE_REPLAYABLE)

    def __repr__(self) -> str:
        return (
            f"Fault({self.addr:#x} asid {self.asid} ctx {self.ctx} {self.engine}/{self.unit}/"
            f"{self.client} access {self.access} reason {self.reason} level {self.level}"
            f"{'' if self.valid else ' not valid'})"
        )


class Report:
    """A job report."""

    def __init__(self, raw: bytes) -> None:
        def u32(at: int) -> int:
            return int.from_bytes(raw[at : at + 4], "little")

        def u64(at: int) -> int:
            return int.from_bytes(raw[at : at + 8], "little")

        self.status, self.reason = u32(HW.HG_RPT_STATUS), u32(HW.HG_RPT_REASON)
        self.addr, self.pc = u64(HW.HG_RPT_ADDR), u64(HW.HG_RPT_PC)
        self.block, self.thread = u32(HW.HG_RPT_BLOCK), u32(HW.HG_RPT_THREAD)
        self.instrs, self.time = u64(HW.HG_RPT_INSTRS), u64(HW.HG_RPT_TIME)
        self.done = u64(HW.HG_RPT_DONE)
        self.complete = self.done == HW.HG_RPT_DONE_MAGIC

    def __repr__(self) -> str:
        return (
            f"Report(status {self.status} reason {self.reason} addr {self.addr:#x} "
            f"pc {self.pc:#x} block {self.block} thread {self.thread} instrs {self.instrs} "
            f"{'done' if self.complete else 'not done'})"
        )


class Tables:
    """Page tables in RAM or VRAM, built by software as a driver would."""

    def __init__(self, dev: Device, asid: int, vram: bool = False) -> None:
        self.dev, self.asid, self.vram = dev, asid, vram
        self.root = self._table()
        flags = HW.HG_ROOT_ENABLE | (HW.HG_ROOT_VRAM if vram else 0)
        dev.wr(HW.HG_REG_ASID + asid * HW.HG_ASID_STRIDE, self.root | flags, 8)
        self.nodes: dict[tuple[int, int], int] = {(3, 0): self.root}

    def _table(self) -> int:
        return self.dev.alloc_vram() if self.vram else self.dev.alloc()

    def _write(self, table: int, index: int, pte: int) -> None:
        mem = self.dev.vram if self.vram else self.dev.ram
        off = (table if self.vram else table - RAM_BASE) + index * 8
        mem[off : off + 8].view("<u8")[0] = pte

    def _down(self, va: int, to: int) -> int:
        table = self.root
        for level in range(3, to, -1):
            key = (level - 1, va >> (12 + 9 * level))
            if key not in self.nodes:
                self.nodes[key] = self._table()
                link = self.nodes[key] | HW.HG_PTE_VALID | (VRAM if self.vram else SYS)
                self._write(table, va >> (12 + 9 * level) & 511, link)
            table = self.nodes[key]
        return table

    def map(self, va: int, frame: int, flags: int) -> None:
        """Set the 4 KiB leaf of va."""
        self._write(self._down(va, 0), va >> 12 & 511, frame | flags)

    def map_huge(self, va: int, frame: int, flags: int) -> None:
        """Set the 2 MiB leaf of va."""
        self._write(self._down(va, 1), va >> 21 & 511, frame | flags | HW.HG_PTE_HUGE)

    def unmap(self, va: int) -> None:
        """Clear the 4 KiB leaf of va."""
        self._write(self._down(va, 0), va >> 12 & 511, 0)


class Ctx:
    """A context and its ring."""

    def __init__(self, dev: Device, n: int, asid: int, size: int = 64, priv: bool = False) -> None:
        self.dev, self.n, self.size = dev, n, size
        self.ring = dev.alloc((size * HW.HG_DESC_SIZE + PAGE - 1) // PAGE)
        self.put = 0
        self.base = HW.HG_REG_CTX + n * HW.HG_CTX_STRIDE
        dev.wr(self.base + HW.HG_CTX_RING_BASE, self.ring, 8)
        dev.wr(self.base + HW.HG_CTX_RING_SIZE, size)
        dev.wr(self.base + HW.HG_CTX_ASID, asid)
        dev.wr(self.base + HW.HG_CTX_CTRL, HW.HG_CTX_ENABLE | (HW.HG_CTX_PRIV if priv else 0))

    def reg(self, off: int, size: int = 4) -> int:
        """A context register."""
        return self.dev.rd(self.base + off, size)

    def push(self, words: Sequence[int]) -> None:
        """Append a descriptor without ringing the doorbell."""
        n = HW.HG_DESC_SIZE // 8
        w = list(words) + [0] * (n - len(words))
        self.dev.write(self.ring + self.put * HW.HG_DESC_SIZE, struct.pack(f"<{n}Q", *w))
        self.put = (self.put + 1) % self.size

    def ring_doorbell(self) -> None:
        """Tell the device."""
        self.dev.wr(HW.HG_REG_DOORBELL + self.n * HW.HG_DOORBELL_STRIDE, self.put)

    def launch(self, pc: int, args: int = 0, grid: int = 1, block: int = 32, local: int = 0,
               local_bytes: int = 0, budget: int = 0, shared: int = 0) -> int:  # fmt: skip
        """Queue a launch; bus address of its report."""
        report = self.dev.alloc()
        self.push([HW.HG_OP_LAUNCH, pc, args, grid | block << 32, local,
                   local_bytes | shared << 32, budget, report])  # fmt: skip
        self.ring_doorbell()
        return report

    def copy(self, src: int, dst: int, n: int, src_space: int = 0, dst_space: int = 0,
             flags: int = 0) -> int:  # fmt: skip
        """Queue a copy; bus address of its report."""
        report = self.dev.alloc()
        w0 = (HW.HG_OP_COPY | src_space << HW.HG_COPY_SRC_SHIFT
              | dst_space << HW.HG_COPY_DST_SHIFT | flags)  # fmt: skip
        self.push([w0, src, dst, n, 0, 0, 0, report])
        self.ring_doorbell()
        return report


class Device:
    """The core with a host around it.  Use as a context manager: leaving it checks that no
    protocol check has spoken, unless the test says that the device is ``misused``."""

    def __init__(self, *, deterministic: bool = True, direct: bool = True, seed: int = 1,
                 edits: Sequence[Edit] = (), start: bool = True, now_step: int = 1000,
                 misused: bool = False, vec: str | None = None, alias: int = 0,
                 **cfg: Any) -> None:  # fmt: skip
        """``alias``: RAM is there on the bus, too, and an IOMMU between."""
        self.lib = library(edits)
        self.host = self.lib.th_new(RAM_BASE, RAM_SIZE, VRAM_SIZE)
        self.host.alias = alias
        self.host.now_step = now_step if deterministic else 0
        config = ffi.new("HgConfig *")
        self.lib.hg_config_default(config)
        config.deterministic = deterministic
        config.seed = seed
        for key, value in cfg.items():
            setattr(config, key, value)
        err = ffi.new("char[200]")
        self.dev = self.lib.th_device(self.host, config, int(direct), err, 200)
        if self.dev == ffi.NULL:
            message = ffi.string(err).decode()
            self.lib.th_free(self.host)
            raise ValueError(message)
        if vec and self.lib.hg_vec_set(self.dev, vec.encode()):
            raise ValueError(f"this host has no {vec}")
        self.deterministic = deterministic
        self.misused = misused
        self.ram = np.frombuffer(ffi.buffer(self.host.ram, RAM_SIZE), dtype=np.uint8)
        self.vram = np.frombuffer(ffi.buffer(self.host.vram, VRAM_SIZE), dtype=np.uint8)
        self.next_page = PAGE  # page 0 stays empty
        self.next_vram = PAGE
        self.ring_size = 0
        self.lib.hg_start(self.dev)
        if start:
            self.wr(HW.HG_REG_CTRL, HW.HG_CTRL_ENABLE)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None,
                 tb: TracebackType | None) -> None:  # fmt: skip
        try:
            if kind is None and not self.misused:
                assert self.violations() == {}
        finally:
            self.close()

    def close(self) -> None:
        """Free device and memory."""
        if self.dev != ffi.NULL:
            self.lib.th_free(self.host)
            self.dev = ffi.NULL

    # -- memory --
    def alloc(self, pages: int = 1) -> int:
        """Bus address of fresh pages."""
        at = self.next_page
        self.next_page += pages * PAGE
        assert self.next_page <= RAM_SIZE, "test ran out of RAM"
        return RAM_BASE + at

    def alloc_vram(self, pages: int = 1) -> int:
        """Offset of fresh VRAM pages."""
        at = self.next_vram
        self.next_vram += pages * PAGE
        assert self.next_vram <= VRAM_SIZE, "test ran out of VRAM"
        return at

    def write(self, addr: int, data: bytes) -> None:
        """Write RAM as a CPU."""
        off = addr - RAM_BASE
        self.ram[off : off + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def read(self, addr: int, n: int) -> bytes:
        """Read RAM as a CPU."""
        off = addr - RAM_BASE
        return self.ram[off : off + n].tobytes()

    def u64(self, addr: int) -> int:
        """A 64-bit word of RAM."""
        return int.from_bytes(self.read(addr, 8), "little")

    # -- registers --
    def rd(self, off: int, size: int = 4) -> int:
        """Register read."""
        return int(self.lib.hg_mmio_read(self.dev, off, size))

    def wr(self, off: int, value: int, size: int = 4) -> None:
        """Register write."""
        self.lib.hg_mmio_write(self.dev, off, value, size)

    def counter(self, name: str) -> int:
        """A counter by its name in HG_CNT_*."""
        return int(self.lib.hg_counter(self.dev, HW[f"HG_CNT_{name.upper()}"]))

    def violations(self) -> dict[str, int]:
        """Checks that have spoken, by name, and how often."""
        out = {}
        n = 1  # 0 is none of them
        while (name := self.lib.hg_check_name(n)) != ffi.NULL:
            if count := int(self.lib.hg_check_count(self.dev, n)):
                out[ffi.string(name).decode()] = count
            n += 1
        return out

    def inject(self, rules: str) -> None:
        """Set injection rules; ValueError with the core's message."""
        err = ffi.new("char[200]")
        if self.lib.hg_inject(self.dev, rules.encode(), err, 200):
            raise ValueError(ffi.string(err).decode())

    def injected(self) -> str:
        """Current rules with hits."""
        buf = ffi.new("char[8192]")
        self.lib.hg_inject_get(self.dev, buf, 8192)
        return str(ffi.string(buf).decode())

    def events(self, *names: str) -> list[tuple[int, ...]]:
        """Trace events of these names (all of the log that is left)."""
        want = {EV[n] for n in names}
        total = int(self.host.logged)
        first = max(0, total - TH_LOG)
        out: list[tuple[int, ...]] = []
        for n in range(first, total):
            e = self.host.log[n % TH_LOG]
            if e.ev in want:
                out.append((e.ev, e.a, e.b, e.c, e.d))
        return out

    # -- running (deterministic) --
    def step(self, budget: int = 1) -> bool:
        """Run engines a little; False: nothing to do."""
        return bool(self.lib.hg_step(self.dev, budget))

    def step_engine(self, engine: int, steps: int = 1) -> int:
        """Run one engine; the steps that it took."""
        return int(self.lib.hg_step_engine(self.dev, engine, steps))

    def at(self, engine: int) -> str:
        """Where an engine stands."""
        name = self.lib.hg_at_name(self.lib.hg_engine_at(self.dev, engine))
        return str(ffi.string(name).decode())

    def set_clock(self, now: int) -> None:
        """From now on virtual time stands still unless it is set."""
        self.host.manual = True
        self.host.now = now

    def run(self, until: Callable[[], bool] | None = None, rounds: int = 4000) -> None:
        """Step until idle, or until the condition holds; AssertionError if neither comes."""
        for _ in range(rounds):
            if until is not None and until():
                return
            if not self.step(4096):
                break
        else:
            raise AssertionError("the device does not come to rest")
        assert until is None or until(), "the device is idle and the condition does not hold"

    def report(self, addr: int) -> Report:
        """The report at addr."""
        return Report(self.read(addr, HW.HG_REPORT_SIZE))

    # -- faults --
    def enable_faults(self, size: int = 256) -> None:
        """Set up and enable the replayable ring (and a small non-replayable one)."""
        self.ring_size = size
        self.ring = self.alloc((size * HW.HG_FAULT_ENTRY_SIZE + PAGE - 1) // PAGE)
        self.nr_ring = self.alloc()
        for base, at, n in ((HW.HG_REG_FAULT, self.ring, size), (HW.HG_REG_NRFAULT, self.nr_ring,
                                                                 64)):  # fmt: skip
            self.wr(base + HW.HG_FAULT_BASE, at, 8)
            self.wr(base + HW.HG_FAULT_SIZE, n)
            self.wr(base + HW.HG_FAULT_CTRL, HW.HG_FAULT_CTRL_ENABLE)

    def take_faults(self, limit: int = 1 << 30, nr: bool = False) -> list[Fault]:
        """Consume entries between GET and PUT that are valid; clears overflow."""
        base = HW.HG_REG_NRFAULT if nr else HW.HG_REG_FAULT
        size = 64 if nr else self.ring_size
        at = self.nr_ring if nr else self.ring
        get = self.rd(base + HW.HG_FAULT_GET)
        put = self.rd(base + HW.HG_FAULT_PUT) & HW.HG_FAULT_INDEX_MASK
        over = get & HW.HG_FAULT_OVERFLOW
        get &= HW.HG_FAULT_INDEX_MASK
        out: list[Fault] = []
        while get != put and len(out) < limit:
            entry = at + get * HW.HG_FAULT_ENTRY_SIZE
            f = Fault(self.read(entry, HW.HG_FAULT_ENTRY_SIZE))
            if not f.valid:
                break
            self.write(entry + HW.HG_FE_FLAGS * 4, b"\0\0\0\0")
            out.append(f)
            get = (get + 1) % size
        self.wr(base + HW.HG_FAULT_GET, get | over)
        return out

    def replay(self, kind: int | None = None) -> int:
        """Replay; its sequence number."""
        self.wr(HW.HG_REG_REPLAY, HW.HG_REPLAY_START if kind is None else kind)
        return self.rd(HW.HG_REG_REPLAY_SEQ, 8)

    def cancel(self, kind: int, asid: int, addr: int = 0, client: int = 0, scope: int = 0) -> None:
        """Cancel stalled accesses."""
        self.wr(HW.HG_REG_CANCEL_ADDR, addr, 8)
        self.wr(HW.HG_REG_CANCEL_ASID, asid)
        self.wr(HW.HG_REG_CANCEL_CLIENT, client)
        self.wr(HW.HG_REG_CANCEL_CMD, kind | scope)

    def invalidate(self, kind: int, asid: int = 0, start: int = 0, length: int = 0) -> int:
        """Invalidate; its sequence number."""
        self.wr(HW.HG_REG_INVAL_ASID, asid)
        self.wr(HW.HG_REG_INVAL_START, start, 8)
        self.wr(HW.HG_REG_INVAL_LEN, length, 8)
        self.wr(HW.HG_REG_INVAL_CMD, kind)
        return self.rd(HW.HG_REG_INVAL_SEQ, 8)

    def service(self, on_fault: Callable[[Fault], None], until: Callable[[], bool],
                rounds: int = 2000) -> list[Fault]:  # fmt: skip
        """Run, handing every fault to ``on_fault`` and replaying, until the condition holds."""
        seen: list[Fault] = []
        for _ in range(rounds):
            while self.step(4096):
                if until():
                    return seen
            if until():
                return seen
            faults = self.take_faults()
            seen += faults
            for f in faults:
                on_fault(f)
            self.replay()
        raise AssertionError(f"no end after {rounds} rounds of fault service")

    # -- state --
    def park(self) -> None:
        """All engines to a safe point."""
        self.lib.hg_park(self.dev)

    def save(self) -> bytes:
        """The state; the device is stopped and started again."""
        self.lib.hg_stop(self.dev)
        n = self.lib.hg_save_size(self.dev)
        buf = ffi.new("char[]", n)
        got = self.lib.hg_save(self.dev, buf, n)
        assert got == n, f"save wrote {got} of {n} bytes"
        self.lib.hg_start(self.dev)
        return bytes(ffi.buffer(buf, n))

    def load(self, state: bytes) -> None:
        """Load; ValueError with the core's message."""
        self.lib.hg_stop(self.dev)
        err = ffi.new("char[200]")
        bad = self.lib.hg_load(self.dev, state, len(state), err, 200)
        self.lib.hg_start(self.dev)
        if bad:
            raise ValueError(ffi.string(err).decode())


def map_code(dev: Device, tables: Tables, va: int, code: bytes) -> None:
    """Put code in fresh pages at va."""
    for off in range(0, len(code), PAGE):
        page = dev.alloc()
        dev.write(page, code[off : off + PAGE])
        tables.map(va + off, page, HW.HG_PTE_VALID | SYS)


def counters(dev: Device, names: Iterable[str]) -> dict[str, int]:
    """Several counters."""
    return {n: dev.counter(n) for n in names}
