# SPDX-License-Identifier: GPL-2.0-or-later
"""A full disk: a clear message wherever it is met, and nothing half-written left."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hmmbench.vm.errors import VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

MESSAGE = "disk is full|No space left"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free; the file that does it."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path


def test_snapshot(plain_spec: MachineSpec, small_disk: Path) -> None:
    with pytest.raises(VmError, match=MESSAGE) as caught:
        Snapshots(small_disk).ensure(plain_spec)
    assert "HMMBENCH_CACHE" in caught.value.hint
    assert list(small_disk.iterdir()) == []


def test_save_of_a_running_machine(plain: Machine, small_disk: Path) -> None:
    with pytest.raises(VmError, match=MESSAGE):
        plain.save(small_disk / "state")
    assert list(small_disk.iterdir()) == []
    # The machine itself is not harmed.
    plain.resume()
    assert plain.agent.check("echo on") == "on\n"


def test_start(
    plain_spec: MachineSpec,
    snapshots: Snapshots,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshots.ensure(plain_spec)
    filler = fill(small_disk)
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))

    def work() -> None:
        with snapshots.open(plain_spec) as vm:
            vm.check()

    with pytest.raises(VmError, match=MESSAGE) as caught:
        work()
    assert "TMPDIR" in caught.value.hint
    assert list(small_disk.iterdir()) == [filler]


def test_console(
    plain_spec: MachineSpec,
    snapshots: Snapshots,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A console that cannot be written any more proves nothing, and must not look like silence."""
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    with snapshots.open(plain_spec) as vm:
        vm.check()
        fill(small_disk)
        vm.agent.check("echo something >/dev/console")
        with pytest.raises(VmError, match=MESSAGE):
            vm.check()


def test_evidence(plain: Machine, small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(VmError, match=MESSAGE) as caught:
        plain.keep(small_disk / "evidence")
    assert "--out" in caught.value.hint
