# SPDX-License-Identifier: GPL-2.0-or-later
"""What machines with threads find of a broken driver is found again in an exact one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from hmmbench import cli
from hmmbench.campaign import machines, second_look
from hmmbench.campaign.runner import Campaign
from hmmbench.campaign.second_look import THREADS_RECIPE
from hmmbench.commands import run
from hmmbench.example.recipe import Recipe

#: The GPU keeps using pages that were unmapped.
PATCH = Path(__file__).parent.parent / "mutants/ignores-unmap.patch"


@pytest.mark.timeout(900)
def test_an_exact_recipe_for_what_threads_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose exact machines have found nothing before: here they have run nothing."""
    both = run.portions
    monkeypatch.setattr(
        run, "portions", lambda *words: [one for one in both(*words) if not one.exact]
    )
    # How small the recipes are does not matter here; without shrinking the first finding ends it.
    monkeypatch.setattr(machines, "Campaign", partial(Campaign, shrink_s=0))
    monkeypatch.setattr(second_look, "look", partial(second_look.look, shrink_s=10))
    result = tmp_path / "result.json"
    broken = ["--driver-patch", str(PATCH)]
    words = ["run", "--examples", "600", "--audit", "access", "--out", str(tmp_path / "out")]
    assert cli.main([*words, *broken, "--json", str(result)]) == 1
    data = json.loads(result.read_text())
    assert data["accel"] == "exact"
    assert 0 < data["examples"] <= 60
    # Another machine may have had another mistake in hand: that is one more, and looked for too.
    found, *_ = data["violations"]
    assert len({one["recipe"] for one in data["violations"]}) == len(data["violations"]) <= 2
    assert found["shown_by"] == ["threads", "exact"]
    assert found["looked_for"] > 0
    assert found["rate"] == 1
    assert "the recipe is an exact machine's" in capsys.readouterr().err
    path = Path(found["recipe"])
    recipe, threads = Recipe.read(path), Recipe.read(path.with_name(THREADS_RECIPE))
    assert (recipe.exact, threads.exact) == (True, False)
    assert (recipe.oracle, recipe.message) == (found["oracle"], found["message"])
    # It repeats at once, and not with the driver as it is.
    words = ["replay", str(path), "--json", str(result)]
    assert cli.main([*words, *broken]) == 1
    data = json.loads(result.read_text())
    assert (data["executions"], data["failures"], data["as_recorded"]) == (1, 1, True)
    assert cli.main(words) == 0
