# SPDX-License-Identifier: GPL-2.0-or-later
"""An earlier run's results make room for this one's, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmmbench.base.errors import UsageError
from hmmbench.report.folder import BEFORE, make_room


def ran(out: Path, *names: str) -> None:
    for name in names:
        (out / name).mkdir(parents=True)


def test_one_run_before_is_kept(tmp_path: Path) -> None:
    assert make_room(tmp_path) is None
    ran(tmp_path, "violation-1", "mine")
    assert make_room(tmp_path) == tmp_path / BEFORE
    ran(tmp_path, "violation-2")
    make_room(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEFORE, "mine"]
    assert [path.name for path in (tmp_path / BEFORE).iterdir()] == ["violation-2"]


def test_a_folder_of_somebody_elses_stays(tmp_path: Path) -> None:
    ran(tmp_path, "violation-1", f"{BEFORE}/figures")
    with pytest.raises(UsageError, match="figures"):
        make_room(tmp_path)
    assert (tmp_path / BEFORE / "figures").is_dir()
    assert (tmp_path / "violation-1").is_dir()


def test_what_cannot_be_moved_is_told(tmp_path: Path) -> None:
    ran(tmp_path, "violation-1")
    (tmp_path / BEFORE).touch()
    with pytest.raises(UsageError, match="cannot be put away"):
        make_room(tmp_path)
