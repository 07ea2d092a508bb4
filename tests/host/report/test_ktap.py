# SPDX-License-Identifier: GPL-2.0-or-later
"""KTAP version 1, against its grammar (kernel, Documentation/dev-tools/ktap.rst)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hmmbench.model.oracles import ORACLES
from hmmbench.report.result import EVIDENCE, Report

RESULT = re.compile(r"(ok|not ok) (\d+) ([^#\n]+)( # (SKIP|TODO|XFAIL|TIMEOUT|ERROR).*)?")


def parse(text: str) -> dict[str, bool]:
    """The results by name.  Raises ValueError where the text is no KTAP."""
    lines = text.splitlines()
    if lines[0] != "KTAP version 1":
        raise ValueError("version line")
    plan = re.fullmatch(r"1\.\.(\d+)", lines[1])
    if plan is None:
        raise ValueError("plan")
    out: dict[str, bool] = {}
    for line in lines[2:]:
        if line.startswith("# "):
            continue
        match = RESULT.fullmatch(line)
        if match is None or int(match[2]) != len(out) + 1:
            raise ValueError(f"line {line!r}")
        out[match[3]] = match[1] == "ok"
    if len(out) != int(plan[1]):
        raise ValueError("plan and results differ")
    return out


def written(report: Report, path: Path) -> str:
    report.write_ktap(path / "r.ktap")
    return (path / "r.ktap").read_text()


def test_a_pass(tmp_path: Path) -> None:
    results = parse(written(Report(verdict="pass", seed=3, profile="quick"), tmp_path))
    assert set(results) == {oracle.name for oracle in ORACLES} | {EVIDENCE}
    assert all(results.values())


@pytest.mark.parametrize("oracle", ["values", "audit", "strange # SKIP\nok 9 x"])
def test_a_violation_fails_its_oracle(oracle: str, tmp_path: Path) -> None:
    found = {"oracle": oracle, "message": "line one\nok 1 line # two", "recipe": "r.json"}
    results = parse(written(Report(verdict="fail", violations=[found]), tmp_path))
    failed = [name for name, ok in results.items() if not ok]
    assert len(failed) == 1
    assert failed[0].split()[0] == oracle.split()[0]


def test_no_verdict_is_a_failure(tmp_path: Path) -> None:
    assert parse(written(Report(error="no\nmachine"), tmp_path)) == {"run": False}


@pytest.mark.parametrize("text", ["TAP version 13\n1..0\n", "KTAP version 1\n1..2\nok 1 a\n",
                                  "KTAP version 1\n1..1\nok 2 a\n"])  # fmt: skip
def test_the_grammar_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"version|plan|line"):
        parse(text)
