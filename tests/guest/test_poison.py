# SPDX-License-Identifier: GPL-2.0-or-later
"""Breaking memory that moves meanwhile; what really breaks: tests/vm/test_memory.py."""

from __future__ import annotations

from pathlib import Path

from gpu_program import INCLUDES, USER, run


def test_pages_that_move_while_they_are_broken(tmp_path: Path) -> None:
    unit = tmp_path / "unit"
    run("gcc", "-std=gnu11", "-O1", "-g", "-w", *INCLUDES, f"-I{USER / 'agent'}",
        Path(__file__).with_name("poison_unit.c"), "-o", unit)  # fmt: skip
    run(unit)
