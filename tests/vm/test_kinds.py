# SPDX-License-Identifier: GPL-2.0-or-later
"""Other machines than the usual one: each is what it says, works, and repeats if it is exact."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from test_files import judged
from work import acc, gpu, mmap, values

from hmmbench import cli
from hmmbench.build import Artifacts, kernel_config
from hmmbench.campaign import fleet
from hmmbench.campaign.repeat import repeat
from hmmbench.campaign.runner import Campaign
from hmmbench.campaign.surroundings import injections
from hmmbench.example.recipe import Recipe
from hmmbench.guest import splat
from hmmbench.guest.program import Acc, Op, Program
from hmmbench.model.ops.nodes import Offline
from hmmbench.vm import kinds
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

#: What is different, as the guest sees it: a command, and what it says.
SEEN = {
    "iommu": ("cat /sys/bus/pci/devices/0000:01:00.0/iommu_group/type", "DMA"),
    "numa": ("ls -d /sys/devices/system/node/node? | wc -l", "2"),
    "small": ("awk '/MemTotal/ { print ($2 < 262144) }' /proc/meminfo", "1"),
    "nothp": ("cat /sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"),
    "movable": ("grep -l Movable /sys/devices/system/memory/memory*/valid_zones | wc -l", "2"),
    "cpus-1": ("cat /sys/devices/system/cpu/online", "0"),
    "cpus-2": ("cat /sys/devices/system/cpu/online", "0-1"),
    "cpus-4": ("cat /sys/devices/system/cpu/online", "0-3"),
    **{
        f"preempt-{model}": (f"dmesg | grep -c 'Dynamic Preempt: {model}'", "1")
        for model in ("none", "voluntary", "lazy")
    },
}

FULL = [name for name, kind in kinds.KINDS.items() if kind.full]
SMALL = [name for name in kinds.KINDS if name not in FULL]


def looked_at(spec: MachineSpec, snapshots: Snapshots, name: str) -> None:
    with snapshots.open(kinds.made(spec, name)) as vm:
        if name in SEEN:
            command, said = SEEN[name]
            assert vm.agent.check(command).strip() == said
        assert bool(vm.hello["driver"]) == (not kinds.may_be_refused(name))
        assert splat.scan(vm.console.text()) == []


def examples(artifacts: Artifacts, spec: MachineSpec, name: str, out: Path) -> None:
    """A few, all of whose translations were compared."""
    made = fleet.exact_machine(spec, name)
    with fleet.exact_fleet(artifacts, spec, 1, out, print, machine=name) as (targets, points):
        tally = Campaign(
            targets, out, seed=5, examples=20, exact=points, cpus=made.cpus, audit="access",
            machine=name, injections=injections(made),
        ).run()  # fmt: skip
        for target in targets:
            target.close()
        totals = fleet.totals(targets)
    assert [f.violation.message for f in tally.findings] == []
    assert totals.audit_checks > totals.audit_undecided
    assert totals.unready == 0
    assert totals.faults > 0


def repeats(artifacts: Artifacts, spec: MachineSpec, name: str) -> None:
    made = fleet.exact_machine(spec, name)
    found = repeat(
        {made.cpus: made}, {made.cpus: fleet.exact_points(artifacts, made)}, seed=3, examples=4,
        times=2, chain=2, jobs=1, memory=True,
    )  # fmt: skip
    assert found.parted == []
    assert found.equal == found.executions


@pytest.mark.timeout(900)
def test_memory_goes_from_under_the_gpu(spec: MachineSpec, snapshots: Snapshots) -> None:
    """A block with pages that the GPU has mapped, and one that was left behind before."""
    state = "/sys/devices/system/memory/memory*/state"
    with snapshots.open(kinds.made(spec, "movable")) as vm:
        pool = vm.agent.check("cat /proc/sys/vm/nr_hugepages")
        offline = [Op(Offline.number, arg=block) for block in (0, 1)]
        writes, adds, reads = (
            [acc(kind, page, 7, lane=page) for page in range(16)]
            for kind in (Acc.WRITE, Acc.ADD, Acc.READ)
        )
        result = judged(vm, [mmap(16), gpu(*writes), offline[0], gpu(*adds), offline[1],
                             gpu(*adds), gpu(*reads)])  # fmt: skip
        assert vm.agent.check("cat /proc/sys/vm/nr_hugepages") == pool
        # The firmware's tables make a hole in the last one: it stays (EINVAL).
        assert {(result.ops[n].status, result.ops[n].aux0) for n in (2, 4)} == {
            (0, 0), (0, errno.EINVAL),
        }  # fmt: skip
        assert values(result, 6) == [21] * 16
        blocks = vm.agent.check("grep -l Movable /sys/devices/system/memory/memory*/valid_zones")
        first = blocks.split()[0].replace("valid_zones", "state")
        vm.agent.check(f"echo offline > {first}")
        assert "offline" in vm.agent.check(f"cat {state}")
        judged(vm, [mmap(1), offline[0]])
        assert "offline" not in vm.agent.check(f"cat {state}")
        vm.check()
        assert splat.scan(vm.console.text()) == []


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.timeout(900)
def test_a_machine_is_what_it_says(
    name: str, spec: MachineSpec, snapshots: Snapshots
) -> None:
    looked_at(spec, snapshots, name)


@pytest.mark.parametrize("name", [n for n in SMALL if not kinds.may_be_refused(n)])
@pytest.mark.timeout(900)
def test_examples_run_there(
    name: str, artifacts: Artifacts, spec: MachineSpec, tmp_path: Path
) -> None:
    examples(artifacts, spec, name, tmp_path)


@pytest.mark.parametrize("name", ["numa", "small", "cpus-1+nothp"])
@pytest.mark.timeout(900)
def test_an_exact_one_repeats(name: str, artifacts: Artifacts, spec: MachineSpec) -> None:
    repeats(artifacts, spec, name)


@pytest.mark.timeout(900)
def test_a_run_where_the_driver_refuses_is_no_violation(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = ["run", "--machine", "swiotlb", "--examples", "20", "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--json", str(result)]) == 5
    data = json.loads(result.read_text())
    assert data["violations"] == []
    assert data["error"].startswith("no examples: ")
    assert {one["machine"] for one in data["portions"]} == {"swiotlb"}
    assert all(one["refused"] and not one["examples"] for one in data["portions"])
    # Nor is there a word on a recipe.
    recipe = tmp_path / "recipe.json"
    Recipe(Program([mmap(1)]), machine="swiotlb").write(recipe)
    assert cli.main(["replay", str(recipe), "--json", str(result)]) == 5
    data = json.loads(result.read_text())
    assert (data["verdict"], data["executions"]) == ("short", 0)
    assert data["refused"]


@pytest.mark.timeout(900)
def test_a_quick_run_draws_one(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = ["run", "--examples", "200", "--out", str(tmp_path / "out"), "--json", str(result)]
    assert cli.main(words) == 0
    usual, threads, other = json.loads(result.read_text())["portions"]
    assert (usual["machine"], threads["kind"]) == ("usual", "threads")
    assert other["machine"] in kinds.KINDS
    assert (other["examples"], other["refused"]) == (20, "")


@pytest.mark.full("in the full configuration of kernel and QEMU")
class TestFull:
    @pytest.fixture(scope="class")
    def spec(self, full_artifacts: Artifacts) -> MachineSpec:
        return best_spec(full_artifacts)[0]

    @pytest.mark.parametrize("name", FULL)
    @pytest.mark.timeout(1800)
    def test_a_machine_is_what_it_says(
        self, name: str, full_artifacts: Artifacts, spec: MachineSpec, snapshots: Snapshots,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        if lost := kinds.lacking(name, kernel_config(full_artifacts)):
            pytest.skip(f"not with this kernel: {', '.join(lost)}")
        looked_at(spec, snapshots, name)
        examples(full_artifacts, spec, name, tmp_path)

    @pytest.mark.parametrize("name", ["iommu", "iommu+numa", "cpus-1+preempt-none"])
    @pytest.mark.timeout(1800)
    def test_an_exact_one_repeats(
        self, name: str, full_artifacts: Artifacts, spec: MachineSpec
    ) -> None:
        repeats(full_artifacts, spec, name)
