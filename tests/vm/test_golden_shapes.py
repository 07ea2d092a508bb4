# SPDX-License-Identifier: GPL-2.0-or-later
"""Shapes of fault service that are known from hardware, counted in the real driver's trace.

Counts only: nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import work

from hmmbench.example.tracer import Traced, parse_ftrace
from hmmbench.gpu import build
from hmmbench.guest import splat
from hmmbench.suites import driver_life
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

HERE = Path(__file__).parent
PAGE = 4096
TRACEFS = "/sys/kernel/tracing"
READ, WRITE = 0, 1
RUNS = 20
POLICY = {"map": 0, "migrate": 1}
#: HgConfig.utlb_misses of the usual machine.
MISSES = 56
Batch = list[tuple[int, int]]


@pytest.fixture(scope="module")
def machine(
    spec: MachineSpec, snapshots: Snapshots, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """One machine with the program and its kernels."""
    tmp = tmp_path_factory.mktemp("golden")
    driver_life.build_library(tmp)
    program = driver_life.compile_c(HERE / "golden_shapes.c", tmp, tmp / "t", work.WARNINGS)
    with snapshots.open(spec) as vm:
        vm.agent.write_file("/tmp/k.elf", build.kernels(HERE / "golden_kernels.c"))
        vm.agent.write_file("/tmp/t", program, 0o755)
        yield vm
        assert splat.scan(vm.console.text()) == []


def settled(vm: Machine, before: dict[str, int]) -> dict[str, int]:
    """The counters once the driver has taken all entries out of the ring: those that nobody waits
    for any more may still be there when the program is gone."""
    deadline = time.monotonic() + 60
    while True:
        now = work.driver_counters(vm)
        taken, dropped, written = (
            now[n] - before[n] for n in ("faults", "faults_dropped", "dev_faults")
        )
        # One at a time, beside what faults again at each replay: its queue may run full.
        if taken + dropped == written:
            return now
        assert time.monotonic() < deadline, f"{taken} + {dropped} entries of {written} were taken"
        time.sleep(0.1)


def traced(vm: Machine, mode: str) -> tuple[str, list[Traced], dict[str, int]]:
    """What the program printed, the driver's events meanwhile, by how much its counters rose."""
    before = work.driver_counters(vm)
    vm.agent.check(
        f"cd {TRACEFS} && echo 8192 > buffer_size_kb && echo mono > trace_clock && "
        "echo 0 > events/enable && for e in fault batch to_device; do "
        "echo 1 > events/hmm_gpu/hmm_gpu_$e/enable; done && echo > trace && echo 1 > tracing_on"
    )
    said = vm.agent.check(f"/tmp/t /tmp/k.elf {mode}", 60)
    after = settled(vm, before)
    vm.agent.check(f"echo 0 > {TRACEFS}/tracing_on")
    text = vm.agent.read_file(f"{TRACEFS}/trace").decode()
    kept = re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", text)
    assert kept
    assert kept[1] == kept[2], "the trace lost events"
    events = parse_ftrace(text)
    assert len(events) == int(kept[1])
    return said, events, {name: after[name] - before[name] for name in after}


def batches(events: list[Traced]) -> list[Batch]:
    """The faults of each batch, as (address, access), in the order of the ring."""
    out: list[Batch] = []
    now: Batch = []
    for event in events:
        if event.name == "hmm_gpu_fault":
            addr, access = event.value("addr"), event.value("access")
            assert addr is not None
            assert access is not None
            now.append((addr, access))
        elif event.name == "hmm_gpu_batch":
            assert event.value("faults") == len(now)
            out.append(now)
            now = []
    assert not now
    return out


def pages(base: int, first: int, last: int, access: int) -> Batch:
    return [(base + n * PAGE, access) for n in range(first, last)]


@pytest.mark.parametrize("policy", sorted(POLICY))
def test_abc(machine: Machine, policy: str) -> None:
    """c = a + b, 32 threads, one page each: batches of 56, 8 and 32, 20 times of 20, as a Titan V
    does; also page by page."""
    said, events, counts = traced(machine, f"abc {RUNS} {POLICY[policy]}")
    want: list[Batch] = []
    for line in said.split("\n")[:RUNS]:
        a, b, c = (int(word, 0) for word in line.split())
        want.append(pages(a, 0, 32, READ) + pages(b, 0, 24, READ))
        want.append(pages(b, 24, 32, READ))
        want.append(pages(c, 0, 32, WRITE))
    seen = batches(events)
    assert [len(batch) for batch in seen] == [56, 8, 32] * RUNS
    assert seen == want
    assert (counts["faults"], counts["fault_batches"]) == (96 * RUNS, 3 * RUNS)
    assert not any(counts[n] for n in ("faults_duplicate", "faults_stale", "cancels"))


def test_duplicates_and_batch_limit(machine: Machine) -> None:
    """Two SMs that read the same pages.  How their faults meet depends on how fast each is, so only
    what must hold is tested; tests/core/test_ahead.py has the growth, exactly."""
    size = 128
    table = []
    knob = "/sys/module/hmm_gpu/parameters/fault_batch"
    for limit in (1, 8, 32, 256):
        machine.agent.check(f"echo {limit} > {knob}")
        _, events, counts = traced(machine, f"shared {size}")
        every = batches(events)
        faults, dup = counts["faults"], counts["faults_duplicate"]
        table.append((limit, faults, len(every), dup / faults, 1 - (size + dup) / faults))
        assert max(map(len, every)) <= limit
        # each page faults at least once, and is served once; the rest are duplicates, or served
        # before, or of a program that has ended
        assert counts["faults_served"] == size
        assert faults >= size + dup + counts["faults_stale"]
        assert dup == sum(len(b) - len({addr for addr, _ in b}) for b in every)
    machine.agent.check(f"echo 256 > {knob}")
    print("limit faults batches duplicate stale")
    for row in table:
        print("{:5} {:6} {:7} {:9.2f} {:5.2f}".format(*row))
    assert table[0][3] == 0


def test_what_the_queue_has_no_room_for_comes_back(machine: Machine) -> None:
    """One entry at a time, slowly: SMs fault again at each replay, more than there is room for."""
    size = 128
    knob = "/sys/module/hmm_gpu/parameters/fault_batch"
    machine.agent.check(f"echo 1 > {knob}")
    work.set_delays(machine, "fault_after_drain 100 1000")
    before = work.driver_counters(machine)
    machine.agent.check(f"/tmp/t /tmp/k.elf shared {size}", 60)
    work.set_delays(machine)
    after = settled(machine, before)
    machine.agent.check(f"echo 256 > {knob}")
    assert after["faults_dropped"] > before["faults_dropped"]
    assert after["faults_served"] - before["faults_served"] == size


def test_transfer_size_with_and_without_prefetch(machine: Machine) -> None:
    """1024 pages move in 2 MiB pieces after a prefetch, and in pieces of what one engine can miss
    at once by faults."""
    size = 1024
    mean = {}
    for prefetch in (0, 1):
        _, events, counts = traced(machine, f"move {size} {prefetch}")
        moves = [e.value("moved") or 0 for e in events if e.name == "hmm_gpu_to_device"]
        moves = [m for m in moves if m]
        assert sum(moves) == size == counts["pages_to_device"]
        assert bool(counts["faults"]) != bool(prefetch)
        mean[prefetch] = size / len(moves) * PAGE / 1024
        assert max(moves) <= (512 if prefetch else MISSES)
    print(f"mean transfer: {mean[0]:.1f} KiB by faults, {mean[1]:.1f} KiB by prefetch")
    assert mean[1] == 2048
