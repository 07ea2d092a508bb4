# SPDX-License-Identifier: GPL-2.0-or-later
"""An earlier run's results make room for this one's, and nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hmmbench import cli
from hmmbench.base.errors import UsageError
from hmmbench.commands import run
from hmmbench.report.folder import BEFORE, make_room, own


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


def test_two_runs_at_once_have_two_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By whatever name: the first one's results are neither moved nor overwritten."""
    monkeypatch.setattr(run, "_run", lambda *_: pytest.fail("it runs"))
    out, same = tmp_path / "out", tmp_path / "same"
    same.symlink_to(out)
    with own(out):
        ran(out, "violation-1")
        assert cli.main(["run", "--out", str(same)]) == 2
        assert "another run writes there" in " ".join(capsys.readouterr().err.split())
        assert [path.name for path in out.iterdir()] == ["violation-1"]
    with own(same) as before:
        assert before == same / BEFORE


#: Holds the folder until it is killed, and so does what it has started.
HOLDER = """
import subprocess, sys
from pathlib import Path
from hmmbench.report.folder import own
with own(Path(sys.argv[1])):
    child = subprocess.Popen(["sleep", "60"])
    print(child.pid, flush=True)
    child.wait()
"""


def test_a_run_that_is_killed_holds_its_folder_no_longer(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(UsageError, match="another run"), own(tmp_path):
                pass
            holder.kill()
            holder.wait()
            with own(tmp_path):
                assert list(tmp_path.iterdir()) == []
        finally:
            os.kill(child, signal.SIGKILL)
