# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of `hmmbench mutants`, and what the kernel's own tests make of a mutant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.base.ui import Ui
from hmmbench.mutation import mutants, trial
from hmmbench.mutation.trial import ALIVE, ERROR, KILLED, NOT_RUN, Result, Row
from hmmbench.oracle.violation import Violation
from hmmbench.suites.selftests import OURS, Run, SelftestOutcome
from hmmbench.vm.errors import VmDied


def ran(*statuses: str, trouble: str = "") -> Run:
    tests = [SelftestOutcome(str(n), s, 0.1) for n, s in enumerate(statuses)]
    return Run(OURS, tests, trouble=trouble)


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
    monkeypatch.setattr(trial, "best_spec", lambda *_: (None, None))
    return given


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (ran("pass", "skip"), ALIVE),
        (ran("pass", "fail"), KILLED),
        (ran("pass", trouble="the kernel printed: BUG"), KILLED),
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
