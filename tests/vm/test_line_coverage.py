# SPDX-License-Identifier: GPL-2.0-or-later
"""`run --coverage` with a handful of examples.

Only with `test --full`: it builds a kernel of its own, ten minutes the first time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def reaches_much_of_the_driver(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "hmmbench", "run", "--coverage", "--examples", "40",
         "--json", str(out), "--out", str(tmp_path / "out")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text())
    total = data["line_coverage_total"]
    assert set(total) == {"driver", "mm/hmm.c", "mm/migrate_device.c"}
    for found in total.values():
        assert found["percent"] >= 60, total
    svm = data["line_coverage"]["guest-driver/module/mem/svm.c"]
    assert 0 < svm["hit"] < svm["lines"] or svm["missed"] == []
    assert sum(last - first >= 0 for first, last in svm["missed"]) == len(svm["missed"])
    assert "unplug: done" in data["line_coverage_ran"], data["line_coverage_ran"]
    page = (tmp_path / "out/report.html").read_text()
    assert "Lines executed" in page
    assert "<td>mem/svm.c</td>" in page


# Defined only where it is asked for: a skipped test looks like one that passed.
if os.environ.get("HMMBENCH_FULL"):

    @pytest.mark.full("lines of the driver, with a kernel that counts them")
    @pytest.mark.timeout(3600)
    def test_a_few_examples_reach_much_of_the_driver(tmp_path: Path) -> None:
        reaches_much_of_the_driver(tmp_path)
