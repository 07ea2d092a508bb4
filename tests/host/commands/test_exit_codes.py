# SPDX-License-Identifier: GPL-2.0-or-later
"""What a command's end says: a defect of the bench must never look like one of the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hmmbench import cli
from hmmbench.base.errors import EnvironmentFailure, HmmbenchError, UsageError, ViolationFound
from hmmbench.commands import run


@pytest.mark.parametrize(
    ("problem", "code", "said"),
    [
        (KeyError("lost"), 4, "internal error"),
        (AssertionError("never"), 4, "internal error"),
        (EnvironmentFailure("no disk", "Buy one."), 3, "no disk\n  Buy one."),
        (UsageError("no such thing"), 2, "no such thing"),
        (ViolationFound("found"), 1, "found"),
    ],
)
def test_how_a_run_ends(
    problem: Exception, code: int, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fails(*args: object) -> None:
        raise problem

    monkeypatch.setattr(run, "_run", fails)
    result = tmp_path / "result.json"
    args = ["run", "--seed", "3", "--json", str(result), "--out", str(tmp_path / "out")]
    assert cli.main(args) == code
    err = capsys.readouterr().err
    assert said in err
    assert ("Traceback" in err) == (code == 4)
    report = json.loads(result.read_text())
    assert report["verdict"] == "error"
    if code == 4:
        assert repr(problem) in report["error"]
    elif isinstance(problem, HmmbenchError) and not isinstance(problem, UsageError):
        assert report["error"] == problem.message


#: `run` with no machine, that finds as much as it is told.
FINDS = """
import sys
from pathlib import Path
from hmmbench import cli
from hmmbench.commands import run
from hmmbench.example.totals import Totals
from hmmbench.oracle.violation import Violation
from hmmbench.report.filling import fill
from hmmbench.report.tally import Finding, Tally

def found(wanted, ui, report, done):
    ui.say("words that nobody reads")
    finding = Finding(Violation("values", "wrong"), Path("r"), Path("."), 3, 1.0)
    tally = Tally(findings=[finding] * int(sys.argv[2]))
    fill(report, tally, Totals())
    return tally

run._run = found
sys.exit(cli.main(["run", "--out", sys.argv[1]]))
"""


def test_how_a_run_ends_whoever_reads(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", FINDS, str(tmp_path / str(found)), str(found)],
                stdout=writer, stderr=writer,
            )
            for found in (0, 1)
        ]  # fmt: skip
    finally:
        os.close(writer)
    assert [run.wait(timeout=60) for run in runs] == [0, 1]
