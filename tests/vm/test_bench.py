# SPDX-License-Identifier: GPL-2.0-or-later
"""That `bench` measures what it says, in a form others can read. No figure is judged here."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from work import driver_counters

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.base.ui import Ui
from hmmbench.commands.bench import show
from hmmbench.device import cheader
from hmmbench.suites import bench
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

HW = cheader.hardware()

COMPARED = (
    "bulk_fault", "single_fault", "migrate_to_device", "cpu_fault_back", "touch_round",
)  # fmt: skip

#: What one event has of interrupts that wake a thread, and of registers that a thread writes for
#: an engine to act on (replays, doorbells of jobs): as many of each as it is given round trips.
#: A launch has sixteen of the single faults, and a doorbell and an interrupt of its own, which are
#: not in their times.
TRIPS = {
    "single_fault": {"dev_irqs": 1 + 1 / 16, "replays": 1, "jobs_submitted": 1 / 16},
    "touch_round": {"dev_irqs": 2, "replays": 1, "jobs_submitted": 1},
    "trip": {"dev_irqs": 1, "dev_fences": 1},
}
#: What else a thread has an engine do, or waits for.
OTHER_TRIPS = ("cancels", "tlb_invalidates", "copies", "dev_invals", "fault_overflows")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bench,
        "MEASUREMENTS",
        tuple(
            replace(one, request={**one.request, "pages": 512, "rounds": 1})
            for one in bench.MEASUREMENTS
        ),
    )


@pytest.mark.usefixtures("short")
def test_drivers(spec: MachineSpec, snapshots: Snapshots) -> None:
    figures = bench.drivers(spec, snapshots, Ui(quiet=True))
    for one in bench.MEASUREMENTS:
        assert figures[f"{one.name}_us"] > 0
    for name in COMPARED:
        ours, theirs = figures[f"{name}_us"], figures[f"{name}_test_hmm_us"]
        assert theirs > 0
        assert figures[f"{name}_ratio"] == pytest.approx(ours / theirs, rel=0.02)
    assert 0 < figures["single_fault_p50_us"] <= figures["single_fault_p99_us"]
    assert figures["cpu_fault_back_p50_us"] > 0
    for name in ("single_fault", "touch_round"):
        trips = int(TRIPS[name]["dev_irqs"]) * figures[f"{name}_trips_us"]
        least = figures[f"{name}_test_hmm_us"] + trips
        assert 0 < figures[f"{name}_trips_p50_us"] <= figures[f"{name}_trips_p99_us"]
        assert figures[f"{name}_trips_ratio"] == pytest.approx(
            figures[f"{name}_us"] / least, rel=0.02
        )
    assert figures["trip_to_engine_us"] + figures["trip_to_thread_us"] == pytest.approx(
        figures["trip_us"], abs=0.001
    )
    words = io.StringIO()
    report = figures | {
        "kernel": "k", "accel": "tcg", "host_load": 0.1, "host_cpus": 2, "host_stolen": 0.25,
    }  # fmt: skip
    show(report, Console(file=words, width=160))
    for one in bench.MEASUREMENTS:
        assert one.name in words.getvalue()
    assert "25%" in words.getvalue()
    assert "Trips one behind the other: " in words.getvalue()


@pytest.mark.parametrize("name", TRIPS)
def test_trips_of_an_event(name: str, spec: MachineSpec, snapshots: Snapshots) -> None:
    """What is compared with N round trips has N; and a trip is a fence and its interrupt alone."""

    def of(pages: int) -> dict[str, int]:
        before = driver_counters(vm)
        vm.agent.bench({"measure": name, "pages": pages, "rounds": 1}, bench.TIMEOUT)
        after = driver_counters(vm)
        return {key: after[key] - before[key] for key in after}

    with snapshots.open(spec) as vm:
        # What a round has but once cancels out.
        few, many = of(64), of(128)
    # Two rounds each: one warms up.
    events = {key: (many[key] - few[key]) / (2 * 64) for key in many}
    want = dict.fromkeys(("dev_irqs", "replays", "jobs_submitted", *OTHER_TRIPS), 0)
    want |= TRIPS[name]
    assert {key: events[key] for key in want} == want


@pytest.mark.parametrize(
    ("name", "pages", "events"), [("single_fault", 24, 16), ("touch_round", 5, 1)]
)
def test_trips_are_made_beside_what_they_are_compared_with(
    name: str, pages: int, events: int, spec: MachineSpec, tmp_path: Path
) -> None:
    """As many as events, behind each launch; all on the CPU that takes the fence's interrupt."""
    told = tmp_path / "trace"
    events_told = ("hmm_gpu_launch", "hmm_gpu_fence", "hmm_gpu_mmio_write")
    trace = (
        *(word for event in events_told for word in ("-trace", event)),
        "-D", str(told), "-msg", "timestamp=on",
    )  # fmt: skip
    with_both = bench._with_test_hmm(spec)
    with Machine(replace(with_both, extra=(*with_both.extra, *trace))) as vm:
        before = len(told.read_text().splitlines())
        vm.agent.bench({"measure": name, "pages": pages, "rounds": 1}, bench.TIMEOUT)
        lines = told.read_text().splitlines(keepends=True)[before:]
    # A launch of a user's context; a fence of the kernel's own ring.
    happened = "".join(
        "L" if "hmm_gpu_launch" in line else "T" if "hmm_gpu_fence ctx 0 " in line else ""
        for line in lines
    )
    whole, rest = divmod(pages, events)
    one_round = "L" + ("L" + "T" * events) * whole + ("L" + "T" * rest if rest else "")
    # One warms up.
    assert happened == one_round * 2

    def cpus(register: int, value: str = "") -> set[str]:
        """The threads of QEMU that wrote it, each a CPU."""
        wrote = f"hmm_gpu_mmio_write off {register:#x} val {value}"
        return {line.partition("@")[0] for line in lines if wrote in line}

    bells = (HW.HG_REG_DOORBELL + n * HW.HG_DOORBELL_STRIDE for n in range(8))
    rings = set[str]().union(*map(cpus, bells))
    assert len(rings) == 1
    assert rings == cpus(HW.HG_REG_INTR_STATUS, f"{1 << HW.HG_VEC_FENCE:#x}\n")


def test_guest_without_test_hmm(
    plain_spec: MachineSpec, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without something to compare with there is no ratio, and no pretending."""
    monkeypatch.setattr(bench, "_with_test_hmm", lambda spec: spec)
    with pytest.raises(EnvironmentFailure, match="CONFIG_TEST_HMM"):
        bench.drivers(plain_spec, snapshots, Ui(quiet=True))


def test_boot_and_restore(spec: MachineSpec, snapshots: Snapshots) -> None:
    ui = Ui(quiet=True)
    figures = bench.boot(spec, ui, rounds=1) | bench.restore(spec, snapshots, ui, rounds=3)
    assert figures["boot_s"] > 0
    assert 0 < figures["restore_min_s"] <= figures["restore_s"] <= figures["restore_max_s"]


def test_operations(spec: MachineSpec, snapshots: Snapshots) -> None:
    figures = bench.operations(spec, snapshots, Ui(quiet=True), examples=5)
    assert figures["operations_per_s"] > 0
    assert 0 <= figures["operations_stolen"] <= 1
    assert figures["operations_examples"] == 5
