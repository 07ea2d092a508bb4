# SPDX-License-Identifier: GPL-2.0-or-later
"""Exported reproducers compile without a warning, whatever the recipe holds."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from hmmbench.base import paths
from hmmbench.campaign.export_c import export
from hmmbench.campaign.generate import program, size_of
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.guest.program import F_NOWAIT, Acc, Op, Program
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.jobs import CloseGpu, GpuAccess, GpuSpin, WaitGpu
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.scenes import ENDLESS

DRIVER = paths.driver_sources()
FOLDERS = ("user/agent/repro", "user/agent/base", "user/kernels", "include/uapi")
INCLUDES = [f"-I{DRIVER / d}" for d in FOLDERS]


def test_a_wait_leaves_what_does_not_end() -> None:
    ops = [
        Op(Mmap.number, len=4096, a=3),
        Op(GpuAccess.number, flags=F_NOWAIT, acc=[(int(Acc.READ), 0, 0, 0, 0, 0)]),
        Op(GpuSpin.number, flags=F_NOWAIT, a=ENDLESS), Op(WaitGpu.number, a=1),
        Op(CloseGpu.number),
    ]  # fmt: skip
    for n, o in enumerate(ops):
        o.phase = n
    text = export(Recipe(Program(ops, FILE_PAGES)))
    calls = [
        'OP(1, 0, 0, "gpu_access"), .flags = HB_F_NOWAIT, ACCESSES(',
        f'OP(2, 0, 0, "gpu_spin"), .a = {ENDLESS:#x}, .flags = HB_F_NOWAIT }},',
        'OP(3, 0, 0, "wait_gpu"), .a = 0x1 },', 'OP(4, 0, 0, "close_gpu") },',
    ]  # fmt: skip
    at = [text.index(call) for call in calls]
    assert at == sorted(at)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("seed", range(4))
def test_compiles(tmp_path: Path, seed: int) -> None:
    p = program(random.Random(seed).randbytes(size_of(70)))
    recipe = Recipe(p, Environment(("svm_after_zap 1 2",), ("irq lost",)), message="a */ b")
    source = tmp_path / "repro.c"
    source.write_text(export(recipe))
    done = subprocess.run(
        ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", *INCLUDES, "-c",
         str(source), "-o", str(tmp_path / "repro.o")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:3000]
