# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's command line and the name of a snapshot, without starting anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hmmbench.vm.spec import MachineSpec, Wiring, arguments


@pytest.fixture
def spec(tmp_path: Path) -> MachineSpec:
    for name in ("qemu", "kernel", "initramfs"):
        (tmp_path / name).write_text(name)
    firmware = tmp_path / "firmware"
    firmware.mkdir()
    (firmware / "bios-256k.bin").write_text("bios")
    return MachineSpec(
        qemu=tmp_path / "qemu",
        firmware=(firmware,),
        kernel=tmp_path / "kernel",
        initramfs=tmp_path / "initramfs",
    )


def after(argv: Sequence[str], option: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv) if word == option]


def line(spec: MachineSpec, **wiring: object) -> list[str]:
    values = {"qmp_fd": 5, "agent_fd": 6, "folder": Path("/tmp/x"), **wiring}
    return arguments(spec, Wiring(**values))  # type: ignore[arg-type]


def test_usual_machine(spec: MachineSpec) -> None:
    argv = line(spec)
    assert argv[0] == str(spec.qemu)
    assert after(argv, "-accel") == ["tcg,thread=multi"]
    assert "hmm-gpu,id=gpu0,bus=gpuport" in after(argv, "-device")
    assert "-incoming" not in argv
    (words,) = after(argv, "-append")
    assert "panic=-1" in words.split()


def test_without_gpu_and_network(spec: MachineSpec) -> None:
    argv = line(replace(spec, gpu=None, network=False, cmdline=("a=b",)))
    assert not [word for word in argv if "hmm-gpu" in word or "virtio-net" in word]
    (words,) = after(argv, "-append")
    assert words.split()[-2:] == ["hmmbench.nonet", "a=b"]


def test_device_properties(spec: MachineSpec) -> None:
    small = spec.with_gpu(vram_size="16M", deterministic=True, inject="a,b")
    (device,) = [w for w in after(line(small), "-device") if w.startswith("hmm-gpu")]
    assert device == "hmm-gpu,id=gpu0,bus=gpuport,deterministic=on,inject=a,,b,vram-size=16M"
    assert ("vram-size", "32M") in (small.with_gpu(vram_size="32M").gpu or ())


def test_names_with_commas(spec: MachineSpec) -> None:
    (console,) = [
        w for w in after(line(spec, folder=Path("/tmp/a,b")), "-chardev") if "console" in w
    ]
    assert console == "file,id=console,path=/tmp/a,,b/console.log"


def test_deterministic_machine_has_one_thread(spec: MachineSpec) -> None:
    argv = line(replace(spec, icount="shift=4"))
    assert after(argv, "-accel") == ["tcg,thread=single"]
    assert after(argv, "-icount") == ["shift=4"]


def test_fingerprint(spec: MachineSpec, tmp_path: Path) -> None:
    name = spec.fingerprint()
    assert spec.fingerprint() == name
    # Contents count, names do not.
    moved = tmp_path / "other-name"
    moved.write_text("kernel")
    assert replace(spec, kernel=moved).fingerprint() == name
    # What is only for looking does not make another machine.
    assert replace(spec, trace=("hmm_gpu_*",)).fingerprint() == name
    different = [
        replace(spec, cpus=4),
        replace(spec, memory_mib=512),
        replace(spec, cmdline=("x",)),
        replace(spec, gpu=None),
        replace(spec, network=False),
        replace(spec, accel="kvm"),
        replace(spec, initramfs=None),
        spec.with_gpu(vram_size="16M"),
    ]
    names = {one.fingerprint() for one in different} | {spec.fingerprint(host="h"), name}
    assert len(names) == len(different) + 2


@pytest.mark.parametrize("file", ["qemu", "kernel", "initramfs", "firmware/bios-256k.bin"])
def test_fingerprint_follows_contents(spec: MachineSpec, tmp_path: Path, file: str) -> None:
    before = spec.fingerprint()
    path = tmp_path / file
    path.write_text(path.read_text().upper())  # of the same length
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))
    assert spec.fingerprint() != before


def test_an_exact_machine(spec: MachineSpec) -> None:
    """Nothing in it that the host could reach the running guest by."""
    exact = replace(spec, exact=True)
    argv = line(exact, agent_fd=None, mailbox_fd=7)
    assert after(argv, "-icount") == ["shift=1,sleep=off"]
    assert after(argv, "-accel") == ["tcg,thread=single"]
    assert after(argv, "-rtc") == ["base=2026-01-01,clock=vm"]
    assert after(argv, "-seed") == ["1"]
    assert not [word for word in argv if "virtio" in word or "chardev=agent" in word]
    assert "-S" in argv
    assert "-S" not in line(exact, agent_fd=None, mailbox_fd=7, incoming=True)
    (words,) = after(argv, "-append")
    assert "hmmbench.nonet" in words.split()
    devices = after(argv, "-device")
    assert "hmm-gpu,id=gpu0,bus=gpuport,deterministic=on" in devices
    assert "hmm-mailbox,id=mailbox0,memdev=mailbox" in devices
    (memory,) = [word for word in after(argv, "-object") if word.startswith("memory-backend-file")]
    assert "mem-path=/proc/self/fd/7,share=on" in memory
    with pytest.raises(ValueError, match="needs TCG"):
        line(replace(exact, accel="kvm"), mailbox_fd=7)
    assert exact.fingerprint() != spec.fingerprint()
    assert exact.fingerprint() == replace(exact, network=False).fingerprint()
