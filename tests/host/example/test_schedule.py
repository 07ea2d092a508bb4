# SPDX-License-Identifier: GPL-2.0-or-later
"""Schedules: what they choose, and what they learn from the driver's counts."""

from __future__ import annotations

import random

import pytest

from hmmbench.example.delays import (
    AIMED,
    EVENTS,
    EXCLUSIVE,
    IDLE,
    SCHEDULES,
    SHARE,
    WAITS_US,
    Pairs,
    Pct,
    Point,
    Random,
    parse,
    races,
)
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import POLICY_EXCLUSIVE, Op, Program
from hmmbench.model.ops.advice import Madvise
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, GpuCopy
from hmmbench.model.ops.mapping import Mprotect, Munmap
from hmmbench.model.ops.moving import Evict, Migrate, Policy, Query
from hmmbench.report.page.build import _delay

POINTS = ("svm_after_range_fault", "to_ram_entry", "release_begin")


def test_the_drivers_file() -> None:
    text = "svm_after_range_fault 500 200 3 17 2\nto_ram_entry 0 0 0 4 0\n"
    assert parse(text) == [Point("svm_after_range_fault", 3, 17, 2), Point("to_ram_entry", 0, 4, 0)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_some_examples_are_disturbed_and_most_are_not(name: str) -> None:
    schedule, rng = SCHEDULES[name](POINTS), random.Random(1)
    chosen = [schedule.delays(rng) for _ in range(1000)]
    disturbed = sum(1 for lines in chosen if lines)
    assert abs(disturbed - 1000 * SHARE) < 60
    for lines in chosen:
        for line in lines:
            assert line.split()[0] in POINTS
            assert _delay(line).startswith(line.split()[0])
        assert len({line.split()[0] for line in lines}) == len(lines)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_driver_without_points(name: str) -> None:
    assert SCHEDULES[name](()).delays(random.Random(1)) == ()


def test_the_same_seed_chooses_the_same() -> None:
    for name in SCHEDULES:
        a, b = (
            [SCHEDULES[name](POINTS, 1.0).delays(random.Random(n)) for n in range(20)]
            for _ in range(2)
        )
        assert a == b


def test_random_prefers_favourites() -> None:
    lines = [Random(POINTS, 1.0).choose(random.Random(n)) for n in range(300)]
    first = sum(1 for x in lines if x[0].startswith(POINTS[0]))
    assert first > 150


def test_pct_waits_at_passages_that_exist() -> None:
    schedule = Pct(POINTS, 1.0)
    for _ in range(20):
        schedule.learn((), [Point(POINTS[0], 0, 0, 0), Point(POINTS[1], 0, 200, 0)])
    rng = random.Random(3)
    at: dict[str, list[int]] = {p: [] for p in POINTS}
    for _ in range(400):
        for line in schedule.choose(rng):
            name, word, n, us = line.split()
            assert word == "at"
            assert int(us) > 0
            at[name].append(int(n))
    assert set(at[POINTS[0]]) == {1}
    assert min(at[POINTS[1]]) < 20
    assert 150 < max(at[POINTS[1]]) <= 200
    # In proportion to the steps of an execution.
    assert len(at[POINTS[1]]) > 3 * len(at[POINTS[2]]) > len(at[POINTS[0]])


def test_pairs_tries_all_before_any_again() -> None:
    schedule, rng = Pairs(POINTS, 1.0), random.Random(5)
    everything = len(POINTS) * (len(POINTS) + len(EVENTS))
    seen = []
    for _ in range(everything):
        (line,) = schedule.choose(rng)
        first, word, second, *_ = line.split()
        assert word == "until"
        seen.append((first, second))
        schedule.learn((line,), [Point(first, 1, 1, 1)])
    assert len(set(seen)) == everything
    assert schedule.coverage() == {
        "pairs": everything, "pairs_tried": everything, "pairs_met": everything,
    }  # fmt: skip


def test_pairs_comes_back_to_what_was_not_met() -> None:
    schedule, rng = Pairs(POINTS, 1.0), random.Random(6)
    never = (POINTS[2], "dev_copies")
    count = 0
    for _ in range(200):
        (line,) = schedule.choose(rng)
        first, _, second, *_ = line.split()
        met = int((first, second) != never)
        count += not met
        schedule.learn((line,), [Point(first, 1, 1, met)])
    assert schedule.coverage()["pairs_met"] == schedule.coverage()["pairs"] - 1
    # Again and again, but not for ever instead of the others.
    assert 4 <= count < 60


def test_a_point_that_is_passed_seldom_waits_each_time() -> None:
    for line in (x for n in range(200) for x in Random(POINTS, 1.0).choose(random.Random(n))):
        name, us, permille, *_ = line.split()
        if name == "release_begin":
            assert permille == "1000"
            assert int(us) >= 3000


@pytest.mark.parametrize("what", ["delay-random", "delay-pairs"])
def test_no_point_stands_still_for_longer_than_a_program_may(what: str) -> None:
    """A MADV_PAGEOUT passed exclusive_before_revoke 2000 times (kernel latest, seed 609)."""
    schedule = SCHEDULES[what](IDLE)
    schedule.share = 1.0
    for n in range(200):
        for line in schedule.delays(random.Random(n), CLOSING):
            us, *_, times = (int(word) for word in line.split() if word.isdigit())
            assert 0 < us * times <= WAITS_US
            assert Environment((line,)).counted


CLOSING = Program([Op(CloseGpu.number), Op(Madvise.number, actor=1)])


@pytest.mark.parametrize(
    ("ops", "found"),
    [
        (CLOSING.ops, {"close", "serve"}),
        ([Op(CloseGpu.number), Op(Madvise.number, phase=1)], set()),
        # somebody else's memory
        ([Op(CloseGpu.number), Op(Madvise.number, proc=1)], set()),
        ([Op(Query.number, actor=1), Op(Mprotect.number)], {"query"}),
        ([Op(Query.number), Op(Mprotect.number)], set()),
        ([Op(Policy.number, arg=POLICY_EXCLUSIVE)], {"exclusive"}),
        ([Op(Policy.number)], set()),
        ([Op(Policy.number, arg=POLICY_EXCLUSIVE), Op(Mprotect.number, phase=1),
          Op(GpuAccess.number, actor=1, phase=1)], {"exclusive", "claim"}),
        ([Op(Mprotect.number, phase=1), Op(GpuAccess.number, actor=1, phase=1)], set()),
        ([Op(Migrate.number, arg=1), Op(CpuAccess.number, actor=1)], {"copy", "move"}),
        # home, which needs no page of VRAM; another process; alone
        ([Op(Migrate.number), Op(CpuAccess.number, actor=1)], {"copy"}),
        ([Op(Migrate.number), Op(CpuAccess.number, proc=1)], {"copy"}),
        ([Op(Migrate.number, arg=1), Op(CpuAccess.number, phase=1)], set()),
        ([Op(Policy.number, arg=POLICY_EXCLUSIVE), Op(Migrate.number, arg=1, phase=1),
          Op(GpuAccess.number, actor=1, phase=1)], {"exclusive", "take", "copy", "move"}),
        # Jobs of two threads, which may be refused; of one thread; before anything is refused
        ([Op(Munmap.number), Op(GpuAccess.number, phase=1), Op(GpuCopy.number, phase=1, actor=1)],
         {"round"}),
        ([Op(Mprotect.number), Op(GpuAccess.number), Op(GpuCopy.number, proc=1)], {"round"}),
        ([Op(Munmap.number), Op(GpuAccess.number, phase=1), Op(GpuCopy.number, phase=1)], set()),
        ([Op(GpuAccess.number), Op(GpuCopy.number, actor=1), Op(Munmap.number, phase=1)], set()),
        # VRAM is everybody's
        ([Op(Evict.number), Op(CpuAccess.number, proc=1)], {"evict"}),
        ([Op(Evict.number), Op(CpuAccess.number, phase=1)], set()),
        ([Op(Mprotect.number, region=2, a=1), Op(GpuCopy.number, phase=1, arg=2)], {"refusal"}),
        # written to another region; read from it; what may be written
        ([Op(Mprotect.number, region=2, a=1), Op(GpuCopy.number, phase=1, arg=3)], set()),
        ([Op(Mprotect.number, region=2, a=1), Op(GpuCopy.number, region=2, phase=1)], set()),
        ([Op(Mprotect.number, region=2, a=3), Op(GpuCopy.number, phase=1, arg=2)], set()),
    ],
)
def test_a_programs_races(ops: list[Op], found: set[str]) -> None:
    assert races(Program(ops)) == found


def test_random_aims_at_the_programs_races() -> None:
    points = tuple(n for race in AIMED.values() for n in race.points)
    for program, aimed in ((CLOSING, True), (Program([Op(CloseGpu.number)]), False)):
        chosen = [Random(points, 0.0).delays(random.Random(n), program) for n in range(500)]
        hit = [frozenset(x.split()[0] for x in lines) for lines in chosen if lines]
        if not aimed:
            assert not hit
            continue
        # All points of one aim wait, or none; and aims do not ask each other.
        for what in ("close", "serve"):
            here = [names for names in hit if names & set(AIMED[what].points)]
            assert abs(len(here) - 500 * AIMED[what].share) < 60
            assert all(names >= set(AIMED[what].points) for names in here)
        assert len(set(hit)) == 3
    # Never two lines of one point: the driver keeps the last.
    for n in range(300):
        lines = Random(points, 1.0).delays(random.Random(n), CLOSING)
        assert len({x.split()[0] for x in lines}) == len(lines)


def test_the_point_of_exclusive_access_is_for_programs_that_have_it() -> None:
    points = (*POINTS, *EXCLUSIVE, *(f"other_{n}" for n in range(30)))

    def times(exclusive: bool) -> int:
        chosen = [Random(points, 1.0).choose(random.Random(n), exclusive) for n in range(400)]
        return sum(line.startswith(EXCLUSIVE) for lines in chosen for line in lines)

    assert times(True) > 4 * times(False)
