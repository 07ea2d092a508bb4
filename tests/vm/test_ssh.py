# SPDX-License-Identifier: GPL-2.0-or-later
"""SSH into the guest."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hmmbench.build import Artifacts
from hmmbench.vm.errors import VmDied, VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.ssh import Ssh


@pytest.fixture
def key(artifacts: Artifacts) -> Path:
    assert artifacts.ssh_key is not None, "the build found no dropbear"
    return artifacts.ssh_key


@pytest.fixture
def ssh(plain: Machine, key: Path) -> Iterator[Ssh]:
    with Ssh(plain, key) as connection:
        yield connection


def test_commands(ssh: Ssh) -> None:
    result = ssh.execute("echo out; echo err >&2; exit 3")
    assert (result.status, sorted(result.output.split())) == (3, ["err", "out"])
    assert ssh.execute("id -u").output == "0\n"


def test_streams_are_kept_apart(ssh: Ssh) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    assert ssh.stream("echo out; echo err >&2; exit 4", out, err) == 4
    assert (out.getvalue(), err.getvalue()) == (b"out\n", b"err\n")


def test_files_there_and_back(ssh: Ssh, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(data)
    ssh.put(source, "/tmp/a file's name", mode=0o700)
    assert ssh.execute('stat -c %a "/tmp/a file\'s name"').output == "700\n"
    ssh.get("/tmp/a file's name", back)
    assert back.read_bytes() == data


def test_failed_copies_leave_nothing(ssh: Ssh, tmp_path: Path) -> None:
    with pytest.raises(VmError, match="No such file"):
        ssh.get("/none", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    # The command ends before it has read anything: at the end of the input, and in its midst.
    source = tmp_path / "s"
    for size in (1, 3_000_000):
        source.write_bytes(bytes(size))
        with pytest.raises(VmError, match=r"copying .* failed with status 1: .*nonexistent"):
            ssh.put(source, "/none/x")


def test_guest_that_goes_away(ssh: Ssh, plain: Machine) -> None:
    """Without a word: QEMU keeps its end of the connection open."""
    with pytest.raises(VmDied):
        ssh.execute("poweroff -f; sleep 1000")


def test_wrong_key(plain: Machine, tmp_path: Path) -> None:
    with pytest.raises(VmError, match="SSH key"), Ssh(plain, tmp_path / "none"):
        pytest.fail("connected")


def test_machine_without_network(plain_spec: MachineSpec, snapshots: Snapshots, key: Path) -> None:
    with (
        snapshots.open(replace(plain_spec, network=False)) as vm,
        pytest.raises(VmError, match="no network"),
        Ssh(vm, key),
    ):
        pytest.fail("connected")
