# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver is unbound and bound again between examples: what it leaves is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from work import acc, cpu, migrate, mmap, plain

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.campaign.replay import replay
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest.program import MIGRATE_DEVICE, Acc, Program
from hmmbench.oracle.unload import left
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).parent.parent / "mutants" / "region-not-released.patch"
REBIND = Environment(audit="fill", rebind=True)


def test_what_the_script_says() -> None:
    assert left("") == []
    text = "left: 100-1ff : hmm_gpu-vram\nleft: the device cannot be bound again\nother\n"
    assert left(text) == ["100-1ff : hmm_gpu-vram", "the device cannot be bound again"]


def test_a_sound_driver_leaves_nothing(spec: MachineSpec) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        for _ in range(3):
            done = target.execute(plain().program, REBIND)
            assert judge(done).violations == []
        totals = target.sample()
        # Counted over the driver's lives; the audit goes on in each of them.
        assert totals.counts["faults"] >= 3
        assert min(totals.counts.values()) >= 0
        assert totals.audit_checks >= 3
        assert totals.machines == 1


def test_a_range_of_addresses_that_stays_taken(
    artifacts: Artifacts, spec: MachineSpec, tmp_path: Path
) -> None:
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(PATCH,)))
    )
    recipe = replace(plain(), environment=REBIND)
    recipe.write(tmp_path / "recipe.json")
    recipe = Recipe.read(tmp_path / "recipe.json")
    assert recipe.environment == REBIND
    with Opener(broken) as opener, VmTarget(opener) as target:
        found = replay(target, recipe)
        assert {v.oracle for v in found.violations} == {"leak"}
        assert "hmm_gpu-vram" in found.violations[0].message
    with Opener(spec) as opener, VmTarget(opener) as target:
        assert not replay(target, recipe).found


def test_short_vram_ends_with_its_example(spec: MachineSpec) -> None:
    """Also when the driver was bound again meanwhile, which forgets the limit."""
    everywhere = Program(
        [
            mmap(4), cpu(*(acc(Acc.WRITE, page, 5) for page in range(4)), phase=1),
            migrate(4, MIGRATE_DEVICE, phase=2),
        ],
        (0, 0, 0, 0),
    )  # fmt: skip
    with Opener(spec) as opener, VmTarget(opener) as target:
        for vram, rebind, moved in (
            (None, False, 4), (0, False, 0), (None, False, 4), (0, True, 0), (0, False, 0),
            (3, True, 3), (None, False, 4),
        ):  # fmt: skip
            done = target.execute(everywhere, Environment(vram=vram, rebind=rebind))
            assert judge(done).violations == []
            assert done.result is not None
            got = done.result.ops[2]
            assert got.status == 0
            assert (got.aux0 <= 4 if moved == 3 else got.aux0 == moved), (vram, got)
            assert vram != 3 or got.aux1 >= 1
