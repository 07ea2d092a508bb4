# SPDX-License-Identifier: GPL-2.0-or-later
"""The mirror audit against a model that knows what was meant, not how it is encoded."""

from __future__ import annotations

import struct

import hg_asm as asm
import pytest
from hg_asm import EXIT, assemble, li
from hg_lib import FULL, HW, PAGE, RAM_BASE, SYS, VRAM, Ctx, Device, Tables, records
from hypothesis import given, settings
from hypothesis import strategies as st

PRESENT, RW, PSE, PROTNONE, PAT = 1, 2, 0x80, 0x100, 0x1000
PFN = 0x000FFFFFFFFFF000
DEV_PFN = 0x7_0000_0000  # frame of VRAM page 0, as the kernel numbers it
TYPES = {"dev_read": 30, "dev_write": 29, "exclusive": 31, "mig_read": 26, "mig_excl": 27,
         "mig_write": 28}  # fmt: skip
ALL = (1 << 64) - 1
ASID = 3
VA = 0x7000_4060_3000  # of no large page's begin
CODE = 0x1_0000


def swap(kind: int, offset: int) -> int:
    """x86-64: type in the top 5 bits, offset from bit 9 inverted."""
    return kind << 59 | (~offset & ((1 << 50) - 1)) << 9


def program(dev: Device, root: int, levels: int = 4, asid: int = ASID) -> None:
    """What the driver does at probe and at bind."""
    words = [PRESENT, RW, PSE, PROTNONE, PFN, 0x60, HW.HG_ENC_INVERT,
             59 | 5 << 8 | 9 << 16 | 50 << 24, (1 << 40) - 1,
             30 | 29 << 8 | 31 << 16 | 255 << 24 | 26 << 32 | 27 << 40 | 28 << 48,
             DEV_PFN]  # fmt: skip
    for n, word in enumerate(words):
        dev.wr(HW.HG_REG_AUDIT_ENC + 8 * n, word, 8)
    dev.wr(HW.HG_REG_AUDIT_CTRL, HW.HG_AUDIT_CTRL_READY)
    dev.wr(HW.HG_REG_AUDIT_ASID + 8 * asid,
           root | levels << HW.HG_AUDIT_LEVELS_SHIFT | HW.HG_AUDIT_ENABLE, 8)  # fmt: skip


class CpuTable:
    """The page table of a process."""

    def __init__(self, dev: Device, levels: int = 4) -> None:
        self.dev, self.levels, self.root = dev, levels, dev.alloc()

    def put(self, va: int, level: int, entry: int) -> None:
        """Set the entry of `level` that covers va (tables above are added)."""
        table = self.root
        for n in range(self.levels - 1, level, -1):
            at = table + (va >> (12 + 9 * n) & 511) * 8
            if not self.dev.u64(at):
                # USER, ACCESSED, DIRTY and NX say nothing
                self.dev.write(at, struct.pack("<Q", self.dev.alloc() | 0x67 | 1 << 63))
            table = self.dev.u64(at) & PFN
        at = table + (va >> (12 + 9 * level) & 511) * 8
        self.dev.write(at, struct.pack("<Q", entry & ALL))


def leaf(kind: str, level: int, pfn: int, write: bool) -> int:
    """An entry whose page at VA is `pfn`, whatever its level."""
    sub = VA >> 12 & ((1 << 9 * level) - 1)
    head = pfn - sub
    bits = RW if write else 0
    large = PSE | PAT if level else 0
    if kind == "none":
        return 0x60 if write else 0
    if kind in ("present", "coherent"):
        return head << 12 | PRESENT | bits | large | 0x64 | 1 << 63
    if kind == "protnone":
        return (~(head << 12) & PFN) | PROTNONE | bits | (PSE if level else 0)
    if kind == "invalidated":  # pmdp_invalidate()
        return (~(head << 12) & PFN) | bits | PSE
    if kind == "file":  # an ordinary swapped page
        return swap(1, head)
    flags = 3 << 40 if kind.startswith("mig") else 0
    return swap(TYPES[kind.removesuffix("-vram")], head | flags)


def verdict(sys: bool, gpu_write: bool, kind: str, same: bool, cpu_write: bool) -> str | None:
    """The rule of docs/audit.md."""
    side = "mirror-system-" if sys else "mirror-vram-"
    device, exclusive, migration = "dev" in kind, kind == "exclusive", kind.startswith("mig")
    if kind == "none":
        return side + "unmapped"
    if kind == "file":
        return side + "swapped"
    if kind == "coherent":  # memory of the CPU that is VRAM
        if sys:
            return side + "other-frame"
        if not same:
            return side + "in-system"
        return side + "readonly" if gpu_write and not cpu_write else None
    if kind == "exclusive-vram":  # a page of VRAM that the CPU could reach as memory
        if sys:
            return side + "other-frame"
        return None if same else side + "in-system"
    if kind in ("present", "invalidated", "protnone") or exclusive:
        if not sys:
            return side + "in-system"
        if kind == "protnone":
            return side + "protnone"
        if not same:
            return side + "other-frame"
        return side + "readonly" if gpu_write and not cpu_write and not exclusive else None
    if device:
        if sys:
            return side + "in-vram"
        if not same:
            return side + "other-page"
        return side + "readonly" if gpu_write and kind == "dev_read" else None
    assert migration
    if sys:
        return side + "migrating"
    return side + "migrating" if same else None


def read_va(dev: Device, ctx: Ctx, va: int) -> None:
    report = ctx.copy(va, dev.alloc(), 8, HW.HG_SPACE_VIRT, HW.HG_SPACE_SYS)
    dev.run(lambda: dev.report(report).complete)
    assert dev.report(report).status == 0


def names(dev: Device) -> list[str]:
    return [v["check"] for v in records(dev)["violations"]]


KINDS = ["none", "present", "coherent", "exclusive-vram", "protnone", "invalidated", "file", *TYPES]


@given(
    kind=st.sampled_from(KINDS), level=st.integers(0, 2), levels=st.sampled_from([4, 5]),
    sys=st.booleans(), same=st.booleans(), gpu_write=st.booleans(), cpu_write=st.booleans(),
    huge=st.booleans(), mode=st.sampled_from(["fill", "access", "sampled=1"]),
    direct=st.booleans(),
)  # fmt: skip
@settings(max_examples=300)
def test_verdicts(
    kind: str, level: int, levels: int, sys: bool, same: bool, gpu_write: bool, cpu_write: bool,
    huge: bool, mode: str, direct: bool,
) -> None:  # fmt: skip
    """Every kind of entry at every level, against small and large GPU entries."""
    if kind == "invalidated" and level == 0:
        level = 1
    with Device(direct=direct, misused=True) as dev:
        gpu, cpu = Tables(dev, ASID), CpuTable(dev, levels)
        flags = HW.HG_PTE_VALID | (HW.HG_PTE_WRITE | HW.HG_PTE_ATOMIC if gpu_write else 0)
        frame = VA & 0x3FFFFFFF  # so that leaves of all levels can hold it
        if huge:
            gpu.map_huge(VA & ~0x1FFFFF, (frame & ~0x1FFFFF) + (RAM_BASE if sys else 0),
                         flags | (SYS if sys else VRAM))  # fmt: skip
        else:
            gpu.map(VA, frame + (RAM_BASE if sys else 0), flags | (SYS if sys else VRAM))
        device = kind.startswith(("dev", "coherent")) or kind == "exclusive-vram"
        device |= kind.startswith("mig") and not sys
        pfn = (frame + RAM_BASE) >> 12 if sys and not device else DEV_PFN + (frame >> 12)
        if not sys and not device:
            pfn = (frame + RAM_BASE) >> 12
        if not same:
            pfn += 1 << 18
        cpu.put(VA, level, leaf(kind, level, pfn, cpu_write))
        program(dev, cpu.root, levels)
        assert dev.lib.hg_audit_set(dev.dev, mode.encode()) == 0
        ctx = Ctx(dev, 0, ASID, priv=True)
        read_va(dev, ctx, VA)
        want = verdict(sys, gpu_write, kind, same, cpu_write)
        seen = records(dev)
        assert [v["check"] for v in seen["violations"]] == ([want] if want else [])
        assert seen["checks"] == 1
        assert seen["total"] == (want is not None)
        if want:
            (v,) = seen["violations"]
            assert int(v["address"], 16) == VA
            assert v["asid"] == ASID
            assert int(v["cpu_entry"], 16) == leaf(kind, level, pfn, cpu_write) & ALL
            if kind != "none":
                assert v["cpu_level"] == level
            assert v["engine"] == "ce"
            assert v["access"] == "read"
            assert v["fill_time"] > 0
        assert dev.counter("violations") == len(seen["violations"])


def small(dev: Device) -> tuple[Tables, CpuTable, Ctx, int]:
    """A page that both map alike, audited on every access."""
    gpu, cpu = Tables(dev, ASID), CpuTable(dev)
    frame = dev.alloc()
    gpu.map(VA, frame, HW.HG_PTE_VALID | HW.HG_PTE_WRITE | SYS)
    cpu.put(VA, 0, frame | PRESENT | RW)
    program(dev, cpu.root)
    dev.lib.hg_audit_set(dev.dev, b"access")
    return gpu, cpu, Ctx(dev, 0, ASID, priv=True), frame


def test_a_stale_tlb_entry_is_seen_and_an_invalidated_one_is_not() -> None:
    with Device(misused=True) as dev:
        gpu, cpu, ctx, _ = small(dev)
        read_va(dev, ctx, VA)
        assert names(dev) == []
        fresh = dev.alloc()
        gpu.map(VA, fresh, HW.HG_PTE_VALID | SYS)
        seq = dev.invalidate(HW.HG_INVAL_RANGE, ASID, VA, PAGE)
        cpu.put(VA, 0, fresh | PRESENT)
        read_va(dev, ctx, VA)
        assert names(dev) == []
        other = dev.alloc()
        gpu.map(VA, other, HW.HG_PTE_VALID | SYS)  # and nobody invalidates
        cpu.put(VA, 0, other | PRESENT)
        read_va(dev, ctx, VA)
        assert names(dev) == ["mirror-system-other-frame"]
        assert records(dev)["violations"][0]["inval_seq"] == seq
        dev.lib.hg_violations_clear(dev.dev)
        assert names(dev) == []
        assert dev.counter("violations") == 0


#: Where an IOMMU knows RAM by other addresses.
ALIAS = 1 << 40


@pytest.mark.parametrize("mode", [b"fill", b"access"])
def test_behind_an_iommu_bus_addresses_are_looked_up(mode: bytes) -> None:
    """Of the GPU's entries, and of its tables; the CPU's are where they are in memory."""

    def bus(addr: int) -> int:
        return addr - RAM_BASE + ALIAS

    with Device(direct=False, alias=ALIAS, misused=True) as dev:
        assert dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_AUDIT_BUS
        gpu, cpu = Tables(dev, ASID), CpuTable(dev)
        dev.wr(HW.HG_REG_ASID + ASID * HW.HG_ASID_STRIDE, bus(gpu.root) | HW.HG_ROOT_ENABLE, 8)
        frame, other = dev.alloc(), dev.alloc()
        gpu.map(VA, bus(frame), HW.HG_PTE_VALID | HW.HG_PTE_WRITE | SYS)
        cpu.put(VA, 0, frame | PRESENT | RW)
        program(dev, cpu.root)
        assert dev.lib.hg_audit_set(dev.dev, mode) == 0
        ctx = Ctx(dev, 0, ASID, priv=True)
        read_va(dev, ctx, VA)
        assert records(dev)["checks"] == 1
        assert dev.lib.hg_audit_full(dev.dev) == 1
        assert names(dev) == []
        # The entry of another page, and one that leads nowhere.
        cpu.put(VA, 0, other | PRESENT | RW)
        assert dev.lib.hg_audit_full(dev.dev) == 1
        dev.invalidate(HW.HG_INVAL_RANGE, ASID, VA, PAGE)
        read_va(dev, ctx, VA)
        assert names(dev) == ["mirror-system-other-frame"] * 2
        dev.lib.hg_violations_clear(dev.dev)
        dev.host.bad_lo, dev.host.bad_hi = bus(frame), bus(frame) + PAGE
        assert dev.lib.hg_audit_full(dev.dev) == 1
        assert names(dev) == ["mirror-system-nowhere"]
        # Nobody can look while the device may not be on the bus.
        dev.lib.hg_set_bus_master(dev.dev, False)
        assert dev.lib.hg_audit_full(dev.dev) == 0
        assert names(dev) == ["mirror-system-nowhere"]


def test_without_an_iommu_nothing_is_looked_up() -> None:
    with Device() as dev:
        assert not dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_AUDIT_BUS


@pytest.mark.parametrize("levels", [4, 5])
def test_the_upper_half_mirrors_nothing(levels: int) -> None:
    """VRAM there is the driver's own, whatever the CPU's table has; a system frame is a mistake."""
    with Device(misused=True) as dev:
        gpu, cpu, ctx, _ = small(dev)
        program(dev, cpu.root, levels)
        for n, va in enumerate((1 << 47, (1 << 48) - PAGE)):
            page = dev.alloc_vram()
            gpu.map(va, page, HW.HG_PTE_VALID | HW.HG_PTE_WRITE | VRAM)
            read_va(dev, ctx, va)
            # the kernel's half, or a swap entry of nobody's
            cpu.put(va, 0, (dev.alloc() | PRESENT, swap(1, 77))[n])
            read_va(dev, ctx, va)
        assert names(dev) == []
        assert records(dev)["checks"] == 4
        program(dev, cpu.root)  # what small() made has four levels
        assert dev.lib.hg_audit_full(dev.dev) == 3
        assert names(dev) == []
        gpu.map(1 << 47, dev.alloc(), HW.HG_PTE_VALID | SYS)
        dev.invalidate(HW.HG_INVAL_RANGE, ASID, 1 << 47, PAGE)
        read_va(dev, ctx, 1 << 47)
        assert names(dev) == ["mirror-system-unmapped"]
        dev.lib.hg_audit_full(dev.dev)
        assert names(dev) == ["mirror-system-unmapped"] * 2
        # the last address below is a process's
        gpu.map((1 << 47) - PAGE, page, HW.HG_PTE_VALID | VRAM)
        read_va(dev, ctx, (1 << 47) - PAGE)
        assert names(dev)[2:] == ["mirror-vram-unmapped"]


@pytest.mark.parametrize(
    ("mode", "hits"), [("off", 0), ("fill", 0), ("sampled=4", 2), ("access", 8)]
)
def test_modes(mode: str, hits: int) -> None:
    """The page turns stale after its fill: who looks at hits sees it."""
    with Device(misused=True) as dev:
        _, cpu, ctx, _ = small(dev)
        dev.lib.hg_audit_set(dev.dev, mode.encode())
        read_va(dev, ctx, VA)
        cpu.put(VA, 0, 0)
        for _ in range(8):
            read_va(dev, ctx, VA)
        assert len(names(dev)) == hits
        assert dev.lib.hg_audit_set(dev.dev, b"often") == -1


def test_an_empty_entry_is_no_verdict_if_the_wait_is_broken_off() -> None:
    """The host wants the engines parked, and may be who lets CPUs run."""
    with Device(audit_wait_ns=10**12, misused=True) as dev:
        _, cpu, ctx, _ = small(dev)
        cpu.put(VA, 0, 0)
        report = ctx.copy(VA, dev.alloc(), 8, HW.HG_SPACE_VIRT, HW.HG_SPACE_SYS)
        while not dev.lib.hg_audit_waits(dev.dev):
            assert dev.step(100)
        dev.park()
        dev.run(lambda: dev.report(report).complete)
        assert names(dev) == []
        assert records(dev)["undecided"] == 1


def test_not_enabled_not_ready_not_readable() -> None:
    with Device(misused=True) as dev:
        _, cpu, ctx, _ = small(dev)
        cpu.put(VA, 0, 0)
        dev.wr(HW.HG_REG_AUDIT_CTRL, 0)
        read_va(dev, ctx, VA)
        dev.wr(HW.HG_REG_AUDIT_CTRL, 1)
        dev.wr(HW.HG_REG_AUDIT_ASID + 8 * ASID, 0, 8)
        read_va(dev, ctx, VA)
        assert names(dev) == []
        assert records(dev)["checks"] == 0
        program(dev, 1 << 45)  # no RAM there
        before = dev.counter("guest_errors")
        read_va(dev, ctx, VA)
        assert names(dev) == []
        assert records(dev)["undecided"] == 1
        for bad in (RAM_BASE | 3 << 4 | 1, RAM_BASE | 1, RAM_BASE | 2, 1 << 60 | 4 << 4 | 1):
            dev.wr(HW.HG_REG_AUDIT_ASID + 8 * ASID, bad, 8)
        # four refused roots, and the encodings while they are in use (11 words in program())
        assert dev.counter("guest_errors") - before == 4
        dev.wr(HW.HG_REG_AUDIT_ENC, 5, 8)
        assert dev.counter("guest_errors") - before == 5
        assert dev.rd(HW.HG_REG_AUDIT_ENC, 8) == PRESENT


def test_survives_save_and_load() -> None:
    with Device(misused=True) as dev:
        _, cpu, ctx, _ = small(dev)
        state = dev.save()
        dev.lib.hg_reset(dev.dev)
        assert dev.rd(HW.HG_REG_AUDIT_ASID + 8 * ASID, 8) == 0
        dev.lib.hg_audit_set(dev.dev, b"off")
        dev.load(state)
        assert records(dev)["mode"] == "access"
        assert records(dev)["ready"]
        cpu.put(VA, 0, 0)
        read_va(dev, ctx, VA)
        assert names(dev) == ["mirror-system-unmapped"]


@pytest.mark.parametrize("mode", ["fill", "access", "sampled=3", "sampled=5", "sampled=7"])
def test_goes_on_as_it_was(mode: str) -> None:
    """What is looked at after a load is what would have been: a look is a step more."""
    with Device(sms=1, misused=True) as dev:
        t, cpu = Tables(dev, ASID), CpuTable(dev)
        program(dev, cpu.root)
        for va in (VA, VA + PAGE, CODE):
            at = dev.alloc()
            t.map(va, at, FULL | SYS)
            cpu.put(va, 0, leaf("present", 0, at >> 12, True))
        dev.write(at, assemble([*li(5, VA), *li(6, VA + PAGE), *[asm.load("ld", 7, 5),
                                asm.load("ld", 7, 6)] * 2, EXIT]))  # fmt: skip
        dev.lib.hg_audit_set(dev.dev, mode.encode())
        ctx = Ctx(dev, 3, ASID)

        def steps() -> list[int]:
            report = ctx.launch(CODE, block=1)
            stood = []
            while not dev.report(report).complete:
                for e in range(dev.lib.hg_engines(dev.dev)):
                    dev.step_engine(e, 1)
                    stood.append(dev.lib.hg_engine_at(dev.dev, e))
            dev.run()
            return stood

        steps()
        state, put = dev.save(), ctx.put
        after = steps()
        dev.load(state)
        ctx.put = put
        assert steps() == after


def test_it_waits_in_vain_no_more_after_a_load() -> None:
    with Device(misused=True, audit_wait_ns=5000) as dev:
        dev.set_clock(1000)
        _, cpu, ctx, _ = small(dev)
        cpu.put(VA, 0, 0)

        def looks() -> int:
            report, n = ctx.copy(VA, dev.alloc(), 8, HW.HG_SPACE_VIRT, HW.HG_SPACE_SYS), 0
            while not dev.report(report).complete:
                dev.step(4096)
                dev.host.now += 1000
                n += 1
            return n

        first = [looks() for _ in range(17)]
        assert first[0] > first[16]
        state, put = dev.save(), ctx.put
        dev.load(state)
        ctx.put = put
        assert looks() == first[16]


def test_full_audit() -> None:
    """All GPU entries, and who owns what in VRAM."""
    with Device(misused=True, audit_cmd=True) as dev:
        gpu, cpu, _, _ = small(dev)
        page = dev.alloc_vram()
        gpu.map(VA + PAGE, page, HW.HG_PTE_VALID | VRAM)
        cpu.put(VA + PAGE, 0, swap(TYPES["dev_write"], DEV_PFN + page // PAGE))
        assert dev.lib.hg_audit_full(dev.dev) == 3
        assert names(dev) == []
        # the same of a page that the CPU may use, and an owner of RAM, which is none of VRAM
        cpu.put(VA + PAGE, 0, DEV_PFN + page // PAGE << 12 | PRESENT)
        cpu.put(VA + 5 * PAGE, 0, dev.alloc() | PRESENT)
        assert dev.lib.hg_audit_full(dev.dev) == 3
        assert names(dev) == []
        cpu.put(VA, 0, 0)
        cpu.put(VA + 2 * PAGE, 0, swap(TYPES["dev_read"], DEV_PFN + page // PAGE))
        cpu.put(VA + 3 * PAGE, 0, swap(TYPES["dev_read"], DEV_PFN + (8 << 20) // PAGE))
        cpu.put(VA + 4 * PAGE, 0, swap(TYPES["dev_read"], DEV_PFN - 1))
        dev.wr(HW.HG_REG_AUDIT_CMD, 1)
        assert names(dev) == ["mirror-system-unmapped", "vram-two-owners",
                              "vram-owner-out-of-range", "vram-owner-out-of-range"]  # fmt: skip
        assert all(v["at_rest"] for v in records(dev)["violations"])


def test_full_audit_of_tables_that_contain_themselves_ends() -> None:
    with Device(misused=True) as dev:
        _, cpu, _, _ = small(dev)
        for n in range(512):
            dev.write(cpu.root + 8 * n, struct.pack("<Q", cpu.root | 0x67))
        dev.lib.hg_audit_full(dev.dev)
        assert records(dev)["mode"] == "access"
