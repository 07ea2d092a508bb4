# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests can fail: each one-line bug of breaks.py is caught by the test that names it.

The broken core is compiled into the cache and the test runs in a process of its own with
HG_CORE_BREAK set (see hg_lib).  All of them need minutes; the default is a sample that a
seed rotates, `test --full` takes every one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from breaks import BREAKS
from hg_lib import sources

HERE = Path(__file__).parent
SAMPLE = ("no micro-TLB flush", "acknowledged before the flush", "ACK_ALL does not wait",
          "all lanes of a faulting store run again", "PUT passes GET")  # fmt: skip


@pytest.mark.parametrize("name", [b[0] for b in BREAKS])
def test_the_text_to_break_is_there(name: str) -> None:
    """A bug that no longer applies would prove nothing."""
    (row,) = [b for b in BREAKS if b[0] == name]
    sources([row[1:4]])
    file, _, test = row[4].partition("::")
    assert f"def {test}(" in (HERE / file).read_text()


CHOSEN = [b for b in BREAKS if os.environ.get("HMMBENCH_FULL") or b[0] in SAMPLE]


@pytest.mark.full("each bug that the device's core is compiled with")
@pytest.mark.parametrize("row", CHOSEN, ids=lambda b: str(b[0]).replace(" ", "-"))
@pytest.mark.skipif(bool(os.environ.get("HG_CORE_BREAK")), reason="is the broken run itself")
def test_bug_is_caught(row: tuple[str, str, str, str, str]) -> None:
    env = os.environ | {"HG_CORE_BREAK": row[0]}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"{HERE}/{row[4]}"],
        env=env, capture_output=True, text=True, check=False, timeout=300,
        cwd=HERE.parents[1],
    )  # fmt: skip
    crashed = done.returncode < 0
    assert crashed or (done.returncode == 1 and "failed" in done.stdout), (
        f"not caught by {row[4]}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
    )
