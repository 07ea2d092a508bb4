# SPDX-License-Identifier: GPL-2.0-or-later
"""Better, worse or noise: of figures with a known truth."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hmmbench.compare import figures
from hmmbench.compare.figures import BETTER, NOISE, WORSE
from hmmbench.suites import bench


@pytest.mark.parametrize(
    ("p", "freedom", "value"),
    # Tables of the distribution.
    [(0.975, 9, 2.262), (0.995, 9, 3.250), (0.975, 1, 12.706), (0.975, 2, 4.303),
     (0.95, 30, 1.697), (0.9995, 9, 4.781), (0.975, 1000, 1.962)],
)  # fmt: skip
def test_quantiles_of_t(p: float, freedom: int, value: float) -> None:
    assert figures.student_t(p, freedom) == pytest.approx(value, abs=0.001)


Pair = tuple[dict[str, float], dict[str, float]]


def pairs(
    rng: random.Random, names: Sequence[str], count: int = 10, scatter: float = 0.05,
    host: float = 0.3, **factors: float,
) -> list[Pair]:  # fmt: skip
    """What two equal checkouts measure, but for the factors, on a host whose speed wanders."""
    found: list[Pair] = []
    for _ in range(count):
        slow = rng.lognormvariate(0, host)
        ours, theirs = (
            {name: 10 * slow * rng.lognormvariate(0, scatter) for name in names} for _ in "ab"
        )
        found.append(({n: v * factors.get(n, 1) for n, v in ours.items()}, theirs))
    return found


def test_what_is_equal_is_noise_in_19_of_20_comparisons() -> None:
    """All figures of a comparison at once, on a host that is far from steady."""
    rng = random.Random(1)
    names = [f"n{n}_us" for n in range(30)]
    alarms = sum(
        any(one.word != NOISE for one in figures.over_pairs(pairs(rng, names)))
        for _ in range(300)
    )
    assert alarms <= 0.08 * 300


def test_a_difference_is_seen_and_has_a_direction() -> None:
    names = ["boot_s", "operations_per_s", "x_us", "y_us", "audit_fill_cost"]
    found = {
        one.name: one
        for one in figures.over_pairs(pairs(
            random.Random(2), names, boot_s=1.2, operations_per_s=1.2, x_us=0.8,
        ))
    }  # fmt: skip
    words = {name: one.word for name, one in found.items()}
    assert words == {
        "boot_s": WORSE, "operations_per_s": BETTER, "x_us": BETTER, "y_us": NOISE,
        "audit_fill_cost": NOISE,
    }  # fmt: skip
    speed = found["operations_per_s"]
    assert speed.low < 1.2 < speed.high
    assert speed.ratio == pytest.approx(speed.ours / speed.theirs)
    # Of times the shorter one is better: the ratio is turned.
    assert found["x_us"].ratio == pytest.approx(found["x_us"].theirs / found["x_us"].ours)
    assert found["x_us"].low < 1 / 0.8 < found["x_us"].high


def test_a_figure_that_some_pairs_lack() -> None:
    found = pairs(random.Random(3), ["a_us", "b_us", "c_us"], count=5)
    for n, (ours, theirs) in enumerate(found):
        if n:
            del ours["c_us"]
        if n > 1:
            del theirs["b_us"]
    assert [(one.name, one.pairs) for one in figures.over_pairs(found)] == [
        ("a_us", 5), ("b_us", 2),
    ]  # fmt: skip
    shared = figures.Shared.of({"a_us": 1, "b_us": 2}, {"c_us": 1, "a_us": 3})
    assert shared == figures.Shared(["a_us"], ["b_us"], ["c_us"])
    assert figures.over_pairs(found[:1]) == []


def test_which_figures_of_a_report_count() -> None:
    """A driver's ratio is of times, a lane's of speeds; others' figures and counts are none."""
    report = {
        "hmmbench": "0.1.0", "host_cpus": 2, "host_load": 1.5, "host_stolen": 0.1, "missing": [],
        "bulk_fault_us": 3.0, "bulk_fault_test_hmm_us": 4.0, "bulk_fault_ratio": 0.75,
        "touch_round_trips_us": 2.0, "touch_round_trips_ratio": 1.1, "trip_to_thread_us": 3.0,
        "touch_round_trips_p50_us": 1.0, "touch_round_test_hmm_p99_us": 5.0,
        "single_fault_p99_us": 9.0, "boot_s": 4.0, "boot_min_s": 3.0, "boot_max_s": 5.0,
        "operations": 100, "operations_per_s": 50.0, "operations_stolen": 0.0,
        "operations_gpu_accesses_per_s": 9.0, "audit_fill_cost": 1.2, "driver_rebuild_s": 2.0,
        "audit_off_operations_per_s": 60.0,
        "simt_hash_per_s": 1e6, "simt_hash_qemu_per_s": 1e6, "simt_hash_ratio": 1.0,
        "simt_hash_two_sms": 1.9, "simt_vectors": "avx2", "launch_us": float("nan"),
        "touch_round_us": 0.0,
    }  # fmt: skip
    assert {n: figures.higher_is_better(n) for n in figures.figures(report)} == {
        "bulk_fault_us": False, "bulk_fault_ratio": False,
        "trip_to_thread_us": False, "single_fault_p99_us": False,
        "boot_s": False, "operations_per_s": True, "operations_gpu_accesses_per_s": True,
        "audit_fill_cost": False, "driver_rebuild_s": False, "audit_off_operations_per_s": True,
        "simt_hash_per_s": True, "simt_hash_ratio": True, "simt_hash_two_sms": True,
    }  # fmt: skip
    for one in bench.MEASUREMENTS:
        assert figures.higher_is_better(f"{one.name}_us") is False
