# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads as files, their comparisons, and the command's words; no virtual machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hmmbench import paths, workload
from hmmbench.cli import make_app
from hmmbench.commands.workload import vram_amount
from hmmbench.errors import UsageError
from hmmbench.gpu import build
from hmmbench.workload import WrongResult, close, same

ALL = workload.find()


@pytest.mark.parametrize("one", ALL, ids=lambda w: w.name)
def test_each_is_whole(one: workload.Workload) -> None:
    module = workload.load(one)
    assert sorted(module.SIZES) == sorted(workload.SIZES)
    assert one.path.with_suffix(".c").is_file()
    assert one.what.endswith(".")
    assert len(one.what) < 100
    build.kernels(one.path.with_suffix(".c"))
    if one.host is not None:
        build.program(one.host)


def test_nothing_belongs_to_no_workload() -> None:
    names = {w.name for w in ALL}
    for path in workload.folder().glob("*.[chp]*"):
        assert path.stem.removesuffix("_host") in names


def test_list_names_all() -> None:
    done = CliRunner().invoke(make_app(("workload",)), ["workload", "--list"])
    assert [line.split()[0] for line in done.output.splitlines()] == [w.name for w in ALL]


def test_same_is_bit_by_bit() -> None:
    nan, other = np.array([0x7FF8 << 48, 0x7FF9 << 48], np.uint64).view(np.float64)
    same(np.array([1, nan]), np.array([1, nan]), "x")
    for got, want in (
        ([0.0], [-0.0]), ([nan], [other]), ([1.0], [np.nextafter(1.0, 2)]), ([1, 2], [1, 3]),
    ):  # fmt: skip
        with pytest.raises(WrongResult, match="x: 1 of"):
            same(np.array(got), np.array(want), "x")
    with pytest.raises(WrongResult, match="2 of 4 wrong, the first at 1: 5, not 1"):
        same(np.array([[0, 5], [2, 5]]), np.arange(4).reshape(2, 2), "x")


def test_shape_and_type_have_to_agree() -> None:
    for check in (same, lambda g, w, what: close(g, w, 1.0, what)):
        with pytest.raises(WrongResult, match="shape"):
            check(np.zeros(3), np.zeros(4), "x")
        with pytest.raises(WrongResult, match="float32"):
            check(np.zeros(3, np.float32), np.zeros(3), "x")


def test_close_has_a_tolerance_and_no_nan() -> None:
    close(np.array([1.0, 100.05]), np.array([1.04, 100.0]), 1e-3, "x")
    close(np.zeros(2), np.zeros(2), 0.0, "x")
    for got in ([1.0, 100.2], [np.nan, 100.0], [np.inf, 100.0]):
        with pytest.raises(WrongResult, match=r"1 of 2 wrong.*tolerance 0\.1"):
            close(np.array(got), np.array([1.0, 100.0]), 1e-3, "x")


def test_amounts_of_vram() -> None:
    assert vram_amount(None) is None
    assert vram_amount("64") == 64
    half = vram_amount("0.5x")
    assert half == 0.5
    assert isinstance(half, float)
    assert isinstance(vram_amount("2x"), float)
    for wrong in ("", "x", "0", "-3", "0x", "nanx", "infx", "1.5", "much", "9e99x"):
        with pytest.raises(UsageError, match="--vram"):
            vram_amount(wrong)


def test_what_is_no_workload(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no workload nothing"):
        workload.choose(["nothing"])
    with pytest.raises(UsageError, match="not a file"):
        workload.choose([str(tmp_path / "x.py")])
    file = tmp_path / "x.py"
    (tmp_path / "other.py").write_text("nothing to do with it (")
    for text, said in (
        ("def (", "x.py: line 1"), ("\0", "x.py"),
        ("x = 1\n", "docstring"), ('"""D."""\n', "no run"),
        ('"""D."""\nSIZES = {"tiny": {}}\ndef run(gpu): ...\n', "no small"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(UsageError, match=said):
            workload.load(workload.choose([str(file)])[0])


@pytest.mark.parametrize("words", [[], ["saxpy", "--all"], ["saxpy", "--vram", "half"], ["nope"]])
def test_wrong_use(words: list[str]) -> None:
    done = CliRunner().invoke(make_app(("workload",)), ["workload", *words])
    assert isinstance(done.exception, UsageError)


def test_readme_and_docs_name_the_command() -> None:
    root = paths.project_root()
    assert "| `workload` |" in (root / "README.md").read_text()
    assert "docs/writing-workloads.md" in (root / "README.md").read_text()
