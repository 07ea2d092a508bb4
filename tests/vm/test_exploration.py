# SPDX-License-Identifier: GPL-2.0-or-later
"""Feedback on exact machines: looking changes nothing, a run repeats, a corpus goes on."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hmmbench import cli
from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.campaign import features, fleet
from hmmbench.campaign.repeat import difference, nth, surroundings
from hmmbench.example.exact_target import ExactTarget, Print
from hmmbench.example.judge import judge
from hmmbench.example.seen import Counted, Looker, Seen
from hmmbench.model.cells import Coverage
from hmmbench.model.trail import Trail
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec, exact_spec

EXAMPLES = 6


def chain(
    artifacts: Artifacts, spec: MachineSpec, look: bool
) -> tuple[list[Print], list[Seen | None], list[frozenset[int]]]:
    """Some examples in one machine, looked at or not."""
    spec = exact_spec(spec, fleet.EXACT_CPUS)
    points = fleet.exact_points(artifacts, spec)
    assert points.table is not None
    looker = Looker(Counted(points.table)) if look else None
    functions = features.Functions(points.table)
    prints, seen, reached = [], [], []
    with (
        Opener(spec) as opener,
        ExactTarget(
            opener, points=points.all, take=True, memory=True, looker=looker
        ) as target,
    ):
        for index in range(EXAMPLES):
            done = target.execute(nth(3, index), surroundings(3, index, points))
            prints.append(target.print)
            seen.append(done.seen)
            coverage = Coverage()
            trail = coverage.trail = Trail()
            outcome = judge(done, coverage)
            assert not outcome.violations
            reached.append(features.of(trail, outcome, done, functions))
    return prints, seen, reached


@pytest.mark.timeout(900)
def test_looking_changes_nothing(artifacts: Artifacts, spec: MachineSpec) -> None:
    plain, nothing, _ = chain(artifacts, spec, False)
    looked, seen, reached = chain(artifacts, spec, True)
    assert [difference(a, b) for a, b in zip(plain, looked, strict=True)] == [()] * EXAMPLES
    assert nothing == [None] * EXAMPLES
    # Each of its own, and not what came before.
    for one in seen:
        assert one is not None
        assert one.log is not None
        assert one.device["faults"] > 0
        assert one.driver
        assert not one.code
    kinds = features.by_kind(frozenset().union(*reached))
    assert set(kinds) == set(features.KINDS) - {"code", "met"}
    assert kinds["beside"] > 10
    # The same again.
    assert chain(artifacts, spec, True)[2] == reached


def run(out: Path, *words: str) -> dict[str, Any]:
    result = out / "result.json"
    assert cli.main(["run", "--out", str(out), "--json", str(result), *words]) == 0
    return dict(json.loads(result.read_text()))


@pytest.mark.timeout(1800)
def test_a_corpus_goes_on_and_runs_repeat(tmp_path: Path) -> None:
    corpus, words = tmp_path / "corpus", ("--examples", "60", "--jobs", "2", "--corpus")
    first = run(tmp_path / "a", *words, str(corpus))
    found = first["exploration"]
    assert found["examples"]["changed"] > 0
    assert 0 < found["kept"] <= found["new_inputs"] == found["inputs"]
    (file,) = corpus.iterdir()
    # The same from the same beginning.
    again = run(tmp_path / "b", *words, str(tmp_path / "empty"))
    assert again["exploration"] == found
    assert (tmp_path / "empty" / file.name).read_bytes() == file.read_bytes()
    # Another seed goes on with it, twice the same.
    shutil.copytree(corpus, tmp_path / "copy")
    seconds = [
        run(tmp_path / name, *words, str(tmp_path / folder), "--seed", "2")["exploration"]
        for name, folder in (("c", "corpus"), ("d", "copy"))
    ]
    assert seconds[0] == seconds[1]
    assert seconds[0]["examples"]["kept"] > 0
    assert seconds[0]["features"] > found["features"]


if os.environ.get("HMMBENCH_FULL"):

    @pytest.mark.full("branches of the driver, with a kernel that counts them")
    @pytest.mark.timeout(3600)
    def test_branches_are_seen_where_the_kernel_counts_them() -> None:
        artifacts = ensure(BuildRequest(coverage=True))
        spec, _ = best_spec(artifacts)
        _, seen, reached = chain(artifacts, spec, True)
        code = [one.code for one in seen if one is not None]
        assert len(code) == EXAMPLES
        assert all(any(name.startswith("hmm_range_fault ") for name in one) for one in code)
        assert all(len(one) > 100 for one in code)
        assert len(set(code)) > 1
        assert chain(artifacts, spec, True)[2] == reached
