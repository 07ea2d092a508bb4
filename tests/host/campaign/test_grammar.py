# SPDX-License-Identifier: GPL-2.0-or-later
"""What the newest version of the grammar draws, and that those before draw what they drew."""

from __future__ import annotations

import hashlib
from random import Random

from fake import FakeTarget

from hmmbench.campaign.generate import MAX_STEPS, MIN_STEPS, blocks, newest, program, size_of
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import MapKind
from hmmbench.model.belief import Residency
from hmmbench.model.cells import Coverage
from hmmbench.model.ops.advice import Advice, Ksm, Madvise


def drawn(grammar: int, batches: int = 3) -> list[bytes]:
    return [one for number in range(batches) for one in blocks(1, number, 100, grammar)]


def test_no_example_is_of_zero_bytes() -> None:
    """One in sixteen was, and each said the same."""
    found = drawn(newest())
    assert len(set(found)) == len(found)
    assert not [one for one in found if not any(one)]
    assert found == drawn(newest())


def test_older_grammars_draw_their_blocks_as_before() -> None:
    """By Hypothesis, whose releases decide which: that they are those is what can be said."""
    assert drawn(1, 1) == drawn(2, 1)
    assert sum(not any(one) for one in drawn(2, 1)) > 0


def test_programs_of_older_grammars_are_those_they_were() -> None:
    sha, rng = hashlib.sha256(), Random("1 0")
    for _ in range(100):
        one = rng.randbytes(size_of(rng.randint(MIN_STEPS, MAX_STEPS)))
        for grammar in (1, 2):
            sha.update(program(one, grammar=grammar).encode())
    assert sha.hexdigest()[:16] == "fef6958ce451eb5c"


def test_a_quick_run_meets_pages_that_the_kernel_may_merge() -> None:
    target, coverage = FakeTarget(), Coverage()
    merging = 0
    for one in drawn(newest()):
        p = program(one)
        if not any(o.op == Ksm.number for o in p.ops):
            continue
        merging += 1
        assert any(o.op == Madvise.number and o.a == Advice.MERGEABLE for o in p.ops)
        assert judge(target.execute(p, Environment()), coverage).violations == []
    assert merging > 10
    cell = "madvise mergeable", int(MapKind.ANON_PRIVATE), int(Residency.SYSTEM)
    assert coverage.cells[cell] > 10
