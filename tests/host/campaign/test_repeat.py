# SPDX-License-Identifier: GPL-2.0-or-later
"""What is compared between two executions of exact machines, and the load that they run under."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hmmbench.campaign import repeat
from hmmbench.example.exact_target import Print
from hmmbench.example.schedules import Points

SEEN = Print(
    7, b"answer", {"faults": 3}, "[    1.0] hmm_gpu: printed\n",
    {"pc.ram": np.array([1, 2, 3], "<u8")}, {"ns": 5, "icount": 2},
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hash": 8}, ("hash",)),
        ({"answer": b"answeR"}, ("answer",)),
        ({"counters": {"faults": 4}}, ("counters",)),
        ({"console": ""}, ("console",)),
        ({"state": {"ns": 6, "icount": 2}}, ("state",)),
        ({"memory": {"pc.ram": np.array([1, 9, 3], "<u8")}}, ("pc.ram page 0x1",)),
        ({"memory": {}}, ("pc.ram: not in both",)),
        ({"hash": 8, "console": ""}, ("hash", "console")),
        ({"memory": None}, ()),
    ],
)
def test_each_thing_that_differs_is_named(change: dict[str, object], says: tuple[str, ...]) -> None:
    assert repeat.difference(SEEN, SEEN) == ()
    other = replace(SEEN, **change)  # type: ignore[arg-type]
    assert repeat.difference(SEEN, other) == says
    assert repeat.difference(other, SEEN) == says


def test_programs_and_surroundings_are_of_their_numbers() -> None:
    points = Points((1, 2), (3,))
    first = [(repeat.nth(5, n).encode(), repeat.surroundings(5, n, points)) for n in range(30)]
    again = [(repeat.nth(5, n).encode(), repeat.surroundings(5, n, points)) for n in range(30)]
    assert first == again
    assert len({program for program, _ in first}) == 30
    assert len({env.schedule for _, env in first}) == 30
    assert repeat.nth(6, 0).encode() != first[0][0]
    assert all(env.audit == "access" for _, env in first)
    assert any(env.inject for _, env in first)
    assert any(env.vram is not None for _, env in first)


def children() -> int:
    """Of this process, those that have ended and nobody waited for, too."""
    tasks = Path("/proc/self/task").glob("*/children")
    return sum(len(task.read_text().split()) for task in tasks)


def test_the_load_is_there_and_ends() -> None:
    before = children()
    with repeat.load(False):
        assert children() == before
    with repeat.load():
        assert children() == before + (os.cpu_count() or 2) + 1
    assert children() == before
