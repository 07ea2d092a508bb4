# SPDX-License-Identifier: GPL-2.0-or-later
"""Which examples of a run are on which machine."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import fake
import pytest
from fake import FakeTarget

from hmmbench.build import kernel
from hmmbench.campaign.generate import blocks
from hmmbench.campaign.portions import (
    DRAWS,
    LEAST,
    Draw,
    Portion,
    drawn,
    portions,
    profile_of,
    sanitised,
)
from hmmbench.campaign.runner import PROFILES, UNBOUNDED, Campaign
from hmmbench.campaign.surroundings import injections
from hmmbench.device.injection import HOME, RULES
from hmmbench.example.recipe import Recipe
from hmmbench.report.page.build import render
from hmmbench.report.result import Report
from hmmbench.report.tally import Tally
from hmmbench.vm import kinds
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import exact_spec

THREADED = MachineSpec(qemu=Path("qemu"), firmware=(), kernel=Path("kernel"))
USUAL = exact_spec(THREADED, 4)
BASE = kernel.read_config(kernel.FRAGMENTS / "base.config") | {"CONFIG_SWIOTLB": "y"}
FULLER = kernel.read_config(kernel.FRAGMENTS / "full.config")


def of(profile: str, seed: int = 1, fuller: dict[str, str] | None = FULLER) -> list[Portion]:
    draw = DRAWS[profile]
    others = [*drawn(draw, seed, USUAL, BASE, fuller), *sanitised(draw)]
    return portions(True, PROFILES[profile], None, others, draw.each)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [1, 2, 7])
def test_all_examples_are_somewhere_and_none_twice(profile: str, seed: int) -> None:
    found = of(profile, seed)
    assert sum(one.examples for one in found) == PROFILES[profile]
    # Most are where they were before there were others.
    assert (found[0].machine, found[0].exact, found[0].first) == ("", True, 0)
    assert found[0].examples == max(one.examples for one in found) > PROFILES[profile] / 2
    numbers = sorted((one.first, one.first + one.examples) for one in found)
    assert all(end <= first for (_, end), (first, _) in pairwise(numbers))
    assert of(profile, seed) == found
    assert all(one.examples >= LEAST for one in found)


def test_a_quick_run_has_one_other_machine() -> None:
    """Which one is a matter of the seed; none that takes another kernel than is there."""
    seen = set()
    for seed in range(60):
        usual, threads, other = of("quick", seed)
        assert (usual.machine, threads.machine, threads.exact) == ("", "", False)
        assert (other.examples, other.exact, other.variant) == (30, True, ())
        seen.add(other.machine)
    assert seen == {n for n in kinds.possible(USUAL, BASE) if not kinds.may_be_refused(n)}


def test_a_long_run_has_all_machines_and_what_they_take() -> None:
    found = of("long")
    single = {one.machine: one for one in found if one.machine in kinds.KINDS}
    # lts: no lazy preemption; and what is the usual machine anyway.
    assert set(single) == set(kinds.DRAWN) - {"preempt-lazy", "cpus-4"}
    for name, one in single.items():
        assert (one.variant == ("full",)) == kinds.needs_full(name)
    pairs = [one for one in found if "+" in one.machine]
    assert len(pairs) == DRAWS["long"].pairs
    assert not [one for one in pairs if kinds.may_be_refused(one.machine)]
    for one in pairs:
        assert (one.variant == ("full",)) == kinds.needs_full(one.machine)
    variants = [one for one in found if one.variant and one.variant != ("full",)]
    assert [one.variant for one in variants] == [("debug",), ("kcsan",)]
    assert not any(one.exact or one.machine for one in variants)
    assert [one.name for one in variants] == ["usual debug", "usual kcsan"]
    # A kernel of the user's own is what it is.
    bound = drawn(DRAWS["long"], 1, USUAL, BASE, None)
    assert not [one for one in bound if one.variant or kinds.needs_full(one.machine)]


def test_a_machine_has_the_same_numbers_in_each_run() -> None:
    numbers: dict[str, set[int]] = {}
    for seed in range(40):
        for profile in ("quick", "default", "long"):
            for one in drawn(DRAWS[profile], seed, USUAL, BASE, FULLER):
                numbers.setdefault(one.machine, set()).add(one.first)
    assert all(len(firsts) == 1 for firsts in numbers.values())
    assert len({min(firsts) for firsts in numbers.values()}) == len(numbers)


def test_few_examples_are_not_worth_another_machine() -> None:
    others = drawn(DRAWS["quick"], 1, USUAL, BASE)
    assert len(portions(True, 10 * LEAST, None, others, 10)) == 3
    assert len(portions(True, 10 * LEAST - 1, None, others, 10)) == 2


def test_time_is_shared_alike() -> None:
    draw = Draw(2, 20)
    found = portions(True, UNBOUNDED, 600.0, drawn(draw, 1, USUAL, BASE), draw.each)
    assert [one.limit_s for one in found] == [480.0, 60.0, 30.0, 30.0]
    assert all(one.examples == UNBOUNDED for one in found)
    assert len(portions(True, UNBOUNDED, 90.0, drawn(draw, 1, USUAL, BASE), 20)) == 2
    assert [profile_of(m) for m in (1.5, 30, 480)] == ["quick", "default", "long"]


def test_one_machine_for_all() -> None:
    found = portions(True, 100, None, machine="iommu")
    assert [(one.machine, one.exact, one.examples) for one in found] == [
        ("iommu", True, 90), ("iommu", False, 10),
    ]  # fmt: skip


def test_threads_alone_draw_too() -> None:
    found = portions(False, 300, None, drawn(DRAWS["quick"], 3, THREADED, BASE), 10)
    assert [(one.exact, one.examples) for one in found] == [(False, 270), (False, 30)]


def test_numbers_of_other_machines_make_programs() -> None:
    last = max(one.first for one in of("long"))
    assert len(blocks(1, last // 100, 3, 3)) == 3


def test_the_copy_that_fails_is_one_of_this_machine() -> None:
    """By an address that half of its pages have."""
    rules = {name: injections(kinds.made(USUAL, name)) for name in ("", "small", "iommu", "numa")}
    assert rules[""] == rules["numa"] == RULES
    first = next(k for k, rule in enumerate(RULES) if HOME in rule)
    small = rules["small"][first]
    assert small == "ce.copy match=8000000/ffffff0008000000 count=1 error"
    assert kinds.SMALL_MIB << 20 == 2 * 0x8000000
    iommu = rules["iommu"][first]
    assert iommu == "ce.copy match=20004000/ffffff0020004000 count=1 error"
    for name, mine in rules.items():
        assert len(mine) == len(RULES), name
        assert [m for m, r in zip(mine, RULES, strict=True) if HOME not in r] == [
            r for r in RULES if HOME not in r
        ]
    assert injections(kinds.made(USUAL, "small"), ()) == ()


def test_what_is_found_says_its_machine(tmp_path: Path) -> None:
    with fake.own_time():
        tally = Campaign(
            FakeTarget("ro_writable"), tmp_path, seed=1, grammar=2, examples=300, shrink_s=0,
            machine="cpus-1+small",
        ).run()  # fmt: skip
    assert tally.findings
    for name in ("recipe.json", "original.json"):
        assert Recipe.read(tally.findings[0].folder / name).machine == "cpus-1+small"


def test_the_report_says_where_examples_were(tmp_path: Path) -> None:
    def row(machine: str, kind: str, examples: int, refused: str = "") -> dict[str, object]:
        return {"machine": machine, "kind": kind, "examples": examples, "refused": refused}

    usual = [row("usual", "exact", 90), row("usual", "threads", 9)]
    report = Report(verdict="pass", portions=usual)
    assert report.machines_drawn() == ""
    report.portions += [row("iommu", "exact", 30), row("swiotlb", "exact", 0, "all DMA goes")]
    said = "usual (exact) 90, usual (threads) 9, iommu (exact) 30, swiotlb (exact) refused"
    assert report.machines_drawn() == said
    report.write_ktap(tmp_path / "ktap")
    assert f"# examples by machine: {said}" in (tmp_path / "ktap").read_text()
    assert said in render(report, Tally(), {})
