# SPDX-License-Identifier: GPL-2.0-or-later
"""That `bench` measures what it says, in a form others can read. No figure is judged here."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.base.ui import Ui
from hmmbench.commands.bench import show
from hmmbench.suites import bench
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

COMPARED = (
    "bulk_fault", "single_fault", "migrate_to_device", "cpu_fault_back", "touch_round",
)  # fmt: skip


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bench,
        "MEASUREMENTS",
        tuple(
            replace(one, request={**one.request, "pages": 512, "rounds": 2})
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
    words = io.StringIO()
    report = figures | {
        "kernel": "k", "accel": "tcg", "host_load": 0.1, "host_cpus": 2, "host_stolen": 0.25,
    }  # fmt: skip
    show(report, Console(file=words, width=160))
    for one in bench.MEASUREMENTS:
        assert one.name in words.getvalue()
    assert "25%" in words.getvalue()


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
