# SPDX-License-Identifier: GPL-2.0-or-later
"""Coverage: what is met is counted, what cannot be met never is."""

from __future__ import annotations

import random
import struct

import fake

from hmmbench.campaign.generate import program, size_of
from hmmbench.example.judge import judge
from hmmbench.example.target import Execution
from hmmbench.guest.program import (
    PAGE,
    Q_CPU_DEVICE,
    Acc,
    MapKind,
    Op,
    OpResult,
    Program,
    Result,
)
from hmmbench.model import ops
from hmmbench.model.belief import Residency
from hmmbench.model.cells import (
    HOLE,
    MAPPINGS,
    ORACLES,
    ROWS,
    Coverage,
    impossible,
    oracles_of,
)
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Advice, Madvise
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Evict, Migrate, Policy, Query
from hmmbench.model.oracles import OF_ALL
from hmmbench.model.space import Space
from hmmbench.oracle.values import Checker
from hmmbench.report.page.heat import heat

READ = (int(Acc.READ), 1, 0, 0, 0, 0)


def walk(*steps: tuple[Op, OpResult] | Op) -> Coverage:
    """Observe operations one after the other."""
    coverage, space = Coverage(), Space(FILE_PAGES)
    coverage.start()
    for step in steps:
        if isinstance(step, Op):
            step = (step, OpResult(acc=[(0, 1, 0)] * len(step.acc)))
        o, r = step
        coverage.observe(space, o, r, False)
        ops.apply(space, o)
    return coverage


def mmap(kind: MapKind = MapKind.ANON_PRIVATE) -> Op:
    return Op(Mmap.number, region=1, len=4 * PAGE, arg=kind, a=3)


def cpu() -> Op:
    return Op(CpuAccess.number, acc=[READ])


def gpu() -> Op:
    return Op(GpuAccess.number, acc=[READ])


def residencies(coverage: Coverage, row: str) -> dict[str, int]:
    return {Residency(at).name: n for (r, _, at), n in coverage.cells.items() if r == row}


def test_residency_is_what_was_seen() -> None:
    """Neither a policy nor an advice moves a page for sure; a QUERY says whether it did."""
    policy = Op(Policy.number, arg=1)
    query = Op(Query.number, region=1, len=PAGE)
    vram = (query, OpResult(data=struct.pack("<I", Q_CPU_DEVICE)))
    away = (query, OpResult(data=bytes(4)))
    pageout = Op(Madvise.number, region=1, len=PAGE, a=Advice.PAGEOUT)
    dontneed = Op(Madvise.number, region=1, len=PAGE, a=Advice.DONTNEED)
    evict = Op(Evict.number)
    c = walk(
        mmap(), cpu(), cpu(), policy, gpu(), cpu(), pageout, cpu(), gpu(), evict, cpu(), dontneed,
        cpu(),
    )
    assert residencies(c, "CPU read") == {"ABSENT": 2, "SYSTEM": 1, "UNKNOWN": 3}
    assert residencies(c, "GPU read") == {"SYSTEM": 2}
    assert residencies(c, "evict") == {}
    c = walk(
        mmap(), cpu(), policy, gpu(), vram, cpu(), pageout, away, cpu(), gpu(), vram, evict, cpu(),
        dontneed, away, cpu(),
    )
    assert residencies(c, "CPU read") == {"ABSENT": 2, "SYSTEM": 1, "VRAM": 1, "SWAPPED": 1}
    assert residencies(c, "evict") == {"VRAM": 1}


def test_an_oracle_is_credited_where_it_looked() -> None:
    """The mirror audit may be off, or the driver not program it."""
    program = Program([mmap(), cpu()])
    answer = Result([OpResult(), OpResult(acc=[(0, 1, 0)])])
    coverage = Coverage()
    for unseen in (frozenset({"mirror"}), frozenset(), frozenset({"mirror"})):
        judge(Execution(program, answer, unseen=unseen), coverage)
    oracles = coverage.to_json()["oracles"]
    assert (oracles["mirror"]["CPU read"], oracles["values"]["CPU read"]) == (1, 3)
    assert oracles["mirror"]["mmap"] == 1
    cells = {c.title for row in heat(coverage).rows for c in row.oracles}
    assert any("CPU read" in t and "mirror oracle: 1 operations judged" in t for t in cells)


def test_a_query_corrects_the_belief() -> None:
    told = OpResult(data=struct.pack("<I", Q_CPU_DEVICE))
    query = Op(Query.number, region=1, len=PAGE)
    assert residencies(walk(mmap(), cpu(), (query, told), cpu()), "CPU read") == {
        "ABSENT": 1, "VRAM": 1,
    }  # fmt: skip


def test_a_hole_and_a_skipped_operation() -> None:
    c = walk(cpu(), (gpu(), OpResult(status=1, acc=[(0, 0, 0)])))
    assert dict(c.cells) == {("CPU read", HOLE, 0): 1}


def test_partial_migration_is_not_known() -> None:
    migrate = Op(Migrate.number, region=1, len=4 * PAGE, arg=1)
    whole = walk(mmap(), (migrate, OpResult(aux0=4)), gpu())
    part = walk(mmap(), (migrate, OpResult(aux0=3)), gpu())
    assert residencies(whole, "GPU read") == {"VRAM": 1}
    assert residencies(part, "GPU read") == {"UNKNOWN": 1}


def test_generated_programs_meet_nothing_impossible() -> None:
    rng, machine, coverage = random.Random(4), fake.Fake("", 2), Coverage()
    operations = 0
    for _ in range(120):
        p: Program = program(rng.randbytes(size_of(80)), 1)
        result = Result.decode(machine.run(p.encode()), p)
        assert Checker(p, result, coverage).run() is None
        operations += len(p.ops)
    wrong = {k: impossible(*k) for k in coverage.cells if impossible(*k)}
    assert wrong == {}
    data = coverage.to_json()
    assert data["met"] + len(data["empty"]) == data["possible"]
    assert data["met"] > 200
    assert set(data["oracles"]) == set(ORACLES)
    assert sum(coverage.rows.values()) >= operations / 2


def test_every_row_is_judged_and_has_possible_cells() -> None:
    for row in ROWS:
        assert len(oracles_of(row)) == len(OF_ALL) + 1
        assert any(not impossible(row, k, a) for k in MAPPINGS for a in Residency)
