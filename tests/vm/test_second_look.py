# SPDX-License-Identifier: GPL-2.0-or-later
"""What machines with threads find of a broken driver is found again in an exact one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmmbench import fleet
from hmmbench.build import BuildRequest, ensure
from hmmbench.exact_shrink import Fresh
from hmmbench.recipe import Recipe
from hmmbench.replay import replay
from hmmbench.runner import EXACT, THREADS, Campaign
from hmmbench.second_look import THREADS_RECIPE, look
from hmmbench.target import VmTarget
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import standard_spec

#: The GPU keeps using pages that were unmapped.
PATCH = Path(__file__).parent.parent / "mutants/ignores-unmap.patch"


@pytest.mark.timeout(600)
def test_an_exact_recipe_for_what_threads_found(tmp_path: Path) -> None:
    broken = ensure(BuildRequest(driver_patches=(PATCH,)))
    spec = standard_spec(broken)
    with Opener(spec) as opener, VmTarget(opener) as target:
        finding = (
            Campaign(target, tmp_path, seed=1, examples=100, audit="access", shrink_s=20)
            .run()
            .finding
        )
    assert finding is not None
    assert finding.to_json()["shown_by"] == [THREADS]
    before = finding.recipe.read_bytes()
    with fleet.exact_fleet(broken, spec, 1, tmp_path, print) as (targets, points):
        look(finding, targets, points, cpus=fleet.EXACT_CPUS, shrink_s=20)
        assert finding.shown_by == (THREADS, EXACT)
        assert finding.looked_for > 0
        assert (finding.folder / THREADS_RECIPE).read_bytes() == before
        recipe = Recipe.read(finding.recipe)
        assert recipe.exact
        again = replay(Fresh(targets[0], recipe.chain), recipe)
        assert (again.executions, again.failures) == (1, 1)
