# SPDX-License-Identifier: GPL-2.0-or-later
"""The GPU builds and passes its unit tests without what watches it (core/observe/)."""

from __future__ import annotations

from pathlib import Path

from hg_lib import said_by


def test_unit_tests_without_observers(tmp_path: Path) -> None:
    assert "checks passed" in said_by("unit-alone", tmp_path, "-O0")
