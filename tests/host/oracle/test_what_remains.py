# SPDX-License-Identifier: GPL-2.0-or-later
"""What the agent says remains of processes that are gone (engine/remains.h)."""

from __future__ import annotations

import pytest

from hmmbench.example.judge import judge
from hmmbench.example.target import Execution
from hmmbench.guest.program import Op, OpResult, Program, Result
from hmmbench.model.ops.processes import Nop


@pytest.mark.parametrize(("line", "what"), [
    ("", []),
    ("remains 1 0", ["gone: 1 pages that nobody maps"]),
    ("remains 0 28", ["gone: 28 pages of page tables"]),
    ("remains 3 28", ["gone: 3 pages that nobody maps and 28 pages of page tables"]),
    # not the agent's words
    ("remains", []),
    ("remains_of_a_driver 7", []),
])  # fmt: skip
def test_what_remains_is_a_leak(line: str, what: list[str]) -> None:
    text = f"pages_to_device 3\nlive_vram_pages 0\n{line}\n"
    result = Result([OpResult()], counters_after=text)
    found = judge(Execution(Program([Op(Nop.number)]), result)).violations
    assert [v.oracle for v in found] == ["leak"] * len(what)
    assert {v.key for v in found} <= {("leak", "remains")}
    for violation, words in zip(found, what, strict=True):
        assert words in violation.message
