# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs that end although they did nothing wrong: each as often as the device's rules allow."""

from __future__ import annotations

import errno

import pytest

from hmmbench.example.judge import judge
from hmmbench.example.target import Execution
from hmmbench.guest.program import (
    ERR_BUS,
    ERR_FAULT,
    PAGE,
    PROT_RW,
    REASON_POISON,
    Acc,
    MapKind,
    Op,
    OpResult,
    Program,
    Result,
)
from hmmbench.model.ops.device import Away, ReopenGpu, TakeGpu
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Migrate
from hmmbench.model.ops.promises import Promise
from hmmbench.oracle.values import Checker

FILES = (4, 0, 0, 0)
POISON = {"status": -errno.EFAULT, "gpu_status": ERR_FAULT, "reason": REASON_POISON}
HALTED = {"status": -errno.EIO, "gpu_status": ERR_BUS}
GONE = {"status": -errno.ENODEV, "gpu_status": ERR_BUS}


def mapped(kind: MapKind = MapKind.ANON_PRIVATE) -> tuple[Op, OpResult]:
    return Op(Mmap.number, len=4 * PAGE, arg=int(kind), a=PROT_RW), OpResult()


def writes(value: int, phase: int, done: bool, actor: int = 0, **how: int) -> tuple[Op, OpResult]:
    o = Op(GpuAccess.number, actor=actor, phase=phase, acc=[(Acc.WRITE, 0, 0, 8, value, 0)])
    return o, OpResult(acc=[(0, int(done), 0)], fault_region=-1, **how)


def fills(phase: int, **how: int) -> tuple[Op, OpResult]:
    return Op(GpuFill.number, phase=phase, len=64, a=7), OpResult(**how)


def reads(value: int, phase: int) -> tuple[Op, OpResult]:
    o = Op(CpuAccess.number, phase=phase, acc=[(Acc.READ, 0, 0, 8, 0, 0)])
    return o, OpResult(acc=[(value, 1, 0)])


def judged(*items: tuple[Op, OpResult], rules: tuple[str, ...] = ()) -> str:
    listed, results = zip(*items, strict=True)
    found = Checker(Program(list(listed), FILES), Result(list(results)), rules=rules).run()
    return "" if found is None else found.message


@pytest.mark.parametrize("how", [POISON, HALTED])
@pytest.mark.parametrize("kind", [MapKind.ANON_PRIVATE, MapKind.FILE_PRIVATE])
@pytest.mark.parametrize("seen", [0, 5])
def test_a_bus_error_ends_a_job(how: dict[str, int], kind: MapKind, seen: int) -> None:
    program = (mapped(kind), writes(5, 1, False, **how), reads(seen, 2))
    assert "every access in it is allowed" in judged(*program)
    assert not judged(*program, rules=("bus.read nth=3 error",))
    # The copies of the engine are others.
    assert judged(*program, rules=("ce.copy nth=3 error",))
    assert "expected" in judged(*program[:2], reads(6, 2), rules=("bus.read nth=3 error",)) or (
        kind == MapKind.FILE_PRIVATE
    )


def test_and_not_all_that_follow() -> None:
    """A context that halts starts again: what comes later is well."""
    rule = ("bus.write count=1 error",)
    jobs = [writes(n, n, False, **HALTED) for n in range(1, 4)]
    assert not judged(mapped(), *jobs, rules=rule)
    assert judged(mapped(), *jobs, writes(4, 4, False, **HALTED), rules=rule)


def test_a_copy_that_fails_is_the_programs() -> None:
    rule = ("ce.copy nth=1 partial=8",)
    assert judged(mapped(), fills(1, **POISON))
    assert not judged(mapped(), fills(1, **POISON), reads(7, 2), rules=rule)
    assert judged(mapped(), fills(1, **POISON), fills(2, **POISON), rules=rule)
    assert judged(mapped(), writes(1, 1, False, **POISON), rules=rule)
    # Another end than that is none.
    assert judged(mapped(), fills(1, **HALTED), rules=rule)


def test_promises_are_off_where_jobs_may_fail() -> None:
    failed = (Op(Promise.number, phase=1, len=PAGE), OpResult(status=-errno.EFAULT))
    assert judged(mapped(), failed)
    assert not judged(mapped(), failed, rules=("bus.read nth=40 error",))


def test_a_promise_that_nobody_judged_was_not_tried() -> None:
    program = Program([Op(Promise.number, len=PAGE)])
    for rules, tried in (((), 1), (("bus.read nth=40 error",), 0)):
        done = judge(Execution(program, Result([OpResult()]), inject=rules))
        assert (done.promises, done.promises_tried) == (1, tried)


def test_the_device_is_taken_away_beside_a_job() -> None:
    take = Op(TakeGpu.number, actor=1, phase=1, arg=int(Away.REMOVE)), OpResult()
    migrate = Op(Migrate.number, actor=2, phase=1, len=PAGE, arg=1), OpResult(status=-errno.ENODEV)
    again = Op(ReopenGpu.number, phase=2, arg=int(Away.REMOVE)), OpResult()
    for seen in (0, 5):
        beside = mapped(), writes(5, 1, False, **GONE), take, migrate
        assert not judged(*beside, again, reads(seen, 3))
        # What comes after that is an answer of a device that is there again.
        late = writes(6, 3, False, **GONE)
        assert "every access in it is allowed" in judged(*beside, again, late)
    assert judged(mapped(), writes(5, 1, False, **GONE))
    assert "ENODEV" in judged(mapped(), (migrate[0], migrate[1]))


def test_what_the_file_answers_afterwards() -> None:
    take = Op(TakeGpu.number, phase=1, arg=int(Away.UNBIND)), OpResult()
    wrong = OpResult(status=-errno.EBADE, aux0=1)
    again = Op(ReopenGpu.number, phase=2, arg=int(Away.UNBIND)), wrong
    assert "asked the file from before" in judged(mapped(), take, again)
    closed = Op(CloseGpu.number, phase=2), OpResult(status=-errno.ENODEV)
    assert not judged(mapped(), take, closed)
    assert judged(mapped(), closed)


def test_a_copy_of_a_file_that_fails_leaves_what_nobody_knows() -> None:
    """The page follows its file, or is a copy of it."""
    rule = ("ce.copy nth=1 error",)
    copy = Op(GpuCopy.number, phase=1, len=64, arg=0, a=PAGE), OpResult(**POISON)
    for seen in (0, 9):
        later = Op(CpuAccess.number, phase=2, acc=[(Acc.READ, 0, 0, PAGE, 0, 0)])
        read = later, OpResult(acc=[(seen, 1, 0)])
        assert not judged(mapped(MapKind.FILE_PRIVATE), copy, read, rules=rule)
