# SPDX-License-Identifier: GPL-2.0-or-later
"""What a step may be, what the newest grammar draws, and that those before draw what they drew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from fake import FakeTarget

from hmmbench.campaign import generate
from hmmbench.campaign.generate import blocks, newest, program
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import MapKind
from hmmbench.model import ops, scenes
from hmmbench.model.belief import Residency
from hmmbench.model.cells import Coverage
from hmmbench.model.ops.advice import Advice, Ksm, Madvise


@pytest.fixture
def anew() -> Iterator[None]:
    """Tables are made once; made anew for what a test adds, and again behind it."""

    def forget() -> None:
        generate._steps.cache_clear()
        generate.table.cache_clear()

    forget()
    yield
    forget()


def test_everything_with_a_weight_is_drawn_as_often_as_that_says() -> None:
    wanted = {o.name: o.weight for o in ops.OPERATIONS.values() if o.weight}
    wanted |= {scene.name: scene.weight for scene in generate.SCENES if scene.weight}
    assert Counter(step.name for step in generate.table(generate.newest())) == wanted


def test_grammar_1_has_256_steps_in_their_order() -> None:
    names = [step.name for step in generate.table(1)]
    assert tuple(dict.fromkeys(names)) == generate.FIRST
    assert len(names) == 256


def test_a_new_scene_makes_a_new_version_and_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, anew: None
) -> None:
    before = {n: generate.table(n) for n in range(1, generate.newest() + 1)}
    new = generate.Step("again", 5, scenes.lazyfree, since=generate.newest() + 1)
    generate._steps.cache_clear()
    generate.table.cache_clear()
    monkeypatch.setattr(generate, "SCENES", (*generate.SCENES, new))
    assert generate.newest() == new.since
    assert {n: generate.table(n) for n in before} == before
    assert generate.table(new.since) == before[new.since - 1] + (new,) * 5


def test_a_new_word_of_an_operation_makes_a_new_version(
    monkeypatch: pytest.MonkeyPatch, anew: None
) -> None:
    """One that it may not be drawn twice for, as an operation of that version would be."""
    newest = generate.newest()
    monkeypatch.setattr(Madvise, "changed", (*Madvise.changed, newest + 1))
    assert generate.newest() == newest + 1
    assert generate.table(newest + 1) == generate.table(newest)


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
