# SPDX-License-Identifier: GPL-2.0-or-later
"""What surrounds examples, where one part asks for another."""

from __future__ import annotations

from hmmbench.campaign.surroundings import (
    AGAIN,
    CENSUS_EACH,
    LATE_REPLAY,
    SLOW_WALKS,
    Surroundings,
)
from hmmbench.example.delays import Random
from hmmbench.guest.program import Op, Program
from hmmbench.model.ops.jobs import GpuAccess, GpuCopy
from hmmbench.model.ops.mapping import Munmap

REFUSED = Program(
    [Op(Munmap.number), Op(GpuAccess.number, phase=1), Op(GpuCopy.number, phase=1, actor=1)]
)


def test_late_replays_go_with_slow_walks() -> None:
    around = Surroundings(5, Random((LATE_REPLAY, "ce_before_run")))
    late = 0
    for n in range(500):
        environment = around.of(n, REFUSED)
        waits = any(line.split()[0] == LATE_REPLAY for line in environment.delays)
        assert (environment.inject == (SLOW_WALKS,)) == waits
        late += waits
    assert 50 < late < 450


def test_nothing_is_injected_where_the_device_is_to_behave() -> None:
    around = Surroundings(5, Random((LATE_REPLAY,), 1.0), injections=())
    assert all(around.of(n, REFUSED).inject == () for n in range(50))


def test_a_few_run_again_and_not_before_the_driver_is_unbound() -> None:
    around = Surroundings(5, Random(("ce_before_run",)))
    found = [around.of(n, REFUSED) for n in range(10 * CENSUS_EACH)]
    assert sum(env.again == AGAIN for env in found) == 10
    assert not any(env.again and env.rebind for env in found)
