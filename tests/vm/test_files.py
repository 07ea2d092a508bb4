# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that change under the GPU: truncated, with holes, written and read by descriptor."""

from __future__ import annotations

import errno
import struct

import pytest
from work import acc, cpu, gpu, migrate, mmap, query, run_ops, set_delays, statuses, values

from hmmbench.guest import program as p
from hmmbench.guest.program import PAGE, Acc, Ast, MapKind, Op, Program, Result
from hmmbench.model.admit import normalise
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Advice, Madvise
from hmmbench.model.ops.files import FileRead, FileWrite, Punch, Truncate
from hmmbench.model.ops.processes import Sleep
from hmmbench.oracle.values import Checker
from hmmbench.vm.machine import Machine

WHOLE = FILE_PAGES[0]


def truncate(pages: int, **fields: int) -> Op:
    return Op(Truncate.number, c=pages * PAGE, **fields)  # type: ignore[arg-type]


def judged(vm: Machine, ops: list[Op]) -> Result:
    """What came of operations, each in a phase of its own; the model agrees."""
    for phase, o in enumerate(ops):
        o.phase = phase
    assert len(normalise(ops, FILE_PAGES)) == len(ops)
    result = run_ops(vm, ops, file_pages=FILE_PAGES)
    wrong = Checker(Program(ops, FILE_PAGES), result).run()
    assert wrong is None, wrong
    return result


@pytest.mark.parametrize("kind", [MapKind.FILE_SHARED, MapKind.FILE_PRIVATE])
def test_behind_the_end_a_job_faults_and_where_it_grew_it_finds_zeroes(
    watched: Machine, kind: MapKind
) -> None:
    vram = [migrate(4, p.MIGRATE_DEVICE)] if kind == MapKind.FILE_PRIVATE else []
    ops = [
        mmap(4, kind), gpu(*[acc(Acc.WRITE, i, i + 1, lane=i) for i in range(4)]), *vram,
        truncate(2), query(4), gpu(acc(Acc.READ, 1), acc(Acc.ADD, 2, 5, lane=1)),
        gpu(acc(Acc.READ, 3)), cpu(acc(Acc.READ, 2)), gpu(acc(Acc.READ, 1)),
        truncate(WHOLE), gpu(*[acc(Acc.ADD, i, 10, lane=i) for i in range(4)]),
        cpu(*[acc(Acc.READ, i) for i in range(4)]),
    ]  # fmt: skip
    result = judged(watched, ops)
    at = len(vram)
    assert statuses(result)[4 + at : 6 + at] == [-errno.EFAULT] * 2
    assert [st for _, st, _ in result.ops[6 + at].acc] == [Ast.SIGBUS]
    assert values(result, len(ops) - 1) == [11, 12, 10, 10]


def test_what_the_gpu_wrote_to_a_file_outlives_reclaim_and_holes_do_not(watched: Machine) -> None:
    pageout = Op(Madvise.number, len=4 * PAGE, a=Advice.PAGEOUT)
    result = judged(watched, [
        mmap(4, MapKind.FILE_SHARED), cpu(*[acc(Acc.READ, i) for i in range(4)]),
        gpu(*[acc(Acc.WRITE, i, i + 1, lane=i) for i in range(4)]), pageout,
        Op(FileRead.number, len=4 * PAGE), Op(Punch.number, c=PAGE, len=2 * PAGE),
        gpu(*[acc(Acc.READ, i, lane=i) for i in range(4)]),
        Op(FileWrite.number, c=2 * PAGE, len=PAGE, a=9),
        gpu(*[acc(Acc.READ, i, lane=i) for i in range(4)]),
    ])  # fmt: skip
    assert [struct.unpack_from("<Q", result.ops[4].data, i * PAGE)[0] for i in range(4)] == [
        1, 2, 3, 4,
    ]  # fmt: skip
    assert values(result, 6) == [1, 0, 0, 4]
    assert values(result, 8) == [1, 0, 9, 4]


@pytest.mark.parametrize("turn", range(6))
def test_a_file_ends_and_grows_under_a_job(watched: Machine, turn: int) -> None:
    ops = [
        mmap(4, MapKind.FILE_SHARED),
        *[Op(Sleep.number, a=200 * turn, phase=1), truncate(1, phase=1)],
        Op(Sleep.number, a=300, phase=1), truncate(WHOLE, phase=1),
        gpu(*[acc(kind, i, 1, lane=4 * k + i) for k, kind in enumerate((Acc.READ, Acc.ADD))
              for i in range(4)], phase=1, actor=1),
        truncate(WHOLE, phase=2),
        gpu(*[acc(Acc.ADD, i, 1, lane=i) for i in range(4)], phase=3),
        Op(FileRead.number, len=4 * PAGE, phase=4),
    ]  # fmt: skip
    assert len(normalise(ops, FILE_PAGES)) == len(ops)
    result = run_ops(watched, ops, file_pages=FILE_PAGES)
    wrong = Checker(Program(ops, FILE_PAGES), result).run()
    assert wrong is None, wrong


def test_a_refusal_does_not_hit_who_comes_when_the_file_has_grown(watched: Machine) -> None:
    """Growing tells no notifier: what is refused has to be asked for again where it is cancelled,
    and nothing must come between."""
    found = []
    for _ in range(10):
        set_delays(watched, "fault_before_cancel 3000 700 7")
        lanes = [acc(Acc.WRITE, i, 1, lane=i) for i in (1, 2, 3)]
        ops = [
            mmap(4, MapKind.FILE_SHARED), truncate(1), gpu(*lanes), truncate(WHOLE),
            gpu(*[acc(Acc.ADD, i, 1, lane=i) for i in (1, 2, 3)]),
        ]  # fmt: skip
        for phase, o in enumerate(ops):
            o.phase = phase
        result = run_ops(watched, ops, file_pages=FILE_PAGES)
        found.append(statuses(result)[4])
    set_delays(watched)
    assert found == [0] * 10
