# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults and invalidations of an example."""

from __future__ import annotations

from hmmbench.example.judge import judge
from hmmbench.example.target import Execution
from hmmbench.guest.program import PAGE, Op, OpResult, Program, Result
from hmmbench.model.ops.processes import Nop
from hmmbench.oracle.excess import BESIDE, EACH, check, needed

PROGRAM = Program([Op(Nop.number, len=PAGE)])
MOST = EACH * needed(PROGRAM) + BESIDE


def text(faults: int, invals: int) -> str:
    return f"faults 7\nlive_jobs 0\ndev_faults {faults}\ndev_invals {invals}\nlooks 4\n"


def result(before: str, after: str) -> Result:
    return Result([OpResult()], counters_before=before, counters_after=after)


def test_within_the_bound() -> None:
    assert check(PROGRAM, result(text(5, 9), text(5 + MOST, 9 + MOST))) is None
    # the device was reset, or nobody counts
    assert check(PROGRAM, result(text(1 << 40, 1 << 40), text(0, 0))) is None
    assert check(PROGRAM, result("", "")) is None


def test_beyond_it() -> None:
    for after, what in ((text(6 + MOST, 0), "fault storm"), (text(0, 10 + MOST), "invalidation")):
        found = judge(Execution(PROGRAM, result(text(5, 9), after))).violations
        assert [v.oracle for v in found] == ["promise"]
        assert found[0].message.startswith(what)
