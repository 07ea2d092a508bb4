# SPDX-License-Identifier: GPL-2.0-or-later
"""Feedback beside chance: pairs, bounds, and the sign test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmmbench import cli
from hmmbench.base.errors import EXIT_USAGE, EXIT_VIOLATION
from hmmbench.commands import mutants as command
from hmmbench.compare import sums
from hmmbench.compare.feedback import COSTS, NOTHING, WORTH, Comparison, Pair, sign_test
from hmmbench.mutation import mutants
from hmmbench.mutation.trial import ALIVE, ERROR, KILLED, SOUND, How, Row


def row(name: str, seed: int, feedback: bool, examples: int, status: str = KILLED) -> Row:
    return Row(
        name, "class", status=status, examples=examples, cpu_s=examples / 10, seed=seed,
        feedback=feedback,
    )  # fmt: skip


def pair(without: int, with_it: int, *, a: str = KILLED, b: str = KILLED) -> Pair:
    return Pair(1, row("m", 1, False, without, a), row("m", 1, True, with_it, b))


@pytest.mark.parametrize(
    ("one", "ratio", "bound"),
    [
        (pair(100, 50), 2.0, False),
        (pair(50, 100), 0.5, False),
        # Who brings the kernel down while it starts takes no example.
        (pair(0, 0), 1.0, False),
        (pair(3, 0), 3.0, False),
        # Who lived as long as the other took, or longer, is worse by that much at least.
        (pair(1000, 50, a=ALIVE), 20.0, True),
        (pair(50, 1000, b=ALIVE), 0.05, True),
        # Who was not looked at for so long may have been about to be killed.
        (pair(40, 50, a=ALIVE), None, False),
        (pair(50, 40, b=ALIVE), None, False),
        (pair(1000, 1000, a=ALIVE, b=ALIVE), None, False),
        (pair(1000, 50, a=ERROR), None, False),
        (pair(50, 1000, b=ERROR), None, False),
    ],
)
def test_a_pair(one: Pair, ratio: float | None, bound: bool) -> None:
    assert one.ratio == (None if ratio is None else pytest.approx(ratio))
    assert one.bound is bound


def test_the_sign_test() -> None:
    assert sign_test(0, 0) == sign_test(1, 1) == sign_test(5, 5) == 1.0
    assert sign_test(1, 0) == 1.0
    assert sign_test(5, 0) == sign_test(0, 5) == pytest.approx(2 / 32)
    assert sign_test(8, 1) == pytest.approx(2 * 10 / 512)


def compared(*ratios: tuple[int, int]) -> Comparison:
    return Comparison.of(
        one for n, (without, with_it) in enumerate(ratios)
        for one in (row(f"m{n}", 1, False, without), row(f"m{n}", 1, True, with_it))
    )


def test_what_is_said_of_all() -> None:
    worth = compared(*[(100, 50)] * 8, (50, 100))
    assert worth.word == WORTH
    data = worth.to_json()
    assert (data["median_ratio"], data["better"], data["worse"]) == (2.0, 8, 1)
    assert data["median_cpu_ratio"] == 2.0
    assert compared(*[(50, 100)] * 8, (100, 50)).word == COSTS
    assert compared((100, 50), (100, 20), (7, 7)).word == NOTHING
    assert "fewer examples" in worth.lines()[-1]
    assert compared().to_json()["median_ratio"] is None
    assert "no difference shown" in compared().lines()[-1]


def test_a_mutant_is_one_voice() -> None:
    """Its seeds are not independent of one another."""
    rows = [row("m", seed, way, 50 if way else 100) for seed in range(9) for way in (False, True)]
    # One way alone is no pair; what nobody killed is not known.
    rows += [row("n", 1, False, 9), row("o", 1, False, 9, ALIVE), row("o", 1, True, 9, ALIVE)]
    found = Comparison.of(rows)
    assert found.ratios() == {"m": 2.0}
    data = found.to_json()
    assert (data["better"], data["worse"], data["not_known"]) == (1, 0, 1)
    assert data["word"] == NOTHING
    assert json.loads(json.dumps(data))["mutants"]["o"]["pairs"][0]["ratio"] is None


def test_the_command_runs_each_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, How, Path]] = []

    def run_one(mutant: mutants.Mutant, ui: object, out: Path, how: How) -> Row:
        asked.append((mutant.name, how, out))
        return row(mutant.name, how.seed, how.feedback, 10 if how.feedback else 30)

    def run_sound(ui: object, out: Path, how: How, **what: Any) -> Row:
        assert (how.feedback, what["examples"]) == (True, 30)
        return Row(SOUND, "no fault", status=SOUND)

    monkeypatch.setattr(command, "run_one", run_one)
    monkeypatch.setattr(command, "run_sound", run_sound)
    written = tmp_path / "result.json"
    words = ["no-read-retry", "no-set-seq", "--both-ways", "--seeds", "2", "--examples", "500"]
    words += ["--seed", "5", "--out", str(tmp_path / "out"), "--json", str(written)]
    assert cli.main(["mutants", *words]) == 0
    assert [(name, how.seed, how.feedback) for name, how, _ in asked] == [
        (name, seed, way) for seed in (5, 6) for name in ("no-read-retry", "no-set-seq")
        for way in (False, True)
    ]  # fmt: skip
    assert {(how.examples, how.shrink_s) for _, how, _ in asked} == {(500, 0.0)}
    # No two write to one place.
    assert len({(name, out) for name, _, out in asked}) == len(asked)
    data = json.loads(written.read_text())
    assert data["feedback"]["median_ratio"] == 3.0
    assert len(data["mutants"]) == 8
    assert all({"seed", "feedback"} <= set(one) for one in data["mutants"])
    assert "no difference shown" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [["--both-ways", "--accel", "threads"], ["--feedback", "--accel", "threads"],
     ["--both-ways", "--feedback"], ["--seeds", "2"], ["--both-ways", "--hmm-tests"]],
)  # fmt: skip
def test_wrong_use(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run_one", lambda *_: pytest.fail("run"))
    assert cli.main(["mutants", *words, "--out", str(tmp_path / "out")]) == EXIT_USAGE


def test_one_that_lives_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_one(mutant: mutants.Mutant, ui: object, out: Path, how: How) -> Row:
        return row(mutant.name, how.seed, how.feedback, 9, ALIVE)

    monkeypatch.setattr(command, "run_one", run_one)
    words = ["no-set-seq", "--both-ways", "--no-control", "--out", str(tmp_path / "out")]
    assert cli.main(["mutants", *words]) == EXIT_VIOLATION


def test_parts_are_compared_together() -> None:
    """The mutants of one, the seeds of another."""
    parts = []
    for seed in (1, 2):
        rows = [row(f"m{n}", seed, way, 50 if way else 100) for n in range(6)
                for way in (False, True)]  # fmt: skip
        data = {"mutants": [one.to_json() for one in rows], "sound": []}
        parts.append(sums.Part(Path(f"{seed}.json"), "mutants", data))
    found = sums.Group("mutants", parts).feedback()
    assert (found.word, len(found.pairs), len(found.pairs["m0"])) == (WORTH, 6, 2)
