# SPDX-License-Identifier: GPL-2.0-or-later
"""Other machines than the usual one: what each is made of, and that an exact one stays exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hmmbench.base.errors import UsageError
from hmmbench.build import kernel
from hmmbench.vm import kinds
from hmmbench.vm.spec import MachineSpec, Wiring, arguments
from hmmbench.vm.standard import exact_spec

USUAL = MachineSpec(qemu=Path("qemu"), firmware=(), kernel=Path("kernel"))
#: What the fragments ask for, of a kernel that has what its architecture has.
BASE = kernel.read_config(kernel.FRAGMENTS / "base.config") | {"CONFIG_SWIOTLB": "y"}
FULL = BASE | kernel.read_config(kernel.FRAGMENTS / "full.config")


def line(spec: MachineSpec) -> list[str]:
    return arguments(spec, Wiring(qmp_fd=5, agent_fd=6, folder=Path("/tmp/x"), mailbox_fd=7))


def after(spec: MachineSpec, option: str) -> list[str]:
    argv = line(spec)
    return [argv[i + 1] for i, word in enumerate(argv) if word == option]


def said(spec: MachineSpec) -> list[str]:
    """The kernel's command line."""
    (words,) = after(spec, "-append")
    return words.split()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", kinds.KINDS)
def test_each_is_another_machine_of_the_same_sort(name: str, exact: bool) -> None:
    spec = exact_spec(USUAL, 4) if exact else USUAL
    made = kinds.made(spec, name)
    # Two kinds are the usual machine in one of the two sorts.
    same = name == ("cpus-4" if exact else "cpus-2")
    assert (line(made) == line(spec)) == same
    assert kinds.made(made, name) == made, "it is what it is already"
    # What keeps an exact machine exact is there: one thread, the machine's own clock and seeds.
    assert ("-S" in line(made)) == exact
    for option in ("-icount", "-accel", "-rtc", "-seed"):
        assert after(made, option)[:1] == after(spec, option)[:1]
    # Nothing comes in that has to do with the host: no backend of files, sockets or entropy.
    more = set(line(made)) - set(line(spec))
    assert not [w for w in more if "file" in w or "chardev" in w or "netdev" in w or "rng" in w]


def test_an_iommu_translates() -> None:
    made = kinds.made(USUAL, "iommu")
    devices = after(made, "-device")
    assert devices[0] == "intel-iommu,intremap=off", "before what it translates for"
    assert {"intel_iommu=on", "iommu.strict=1"} <= set(said(made))
    assert not [d for d in after(USUAL, "-device") if "iommu" in d]


@pytest.mark.parametrize(
    ("cpus", "nodes"), [(4, ["0-1", "2-3"]), (2, ["0-0", "1-1"]), (1, ["0-0", ""])]
)
def test_two_nodes_share_memory_and_cpus(cpus: int, nodes: list[str]) -> None:
    made = kinds.made(replace(USUAL, cpus=cpus), "numa")
    assert [o for o in after(made, "-object") if "ram" in o] == [
        "memory-backend-ram,id=node0,size=512M", "memory-backend-ram,id=node1,size=512M",
    ]  # fmt: skip
    assert after(made, "-numa") == [
        f"node,nodeid={n},memdev=node{n}" + (f",cpus={cpus}" if cpus else "")
        for n, cpus in enumerate(nodes)
    ]
    assert after(USUAL, "-numa") == []
    # What a program turns on is off before it, and after it.
    assert "numa_balancing=disable" in said(made)
    odd = kinds.made(replace(USUAL, memory_mib=513), "numa")
    assert [o.split("=")[-1] for o in after(odd, "-object")] == ["256M", "257M"]


def test_kinds_go_together() -> None:
    made = kinds.made(exact_spec(USUAL, 4), "cpus-1+preempt-none+small")
    assert (made.cpus, made.memory_mib, made.exact) == (1, kinds.SMALL_MIB, True)
    assert {"preempt=none", "hmmbench.zram=64M"} <= set(said(made))
    assert kinds.words("cpus-1+small") == "one CPU, little memory"
    assert kinds.words("") == "the usual machine"


@pytest.mark.parametrize("name", ["large", "iommu+", "iommu+swiotlb", "cpus-1+cpus-2", "Iommu"])
def test_what_is_no_machine(name: str) -> None:
    with pytest.raises(UsageError, match="machine"):
        kinds.made(USUAL, name)


def test_what_a_kernel_can_be() -> None:
    exact = exact_spec(USUAL, 4)
    small = kinds.possible(exact, BASE)
    assert small == ["swiotlb", "numa", "small", "nothp", "cpus-1", "cpus-2"]
    assert "cpus-4" in kinds.possible(USUAL, BASE)
    # 6.12, and a newer one.
    lazy = {"CONFIG_ARCH_HAS_PREEMPT_LAZY": "y"}
    more = {"iommu", "preempt-none", "preempt-voluntary"}
    assert set(kinds.possible(exact, FULL)) - set(small) == more
    assert set(kinds.possible(exact, FULL | lazy)) - set(small) == {"iommu", "preempt-lazy"}
    assert kinds.lacking("iommu+small", BASE) == ["CONFIG_INTEL_IOMMU=y"]
    assert kinds.lacking("preempt-none", FULL | lazy) == ["no CONFIG_ARCH_HAS_PREEMPT_LAZY"]


@pytest.mark.parametrize("name", kinds.KINDS)
def test_what_the_full_configuration_is_for(name: str) -> None:
    """Exactly those kinds of which the small one lacks something that the full one has."""
    config = {k: v for k, v in BASE.items() if k != "CONFIG_ARCH_HAS_PREEMPT_LAZY"}
    lazy = {"CONFIG_ARCH_HAS_PREEMPT_LAZY": "y"} if name == "preempt-lazy" else {}
    assert bool(kinds.lacking(name, config | lazy)) == kinds.needs_full(name)
    assert kinds.lacking(name, FULL | lazy) == []
