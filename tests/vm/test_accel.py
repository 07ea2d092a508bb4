# SPDX-License-Identifier: GPL-2.0-or-later
"""Which accelerator is used, and why."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hmmbench.vm import accel
from hmmbench.vm.machine import Machine
from hmmbench.vm.spec import MachineSpec


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HMMBENCH_CACHE", str(tmp_path / "cache"))


def fake_qemu(folder: Path, script: str) -> Path:
    path = folder / "qemu"
    path.write_text(f"#!/bin/sh\n[ $1 = --version ] && exit\necho x >>{folder}/starts\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def kvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host whose /dev/kvm can be opened."""
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(accel, "KVM", tmp_path / "kvm")


def test_no_kvm(plain_spec: MachineSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(accel, "KVM", tmp_path / "none")
    answer = accel.probe(plain_spec)
    assert answer.name == "tcg"
    assert "no /dev/kvm" in answer.reason


@pytest.mark.usefixtures("kvm")
def test_kvm_of_somebody_else(plain_spec: MachineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    answer = accel.probe(plain_spec)
    assert answer.name == "tcg"
    assert "may not be opened" in answer.reason


@pytest.mark.usefixtures("kvm")
def test_kvm_that_does_not_work_is_remembered(plain_spec: MachineSpec, tmp_path: Path) -> None:
    qemu = fake_qemu(tmp_path, "echo 'failed to initialize kvm: no' >&2; exit 1")
    spec = replace(plain_spec, qemu=qemu)
    for _ in range(3):
        answer = accel.probe(spec)
        assert answer.name == "tcg"
        assert "failed to initialize kvm: no" in answer.reason
    assert (tmp_path / "starts").read_text() == "x\n"
    accel.probe(spec, again=True)
    assert (tmp_path / "starts").read_text() == "x\nx\n"
    # Another kernel may fare better: asked again.
    kernel = tmp_path / "kernel"
    kernel.write_text("other")
    accel.probe(replace(spec, kernel=kernel))
    assert (tmp_path / "starts").read_text() == "x\nx\nx\n"


@pytest.mark.usefixtures("kvm")
def test_kvm_that_hangs(plain_spec: MachineSpec) -> None:
    """However QEMU behaves, an answer that does not come in time is none."""
    answer = accel.probe(plain_spec, timeout=0.05)
    assert answer.name == "tcg"
    assert "so the guest is emulated" in answer.reason


def test_our_qemu_runs_exact_machines(spec: MachineSpec, tmp_path: Path) -> None:
    assert accel.exact_refused(spec.qemu) == ""
    silent = fake_qemu(tmp_path, "exit 0")
    assert accel.exact_refused(silent) == "QEMU says nothing"


def test_the_answer_holds(spec: MachineSpec) -> None:
    """What was chosen for this host boots (`spec` is made with it)."""
    with Machine(replace(spec, gpu=None, cmdline=("hmmbench.nodriver",))) as vm:
        assert vm.agent.check("echo up") == "up\n"
