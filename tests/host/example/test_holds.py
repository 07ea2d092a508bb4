# SPDX-License-Identifier: GPL-2.0-or-later
"""Lists of decisions: from logs, into schedules, by name into recipes and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hmmbench.example import holds, schedules
from hmmbench.example.holds import Hold
from hmmbench.example.recipe import Anchor, Environment, Link, Recipe
from hmmbench.example.schedules import LONG_SLICES
from hmmbench.guest.program import Op, Program
from hmmbench.model.ops.mapping import Mmap
from hmmbench.symbols import Symbol, SymbolTable
from hmmbench.vm.decisions import ENTRY, What
from hmmbench.vm.mailbox import layout

SEEDED = "seed=9 step=9:13:0:8 slice=5:14 hold=4:16:20 span=20000000 point=8:14:17 odds=4 at=10,2f"
LIST = (Hold(1, 0xFFFFFFFF81000010, 3, 70000), Hold(0, 0xFFFFFFFFC0000040, 1, 2000000))
TOLD = "do=1:ffffffff81000010:3:70000,0:ffffffffc0000040:1:2000000"

TABLE = SymbolTable(
    [
        Symbol("hmm_range_fault", 0xFFFFFFFF81000000, 0x40),
        Symbol("map", 0xFFFFFFFFC0000000, 0x80, "hmm_gpu"),
        Symbol("map", 0xFFFFFFFF82000000, 0x80),
        Symbol("gone", 0xFFFFFFFF84000000, 0x80),
    ]
)


def test_a_list_takes_the_place_of_chance() -> None:
    told = holds.told(SEEDED, LIST)
    assert told == f"seed=9 step=9:13:0:8 slice=5:14 {TOLD}"
    assert holds.holds(told) == LIST
    assert holds.told(f"{told} count=10", LIST[:1]).endswith(f"slice=5:14 {TOLD.split(',')[0]}")
    assert holds.told(told, ()) == "seed=9 step=9:13:0:8 slice=5:14"
    assert holds.holds(SEEDED) == ()
    assert holds.told(holds.base(SEEDED), LIST) == f"seed=9 slice={LONG_SLICES} {TOLD}"
    # Two that came to be at one passage.
    first = Hold(1, 16, 1, 5)
    assert holds.holds(holds.earlier(holds.told("", [first, Hold(1, 16, 2, 6)]))) == (first,)


def test_what_is_left_to_chance_is_known() -> None:
    fair = "seed=9 slice=5:14 point=256:16:20 fair=2 at=10,2f"
    for schedule in (
        SEEDED, "seed=1 hold=1:2:3", "point=1:2:3 odds=12 at=10", f"seed=1 {TOLD}", fair,
    ):  # fmt: skip
        assert not holds.robust(schedule)
    for schedule in ("", "seed=1 slice=5:14", "seed=1 point=32:1:1 odds=1 at=10"):
        assert holds.robust(schedule)
    assert holds.robust(holds.each(f"seed=1 {TOLD}"))
    assert holds.often(SEEDED) == (
        "seed=9 step=9:13:0:8 slice=5:14 hold=4:16:20 span=20000000 point=32:14:17 odds=1 at=10,2f"
    )
    assert holds.often(fair) == fair.replace("fair=2", "fair=8")
    most = fair.replace("fair=2", "fair=65535")
    assert holds.often(most) == holds.often(fair.replace("fair=2", "fair=20000")) == most
    assert holds.told(fair, ()) == holds.often(holds.told(fair, ())) == "seed=9 slice=5:14"
    assert holds.often("seed=9 slice=5:14") == "seed=9 slice=5:14"
    crowd = "seed=9 slice=5:14 point=4000:20:21 crowd=4 at=10"
    assert holds.often(crowd) == crowd
    assert holds.told(crowd, ()) == "seed=9 slice=5:14"


def test_held_at_each_passage() -> None:
    """Of all places of the list, as long as its longest, rounded down to a power of two."""
    each = holds.each(f"seed=3 slice=5:14 {TOLD}")
    assert each == ("seed=3 slice=5:14 point=32:20:20 odds=1 at=ffffffff81000010,ffffffffc0000040")
    assert schedules.addresses(each) == [one.place for one in LIST]
    assert holds.each(SEEDED) == SEEDED


def log(*held: tuple[int, int, int, int]) -> np.ndarray:
    """Holds that begin at 1000 ns, 2000 ns and so on."""
    out = np.zeros(2 * len(held), ENTRY)
    for n, (phase, place, passage, ns) in enumerate(held):
        begin = 1000 * (n + 1)
        out[2 * n] = (n, begin, place, 5, What.OVER, 3, phase, passage)
        out[2 * n + 1] = (n, begin, place, ns, What.HELD, 3, phase, passage)
    return out


def test_a_list_goes_with_the_phases_of_its_program() -> None:
    """What was in a phase that is gone goes."""
    listed = [Hold(1, 16, 1, 5), Hold(3, 16, 2, 6), Hold(6, 32, 1, 7)]
    schedule = holds.told("seed=1 slice=15:17", listed)
    assert holds.moved(schedule, {n: n for n in range(7)}) == schedule
    assert holds.moved(schedule, {}) == schedule
    assert holds.holds(holds.moved(schedule, {0: 0, 3: 1, 6: 3})) == (
        Hold(1, 16, 2, 6), Hold(3, 32, 1, 7)
    )  # fmt: skip
    assert holds.moved(schedule, {0: 0}) == "seed=1 slice=15:17"
    # What surrounds the program stays.
    around = Hold(layout().HM_NO_PHASE, 16, 1, 5), Hold(layout().HM_AFTER_PHASE, 16, 1, 5)
    schedule = holds.told("", [*around, Hold(3, 16, 2, 6)])
    assert holds.holds(holds.moved(schedule, {0: 0})) == around
    # Held by chance as well, it stays so.
    both = f"seed=1 point=1:2:3 at=10 {holds.told('', listed)}"
    assert holds.moved(both, {3: 0, 6: 1}).startswith("seed=1 point=1:2:3 at=10 do=0:10:2:6,")


def test_a_log_gives_the_list() -> None:
    found = holds.recorded(log(*((one.phase, one.place, one.passage, one.ns) for one in LIST)))
    assert found == LIST
    # Twice without going on in between: once, to the end of the second.
    assert holds.recorded(log((2, 16, 7, 100), (1, 16, 7, 5), (2, 16, 7, 50))) == (
        Hold(2, 16, 7, 2050), Hold(1, 16, 7, 5)
    )  # fmt: skip
    # Where passages were not counted nobody can be told to be held.
    assert holds.recorded(log((2, 16, 0, 100), (1, 8, 3, 5))) == (Hold(1, 8, 3, 5),)
    assert holds.uncounted(log((2, 16, 0, 100), (1, 8, 0, 5), (1, 24, 9, 5))) == [8, 16]
    assert holds.counting("seed=1 count=1", [8, 16]) == "seed=1 count=8,10"


@pytest.mark.parametrize(
    ("ns", "round_ones"),
    [(68000, [50000, 100000]), (1_900_000, [2_000_000, 1_000_000]), (20_000, []), (1, []),
     (7, [5, 10]), (999, [1000, 500])],
)  # fmt: skip
def test_round_times(ns: int, round_ones: list[int]) -> None:
    assert sorted(holds.round_ns(ns)) == sorted(round_ones)
    if len(round_ones) > 1:
        assert holds.round_ns(ns)[0] == min(round_ones, key=lambda one: max(one / ns, ns / one))


def test_names_there_and_back() -> None:
    """A module's function is told from the kernel's of the same name; user code has a number."""
    listed = (*LIST, Hold(2, 0x4062E4, 5, 9))
    env = Environment(audit="access", schedule=holds.told("seed=1 slice=15:17", listed))
    kept, anchors = holds.anchored(env, TABLE)
    assert kept == Environment(audit="access", schedule="seed=1 slice=15:17")
    assert anchors == (
        Anchor(1, "hmm_range_fault+0x10", 3, 70000), Anchor(0, "map+0x40 [hmm_gpu]", 1, 2000000),
        Anchor(2, "0x4062e4", 5, 9),
    )  # fmt: skip
    assert holds.resolved(kept, anchors, TABLE) == (env, [])
    # Without names, by numbers.
    kept, numbers = holds.anchored(env, None)
    assert [one.at for one in numbers] == ["0xffffffff81000010", "0xffffffffc0000040", "0x4062e4"]
    assert holds.resolved(kept, numbers, None) == (env, [])


def test_another_build() -> None:
    """Symbols have moved, and one is gone."""
    anchors = (Anchor(1, "hmm_range_fault+0x10", 3, 70000), Anchor(0, "gone+0x8", 1, 5))
    other = SymbolTable([Symbol("hmm_range_fault", 0xFFFFFFFF91000000, 0x80)])
    env, lost = holds.resolved(Environment(schedule="seed=1"), anchors, other)
    assert env.schedule == "seed=1 do=1:ffffffff91000010:3:70000"
    assert lost == ["phase 0, passage 1 of gone+0x8"]
    env, lost = holds.resolved(Environment(schedule="seed=1"), anchors, None)
    assert (env.schedule, lost) == ("seed=1", list(map(str, anchors)))


PLACED = "seed=1 point=4:16:20 at=ffffffff81000010,ffffffffc0000000,4062e4 odds=2 count={0}"
BY_NAME = "seed=1 point=4:16:20 at=hmm_range_fault+0x10,map+0x0[hmm_gpu],4062e4 odds=2 count={0}"


def test_places_of_a_schedule_there_and_back() -> None:
    """Each keeps its word and its order; one without a name its number."""
    numbers = PLACED.format("ffffffff82000004,ffffffffc0000004,ffffffff83000000")
    names = BY_NAME.format("map+0x4,map+0x4[hmm_gpu],ffffffff83000000")
    assert holds.named(numbers, TABLE) == names
    assert holds.addressed(names, TABLE) == (numbers, [])
    # What was named stays so, and what has no places is what it was.
    assert holds.named(names, TABLE) == names
    for schedule in ("", SEEDED.partition(" point")[0], f"seed=1 {TOLD}"):
        assert holds.named(schedule, TABLE) == schedule
        assert holds.addressed(schedule, None) == (schedule, [])


def test_a_name_that_could_be_a_number() -> None:
    table = SymbolTable([Symbol("add", 0xFFFFFFFF81000000, 0x40)])
    assert holds.named("at=ffffffff81000000", table) == "at=add+0x0"
    assert holds.addressed("at=add+0x0,add", table) == ("at=ffffffff81000000,add", [])


def test_a_name_that_leads_elsewhere_is_none() -> None:
    """Two symbols of one name and module, as a table of two files has them."""

    class Ambiguous(SymbolTable):
        def address(self, place: str) -> int:
            return super().address(place) + 8

    assert holds.named("at=ffffffff81000010", Ambiguous(TABLE)) == "at=ffffffff81000010"


def moved_by(offset: int) -> SymbolTable:
    return SymbolTable(
        [Symbol("hmm_range_fault", 0xFFFFFFFF81000000 + offset, 0x40),
         Symbol("map", 0xFFFFFFFFC0000000 + offset, 0x80, "hmm_gpu")]
    )  # fmt: skip


def test_a_recipe_in_another_build(tmp_path: Path) -> None:
    """Its places are found where that has them, its chain's as well; what is not there is said."""
    program = Program([Op(Mmap.number, len=4096, a=3)], (24, 600, 0, 0))
    own = PLACED.format("ffffffff84000004")
    chain = (
        Link(program, Environment(schedule=own)),
        Link(program, Environment(schedule="seed=2 slice=5:14 at=ffffffff84000008")),
    )
    listed = Recipe(
        program, Environment(audit="access", schedule=f"seed=1 {TOLD}"), cpus=4, chain=chain
    )
    holds.kept(listed, TABLE).write(tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    assert "ffffffff" not in text
    read = Recipe.read(tmp_path / "r.json")
    assert [one.at for one in read.decisions] == ["hmm_range_fault+0x10", "map+0x40 [hmm_gpu]"]
    here, lost = holds.here(read, TABLE)
    assert (here.environment, here.chain, lost) == (listed.environment, chain, [])
    there, lost = holds.here(read, moved_by(0x1000))
    assert there.environment.schedule == (
        "seed=1 do=1:ffffffff81001010:3:70000,0:ffffffffc0001040:1:2000000"
    )
    assert [link.environment.schedule for link in there.chain] == [
        "seed=1 point=4:16:20 at=ffffffff81001010,ffffffffc0001000,4062e4 odds=2",
        "seed=2 slice=5:14",
    ]
    assert lost == ["gone+0x4", "gone+0x8"]
    # Of one that is still as chance had it, too.
    chance = holds.kept(Recipe(program, Environment(schedule=own), cpus=4), TABLE)
    assert chance.environment.schedule == BY_NAME.format("gone+0x4")
    assert holds.here(chance, TABLE)[0].environment.schedule == own
    # Without symbols nothing has a name, and no name a place.
    assert holds.kept(listed, None).chain == chain
    bare, lost = holds.here(chance, None)
    assert bare.environment.schedule == "seed=1 point=4:16:20 at=4062e4 odds=2"
    assert lost == ["hmm_range_fault+0x10", "map+0x0[hmm_gpu]", "gone+0x4"]


def test_places_without_a_name_are_known() -> None:
    program = Program([Op(Mmap.number, len=4096, a=3)], (24, 600, 0, 0))
    recipe = Recipe(
        program, Environment(schedule="seed=1 at=10,f+0x2,add+0x0"),
        decisions=(Anchor(0, "0x4062e4", 1, 5), Anchor(0, "f+0x8", 1, 5)),
        chain=(Link(program, Environment(schedule="count=20,10 do=1:30:2:5")),), cpus=4,
    )  # fmt: skip
    assert holds.by_number(recipe) == {0x10, 0x20, 0x30, 0x4062E4}
