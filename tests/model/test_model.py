# SPDX-License-Identifier: GPL-2.0-or-later
"""Generator, model and values oracle against the fake machine: no false alarm on a sound one,
every broken one caught."""

from __future__ import annotations

import random

import fake
import pytest

from hmmbench.guest.protocol import Program, Result
from hmmbench.model.admit import normalise
from hmmbench.model.generate import FILE_PAGES, MAX_STEPS, program, size_of
from hmmbench.oracle.values import Checker


def example(seed: int) -> Program:
    rng = random.Random(seed)
    return program(rng.randbytes(size_of(rng.randint(24, MAX_STEPS))))


def judge(machine: fake.Fake, p: Program) -> str:
    r = Result.decode(machine.run(p.encode()), p)
    v = Checker(p, r).run()
    return f"{v.op}: {v.message}" if v else ("leak" if r.live_nonzero else "")


def test_sound_machine_is_never_accused() -> None:
    machine = fake.Fake(seed=1)
    for seed in range(300):
        assert not judge(machine, example(seed)), f"example {seed}"


@pytest.mark.parametrize("bug", fake.BUGS)
def test_every_broken_machine_is_caught(bug: str) -> None:
    machine = fake.Fake(bug, seed=2)
    assert any(judge(machine, example(seed)) for seed in range(120)), bug


def test_programs_survive_losing_any_operations() -> None:
    """What shrinking does: delete at random, normalise, and the sound machine stays sound."""
    machine = fake.Fake(seed=3)
    rng = random.Random(5)
    for seed in range(150):
        p = example(seed)
        ops = [o for o in p.ops if rng.random() < 0.7]
        q = Program(normalise(ops, FILE_PAGES), FILE_PAGES)
        assert not judge(machine, q), f"example {seed}"


def test_same_bytes_same_program() -> None:
    data = random.Random(1).randbytes(size_of(60))
    assert program(data).encode() == program(data).encode()


def test_normalise_keeps_what_the_generator_made() -> None:
    for seed in range(50):
        p = example(seed)
        q = Program(normalise(Program.decode(p.encode()).ops, FILE_PAGES), FILE_PAGES)
        assert len(q.ops) == len(p.ops)
        assert [len(o.acc) for o in q.ops] == [len(o.acc) for o in p.ops]
