# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the bench waits for a guest's answer."""

from __future__ import annotations

from dataclasses import replace

from hmmbench.example.vm_target import limit_s
from hmmbench.guest.program import Op, Program
from hmmbench.model.ops.processes import Nop
from hmmbench.oracle.growth import LOOKS


def test_a_program_that_runs_again_has_its_time_each_time() -> None:
    once = Program([Op(Nop.number)], timeout_ms=4000, settle_ms=2000)
    assert limit_s(once) == 6
    assert limit_s(replace(once, again=4)) == 6 * (1 + LOOKS)
