# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads as files, their comparisons, and the command's words; no virtual machine."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from hmmbench import cli
from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.cli import make_app
from hmmbench.commands.workload import vram_amount, vram_amounts
from hmmbench.gpu import build, plot
from hmmbench.suites import sweep, workload
from hmmbench.suites.workload import WorkloadOutcome, WrongResult, close, same, story

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
    assert vram_amounts(None) == [None]
    assert vram_amounts("0.5x,1x,64,all") == [0.5, 1.0, 64, None]
    assert vram_amount("all") is None
    assert vram_amount("64") == 64
    half = vram_amount("0.5x")
    assert half == 0.5
    assert isinstance(half, float)
    assert isinstance(vram_amount("2x"), float)
    for wrong in ("", "x", "0", "-3", "0x", "nanx", "infx", "1.5", "much", "9e99x", "1x,", "1x 2x"):
        with pytest.raises(UsageError, match="--vram"):
            vram_amounts(wrong)


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name workloads"), (["saxpy", "--all"], "name workloads"),
        (["saxpy", "--vram", "half"], "--vram half"), (["nope"], "no workload nope"),
        (["saxpy", "--sweep", "=3"], "--sweep =3"), (["saxpy", "--sweep", "n=1,x"], "--sweep n"),
        (["saxpy", "--sweep", "n="], "--sweep n="), (["saxpy", "--sweep", "n=0"], "--sweep n=0"),
        (["saxpy", "--sweep", "m"], "saxpy has no such number"),
        (["saxpy", "--sweep", "n", "--vram", "1x,2x"], "one amount"),
        (["saxpy", "--plot", "{}"], "--plot draws several runs"),
        (["saxpy", "--vram", "1x,2x", "--plot", "{}/file"], "--plot .*file: File exists"),
    ],
)
def test_wrong_use(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = [word.format(tmp_path) for word in words]
    done = CliRunner().invoke(make_app(("workload",)), ["workload", *words])
    assert isinstance(done.exception, UsageError)
    assert re.search(said, done.exception.message)


# ---- several runs ----


def test_what_a_sweep_runs() -> None:
    (one,) = workload.choose(["training"])
    own = workload.load(one).SIZES["small"]["batch"]
    trials = sweep.by_argument(one, "small", sweep.Sweep.parse("batch"), 1.0)
    values = [t.change["batch"] for t in trials]
    # The size's own first: it says how much VRAM the others have.
    assert values[0] == own
    assert sorted(values) == [int(own * m) for m in sweep.MULTIPLES]
    assert {t.vram for t in trials} == {1.0}
    few = sweep.by_argument(one, "small", sweep.Sweep.parse(f"batch=8,{own},8,16.4"), 99)
    assert [t.change["batch"] for t in few] == [own, 8, 16]
    assert all(type(t.change["batch"]) is int for t in trials + few)
    assert [t.words for t in few] == [f"batch {own}", "batch 8", "batch 16"]
    amounts = sweep.by_vram(one, [0.5, 64, None])
    assert [t.words for t in amounts] == ["0.5x", "64 pages", "all VRAM"]
    assert [t.words for t in sweep.by_vram(one, [0.5])] == [""]


def runs(batches: list[int], vram: int = 1000) -> list[WorkloadOutcome]:
    """As of a workload that needs a page for each image, and slows down where VRAM ends."""
    return [
        WorkloadOutcome(
            "net", "small", movable=b, vram_pages=vram, seconds=b / 10, arguments={"batch": b},
            figures={"images/s": 100.0 if b <= vram else 10.0},
            story=story({"faults": b, "fault_batches": b // 8, "pages_to_device": b,
                         "pages_evicted": max(0, b - vram)}),
        )
        for b in batches
    ]  # fmt: skip


def parts(svg: str) -> tuple[ElementTree.Element, list[str]]:
    """The picture, which needs nothing from elsewhere, and its words."""
    assert not re.search(r"href|url\(|@import|<script", svg)
    root = ElementTree.fromstring(svg)
    name = "{http://www.w3.org/2000/svg}text"
    return root, [text.text or "" for text in root.iter(name)]


def lines(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in p.get("points", "").split())]
        for p in root.iter("{http://www.w3.org/2000/svg}polyline")
    ]


def test_the_plot_of_a_sweep() -> None:
    batches = [250, 500, 1000, 2000, 3000]
    drawn = sweep.plot(runs(batches)[::-1], "batch", "Linux 6.12, tcg")
    assert drawn is not None
    root, words = parts(drawn)
    assert {"images/s", "MiB moved", "GPU faults", "250", "3000", "0.25x", "3.00x"} <= set(words)
    assert "batch, logarithmic" in words
    rate, *_ = drawings = lines(root)
    assert [len(points) for points in drawings] == [5] * 6
    assert [x for x, _ in rate] == sorted(x for x, _ in rate)
    # Higher is more: y counts downwards.
    assert rate[2][1] == rate[0][1] < rate[3][1]
    # The limit is where the run needs exactly all of VRAM.
    limits = root.findall(".//*[@class='limit']")
    assert [float(limit.get("x1", "")) for limit in limits] == [rate[2][0]] * 3
    assert "VRAM: 3.91 MiB" in words
    # On the right of it nothing fits.
    over = root.findall(".//*[@class='over']")
    assert [float(o.get("x", "")) for o in over] == [rate[2][0]] * 3


def test_the_plot_of_amounts_of_vram() -> None:
    outcomes = [runs([1000], vram)[0] for vram in (500, 1000, 1500)]
    for o in outcomes:
        o.figures = {}
    outcomes.append(WorkloadOutcome("net", "small", "fail", vram_pages=9, movable=1000))
    drawn = sweep.plot(outcomes, None, "here")
    assert drawn is not None
    root, words = parts(drawn)
    assert {"seconds", "0.5x", "1x", "1.5x", "1.95", "5.86"} <= set(words)
    assert any(w.startswith("1 of 4 runs") for w in words)
    limits = root.findall(".//*[@class='limit']")
    assert [float(limit.get("x1", "")) for limit in limits] == [lines(root)[0][1][0]] * 3
    # On the left of it nothing fits.
    assert all(float(o.get("x", "")) == plot.LEFT for o in root.findall(".//*[@class='over']"))


def test_a_plot_needs_two_points() -> None:
    assert sweep.plot([], None, "") is None
    assert sweep.plot(runs([1000]), "batch", "") is None
    failed = runs([500, 1000])
    failed[0].verdict = "fail"
    assert sweep.plot(failed, "batch", "") is None


def test_a_plot_where_the_limit_is_far_away() -> None:
    for vram, shaded in ((10, True), (100_000, False)):
        drawn = sweep.plot(runs([250, 500], vram), "batch", "here")
        assert drawn is not None
        root, _ = parts(drawn)
        assert root.findall(".//*[@class='limit']") == []
        widths = [float(o.get("width", "")) for o in root.findall(".//*[@class='over']")]
        assert all((w > 300) == shaded for w in widths)


def test_a_plot_escapes_its_words_and_takes_any_numbers() -> None:
    panel = plot.Panel("a<b & 'c'", [plot.Line("<x>", [0.0, None, 0.0])])
    axis = plot.Axis([1.0, 2.0, 3.0], [("<", ""), ("&", ""), ('"', "")], ("x", ""))
    _, words = parts(plot.chart("<t>", ["<note>"], axis, [panel]))
    assert {"a<b & 'c'", "<t>", "<note>", "<", "&"} <= set(words)
    for top in (1e-9, 0.37, 1, 999.5, 1e12):
        ticks = plot._ticks(top, 4)
        assert ticks[0] == 0
        assert ticks[-1] >= top * 0.998
        assert 2 <= len(ticks) <= 6


def test_readme_names_every_command() -> None:
    readme = (paths.project_root() / "README.md").read_text()
    assert [name for name in cli.COMMANDS if f"| `{name}" not in readme] == []


def test_readme_names_the_page_on_workloads() -> None:
    root = paths.project_root()
    assert "docs/writing-workloads.md" in (root / "README.md").read_text()
