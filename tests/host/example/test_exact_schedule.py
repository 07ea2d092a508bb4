# SPDX-License-Identifier: GPL-2.0-or-later
"""Schedules of exact machines: each word is one that the scheduler reads, however plain it gets."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hmmbench import cli
from hmmbench.base import paths
from hmmbench.campaign.surroundings import scheduled
from hmmbench.example import schedules
from hmmbench.example.delays import SCHEDULES
from hmmbench.example.recipe import Environment
from hmmbench.example.schedules import KINDS, Aims, Points, Spot

PLAN = (paths.project_root() / "qemu-device/qemu/hmm-exact-plan.c").read_text()

POINTS = Points(
    tuple(0xFFFFFFFF81000000 + 16 * n for n in range(9)),
    tuple(0xFFFFFFFFC0000000 + 16 * n for n in range(30)),
    aims=Aims(
        tuple(
            (Spot(0xFFFFFFFF82000000 + 8 * n, 0xFFFFFFFF82000004 + 8 * n, 1.5 * n),
             Spot(0xFFFFFFFF83000000 + 8 * n, None, 50.0))
            for n in range(12)
        ),
        (1.0,) * 12,
    ),
    kinds={
        "gaps": tuple(0xFFFFFFFFC0001000 + 16 * n for n in range(5)),
        "late_gaps": (0xFFFFFFFFC0004000,),
        "relocks": (0xFFFFFFFFC0004000, 0xFFFFFFFFC0004010),
        "seams": tuple(0xFFFFFFFFC0002000 + 16 * n for n in range(3)),
        "returns": (0xFFFFFFFFC0001000, 0xFFFFFFFFC0001010),
    },
)  # fmt: skip

#: What a value is: so many numbers, the places of ranges (log2, at least and at most) among them.
SHAPES = {
    "seed": (1, ()), "slice": (2, (0,)), "hold": (3, (1,)), "span": (1, ()), "point": (3, (1,)),
    "odds": (1, ()), "fair": (1, ()), "crowd": (1, ()), "busy": (1, ()), "step": (4, (0, 2)),
    "irq": (2, (0,)),
}  # fmt: skip


#: Words that are lists: what one of it looks like.
LISTS = {
    "at": r"[0-9a-f]{1,16}", "count": r"[0-9a-f]{1,16}",
    "do": r"[0-5]?\d:[0-9a-f]{1,16}:[1-9]\d{0,9}:[1-9]\d{0,12}",
}  # fmt: skip


def wrong(schedule: str) -> list[str]:
    """The words that hmm-exact-plan.c would refuse, by its rules written down once more."""
    out = []
    for word in schedule.split():
        name, equals, value = word.partition("=")
        if name in LISTS:
            good = all(re.fullmatch(LISTS[name], one) for one in value.split(","))
        elif name in SHAPES and re.fullmatch(r"\d+(:\d+)*", value):
            count, ranges = SHAPES[name]
            numbers = [int(one) for one in value.split(":")]
            good = (
                len(numbers) == count
                and all(numbers[at] <= numbers[at + 1] <= 40 for at in ranges)
                and all(number < 1 << 64 for number in numbers)
                and (name not in ("hold", "point") or numbers[0] < 1 << 16)
                and (name != "span" or 0 < numbers[0] <= 1 << 40)
                and (name not in ("busy", "fair") or numbers[0] < 1 << 16)
                and (name != "odds" or 0 < numbers[0] < 1 << 32)
                and (name != "crowd" or 0 < numbers[0] <= 64)
                and (name != "step" or numbers[3] < 32)
            )
        else:
            good = False
        if not (good and equals):
            out.append(word)
    return out


def drawn() -> Iterator[tuple[str, str]]:
    for kind in KINDS:
        for points in (Points(), Points(POINTS.favourites), Points((), POINTS.others), POINTS):
            for seed in range(150):
                yield kind, schedules.draw(kind, random.Random(seed), points)


def test_the_words_are_those_of_the_scheduler() -> None:
    """By the text of its source: names, and how many numbers each takes."""
    known = re.findall(r'!strcmp\(name, "(\w+)"\)\) \{\n\s+return (?:numbers\(value, (\d))?', PLAN)
    assert {name: int(count or 0) for name, count in known} == {
        **{name: count for name, (count, _) in SHAPES.items()},
        **dict.fromkeys(LISTS, 0),
    }
    limit = re.search(r"#define HMM_EXACT_MAX_LOG2 (\d+)", PLAN)
    assert limit is not None
    assert limit[1] == "40"


def test_each_schedule_is_made_of_them() -> None:
    words = set()
    for kind, schedule in drawn():
        assert wrong(schedule) == [], (kind, schedule)
        words |= {word.partition("=")[0] for word in schedule.split()}
    assert words == {*SHAPES, "at", "count"}, "a word is never drawn"


def test_no_word_is_said_twice() -> None:
    """Who aims holds only while two operations are under way, whatever is drawn for all."""
    for kind, schedule in drawn():
        names = [word.partition("=")[0] for word in schedule.split()]
        assert len(names) == len(set(names)), (kind, schedule)


@pytest.mark.parametrize(
    "word",
    ["x=1", "seed", "seed=", "seed=-1", "slice=5", "slice=9:5", "slice=5:41", "hold=65536:1:2",
     "hold=1:2", "span=0", "span=1099511627777", "odds=0", "crowd=0", "crowd=65",
     "busy=65536", "busy=1:2", "fair=65536",
     "step=1:2:3:32", "step=1:2:3", "irq=1:2:3", "at=zz", "count=zz", "do=", "do=1:10:1",
     "do=1:10:0:5", "do=65536:10:1:5"],
)  # fmt: skip
def test_what_it_refuses_is_seen(word: str) -> None:
    """The test's own rules; that the scheduler has the same is tests/qtest/test_glue_exact.py's."""
    assert wrong(f"seed=1 {word} slice=5:6") == [word]


def test_points_are_those_of_the_machine() -> None:
    """Gaps and favourites more often, and none twice."""
    named = []
    for seed in range(600):
        at = schedules.addresses(schedules.draw("points", random.Random(seed), POINTS))
        assert at
        assert list(at) == sorted(set(at))
        named += at
    assert set(named) <= set(POINTS.all)
    liked = {*POINTS.of("gaps"), *POINTS.of("relocks"), *POINTS.favourites}
    seams = set(POINTS.of("seams"))
    rest = set(POINTS.all) - liked - seams
    assert min(map(named.count, liked)) > max(map(named.count, seams))
    assert min(map(named.count, seams)) > 1.5 * max(map(named.count, rest))


def test_fair_are_those_of_several_kinds() -> None:
    """Parts of all, and the whole."""
    known = {
        *POINTS.favourites, *POINTS.of("gaps"), *POINTS.of("relocks"), *POINTS.of("seams"),
    }  # fmt: skip
    sizes = set()
    for seed in range(600):
        text = schedules.draw("points", random.Random(seed), POINTS)
        assert ("fair=" in text) != ("odds=" in text)
        # Whoever is passed late in a program is held there, too.
        assert "fair=" not in text or f"point={schedules.POINT_HOLDS[-1]}:" in text
        if "fair=" in text and set(schedules.addresses(text)) <= known:
            sizes.add(len(schedules.addresses(text)))
    assert max(sizes) == len(known)
    assert len(sizes) > len(known) // 2


def test_without_points_a_schedule_names_none() -> None:
    for kind in KINDS:
        for seed in range(50):
            text = schedules.draw(kind, random.Random(seed), Points())
            assert not schedules.addresses(text)
            assert "point=" not in text


def test_the_stream_fixes_a_schedule() -> None:
    for kind in KINDS:
        first, again, other = (
            schedules.draw(kind, random.Random(seed), POINTS) for seed in (4, 4, 5)
        )
        assert first == again
        assert first != other
    with pytest.raises(KeyError):
        schedules.draw("delay-random", random.Random(1), POINTS)


def test_who_is_slow_already_is_not_held_in_a_crowd() -> None:
    for kind in KINDS:
        for seed in range(200):
            text = schedules.draw(kind, random.Random(seed), POINTS)
            calm = schedules.calmed(text)
            assert not Environment(schedule=calm).crowded
            assert wrong(calm) == []
            assert (calm == text) == (not Environment(schedule=text).crowded)
            assert schedules.addresses(calm) == schedules.addresses(text)
            for slow in (Environment(("a 1",)), Environment(inject=("mmu.walk delay=1",))):
                assert scheduled(slow, text) == replace(slow, schedule=calm)
            assert scheduled(Environment(vram=3), text).schedule == text


def test_another_seed_changes_nothing_else() -> None:
    for _, schedule in drawn():
        other = schedules.reseeded(schedule, 7)
        assert wrong(other) == []
        rest = schedule.split()[1:]
        assert sorted(other.split()) == sorted(["seed=7", *rest])
    assert schedules.reseeded("", 3) == "seed=3"


def test_plainer_steps_keep_a_schedule_and_come_to_an_end() -> None:
    """Until none changes anything: a schedule after each, and the plainest at the end."""
    for kind, schedule in drawn():
        at = schedules.addresses(schedule)
        for _ in range(20):
            before = schedule
            for step in schedules.plainer(schedule)[1:]:
                schedule = step(schedule)
                assert wrong(schedule) == [], (kind, schedule)
                assert set(schedules.addresses(schedule)) <= set(at)
            if schedule == before:
                break
        assert schedule == before, (kind, schedule)
        assert {word.partition("=")[0] for word in schedule.split()} <= {"seed", "slice"}
    assert all(step("") == "" for step in schedules.plainer(""))


def test_each_plainer_step_can_be_refused() -> None:
    """Shrinking takes those alone after which it still fails: here none, or those of half."""
    for _, schedule in drawn():
        for step in schedules.plainer(schedule):
            assert wrong(step(schedule)) == []
    two = "seed=1 slice=5:14 point=32:16:20 odds=2 at=10,20,30"
    steps = {step(two) for step in schedules.plainer(two)}
    assert "seed=1 slice=5:14 point=32:16:20 odds=2 at=10" in steps
    assert "seed=1 slice=5:14 point=32:16:20 odds=2 at=20,30" in steps
    assert "seed=1 slice=5:14 point=4:16:20 odds=2 at=10,20,30" in steps
    assert "seed=1 slice=5:14 point=32:16:20 odds=1 at=10,20,30" in steps
    assert "seed=1 slice=5:14" in steps


@pytest.mark.parametrize(
    ("accel", "schedule"),
    [("exact", "delay-random"), ("exact", "delay-pairs"), ("threads", "points"),
     ("threads", "mixed"), ("kvm", "pct")],
)  # fmt: skip
def test_a_schedule_of_other_machines_is_refused(
    accel: str, schedule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is built."""
    assert cli.main(["run", "--accel", accel, "--schedule", schedule]) == 2
    err = capsys.readouterr().err
    assert f"--schedule {schedule} is not for --accel {accel}" in err
    assert all(name in err for name in (KINDS if accel == "exact" else SCHEDULES))


@pytest.mark.parametrize("cpus", ["3", "1,x", ""])
def test_numbers_of_cpus_that_exact_does_not_try(
    cpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["exact", "--cpus", cpus]) == 2
    assert "any of 1, 2, 4" in capsys.readouterr().err
