# SPDX-License-Identifier: GPL-2.0-or-later
"""What a step may be: nothing that has a weight is left out, and what is older stays as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from hmmbench.campaign import generate
from hmmbench.model import ops, scenes
from hmmbench.model.ops.advice import Madvise


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
    wanted |= {scene.name: scene.weight for scene in generate.SCENES}
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
