# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that does not answer may be slow: its device tells."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from hmmbench.example import vm_target
from hmmbench.vm.machine import Machine


class Counting:
    def __init__(self, *seen: int) -> None:
        self.seen = list(seen)

    gpu = property(lambda self: self)

    def counters(self) -> dict[str, int]:
        return {"loads": self.seen.pop(0)}


@pytest.mark.parametrize(
    ("seen", "left_s", "moving"), [((5, 6), 10, True), ((5, 5), 10, False), ((5, 6), -1, False)]
)
def test_a_device_that_counts_moves(
    monkeypatch: pytest.MonkeyPatch, seen: tuple[int, int], left_s: float, moving: bool
) -> None:
    monkeypatch.setattr(vm_target, "STILL_S", 0)
    machine = cast(Machine, cast(Any, Counting(*seen)))
    assert vm_target._moving(machine, time.monotonic() + left_s) == moving
