# SPDX-License-Identifier: GPL-2.0-or-later
"""Results that commands write can be added up, and hold for the checkout that made them."""

from __future__ import annotations

import json
from pathlib import Path

from hmmbench import cli


def test_two_runs_and_a_mutant(tmp_path: Path) -> None:
    files = []
    for seed in ("1", "2"):
        files.append(str(tmp_path / f"run-{seed}.json"))
        out = str(tmp_path / "out")
        words = ["run", "--examples", "3", "--seed", seed, "--out", out, "--json", files[-1]]
        assert cli.main(words) == 0
    files.append(str(tmp_path / "mutants.json"))
    words = ["mutants", "ignores-unmap", "--no-control", "--shrink", "0", "--limit", "120"]
    assert cli.main([*words, "--out", str(tmp_path / "out"), "--json", files[-1]]) == 0
    result = tmp_path / "sum.json"
    assert cli.main(["sum", *files, "--json", str(result)]) == 0
    data = json.loads(result.read_text())
    assert [part["state"] for part in data["parts"]] == ["current"] * 3
    runs, mutants = data["groups"]
    assert runs["total"]["examples"] == 6
    assert runs["total"]["operations"] > 0
    assert list(runs["depends"]["kernel"]) == ["lts"]
    assert mutants["depends"]["kernel"] == runs["depends"]["kernel"]
    (row,) = mutants["mutants"]
    assert (row["name"], row["status"], row["found"]) == ("ignores-unmap", "killed", 1)
