# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of `hmmbench mutants`, and what the kernel's own tests make of a mutant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake
import pytest
from fake import FakeTarget

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.base.ui import Ui
from hmmbench.build import BuildRequest
from hmmbench.commands import mutants as command
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Execution
from hmmbench.guest.program import Program
from hmmbench.mutation import mutants, trial
from hmmbench.mutation.trial import ALIVE, ERROR, KILLED, NOT_RUN, How, Result, Row
from hmmbench.oracle.violation import Violation
from hmmbench.suites.selftests import OURS, Run, SelftestOutcome
from hmmbench.vm.errors import VmDied, VmError
from hmmbench.vm.spec import MachineSpec


def ran(*statuses: str, trouble: str = "", oracle: str = "") -> Run:
    tests = [SelftestOutcome(str(n), s, 0.1) for n, s in enumerate(statuses)]
    return Run(OURS, tests, trouble=trouble, oracle=oracle)


#: The usual machine, of builds that are not there.
USUAL = MachineSpec(qemu=Path("qemu"), firmware=(), kernel=Path("kernel"))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> list[Run | Exception]:
    """What the tests' run gives, or raises; how it is called is noted in the second place."""
    given: list[Any] = [None, None]

    def run(*_: object, **how: object) -> Run:
        given[1] = how
        if isinstance(given[0], Exception):
            raise given[0]
        return given[0]

    monkeypatch.setattr(trial.selftests, "run", run)
    monkeypatch.setattr(trial, "ensure", lambda *_: SimpleNamespace(kernel_source_dir=None))
    monkeypatch.setattr(trial.hmm_tests, "build", lambda *_: None)
    monkeypatch.setattr(trial, "best_spec", lambda *_: (USUAL, None))
    return given


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (ran("pass", "skip"), ALIVE),
        (ran("pass", "fail"), KILLED),
        (ran("pass", trouble="the kernel printed: BUG", oracle="kernel"), KILLED),
        # No kill for the tests either, though none was reported after it.
        (ran("pass", "fail", trouble="QEMU crashed (SIGSEGV)", oracle="device"), ERROR),
        (ran("skip"), KILLED),
        (EnvironmentFailure("no compiler"), ERROR),
        (VmDied("it ended", panicked=True), KILLED),
    ],
)
def test_what_the_kernels_tests_say(
    answer: list[Any], result: Run | Exception, status: str
) -> None:
    answer[0] = result
    row = Row("a", "b", status=ALIVE)
    trial.run_hmm_tests(row, mutants.load()[0], Ui(quiet=True))
    assert row.hmm_tests == status
    # The bench's own checks are not theirs.
    assert answer[1]["ask"] is False
    assert answer[1]["audit"] == "off"
    # Nor is their verdict the bench's.
    assert row.status == ALIVE


def test_rows_and_sums() -> None:
    rows = [
        Row("a", "x", status=KILLED, hmm_tests=KILLED, operations=3),
        Row("b", "x", status=KILLED, hmm_tests=ALIVE, operations=11),
        Row("c", "x", status=KILLED),
    ]
    assert [Row.from_json(r.to_json()) for r in rows] == rows
    assert rows[2].hmm_tests == NOT_RUN
    data = Result(1, 10.0, {}, rows).to_json()
    assert data["verdict"] == "pass"
    assert (data["summary"]["hmm_tests_killed"], data["summary"]["hmm_tests_alive"]) == (1, 1)
    assert data["summary"]["recipes_of_10_or_less"] == 1


def test_a_death_of_qemu_is_no_kill() -> None:
    assert trial.status_of(Violation("device", "QEMU crashed: SIGSEGV")) == ERROR
    assert trial.status_of(Violation("mirror", "stale")) == KILLED


class Objects(FakeTarget):
    """A machine of whose every example this oracle, or the environment, has something to say."""

    def __init__(self, says: str | VmError) -> None:
        super().__init__()
        self.says = says

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        if isinstance(self.says, VmError):
            raise self.says
        if self.says:
            done.violations.append(Violation(self.says, "it objects"))
        return done


@pytest.mark.parametrize("shrink_s", [0.0, 5.0])
@pytest.mark.parametrize(
    ("sound", "status", "false_alarm", "verdict"),
    [
        ("", KILLED, False, "pass"),
        ("mirror", ERROR, True, "fail"),
        ("protocol", ERROR, True, "fail"),
        (VmDied("it panicked", panicked=True), ERROR, True, "fail"),
        (VmError("it did not stand"), ERROR, False, ERROR),
    ],
)
def test_what_the_sound_driver_fails_too_is_no_kill(
    sound: str | VmError, status: str, false_alarm: bool, verdict: str, shrink_s: float,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """In the same kernel, with the same device."""
    mutant = mutants.load()[0]
    built: list[BuildRequest] = []

    def ensure(request: BuildRequest, ui: Ui) -> Any:
        built.append(request)
        return SimpleNamespace(kernel_release="6.12")

    @contextmanager
    def machine(*_: object) -> Iterator[Any]:
        yield (Objects("mirror" if built[-1].driver_patches else sound),), None

    monkeypatch.setattr(trial, "ensure", ensure)
    monkeypatch.setattr(trial, "best_spec", lambda *_: (USUAL, None))
    monkeypatch.setattr(trial.depends, "kernel", lambda *_: {})
    monkeypatch.setattr(trial, "_machine", machine)
    with fake.own_time():
        how = How(1, 300.0, shrink_s, delays=False)
        row = trial.run_one(mutant, Ui(quiet=True), tmp_path, how)
    assert (row.status, row.false_alarm) == (status, false_alarm)
    assert built == [mutant.request(), BuildRequest(kernel=mutant.kernel)]
    assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row
    result = Result(1, 300.0, {}, [row])
    assert result.verdict == verdict
    command._show(row)
    command._show_summary(result)
    said = capsys.readouterr().out
    assert (f"the sound driver fails too: {row.recipe}" in said) == false_alarm
    assert ("it did not stand" in said) == (verdict == ERROR)


def test_an_older_runs_evidence_is_not_mixed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its recipes would be taken for this run's.  What is in the way costs no other row."""
    mutant = mutants.load()[0]

    @contextmanager
    def machine(*_: object) -> Iterator[Any]:
        yield (Objects("mirror"),), None

    monkeypatch.setattr(trial, "_built", lambda *_: (SimpleNamespace(kernel_release="6"), USUAL))
    monkeypatch.setattr(trial.depends, "kernel", lambda *_: {})
    monkeypatch.setattr(trial, "_machine", machine)
    how = How(1, 300.0, 0.0, delays=False)

    def row(name: str) -> Row:
        if name == trial.SOUND:
            return trial.run_sound(Ui(quiet=True), tmp_path, how, examples=1)
        return trial.run_one(mutant, Ui(quiet=True), tmp_path, how)

    for name in (mutant.name, trial.SOUND):
        (tmp_path / name / "violation-7").mkdir(parents=True)
        with fake.own_time():
            assert row(name).recipe
        left = sorted(path.name for path in (tmp_path / name).iterdir())
        assert left == ["before", "violation-1"]
        assert (tmp_path / name / "before" / "violation-7").is_dir()
        (tmp_path / name / "before" / "figures").touch()
        refused = row(name)
        assert (refused.status, refused.recipe) == (ERROR, "")
        assert "figures there is none of them" in refused.message


@pytest.mark.parametrize(("oracle", "status"), [("device", ERROR), ("kernel", KILLED)])
def test_what_a_machine_died_of_when_nothing_ran_in_it(
    oracle: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ends(FakeTarget):
        def close(self) -> None:
            self.totals.ends = [Violation(oracle, "it ended")]

    @contextmanager
    def machine(*_: object) -> Iterator[Any]:
        yield (Ends(),), None

    monkeypatch.setattr(trial, "_built", lambda *_: (SimpleNamespace(kernel_release="6"), USUAL))
    monkeypatch.setattr(trial.depends, "kernel", lambda *_: {})
    monkeypatch.setattr(trial, "_machine", machine)
    monkeypatch.setattr(trial, "CONTROL_MIN", 1)
    how = How(1, 300.0, 0.0, delays=False)
    row = trial.run_sound(Ui(quiet=True), tmp_path, how, examples=1)
    assert (row.status, row.oracle, row.message) == (status, oracle, "it ended")


def test_the_last_third_is_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the time of each broken driver, if that is asked for."""
    monkeypatch.setattr(trial, "_built", lambda *_: (SimpleNamespace(), USUAL))
    config = {"CONFIG_NUMA": "y", "CONFIG_ACPI_NUMA": "y"}
    monkeypatch.setattr(trial, "kernel_config", lambda _: config)
    how = How(1, 300.0, 10.0, exact=True)
    request = BuildRequest()
    (alone,) = trial._portions(request, False, how, 300.0)
    assert (alone.machine, alone.limit_s, alone.exact) == ("", 300.0, True)
    usual, *others = trial._portions(request, False, replace(how, draw=2), 300.0)
    assert (usual.machine, usual.limit_s, len(others)) == ("", 210.0, 2)
    assert {one.limit_s for one in others} == {45.0}
    assert all(one.machine and one.first for one in others)
    _, *others = trial._portions(request, False, replace(how, draw=99), 300.0)
    assert "numa" in {one.machine for one in others}
    assert not [one for one in others if one.variant]
    _, *others = trial._portions(request, False, replace(how, draw=99, full=True), 300.0)
    assert "iommu" in {one.machine for one in others}
    # Where a machine is asked for, and the control, nothing is drawn.
    for one, limit in ((replace(how, draw=2, machine="numa"), 300.0), (replace(how, draw=2), None)):
        assert len(trial._portions(request, False, one, limit)) == 1
