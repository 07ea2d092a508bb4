# SPDX-License-Identifier: GPL-2.0-or-later
"""An exact machine looks at accesses: where they go, who meets, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from work import mixed

from hmmbench import symbols
from hmmbench.build import Artifacts
from hmmbench.campaign import aim
from hmmbench.campaign.aim import Profile
from hmmbench.campaign.repeat import exact_specs
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.recipe import Environment
from hmmbench.symbols import SymbolTable
from hmmbench.symbols.operands import Access
from hmmbench.vm.decisions import names
from hmmbench.vm.opener import Opener
from hmmbench.vm.qmp import QmpFailure
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

WORK = mixed(7, pages=8, lanes=16)
PLAIN = "seed=5 step=9:15:0:8 slice=5:14"

#: The address of an instruction: what it accesses, and the next one's.
Accesses = dict[int, tuple[Access, int | None]]


@pytest.fixture(scope="module")
def spec4(spec: MachineSpec) -> MachineSpec:
    return exact_specs(spec, (4,))[4]


@pytest.fixture(scope="module")
def table(artifacts: Artifacts, spec4: MachineSpec) -> SymbolTable:
    return symbols.of_guest(artifacts, Snapshots().sections(spec4))


@pytest.fixture(scope="module")
def accesses(artifacts: Artifacts, spec4: MachineSpec, table: SymbolTable) -> Accesses:
    return aim.instructions(artifacts, Snapshots().sections(spec4), table)


@pytest.fixture
def target(spec4: MachineSpec) -> Iterator[ExactTarget]:
    with Opener(spec4) as opener, ExactTarget(opener, take=True) as made:
        yield made


@pytest.fixture
def watched(target: ExactTarget, tmp_path: Path) -> Callable[[Accesses], dict[int, list[int]]]:
    """Executes WORK looking at these; passages of each and those to the GPU, by address."""

    def run(accesses: Accesses) -> dict[int, list[int]]:
        target.renew()
        aim.write_table(tmp_path / "table", accesses)
        target.vm.exact.watch(tmp_path / "table")
        done = target.execute(WORK.program, Environment(schedule=PLAIN))
        assert done.result is not None
        WORK.check(done.result)
        target.vm.exact.write_watch(tmp_path / "found")
        rows = [line.split() for line in (tmp_path / "found").read_text().splitlines()]
        return {int(row[1], 16): [int(row[2]), int(row[3])] for row in rows if row[0] == "P"}

    return run


def test_the_address_is_computed_from_registers_and_displacement(
    watched: Callable[[Accesses], dict[int, list[int]]], accesses: Accesses, table: SymbolTable
) -> None:
    """The driver acknowledges faults by one write to a register of the GPU."""
    handler = table.find("hg_irq_fault", "hmm_gpu")
    assert handler is not None
    code = range(handler.address, handler.address + handler.size)
    found = watched({at: one for at, one in accesses.items() if at in code})
    to_gpu = {at for at, (passed, gpu) in found.items() if gpu}
    assert len(to_gpu) == 1
    (at,) = to_gpu
    passed, gpu = found[at]
    assert passed == gpu > 0
    access, after = accesses[at]
    # The BAR has 64 KiB and more; a mistake in what is added to the register leaves it.
    for wrong in (
        replace(access, disp=access.disp + (1 << 30)),
        replace(access, disp=access.disp - (1 << 30)),
        replace(access, index=access.base, scale=8),
        replace(access, base=None),
    ):
        assert watched({at: (wrong, after)}) == {at: [passed, 0]}
    # Base and index change places.
    swapped = replace(access, base=None, index=access.base, scale=1)
    assert watched({at: (swapped, after)}) == {at: [passed, gpu]}


def test_looking_changes_nothing(
    watched: Callable[[Accesses], dict[int, list[int]]], accesses: Accesses, target: ExactTarget
) -> None:
    target.execute(WORK.program, Environment(schedule=PLAIN))
    first = target.print
    assert watched(accesses)
    assert target.print.hash == first.hash
    assert target.print.answer == first.answer
    assert target.print.counters == first.counters


def test_who_meets(artifacts: Artifacts, spec4: MachineSpec) -> None:
    """The notifier's sequence, the CPU's page table, the GPU's page table and its registers, in as
    many programs as it takes."""
    profile = aim.make(artifacts, spec4, programs=aim.EACH + 8)
    pairs = {
        frozenset((_function(profile, a), _function(profile, b))) for a, b in profile.pairs
    }  # fmt: skip
    # An invalidation writes the sequence that hmm_range_fault and mmu_interval_read_retry read.
    notify = {next(iter(pair - {"svm_notify"}), "") for pair in pairs if "svm_notify" in pair}
    assert "hmm_range_fault" in notify
    assert "mmu_interval_read_begin" in notify
    assert frozenset(("mn_itree_inv_end", "mmu_interval_read_begin")) in pairs
    # HMM reads entries that others change.
    walk = {next(iter(p - {"hmm_vma_walk_pmd"}), "") for p in pairs if "hmm_vma_walk_pmd" in p}
    assert walk & {"ptep_clear_flush", "unmap_page_range", "change_protection"}, walk
    gpu = {place.symbol.partition(" ")[0] for place in profile.places if place.gpu}
    assert {"hg_irq_fault", "map_leaf"} <= gpu
    assert all(place.gpu <= place.passed for place in profile.places)
    # By name and offset it says the same of the same guest.
    table = symbols.of_guest(artifacts, Snapshots().sections(spec4))
    assert len(aim.aims(profile, table).pairs) == len(profile.pairs) + sum(
        bool(place.gpu) for place in profile.places
    )


def _function(profile: Profile, number: int) -> str:
    return profile.places[number].symbol.partition(" ")[0]


def test_what_passes_while_a_cpu_is_held_is_told(target: ExactTarget, table: SymbolTable) -> None:
    places = [table.address(name) for name in ("handle_mm_fault", "hmm_range_fault")]
    words = f"{PLAIN} count={names(places)}"
    target.execute(WORK.program, Environment(schedule=words))
    assert target.vm.exact.met() == set()
    target.renew()
    held = f"{words} point=100:18:20 at={places[0]:x}"
    done = target.execute(WORK.program, Environment(schedule=held))
    met = target.vm.exact.met()
    assert met
    assert done.met == met
    assert {first for first, _ in met} == {places[0]}
    assert {second for _, second in met} <= set(places)


def test_a_table_that_is_none_is_refused(target: ExactTarget, tmp_path: Path) -> None:
    path = tmp_path / "table"
    aim.write_table(path, {0x10: (Access(0, 1, None, 1, 1), None)})
    good = path.read_bytes()
    for data, words in (
        (good + good[:5], "cut short"), (good + good, "in order"),
        (good[:12] + b"\x20" + good[13:], "none"), (good[:15] + b"\0", "none"),
    ):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(QmpFailure, match=words):
            target.vm.exact.watch(path)
    with pytest.raises(QmpFailure, match="watch"):
        target.vm.exact.watch(tmp_path / "missing")
