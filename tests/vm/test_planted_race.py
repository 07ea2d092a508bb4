# SPDX-License-Identifier: GPL-2.0-or-later
"""A race planted to show once in about 2,000 examples: its recipe is one hold, and fails at once.

`./hmmbench mutants --folder tests/mutants/planted` finds it anew (docs/exact.md: after how many).
"""

from __future__ import annotations

import json
from pathlib import Path

from hmmbench import cli
from hmmbench.base import paths
from hmmbench.build import BuildRequest, ensure
from hmmbench.campaign import fleet
from hmmbench.campaign.repeat import exact_specs
from hmmbench.vm.standard import best_spec

RECIPE = paths.project_root() / "tests/vm/planted.json"
PATCH = paths.project_root() / "tests/mutants/planted/gives-way-after-retry-check.patch"


def test_the_recipe_fails(tmp_path: Path) -> None:
    recipe = json.loads(RECIPE.read_text())
    assert (len(recipe["ops"]), len(recipe["decisions"])) == (5, 1)
    result = tmp_path / "replay.json"
    words = ["replay", str(RECIPE), "--driver-patch", str(PATCH), "--json", str(result)]
    assert cli.main(words) == 1
    said = json.loads(result.read_text())
    assert said["failures"] == 1
    if recipe["kernel"] == ensure(BuildRequest()).kernel_release:
        # Another kernel may go another way there.
        assert said["executions"] == 1, "make the recipe anew: the driver or the agent has changed"


def test_the_place_is_found_in_the_code() -> None:
    artifacts = ensure(BuildRequest(driver_patches=(PATCH,)))
    spec = exact_specs(best_spec(artifacts)[0], (4,))[4]
    found = fleet.exact_points(artifacts, spec)
    assert found.table is not None
    late = {found.table.name(at).partition("+")[0] for at in found.kinds["late_gaps"]}
    assert late == {"hg_svm_map_window"}
