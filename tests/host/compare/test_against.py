# SPDX-License-Identifier: GPL-2.0-or-later
"""`bench --compare` and `--against`, on checkouts that are a few lines of shell."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hmmbench import cli
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.base.ui import Ui
from hmmbench.build import depends
from hmmbench.commands import bench as command
from hmmbench.compare import checkouts
from hmmbench.suites import bench

#: A checkout's launcher: it writes down how it was called, and measures OPERATIONS a second.
LAUNCHER = """#!/bin/sh
echo "NAME $*" >>"LOG"
[ -z "$PYTHONPATH" ] || exit 9
case $1 in run) exit 0 ;; esac
MORE
while [ "$1" != --json ]; do shift; done
n=$(grep -c "NAME bench" "LOG")
echo '{"operations_per_s": 'OPERATIONS.$((n % 3))', "simt_NAME_per_s": 5, "boot_s": 2}' >"$2"
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def make(log: Path, name: str, operations: int, more: str = "") -> Path:
    folder = log.parent / name
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "hmmbench"\n')
    text = LAUNCHER.replace("MORE", more)
    for word, value in (("NAME", name), ("LOG", str(log)), ("OPERATIONS", str(operations))):
        text = text.replace(word, value)
    (folder / "hmmbench").write_text(text)
    (folder / "hmmbench").chmod(0o755)
    return folder


@pytest.fixture
def this(log: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fast checkout in this one's place."""
    folder = make(log, "this", 200)
    monkeypatch.setattr(checkouts, "paths", SimpleNamespace(project_root=lambda: folder))
    monkeypatch.setenv("PYTHONPATH", "of-this-one")
    return folder


def measured(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines() if " bench " in line]


@pytest.mark.usefixtures("this")
def test_ten_pairs_in_an_order_that_the_seed_draws(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make(log, "other", 100)
    result = log.parent / "result.json"
    words = ["bench", "--against", str(other), "--only", "operations", "--json", str(result)]
    assert cli.main([*words, "--seed", "3"]) == 0
    order = measured(log)
    assert len(order) == 20
    # Each pair has both; who is first is no habit.
    firsts = order[::2]
    assert all({a, b} == {"this", "other"} for a, b in zip(firsts, order[1::2], strict=True))
    assert len(set(firsts)) == 2
    said = log.read_text().splitlines()
    assert [line.split(" --json")[0] for line in said[:3]] == [
        "this run --examples 10 --no-inject --no-delays",
        "other run --examples 10 --no-inject --no-delays",
        f"{firsts[0]} bench --only operations",
    ]
    data = json.loads(result.read_text())
    speed = data["figures"]["operations_per_s"]
    assert speed["word"] == "better"
    assert speed["low"] < speed["ratio"] < speed["high"]
    assert speed["ratio"] == pytest.approx(2, rel=0.02)
    assert data["figures"]["boot_s"]["word"] == "noise"
    assert data["only_this"] == ["simt_this_per_s"]
    assert data["only_other"] == ["simt_other_per_s"]
    assert [pair["first"] for pair in data["pairs"]] == firsts
    assert data["command"] == "bench"
    assert set(depends.PARTS) < set(data["depends"])
    out = capsys.readouterr().out
    assert "better" in out
    assert "missing in this one: simt_other_per_s" in out
    # The same seed draws the same order; another one another.
    log.unlink()
    assert cli.main([*words, "--seed", "3"]) == 0
    assert measured(log) == order
    log.unlink()
    assert cli.main([*words, "--seed", "4"]) == 0
    assert measured(log) != order


@pytest.mark.usefixtures("this")
def test_no_machine_for_simt_alone(log: Path) -> None:
    other = make(log, "other", 200)
    assert cli.main(["bench", "--against", str(other), "--only", "simt"]) == 0
    assert not any(" run " in line for line in log.read_text().splitlines())


@pytest.mark.usefixtures("this")
def test_what_is_no_checkout(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (log.parent / "none", log.parent):
        assert cli.main(["bench", "--against", str(folder)]) == 2
        assert str(folder) in capsys.readouterr().err
    other = make(log, "other", 1)
    (other / "hmmbench").chmod(0o644)
    assert cli.main(["bench", "--against", str(other)]) == 2
    assert "no checkout of hmmbench" in capsys.readouterr().err
    assert cli.main(["bench", "--against", str(other), "--compare", "x.json"]) == 2
    assert cli.main(["bench", "--against", str(other), "--pairs", "9"]) == 2
    assert not log.exists()


@pytest.mark.usefixtures("this")
def test_a_measurement_that_fails_costs_no_other(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = f'[ $(grep -c "NAME bench" {log}) -lt 4 ] || {{ echo no disk left; exit 3; }}'
    other = make(log, "other", 100, fails)
    result = log.parent / "result.json"
    assert cli.main(["bench", "--against", str(other), "--json", str(result)]) == 3
    err = capsys.readouterr().err
    assert "status 3" in err
    assert "no disk left" in err
    data = json.loads(result.read_text())
    assert len(data["pairs"]) == 3
    assert data["figures"]["operations_per_s"]["pairs"] == 3


@pytest.mark.usefixtures("this")
def test_an_interrupt_ends_the_measurement_and_keeps_the_pairs(log: Path) -> None:
    ended = log.parent / "ended"
    slow = f"""if [ $(grep -c "NAME bench" {log}) -gt 2 ]; then
	trap 'echo ended >{ended}; exit 130' TERM
	echo slow >>{log}
	while :; do sleep 0.05; done
fi"""
    other = make(log, "other", 100, slow)
    result = log.parent / "result.json"

    def interrupt() -> None:
        while not (log.exists() and "slow" in log.read_text()) and not over.wait(0.02):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    over = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert cli.main(["bench", "--against", str(other), "--json", str(result)]) == 130
    finally:
        over.set()
        thread.join()
    assert ended.read_text() == "ended\n"
    assert len(json.loads(result.read_text())["pairs"]) == 2


@pytest.mark.usefixtures("this")
def test_nothing_in_common(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = """while [ "$1" != --json ]; do shift; done
echo '{"elsewhere_us": 3}' >"$2"
exit 0"""
    other = make(log, "other", 100, more)
    assert cli.main(["bench", "--against", str(other)]) == 2
    assert "no figure in common" in capsys.readouterr().err


def test_a_measurement_without_a_result(log: Path, this: Path) -> None:
    other = make(log, "other", 100, "exit 0")
    with pytest.raises(EnvironmentFailure, match="left no result"):
        checkouts.measure(
            checkouts.Pairs(other, 1), 10, [], None, Ui(quiet=True), lambda: None
        )


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[bench.Part, Any]:
    """`bench` without machines: what each part measures."""
    found: dict[bench.Part, Any] = {
        bench.Part.boot: lambda: {"boot_s": 4.0}, bench.Part.restore: lambda: {"restore_s": 0.5},
    }  # fmt: skip
    artifacts = SimpleNamespace(kernel_release="6.12", versions={"qemu": "10.0"})
    monkeypatch.setattr(bench, "_measurements", lambda *_: found)
    monkeypatch.setattr(command, "ensure", lambda *_: artifacts)
    monkeypatch.setattr(command, "best_spec", lambda _: (None, SimpleNamespace(name="tcg")))
    monkeypatch.setattr(depends, "kernel", lambda *_: {"lts": "6.12 0"})
    return found


def test_what_was_measured_before_an_interrupt_is_kept(
    parts: dict[bench.Part, Any], tmp_path: Path
) -> None:
    def interrupted() -> dict[str, float]:
        raise KeyboardInterrupt

    parts[bench.Part.restore] = interrupted
    result = tmp_path / "result.json"
    words = ["bench", "--only", "boot", "--only", "restore", "--json", str(result)]
    assert cli.main(words) == 130
    data = json.loads(result.read_text())
    assert data["boot_s"] == 4.0
    assert data["missing"] == ["restore"]
    assert data["depends"]["kernel"] == {"lts": "6.12 0"}


@pytest.mark.usefixtures("parts")
def test_beside_an_earlier_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = tmp_path / "old.json"
    words = ["bench", "--only", "boot", "--only", "restore", "--compare", str(older)]
    older.write_text(json.dumps({"boot_s": 8.0, "operations_per_s": 9.0}))
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "2.000" in out
    assert f"missing in {older}: restore_s" in out
    assert "missing in this one: operations_per_s" in out
    for text in ("{", "[]", '{"host_cpus": 2}'):
        older.write_text(text)
        assert cli.main(words) == 2
        assert str(older) in capsys.readouterr().err
    older.unlink()
    assert cli.main(words) == 2
