# SPDX-License-Identifier: GPL-2.0-or-later
"""`exact --against`: what is compared, and what an older checkout lacks, in words."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hmmbench import cli
from hmmbench.base.errors import UsageError
from hmmbench.campaign import generate
from hmmbench.campaign.generate import newest
from hmmbench.campaign.repeat import Digest, nth
from hmmbench.commands import exact as command
from hmmbench.compare import exact
from hmmbench.compare.exact import VERDICT, WHAT, compare
from hmmbench.example.exact_target import Print
from hmmbench.example.recipe import Environment
from hmmbench.oracle.violation import Violation

SEEN = Print(7, b"answer", {"faults": 3}, "printed\n", {"pc.ram": np.array([1, 2], "<u8")})
AROUND = Environment(("a 1",), ("irq duplicate",), "access", False, 3, "seed=1 slice=5:14")


def digest(**changed: Any) -> dict[str, Any]:
    made = Digest.of(
        4, changed.pop("program", nth(1, 4)), replace(AROUND, **changed.pop("around", {})),
        replace(SEEN, **changed), [],
    )  # fmt: skip
    return asdict(made)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"program": nth(1, 5)}, "program"),
        *(
            ({"around": {name: value}}, "surroundings")
            for name, value in (
                ("delays", ()), ("inject", ()), ("audit", "off"), ("rebind", True), ("vram", None),
                ("schedule", "seed=2 slice=5:14"),
            )
        ),
        ({"answer": b"Answer"}, "answer"),
        ({"hash": 8}, "decisions"),
        ({"counters": {"faults": 4}}, "counters"),
        ({"console": ""}, "console"),
        ({"memory": {"pc.ram": np.array([1, 3], "<u8")}}, "memory"),
    ],
)
def test_each_thing_that_differs_is_named(change: dict[str, Any], what: str) -> None:
    assert compare([digest()], [digest()], WHAT) == []
    (found,) = compare([digest()], [digest(**change)], WHAT)
    assert (found.example, found.differs) == (4, (what,))
    assert str(found) == f"example 4: {what} differ"
    # Where the guest is meant to differ.
    assert compare([digest()], [digest(**change)], (VERDICT,)) == []


def test_a_verdict_is_which_oracles_were_violated() -> None:
    wrong = [Violation("values", "x"), Violation("mirror", "y"), Violation("values", "z")]
    other = asdict(Digest.of(4, nth(1, 4), AROUND, SEEN, wrong))
    assert (digest()[VERDICT], other[VERDICT]) == ("none", "mirror values")
    for what in (WHAT, (VERDICT,)):
        (found,) = compare([digest()], [other], what)
        assert str(found) == "example 4: verdict differ (here none, there mirror values)"


def test_what_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="other numbers of programs"):
        compare([digest()], [], WHAT)
    older = digest()
    del older["console"]
    with pytest.raises(UsageError, match="only one of the checkouts tells console"):
        compare([digest()], [older], WHAT)


#: A checkout's launcher, of which HELP are the options and ANSWER is the result.
LAUNCHER = """#!/bin/sh
echo "$*" >>"LOG"
[ "$2" = --help ] && { echo 'HELP'; exit STATUS; }
while [ "$1" != --json ]; do shift; done
echo 'ANSWER' >"$2"
"""

OLDER = "--examples --times --seed --json --built"
ALL = f"{OLDER} --grammar"


def checkout(folder: Path, said: str = ALL, answer: Any = None, status: int = 0) -> Path:
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "hmmbench"\n')
    text = LAUNCHER.replace("HELP", said).replace("LOG", str(folder / "log"))
    text = text.replace("ANSWER", json.dumps(answer)).replace("STATUS", str(status))
    (folder / "hmmbench").write_text(text)
    (folder / "hmmbench").chmod(0o755)
    return folder


@pytest.fixture
def this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = checkout(tmp_path / "this", answer={"programs": [digest()]})
    monkeypatch.setattr(exact, "paths", SimpleNamespace(project_root=lambda: folder))
    built = SimpleNamespace(as_json=lambda: {"qemu": "q"})
    monkeypatch.setattr(command, "ensure", lambda *_: built)
    return folder


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (ALL.replace(" --built", ""), 0, ["has no --built", "With --verdicts each builds"]),
        ("--examples --seed --json", 0, ["has no --times, --built", "older than exact --against"]),
        ("No such command 'exact'.", 2, ["has no command `exact`", "No such command"]),
    ],
)
@pytest.mark.usefixtures("this")
def test_what_an_older_checkout_lacks(
    said: str, status: int, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is built or run."""
    other = checkout(tmp_path / "other", said.replace("'", ""), status=status)
    assert cli.main(["exact", "--against", str(other)]) == 2
    err = capsys.readouterr().err
    assert all(word.replace("'", "") in err for word in words)
    assert (other / "log").read_text() == "exact --help\n"


@pytest.mark.usefixtures("this")
def test_a_result_without_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = checkout(tmp_path / "other", answer={"digest": "1"})
    assert cli.main(["exact", "--against", str(other)]) == 2
    assert "has no programs" in capsys.readouterr().err


def test_one_that_is_older_than_grammars(
    this: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It makes what the first makes, and is not asked for it."""
    # Both answers are there already, of the same programs.
    other = checkout(tmp_path / "other", OLDER, {"programs": [digest()]})
    monkeypatch.setattr(generate, "newest", lambda: 2)
    assert cli.main(["exact", "--against", str(other)]) == 2
    err = capsys.readouterr().err
    assert "makes other programs of a seed" in err
    assert "--grammar 1" in err
    assert cli.main(["exact", "--against", str(other), "--grammar", "1"]) == 0
    ours, theirs = ((one / "log").read_text().splitlines()[-1] for one in (this, other))
    assert "--grammar 1" in ours
    assert "--grammar" not in theirs
    assert cli.main(["exact", "--against", str(other), "--grammar", "3"]) == 2
    assert "--grammar 3: there are 1 to 2" in capsys.readouterr().err


def test_one_guest_for_both(
    this: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = checkout(tmp_path / "other", answer={"programs": [digest(answer=b"other")]})
    result = tmp_path / "result.json"
    words = ["exact", "--against", str(other), "--examples", "9", "--json", str(result)]
    assert cli.main([*words, "--seed", "5", "--chain", "3"]) == 1
    data = json.loads(result.read_text())
    assert (data["executions"], data["equal"]) == (1, 0)
    assert data["parted"] == [
        {"example": 4, "differs": ["answer"], "verdicts": ["none", "none"]}
    ]  # fmt: skip
    assert "example 4: answer differ" in capsys.readouterr().out
    # Both were asked for the same, of the same builds.
    ours, theirs = ((one / "log").read_text().splitlines()[-1] for one in (this, other))
    assert ours.split(" --json")[0] == theirs.split(" --json")[0]
    assert "--examples 9 --times 1 --seed 5 --chain 3" in ours
    assert "--memory --built " in ours
    assert f"--grammar {newest()}" in ours
    # Verdicts alone: each builds its own, with the options that were given.
    assert cli.main([*words, "--verdicts", "--kernel", "latest"]) == 0
    assert json.loads(result.read_text())["equal"] == 1
    theirs = (other / "log").read_text().splitlines()[-1]
    assert "--built" not in theirs
    assert "--no-memory --kernel latest" in theirs


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--verdicts"], "--verdicts is a way to --against"),
        (["--against", ".", "--times", "2"], "--against has no use for --times"),
        (["--built", "x", "--kernel", "latest"], "--built names all builds"),
        (["--built", "/nowhere/x"], "cannot read /nowhere/x"),
        (["--built", __file__], "was not written by build --json"),
        (["--against", "/nowhere"], "/nowhere is not a folder"),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["exact", *words]) == 2
    assert said in capsys.readouterr().err
