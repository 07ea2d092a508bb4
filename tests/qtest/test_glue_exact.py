# SPDX-License-Identifier: GPL-2.0-or-later
"""The object hmm-exact: where it refuses to begin, and with what words."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from qtest_machine import Machine

from hmmbench.vm.errors import QmpFailure

ICOUNT = ("-icount", "shift=1,sleep=off")
SINGLE = "tcg,thread=single"
EXACT = ("-device", "hmm-exact,id=exact0")
PATH = "/machine/peripheral/exact0"


def refused(qemu: Path, *args: str) -> str:
    """What a QEMU says that does not start."""
    done = subprocess.run(
        [str(qemu), "-machine", "none", "-nodefaults", "-display", "none", "-S", *args],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize(
    "args",
    [("-accel", "tcg"), ("-accel", SINGLE), ("-accel", "qtest"),
     ("-accel", SINGLE, "-icount", "shift=auto")],
)  # fmt: skip
def test_it_needs_time_that_instructions_make(qemu: Path, args: tuple[str, ...]) -> None:
    """At a fixed rate: with shift=auto the host's clock decides it."""
    said = refused(qemu, *args, *EXACT)
    assert "hmm-exact: needs -accel tcg,thread=single -icount shift=N,sleep=off" in said


def test_there_is_one(qemu: Path) -> None:
    said = refused(qemu, "-accel", SINGLE, *ICOUNT, *EXACT, "-device", "hmm-exact,id=exact1")
    assert "hmm-exact: there is one already" in said


@pytest.fixture
def exact(start: Callable[..., Machine]) -> Machine:
    """It stands."""
    machine = start("deterministic=on", *ICOUNT, *EXACT, accel=SINGLE)
    machine.qmp("stop")
    return machine


def put(machine: Machine, name: str, value: object) -> None:
    machine.qmp("qom-set", {"path": PATH, "property": name, "value": value})


def get(machine: Machine, name: str) -> object:
    return machine.qmp("qom-get", {"path": PATH, "property": name})


WRONG = (
    "x=1", "seed", "seed=", "seed=-1", "slice=5", "slice=9:5", "slice=5:41", "slice=1:2:3",
    "hold=65536:1:2", "hold=1:2", "span=0", "span=1099511627777", "odds=0",
    "crowd=0", "crowd=65", "busy=65536", "fair=65536", "fair=1:2",
    "step=1:2:3:32", "step=1:2:3", "irq=1:2:3", "point=1:9:5", "at=zz", "at=10;20",
    "do=", "do=1:10:1", "do=1:10:1:5:6", "do=65536:10:1:5", "do=1:10:0:5", "do=1:10:1:0",
    "do=1:10:1:1099511627777", "do=1:10:4294967296:5", "do=-1:10:1:5", "do=1:-10:1:5",
    "do=1:zz:1:5", "do=1:10:1:5;2:10:1:5", "do=1:10:1:5,1:10:1:6", "do=1:10:1:5,,",
    "count=zz", "count=10:20",
)  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_a_word_that_is_none_is_named(exact: Machine, word: str) -> None:
    """And the schedule stays what it was."""
    put(exact, "schedule", "seed=5 slice=6:9 at=10,1f")
    before = get(exact, "schedule")
    with pytest.raises(QmpFailure, match=f"schedule: '{word}' is no word of it .seed=N slice=LO"):
        put(exact, "schedule", f"seed=1 {word} slice=5:6")
    assert get(exact, "schedule") == before


def test_a_schedule_is_read_as_it_is_told(exact: Machine) -> None:
    words = (
        "seed=18446744073709551615 slice=0:40 hold=65535:14:17 span=1099511627776 "
        "busy=65535 point=3:1:2 odds=4294967295 fair=65535 crowd=64 step=1:2:3:31 irq=0:0 "
        "at=ffffffff81000000,10,f"
    )
    put(exact, "schedule", words)
    text = str(get(exact, "schedule"))
    assert text == words.replace("at=ffffffff81000000,10,f", "at=f,10,ffffffff81000000")
    decided = "do=65535:ffffffff81000000:2147483648:1099511627776"
    put(exact, "schedule", f"seed=1 {decided} count=20,10,20")
    assert str(get(exact, "schedule")).endswith(f" irq=0:0 {decided} count=10,20,20")
    put(exact, "schedule", "do=2:20:1:5,1:20:2:7,1:20:1:6,3:10:1:8")
    assert str(get(exact, "schedule")).endswith(" do=3:10:1:8,1:20:1:6,1:20:2:7,2:20:1:5")
    put(exact, "schedule", words)
    put(exact, "schedule", text)
    assert get(exact, "schedule") == text
    put(exact, "schedule", "")
    assert str(get(exact, "schedule")).startswith("seed=0 slice=10:14 hold=0:")


@pytest.mark.parametrize("value", ["zz", "10,zz", "10 20", "0x"])
def test_points_that_are_none_are_named(exact: Machine, value: str) -> None:
    put(exact, "points", "10,ffffffff81000000")
    with pytest.raises(QmpFailure, match="is no address in hexadecimal"):
        put(exact, "points", value)
    assert get(exact, "points") == "10,ffffffff81000000"


def test_files_that_cannot_be_written(exact: Machine, tmp_path: Path) -> None:
    for name in ("write-log", "write-memory"):
        with pytest.raises(QmpFailure, match="No such file"):
            put(exact, name, str(tmp_path / "none" / "file"))


def test_begun_anew_the_log_is_empty(exact: Machine, tmp_path: Path) -> None:
    put(exact, "schedule", "seed=1")
    state = get(exact, "state")
    assert isinstance(state, dict)
    assert (state["hash"], state["decisions"], state["holds"]) == (0, 0, 0)
    put(exact, "write-log", str(tmp_path / "log"))
    assert (tmp_path / "log").read_bytes() == b""


def test_a_machine_that_runs_is_left_alone(exact: Machine) -> None:
    exact.qmp("cont")
    for name, value in (("schedule", ""), ("points", ""), ("stand-after", 5), ("stand-at", 5)):
        with pytest.raises(QmpFailure, match="the machine runs: to be written while it stands"):
            put(exact, name, value)
