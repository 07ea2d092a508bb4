# SPDX-License-Identifier: GPL-2.0-or-later
"""What grows each time a program runs, and what only seems to."""

from __future__ import annotations

from random import Random

import pytest

from hmmbench.example.judge import judge
from hmmbench.example.target import Execution
from hmmbench.guest.program import Op, OpResult, Program, Result
from hmmbench.model.ops.processes import Nop
from hmmbench.oracle import growth
from hmmbench.oracle.growth import LOOKS, grows


def result(**counts: list[int]) -> Result:
    lines = [f"left {name} {' '.join(map(str, seen))}" for name, seen in counts.items()]
    text = "\n".join(["pages_to_device 3", "live_vram_pages 0", f"looks {LOOKS}", *lines])
    return Result([OpResult()], counters_after=text + "\n")


def noisy(step: float, noise: int, seed: int) -> list[int]:
    rng = Random(seed)
    return [int(100 + step * n + rng.randint(0, noise)) for n in range(LOOKS)]


@pytest.mark.parametrize("step", [1, 2, 7, 512])
def test_what_is_left_each_time_is_seen(step: int) -> None:
    assert all(grows(noisy(step, step, seed)) for seed in range(50))


@pytest.mark.parametrize("seen", [
    [100] * LOOKS,
    # a cache that fills
    [int(100 + 40 * (1 - 0.7**n)) for n in range(LOOKS)],
    [100 + min(n, 9) for n in range(LOOKS)],
    # one step, as the pages of a table or of a slab
    [100 + 64 * (n > 7) for n in range(LOOKS)],
    [100 + 8 * (n // 8) for n in range(LOOKS)],
    # what is given back now and then
    [100 + n % 8 * 5 for n in range(LOOKS)],
    [100 + n for n in range(12)] + [100] * 4,
    # half of the looks
    [100 + n for n in range(LOOKS // 2)],
    # falls
    [100 - n for n in range(LOOKS)],
])  # fmt: skip
def test_what_is_no_leak(seen: list[int]) -> None:
    assert not grows(seen)


def test_noise_is_no_leak() -> None:
    assert not any(grows(noisy(0, noise, seed)) for noise in (1, 3, 30) for seed in range(3000))


def test_the_most_telling_is_named_and_all_are_in_the_details() -> None:
    up = list(range(LOOKS))
    found = growth.check(result(**{"pages:used": up, "slab:kmalloc-64": up, "slab:mm": [0] * 16}))
    assert found is not None
    assert found.key == ("leak", "grows")
    assert found.message.startswith("left each time: 15 more objects")
    assert "slab:kmalloc-64" in found.message
    assert "pages:used: 0 1 2" in found.details
    assert "slab:mm" not in found.details


def test_a_counter_of_the_kernels_may_not_fall_each_time_either() -> None:
    down = list(range(LOOKS, 0, -1))
    assert growth.check(result(**{"vmstat:nr_mapped": down})) is not None
    assert growth.check(result(**{"slab:kmalloc-64": down})) is None


def test_it_is_judged_and_counted() -> None:
    p = Program([Op(Nop.number)], again=4)
    found = judge(Execution(p, result(**{"slab:kmalloc-64": list(range(LOOKS))})))
    assert [v.oracle for v in found.violations] == ["leak"]
    assert found.tainted
    assert (found.censuses, found.censuses_taken) == (1, 1)
    silent = judge(Execution(p, Result([OpResult()])))
    assert not silent.violations
    assert (silent.censuses, silent.censuses_taken) == (1, 0)
    assert not judge(Execution(Program([Op(Nop.number)]), Result([OpResult()]))).censuses
