# SPDX-License-Identifier: GPL-2.0-or-later
"""Deterministic stepping: engines that stand in the middle of what they do, and who may come
in between."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import hg_asm as asm
import pytest
from hg_asm import BARRIER, EXIT, assemble, csrr
from hg_lib import FULL, HW, PAGE, RAM_BASE, SYS, Ctx, Device, Tables, map_code, records
from hypothesis import given, settings
from hypothesis import strategies as st
from test_audit import CpuTable, leaf, names, program
from test_vec import sets

CODE, DATA, OUT = 0x1_0000, 0x7000_4060_3000, 0x6000_0000
SM, FRONT_END = 0, 3  # of a device with one SM and two copy engines
WAITS = ["injected pause", "waits for the CPU's entry"]


class Job:
    """One lane loads what is at DATA and stores it at OUT; the CPU's table agrees, and the audit
    looks at each access."""

    def __init__(self, **cfg: Any) -> None:
        self.dev = dev = Device(sms=1, misused=True, **cfg)
        dev.set_clock(1000)
        dev.enable_faults()
        self.gpu, self.cpu = Tables(dev, 3), CpuTable(dev)
        program(dev, self.cpu.root)
        dev.lib.hg_audit_set(dev.dev, b"access")
        self.old, self.new, self.out = dev.alloc(), dev.alloc(), dev.alloc()
        dev.write(self.old, struct.pack("<Q", 1))
        dev.write(self.new, struct.pack("<Q", 2))
        map_code(dev, self.gpu, CODE, assemble([
            asm.load("ld", 5, 10), *asm.li(11, OUT), asm.store("sd", 5, 11), EXIT,
        ]))  # fmt: skip
        self.gpu.map(DATA, self.old, FULL | SYS)
        self.gpu.map(OUT, self.out, FULL | SYS)
        for va, frame in ((DATA, self.old), (OUT, self.out), (CODE, self.out + PAGE)):
            self.cpu.put(va, 0, frame | HW.HG_PTE_VALID | 2)
        self.ctx = Ctx(dev, 1, 3)
        self.report = self.ctx.launch(CODE, DATA, block=1)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.dev.close()

    def stops(self) -> list[str]:
        """Where the SM stands after each single step, to the end of the launch."""
        out = []
        while not self.dev.report(self.report).complete:
            self.one()
            out.append(self.dev.at(SM))
        return out

    def one(self) -> None:
        """One step of the SM, or of whoever has something to do instead."""
        if not self.dev.step_engine(SM):
            self.dev.step_engine(FRONT_END)

    def stand(self, n: int) -> str:
        """Let the SM come to its n-th stop; where it stands."""
        for _ in range(n):
            self.one()
        return self.dev.at(SM)

    def finish(self) -> int:
        """Run to the end; what was loaded."""
        self.dev.service(lambda _: None, lambda: self.dev.report(self.report).complete)
        assert self.dev.report(self.report).status == 0
        return self.dev.u64(self.out)


def stops_of_a_job() -> list[str]:
    with Job() as job:
        return job.stops()


def test_an_invalidation_waits_wherever_an_engine_stands() -> None:
    """It is done when the engine has passed its safe point, not before, whoever else runs; and then
    nothing of the old translation is left."""
    at = stops_of_a_job()
    met = set()
    for n in range(len(at)):
        with Job() as job:
            dev = job.dev
            where = job.stand(n)
            busy = where != "at rest"
            job.gpu.unmap(DATA)
            seq = dev.invalidate(HW.HG_INVAL_RANGE, 3, DATA, PAGE)
            for engine in (1, 2, FRONT_END):
                dev.step_engine(engine, 1000)
            assert (dev.rd(HW.HG_REG_INVAL_DONE, 8) < seq) == busy, where
            for _ in range(100):
                if dev.rd(HW.HG_REG_INVAL_DONE, 8) >= seq:
                    break
                job.one()
            else:
                raise AssertionError(f"never done: {where}")
            # now the kernel may give the process another page, and this one away
            dev.write(job.old, struct.pack("<Q", 3))
            job.cpu.put(DATA, 0, job.new | HW.HG_PTE_VALID | 2)
            job.gpu.map(DATA, job.new, FULL | SYS)
            assert job.finish() in (1, 2), where
            assert names(dev) == [], where
            met.add(where)
    assert met >= {
        "at rest", "between instructions", "before a walk", "between levels of a walk",
        "leaf in hand", "translation in hand", "data done", "audited", "at a ring",
    }  # fmt: skip


PARKING: list[Callable[[Job], Any]] = [
    lambda job: job.dev.park(),
    lambda job: job.dev.save(),
    lambda job: job.dev.inject(""),
    lambda job: job.dev.lib.hg_audit_full(job.dev.dev),
    lambda job: job.dev.lib.hg_set_bus_master(job.dev.dev, True),
    lambda job: job.dev.load(job.dev.save()),
    lambda job: job.dev.lib.hg_ram_add(
        job.dev.dev, RAM_BASE + (1 << 40), PAGE, job.dev.host.ram, True, job.dev.host
    ),
]


@pytest.mark.parametrize("how", range(len(PARKING)))
def test_who_parks_engines_does_not_wait_for_steps(how: int) -> None:
    """Wherever an engine stands, it comes to a safe point inside the call, and the job goes on."""
    for n in range(len(stops_of_a_job())):
        with Job() as job:
            where = job.stand(n)
            PARKING[how](job)
            for engine in range(4):
                assert job.dev.at(engine) == "at rest", where
            assert job.finish() == 1, where


@pytest.mark.parametrize("where", WAITS)
@pytest.mark.parametrize("how", range(len(PARKING)))
def test_who_parks_engines_breaks_waits_off(how: int, where: str) -> None:
    with Job(audit_wait_ns=10**9) as job:
        if where == WAITS[0]:
            job.dev.inject(f"walk match={DATA:x} count=1 delay=1s")
        else:
            job.cpu.put(DATA, 0, 0)
        while job.dev.step(100) and job.dev.at(SM) != where:
            pass
        for _ in range(10):
            assert job.dev.step_engine(SM, 1000) == 0
        PARKING[how](job)
        assert job.dev.at(SM) == "at rest"
        assert not job.dev.lib.hg_audit_waits(job.dev.dev)
        assert job.finish() == 1
        assert [v for v in records(job.dev)["violations"] if not v["at_rest"]] == []


def test_a_reset_in_the_middle() -> None:
    """As one at rest: nothing is left of what the engine did."""
    states = set()
    for n in range(len(stops_of_a_job())):
        with Job() as job:
            job.stand(n)
            if n % 2:
                job.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
            else:
                job.dev.lib.hg_reset(job.dev.dev)
            states.add(job.dev.save())
            assert job.dev.lib.hg_engines_ready(job.dev.dev) == 0
    assert len(states) == 1


def test_disabled_engines_have_to_be_stepped_to_their_safe_points() -> None:
    """STATUS.PARKED is what the driver polls; the mask names who is still on the way."""
    for n in range(len(stops_of_a_job())):
        with Job() as job:
            where = job.stand(n)
            job.dev.wr(HW.HG_REG_CTRL, 0)
            parked = job.dev.rd(HW.HG_REG_STATUS) & HW.HG_STATUS_PARKED
            assert bool(parked) == (job.dev.lib.hg_engines_ready(job.dev.dev) == 0), where
            for _ in range(100):
                if not (ready := job.dev.lib.hg_engines_ready(job.dev.dev)):
                    break
                job.dev.step_engine(ready.bit_length() - 1)
            assert job.dev.rd(HW.HG_REG_STATUS) & HW.HG_STATUS_PARKED, where
            job.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_ENABLE)
            assert job.finish() == 1


# -- how the steps are cut --

Cut = Sequence[tuple[int, int]]
lengths = st.sampled_from([1, 1, 2, 3, 7, 50, 256])
cuts = st.lists(st.tuples(st.integers(0, 4), lengths), max_size=200)
fixed = [[(e, n) for e in (4, 3, 2, 1, 0)] for n in (1, 3, 256)]
KEEP = ["instrs", "loads", "stores", "atomics", "copies", "copy_bytes", "utlb_hits", "utlb_misses",
        "faults", "replays", "launches", "fences", "stalled_warps", "pending_faults"]  # fmt: skip


def follow(dev: Device, cut: Cut, until: Callable[[], bool]) -> None:
    """Steps as cut, over and over; who stays behind runs in a round."""
    for _ in range(3000):
        if until():
            return
        for engine, steps in cut:
            dev.step_engine(engine, steps)
        dev.host.now += 1000
        dev.step(1)
    raise AssertionError("no end")


def busy_work(cut: Cut) -> tuple[dict[str, bytes], list[tuple[int, ...]], dict[str, int]]:
    """Two launches, a copy and a fence that do not race, with faults, on a small TLB."""
    with Device(sms=2, utlb_entries=8, l2tlb_entries=16) as dev:
        dev.set_clock(1000)
        dev.enable_faults()
        t = Tables(dev, 1)
        # each thread: its own 8 bytes in each of 12 pages, then a barrier, then its neighbour's
        body = [csrr(5, "tid"), csrr(6, "bid"), asm.i("slli", 5, 5, 3), asm.i("slli", 6, 6, 9),
                asm.r("add", 5, 5, 6), asm.r("add", 5, 5, 10), asm.i("addi", 7, 0, 12),
                asm.lui(28, 1)]  # fmt: skip
        loop = [asm.store("sd", 5, 5), asm.amo("amoadd", "d", 0, 7, 5), asm.r("add", 5, 5, 28),
                asm.i("addi", 7, 7, -1), asm.branch_off("bne", 7, 0, -16), BARRIER,
                asm.r("sub", 5, 5, 28), asm.i("xori", 5, 5, 8), asm.load("ld", 29, 5),
                BARRIER, asm.store("sd", 29, 5), EXIT]  # fmt: skip
        map_code(dev, t, CODE, assemble(body + loop))
        frames: dict[int, int] = {}
        data = [dev.alloc(12) for _ in range(2)]
        for n in range(2):
            for page in range(12):
                frames[DATA + (n << 20) + page * PAGE] = data[n] + page * PAGE
        launches = [Ctx(dev, 1 + n, 1).launch(CODE, DATA + (n << 20), grid=3, block=64)
                    for n in range(2)]  # fmt: skip
        copier = Ctx(dev, 0, 1, priv=True)
        source, target, fence = dev.alloc(3), dev.alloc(3), dev.alloc()
        dev.write(source, bytes(range(256)) * 40)
        reports = [*launches, copier.copy(source + 5, target + 77, 9000, HW.HG_SPACE_SYS,
                                          HW.HG_SPACE_SYS)]  # fmt: skip
        copier.push([HW.HG_OP_FENCE | HW.HG_FENCE_IRQ, fence, 99])
        copier.ring_doorbell()

        def done() -> bool:
            for f in dev.take_faults():
                t.map(f.addr, frames[f.addr], FULL | SYS)
                dev.replay()
            return dev.u64(fence) == 99 and all(dev.report(r).complete for r in reports)

        follow(dev, cut, done)
        answers = [(r.status, r.instrs, r.addr) for r in map(dev.report, reports)]
        memory = {"a": dev.read(data[0], 12 * PAGE), "b": dev.read(data[1], 12 * PAGE),
                  "copy": dev.read(target, 3 * PAGE)}  # fmt: skip
        return memory, answers, {k: dev.counter(k) for k in KEEP}


@pytest.fixture(scope="module")
def expected() -> tuple[dict[str, bytes], list[tuple[int, ...]], dict[str, int]]:
    return busy_work([])


@pytest.mark.parametrize("cut", fixed, ids=["1", "3", "256"])
def test_even_cuts_change_nothing(cut: Cut, expected: Any) -> None:
    assert busy_work(cut)[:2] == expected[:2]


@given(cut=cuts)
@settings(max_examples=15)
def test_random_cuts_change_nothing(cut: Cut, expected: Any) -> None:
    assert busy_work(cut)[:2] == expected[:2]


def alone(steps: int) -> tuple[bytes, dict[str, int], list[tuple[int, ...]]]:
    """One launch of many warps on a TLB too small for it, no faults."""
    with Device(sms=1, utlb_entries=8, l2tlb_entries=8) as dev:
        dev.set_clock(1000)
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble([
            csrr(5, "tid"), asm.i("slli", 5, 5, 9), asm.r("add", 5, 5, 10), asm.i("addi", 7, 0, 99),
            asm.store("sd", 7, 5), asm.i("addi", 7, 7, -1), asm.branch_off("bne", 7, 0, -8), EXIT,
        ]))  # fmt: skip
        data = dev.alloc(32)
        for n in range(32):
            t.map(DATA + n * PAGE, data + n * PAGE, FULL | SYS)
        report = Ctx(dev, 1, 1).launch(CODE, DATA, block=256)
        dev.step_engine(FRONT_END, 1000)
        while dev.step_engine(SM, steps):
            pass
        assert dev.report(report).complete
        walks = dev.events("TLB_FILL")
        return dev.read(data, 32 * PAGE), {k: dev.counter(k) for k in KEEP}, walks


def test_what_an_engine_does_does_not_depend_on_the_cut() -> None:
    """To the last counter and the order of its walks, as nothing comes in between."""
    whole = alone(1 << 30)
    assert whole[1]["utlb_misses"] > 100
    for steps in (1, 3, 64, 256, 1000):
        assert alone(steps) == whole


def places(vec: str, steps: int, code: bytes) -> tuple[list[tuple[int, str]], bytes]:
    """Where a launch of whole and parted warps stands after each call, and the state at the end."""
    with Device(sms=1, vec=vec, utlb_entries=8) as dev:
        dev.set_clock(1000)
        t = Tables(dev, 1)
        map_code(dev, t, CODE, code)
        for n in range(4):
            t.map(DATA + n * PAGE, dev.alloc(), FULL | SYS)
        Ctx(dev, 1, 1).launch(CODE, DATA, block=48)
        dev.step_engine(FRONT_END, 1000)
        out = []
        while n := dev.step_engine(SM, steps):
            out.append((n, dev.at(SM)))
        dev.park()
        return out, dev.save()


@pytest.mark.parametrize("steps", [1, 2, 5, 7, 64])
@pytest.mark.parametrize("stride", [0, 3, 4, 8, 100, 260])
def test_where_steps_end_does_not_depend_on_vectors(steps: int, stride: int) -> None:
    """Another host has other vectors; a schedule of steps means the same there."""
    code = assemble([
        csrr(5, "tid"), asm.i("andi", 5, 5, 31), asm.i("addi", 6, 0, stride), asm.r("mul", 5, 5, 6),
        asm.r("add", 5, 5, 10), asm.i("addi", 7, 0, 3),
        asm.store("sw", 7, 5), asm.i("xori", 8, 7, 5), asm.load("lwu", 9, 5), asm.r("add", 9, 9, 8),
        asm.fp("fcvt_w", "s", 1, 9), asm.fp("fadd", "s", 2, 1, 1), asm.fstore("s", 2, 5, 4),
        asm.load("lbu", 11, 10), asm.i("addi", 7, 7, -1), asm.branch_off("bne", 7, 0, -36), EXIT,
    ])  # fmt: skip
    names = [v for v in ("off", "plain", "avx2", "avx512") if v in sets()]
    assert "plain" in names
    first = places("off", steps, code)
    for vec in names:
        assert places(vec, steps, code) == first, vec


def test_the_leaf_in_hand_is_what_was_read() -> None:
    """An entry changed after the walk has read it is seen by the next walk, not by this one."""
    with Job() as job:
        while not (job.dev.at(SM) == "leaf in hand" and job.dev.counter("instrs") == 0
                   and job.dev.counter("l2tlb_misses") == 2):  # fmt: skip
            job.one()
        job.gpu.map(DATA, job.new, FULL | SYS)
        job.dev.lib.hg_audit_set(job.dev.dev, b"off")
        assert job.finish() == 1


# -- the same again --

moves = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 4), st.integers(1, 40)),
        st.tuples(st.just("time"), st.integers(1, 5000), st.just(0)),
        st.tuples(st.just("inval"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("replay"), st.just(0), st.just(0)),
        st.tuples(st.just("map"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("doorbell"), st.integers(0, 1), st.just(0)),
    ),
    min_size=20, max_size=120,
)  # fmt: skip
# engines at work, so that there is something to come in between
BEGIN = [*(("map", n, n) for n in range(4)), *(("doorbell", n, 0) for n in range(2)),
         ("step", 4, 200), ("step", 0, 30), ("step", 1, 35)]  # fmt: skip


def play(script: Sequence[tuple[str, int, int]], stops: frozenset[int] = frozenset()) -> Any:
    """All that is to be seen after the moves; the machine stands for a while before some."""
    stops = frozenset(k % len(script) for k in stops)
    with Device(sms=2, utlb_entries=4, misused=True) as dev:
        dev.set_clock(1000)
        dev.enable_faults()
        dev.inject("walk prob=0.2 delay=700; fault prob=0.2 duplicate; "
                   "tlb_invalidate prob=0.3 delay=2us")  # fmt: skip
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble([
            csrr(5, "tid"), asm.i("andi", 5, 5, 3), asm.i("slli", 5, 5, 12), asm.r("add", 5, 5, 10),
            asm.load("ld", 6, 5), asm.i("addi", 6, 6, 1), asm.store("sd", 6, 5),
            asm.branch_off("beq", 0, 0, -12),
        ]))  # fmt: skip
        frames = [dev.alloc() for _ in range(4)]
        ctx = [Ctx(dev, 1, 1), Ctx(dev, 2, 1)]
        where = []
        for k, (what, a, b) in enumerate([*BEGIN, *script], -len(BEGIN)):
            if k in stops:
                dev.lib.hg_stop(dev.dev)
                assert dev.lib.hg_engines_ready(dev.dev) == 0
                assert [dev.step_engine(e, 100) for e in range(5)] == [0] * 5
                assert not dev.step(100)
                dev.lib.hg_start(dev.dev)
            if what == "step":
                where.append((dev.step_engine(a, b), dev.at(a)))
            elif what == "time":
                dev.host.now += a
            elif what == "inval":
                dev.invalidate(HW.HG_INVAL_RANGE, 1, DATA + a * PAGE, PAGE)
            elif what == "replay":
                dev.take_faults()
                dev.replay()
            elif what == "map":
                t.map(DATA + a * PAGE, frames[b], FULL | SYS)
            else:
                ctx[a].launch(CODE, DATA, grid=2, block=40)
            ready, deadline = dev.lib.hg_engines_ready(dev.dev), dev.lib.hg_deadline(dev.dev)
            where.append((int(ready), str(deadline)))
        log = [tuple(getattr(dev.host.log[k], x) for x in ("ev", "a", "b", "c", "d"))
               for k in range(int(dev.host.logged))]  # fmt: skip
        counts = [int(dev.lib.hg_counter(dev.dev, n)) for n in range(HW.HG_NUM_COUNTERS)]
        return where, log, counts, dev.ram.tobytes(), dev.save()


@given(script=moves)
@settings(max_examples=25)
def test_the_same_moves_again(script: list[tuple[str, int, int]]) -> None:
    """Equal to the last bit of state and memory, and the last event."""
    assert play(script) == play(script)


@given(script=moves, stops=st.frozensets(st.integers(0, 119), min_size=1, max_size=20))
@settings(max_examples=25)
def test_a_stop_of_the_machine_changes_nothing(
    script: list[tuple[str, int, int]], stops: frozenset[int]
) -> None:
    """A debugger may stop it anywhere: what ran is what would have run."""
    assert play(script, stops) == play(script)


# -- time --

def test_an_injected_pause_takes_virtual_time() -> None:
    """The engine stands for that long, an invalidation waits for it, others run."""
    with Job() as job:
        dev = job.dev
        dev.inject(f"walk match={DATA:x} count=1 delay=1ms")
        while dev.step(100) and dev.at(SM) != WAITS[0]:
            pass
        begun = dev.host.now
        assert dev.lib.hg_deadline(dev.dev) == begun + 1_000_000
        assert dev.lib.hg_engines_ready(dev.dev) == 0
        seq = dev.invalidate(HW.HG_INVAL_ALL)
        src, dst = dev.alloc(), dev.alloc()
        dev.write(src, b"others")
        copy = Ctx(dev, 0, 3, priv=True).copy(src, dst, 6, HW.HG_SPACE_SYS, HW.HG_SPACE_SYS)
        for _ in range(20):
            dev.step(100)
        assert dev.report(copy).complete
        assert dev.read(dst, 6) == b"others"
        dev.host.now = begun + 999_999
        assert dev.step_engine(SM, 100) == 0
        assert dev.at(SM) == WAITS[0]
        assert dev.rd(HW.HG_REG_INVAL_DONE, 8) < seq
        dev.host.now = begun + 1_000_000
        assert dev.lib.hg_engines_ready(dev.dev) == 1 << SM
        assert dev.step_engine(SM, 100) > 0
        assert dev.rd(HW.HG_REG_INVAL_DONE, 8) >= seq
        assert job.finish() == 1


def test_the_deadline_is_the_nearest_of_all() -> None:
    with Job() as job:
        dev = job.dev
        dev.run(lambda: dev.report(job.report).complete)
        assert dev.lib.hg_deadline(dev.dev) == (1 << 64) - 1
        assert not dev.step(100)
        dev.inject("irq delay=50us; doorbell delay=20us")
        dev.wr(HW.HG_REG_INTR_ENABLE, 15)
        report = job.ctx.launch(CODE, DATA, block=1)
        assert dev.lib.hg_deadline(dev.dev) == dev.host.now + 20_000
        assert dev.step(100)
        assert not dev.report(report).complete
        dev.host.now += 20_000
        assert dev.lib.hg_engines_ready(dev.dev) == 1 << FRONT_END
        dev.inject("")
        dev.run(lambda: dev.report(report).complete)


# -- the audit waits for an entry that is empty --

def waiting(job: Job) -> None:
    """The CPU's entry of DATA is empty, and the SM waits."""
    job.cpu.put(DATA, 0, 0)
    while job.dev.step(100) and job.dev.at(SM) != WAITS[1]:
        pass
    assert job.dev.at(SM) == WAITS[1]
    assert job.dev.lib.hg_audit_waits(job.dev.dev)


def pass_time(job: Job, ns: int, held: bool = False) -> None:
    """In pieces as small as the device asks for; a CPU is held up all the while, or none."""
    host = job.dev.host
    end = host.now + ns
    while host.now < end:
        to = min(max(job.dev.lib.hg_deadline(job.dev.dev), host.now + 1), end)
        host.held += (to - host.now) * held
        host.now = to
        job.dev.step_engine(SM, 1000)


@pytest.mark.parametrize(
    ("kind", "same", "verdict"),
    [
        ("present", True, []),
        ("present", False, ["mirror-system-other-frame"]),
        ("mig_read", True, ["mirror-system-migrating"]),
        ("none", True, ["mirror-system-unmapped"]),
    ],
)
def test_an_entry_that_is_empty_for_a_moment(kind: str, same: bool, verdict: list[str]) -> None:
    """What comes into it decides; nothing does if nothing comes in time."""
    with Job(audit_wait_ns=500_000) as job:
        waiting(job)
        seq = job.dev.invalidate(HW.HG_INVAL_RANGE, 3, DATA, PAGE)
        pass_time(job, 300_000)
        assert job.dev.at(SM) == WAITS[1]
        assert job.dev.rd(HW.HG_REG_INVAL_DONE, 8) < seq
        page = (job.old if same else job.new) >> 12
        if kind != "none":
            job.cpu.put(DATA, 0, page << 12 | 3 if kind == "present" else leaf(kind, 0, page, True))
        pass_time(job, 300_000)
        assert not job.dev.lib.hg_audit_waits(job.dev.dev)
        assert job.dev.rd(HW.HG_REG_INVAL_DONE, 8) >= seq
        assert names(job.dev) == verdict
        job.finish()


def test_the_wait_counts_time_in_which_all_cpus_may_run() -> None:
    """A CPU that is held up between clearing the entry and writing it is no violation."""
    with Job(audit_wait_ns=500_000) as job:
        waiting(job)
        for _ in range(5):
            pass_time(job, 2_000_000, held=True)
            pass_time(job, 50_000)
        assert job.dev.at(SM) == WAITS[1]
        assert names(job.dev) == []
        pass_time(job, 400_000)
        assert names(job.dev) == ["mirror-system-unmapped"]
        job.finish()


def test_no_engine_is_numbered_beyond_the_last() -> None:
    with Device(sms=3, ces=2) as dev:
        assert dev.lib.hg_engines(dev.dev) == 6
        assert dev.step_engine(6, 10) == 0
        assert dev.at(6) == "at rest"
        assert dev.step_engine(5, 0) == 0
    with Device(deterministic=False) as dev:
        assert dev.step_engine(0, 10) == 0
        assert not dev.step(10)
        assert dev.lib.hg_engines_ready(dev.dev) == 0
        assert dev.lib.hg_deadline(dev.dev) == (1 << 64) - 1
