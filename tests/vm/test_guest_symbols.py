# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of symbols against what the running kernel says of itself."""

from __future__ import annotations

import pytest

from hmmbench import symbols
from hmmbench.build import Artifacts
from hmmbench.symbols import SymbolTable
from hmmbench.symbols.table import plain
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec


@pytest.fixture
def table(artifacts: Artifacts, spec: MachineSpec, snapshots: Snapshots) -> SymbolTable:
    return symbols.of_guest(artifacts, snapshots.sections(spec))


def kallsyms(vm: Machine) -> list[tuple[int, str, str]]:
    """(address, name, module), functions only: without KALLSYMS_ALL it has little else."""
    out = []
    for line in vm.agent.read_file("/proc/kallsyms").decode().splitlines():
        at, kind, name, *rest = line.split()
        if kind in "tTwW":
            out.append((int(at, 16), name, rest[0].strip("[]") if rest else ""))
    return out


def differences(theirs: list[tuple[int, str, str]], table: SymbolTable) -> list[str]:
    """What the guest has and the table has not, or somewhere else."""
    ours = {(s.address, plain(s.name), s.module) for s in table}
    return [f"{at:#x} {name} {module}" for at, name, module in theirs
            if (at, name, module) not in ours]  # fmt: skip


def test_as_the_guest_has_them(vm: Machine, table: SymbolTable) -> None:
    # The table leaves out what is freed after the boot, and the kernel's list does not.
    at = {name: address for address, name, _ in kallsyms(vm)}
    init = range(at["_sinittext"], at["_einittext"] + 1)
    theirs = [row for row in kallsyms(vm) if row[0] not in init and row[0] >> 63]
    assert sum(module == "hmm_gpu" for _, _, module in theirs) > 200
    assert sum(not module for _, _, module in theirs) > 20000
    assert differences(theirs, table) == []


def test_a_module_elsewhere_is_seen(
    vm: Machine, artifacts: Artifacts, spec: MachineSpec, snapshots: Snapshots
) -> None:
    places = snapshots.sections(spec)
    places["hmm_gpu"] = {name: at + 16 for name, at in places["hmm_gpu"].items()}
    wrong = symbols.of_guest(artifacts, places)
    found = differences([row for row in kallsyms(vm) if row[2] == "hmm_gpu"], wrong)
    assert len(found) > 200


def test_restored_copies_agree(vm: Machine, spec: MachineSpec, snapshots: Snapshots) -> None:
    assert symbols.sections(vm.agent) == snapshots.sections(spec)


def test_points_of_the_driver(
    artifacts: Artifacts, spec: MachineSpec, snapshots: Snapshots
) -> None:
    found = symbols.points(artifacts, snapshots.sections(spec))
    assert {c.kind for c in found.calls} == set(symbols.Kind)
    assert len(found.calls) > 200
    assert all(c.place.endswith("[hmm_gpu]") for c in found.calls)
    assert all(found.table.address(c.place) == c.address for c in found.calls)
    assert {s.name for s in found.kernel} >= {
        "hmm_range_fault", "migrate_vma_setup", "migrate_vma_pages", "migrate_vma_finalize",
        "mmu_interval_read_begin", "__mmu_notifier_invalidate_range_start",
    }  # fmt: skip
    assert len(found.functions) > 200
    # Between the look at the CPU's page table and the lock: also where the compiler put what
    # unlocks the address space into a function of its own.
    gaps = {found.table.name(at).partition("+")[0] for at in found.kinds["gaps"]}
    assert {"hg_svm_map_window", "hg_svm_map_exclusive", "hg_snapshot_lock"} <= gaps
    assert len(found.kinds["gaps"]) < 80
    assert 5 <= len(found.kinds["relocks"]) < 40
    assert not found.kinds["late_gaps"], "each look is asked about under the lock that follows"
    assert len(found.kinds["seams"]) > 50


def test_no_driver_no_points_of_it(
    artifacts: Artifacts, plain_spec: MachineSpec, snapshots: Snapshots
) -> None:
    found = symbols.points(artifacts, snapshots.sections(plain_spec))
    own = found.functions, found.calls, *found.kinds.values()
    assert not any(own)
    assert found.kernel


def test_the_name_that_the_kernel_prints(vm: Machine, table: SymbolTable) -> None:
    """A warning's stack is printed by the kernel's own look-up."""
    stack = vm.agent.check("cat /proc/1/stack /proc/self/stack; for p in /proc/[0-9]*; do"
                           " cat $p/stack; done 2>/dev/null; true")  # fmt: skip
    places = {line.split()[-1] for line in stack.splitlines() if line.startswith("[<0>] ")}
    assert len(places) > 5
    for place in places:
        name, _, size = place.partition("/")
        found = table.lookup(table.address(place))
        assert found is not None
        assert table.name(table.address(place)) == name
        assert found[0].size == int(size, 16)
