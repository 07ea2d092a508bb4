# SPDX-License-Identifier: GPL-2.0-or-later
"""That the SIMT part of `bench` measures what it says.  No figure is judged here."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hmmbench.base import host
from hmmbench.base.errors import EnvironmentFailure, UsageError
from hmmbench.base.ui import Ui
from hmmbench.commands.bench import show_simt
from hmmbench.suites import bench, simt_bench

NAMES = [k.name for k in simt_bench.KERNELS]

#: An emulator's answer: five seconds of CPU time, and the sum (taken from our own run).
FAKE = """#!/bin/sh
folder=$(dirname "$1") name=$(basename "$1" .user)
sum=$("$folder/bench" -j -r "$2" "$name" "$folder/$name.bin" |
    sed 's/.*"sum": "\\([0-9]*\\)".*/\\1/')
echo 5000000000 TOTAL
"""


def fake(folder: Path, total: str) -> Path:
    path = folder / "qemu-riscv64"
    path.write_text(FAKE.replace("TOTAL", total))
    path.chmod(0o755)
    return path


def measured(qemu: Path | None) -> dict[str, Any]:
    return simt_bench.simt(Ui(quiet=True), qemu, rounds=1, share=0.02)


def shown(figures: dict[str, Any]) -> str:
    words = io.StringIO()
    show_simt(figures, Console(file=words, width=160))
    return words.getvalue()


def test_alone() -> None:
    """Without an emulator there are our figures, and a word about what is missing."""
    figures = measured(None)
    for name in NAMES:
        assert figures[f"simt_{name}_per_s"] > 0
        assert f"simt_{name}_ratio" not in figures
        if host.cpus() > 1:
            assert figures[f"simt_{name}_two_sms"] > 0
    assert "apt-get install qemu-user" in shown(figures)


def test_compared(tmp_path: Path) -> None:
    """The other's CPU time and ours give the ratio; work that is not the same is refused."""
    figures = measured(fake(tmp_path, "$sum"))
    for kernel in simt_bench.KERNELS:
        key = f"simt_{kernel.name}"
        ours, theirs = figures[f"{key}_per_s"], figures[f"{key}_qemu_per_s"]
        assert theirs > 0
        assert figures[f"{key}_ratio"] == pytest.approx(ours / theirs, rel=0.01)
        assert kernel.name in shown(figures)
    assert "apt-get" not in shown(figures)
    with pytest.raises(EnvironmentFailure, match="saxpy: qemu-riscv64 has another result"):
        measured(fake(tmp_path, "1$sum"))


def test_the_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it comes from, and what is said of one that does not work."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert simt_bench.find_qemu() is None
    there = fake(tmp_path, "$sum")
    assert simt_bench.find_qemu() == there
    assert simt_bench.find_qemu(there) == there
    with pytest.raises(UsageError, match="--qemu-riscv64"):
        simt_bench.find_qemu(tmp_path / "none")
    monkeypatch.undo()
    there.write_text("#!/bin/sh\necho cannot >&2\nexit 7\n")
    with pytest.raises(EnvironmentFailure, match="status 7"):
        measured(there)


def test_programs_for_the_emulator() -> None:
    """What it is given are static programs for riscv64 that need nothing else."""
    folder = simt_bench.programs()
    for name in NAMES:
        head = (folder / f"{name}.user").read_bytes()[:64]
        assert head[:6] == b"\x7fELF\x02\x01"
        assert (head[16], head[18]) == (2, 243)  # executable, RISC-V


def test_alone_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--only simt` needs no machine, and the report says what it was measured on."""
    monkeypatch.setattr(simt_bench, "simt", lambda *_, **__: {"simt_vectors": "plain"})
    report = bench.everything(None, [bench.Part.simt], None, Ui(quiet=True))
    assert report["simt_vectors"] == "plain"
    assert report["host_cpus"] >= 1
    assert "kernel" not in report


def test_kernels_that_were_measured_survive_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, kernels = simt_bench.ours, []

    def ours(folder: Path, kernel: simt_bench.Kernel, *more: int, **how: int) -> simt_bench.Run:
        kernels.append(kernel.name)
        if kernel.name == NAMES[1]:
            raise KeyboardInterrupt
        return real(folder, kernel, *more, **how)

    monkeypatch.setattr(simt_bench, "ours", ours)
    figures: dict[str, Any] = {}
    with pytest.raises(KeyboardInterrupt):
        simt_bench.simt(Ui(quiet=True), None, rounds=1, share=0.02, figures=figures)
    assert figures[f"simt_{NAMES[0]}_per_s"] > 0
    assert f"simt_{NAMES[1]}_per_s" not in figures
