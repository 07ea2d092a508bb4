# SPDX-License-Identifier: GPL-2.0-or-later
"""mlock and MADV_WILLNEED: what they do to memory that the GPU has, and how programs draw them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from work import acc, cpu, flags, gpu, migrate, mmap, query, run_ops, statuses, values

from hmmbench.campaign.generate import newest, program, size_of
from hmmbench.example.recipe import op_from_json, op_to_json
from hmmbench.guest import program as p
from hmmbench.guest.program import PAGE, Acc, MapKind, Op
from hmmbench.model import ops
from hmmbench.model.admit import normalise
from hmmbench.model.belief import SYSTEM, VRAM
from hmmbench.model.cells import Coverage
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Advice, Madvise, Mlock
from hmmbench.model.ops.mapping import Mremap
from hmmbench.model.ops.processes import Fork
from hmmbench.oracle.values import Checker
from hmmbench.vm.machine import Machine

LOCK, ON_FAULT, UNLOCK = 0, 1, 2


def lock(pages: int, how: int = LOCK, **fields: int) -> Op:
    return Op(Mlock.number, len=pages * PAGE, a=how, **fields)  # type: ignore[arg-type]


def advise(pages: int, advice: Advice, **fields: int) -> Op:
    return Op(Madvise.number, len=pages * PAGE, a=advice, **fields)  # type: ignore[arg-type]


def test_what_is_locked_comes_home_and_stays_right(watched: Machine) -> None:
    n = 8
    result = run_ops(watched, [
        mmap(n),
        cpu(*[acc(Acc.WRITE, i, i + 1) for i in range(n)]),
        migrate(n, p.MIGRATE_DEVICE), query(n), lock(n), query(n),
        gpu(*[acc(Acc.ADD, i, 100, lane=i) for i in range(n)]),
        migrate(n, p.MIGRATE_DEVICE), cpu(*[acc(Acc.READ, i) for i in range(n)]),
        advise(n, Advice.DONTNEED), advise(n, Advice.WILLNEED), lock(n, UNLOCK),
        advise(n, Advice.DONTNEED), cpu(acc(Acc.READ, 0)),
    ])  # fmt: skip
    #: The kernel takes nothing away that is locked.
    refused = -22
    assert statuses(result) == [0] * 9 + [refused] + [0] * 4
    there = p.Q_CPU_DEVICE | p.Q_CPU_READ
    assert [q & there for q in flags(result, 3)] == [there] * n
    assert [q & there for q in flags(result, 5)] == [p.Q_CPU_READ] * n
    assert values(result, 8) == [i + 101 for i in range(n)]
    assert values(result, 13) == [0]


def test_what_comes_is_locked_and_what_is_advised_may_stay_away(watched: Machine) -> None:
    n = 4
    result = run_ops(watched, [
        mmap(n), lock(n, ON_FAULT), query(n), gpu(acc(Acc.WRITE, 1, 7)), query(n),
        cpu(acc(Acc.READ, 1)), mmap(n, MapKind.ANON_SHARED, region=1),
        advise(n, Advice.WILLNEED, region=1), lock(n, region=1),
        gpu(acc(Acc.ADD, 0, 1, region=1)), cpu(acc(Acc.READ, 0, region=1)),
    ])  # fmt: skip
    assert statuses(result) == [0] * 11
    assert [bool(q & p.Q_CPU_READ) for q in flags(result, 2)] == [False] * n
    assert values(result, 5) == [7]
    assert values(result, 10) == [1]


def drawn(grammar: int | None, count: int = 300) -> Iterator[Op]:
    for seed in range(count):
        data = random.Random(seed).randbytes(size_of(80))
        yield from program(data, seed, grammar).ops


def test_programs_have_them_and_those_of_the_first_grammar_do_not() -> None:
    assert newest() >= 2
    found: Counter[tuple[str, int]] = Counter()
    for o in drawn(None):
        if o.op == Mlock.number or (o.op == Madvise.number and o.a == Advice.WILLNEED):
            found[ops.of(o).name, o.a] += 1
            assert op_from_json(0, op_to_json(o)) == o
            assert ops.of(o).sentence(o, "it")
    assert set(found) == {("mlock", how) for how in range(3)} | {("madvise", Advice.WILLNEED)}
    assert min(found.values()) > 20, found
    assert not any(
        o.op == Mlock.number or (o.op == Madvise.number and o.a == Advice.WILLNEED)
        for o in drawn(1)
    )


@pytest.mark.parametrize("taken", [Advice.DONTNEED, Advice.FREE, Advice.COLD, Advice.PAGEOUT])
def test_nothing_is_taken_from_what_is_locked(taken: Advice) -> None:
    """Neither where it went with mremap; from a child's, where nothing is locked, it is."""
    moved = Op(Mremap.number, phase=2, len=4 * PAGE, arg=2, b=4 * PAGE)
    begun = [mmap(4), lock(4, phase=1), moved]

    def kept(*more: Op) -> int:
        return len(normalise([*begun, *more], FILE_PAGES)) - len(begun)

    assert kept(advise(4, taken, region=2, phase=3)) == 0
    assert kept(lock(2, UNLOCK, region=2, phase=3), advise(2, taken, region=2, phase=4)) == 2
    assert kept(lock(2, UNLOCK, region=2, phase=3), advise(4, taken, region=2, phase=4)) == 1
    assert kept(Op(Fork.number, phase=3, arg=1), advise(4, taken, region=2, phase=4, proc=1)) == 2


@pytest.mark.parametrize("kind", [MapKind.FILE_PRIVATE, MapKind.HUGETLB_PRIVATE, MapKind.STACK])
def test_what_is_not_locked(kind: MapKind) -> None:
    o = mmap(512 if kind == MapKind.HUGETLB_PRIVATE else 4, kind)
    if kind == MapKind.STACK:
        o.region = 14
    assert len(normalise([o, lock(o.len // PAGE, phase=1, region=o.region)], FILE_PAGES)) == 1


def test_a_lock_that_is_refused_is_a_contradiction() -> None:
    listed = normalise([mmap(4), lock(4, phase=1)], FILE_PAGES)
    results = [p.OpResult(), p.OpResult(-12)]
    found = Checker(p.Program(listed, FILE_PAGES), p.Result(results)).run()
    assert found is not None
    assert "mlock" in found.message
    assert "ENOMEM" in found.message


def test_what_a_campaign_believes_of_what_is_locked() -> None:
    """A page of VRAM is in system memory then; only on fault, it stays where it is."""
    for how, after in ((LOCK, SYSTEM), (ON_FAULT, VRAM)):
        coverage = Coverage()
        moves = [migrate(4, p.MIGRATE_DEVICE, phase=1), migrate(4, p.MIGRATE_DEVICE, phase=3)]
        listed = normalise([mmap(4), moves[0], lock(4, how, phase=2), moves[1]], FILE_PAGES)
        results = [p.OpResult(), p.OpResult(aux0=4), p.OpResult(), p.OpResult(aux0=4)]
        run = Checker(p.Program(listed, FILE_PAGES), p.Result(results), coverage).run()
        assert run is None
        assert coverage.cells[ops.of(listed[2]).row(listed[2]), MapKind.ANON_PRIVATE, VRAM] == 1
        assert coverage.cells["migrate to VRAM", MapKind.ANON_PRIVATE, after] == 1
