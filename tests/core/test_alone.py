# SPDX-License-Identifier: GPL-2.0-or-later
"""The GPU builds and passes its unit tests without what watches it (core/observe/)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hmmbench.base import paths


def test_unit_tests_without_observers(tmp_path: Path) -> None:
    tests = paths.device_sources() / "tests"
    binary = tmp_path / "unit-alone"
    # not with the sanitizers, as `make check` does it: that takes a minute
    made = subprocess.run(
        ["make", "-C", str(tests), f"OUT={tmp_path}", "ASAN=-O0", str(binary)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checks passed" in done.stdout
