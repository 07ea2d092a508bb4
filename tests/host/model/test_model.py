# SPDX-License-Identifier: GPL-2.0-or-later
"""Generator, model and values oracle against the fake machine: no false alarm on a sound one,
every broken one caught."""

from __future__ import annotations

import errno
import random
from collections import Counter

import fake
import pytest

from hmmbench.campaign.generate import MAX_STEPS, program, size_of
from hmmbench.guest.program import (
    F_NOWAIT,
    HUGE,
    PAGE,
    PROT_NONE,
    PROT_RW,
    Acc,
    Ast,
    MapKind,
    Op,
    Program,
    Result,
)
from hmmbench.model.admit import SPIN_BUDGET, broken_off, normalise
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Advice, Madvise
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, GpuCopy, GpuSpin, WaitGpu
from hmmbench.model.ops.mapping import Mmap, Mprotect, Mremap, Munmap
from hmmbench.model.ops.moving import Migrate, Policy, Query
from hmmbench.model.ops.processes import Exit, Fork, Kill, Spawn
from hmmbench.model.scenes import ENDLESS
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
    assert any(judge(machine, example(seed)) for seed in range(300)), bug


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


def test_a_process_that_has_just_lost_its_last_mapping() -> None:
    """What replaces an operation that may not be needs memory (`run --seed 1`, example 2986)."""
    steps = {1: "324665fd", 12: "8f51d2c3", 20: "89777021", 40: "eb09cf15",
             58: "f9b8ba64", 60: "f7d7df4b"}  # fmt: skip
    assert program(b"".join(bytes.fromhex(steps.get(k, "00000000")) for k in range(61))).ops


def test_normalise_keeps_what_the_generator_made() -> None:
    for seed in range(50):
        p = example(seed)
        q = Program(normalise(Program.decode(p.encode()).ops, FILE_PAGES), FILE_PAGES)
        assert len(q.ops) == len(p.ops)
        assert [len(o.acc) for o in q.ops] == [len(o.acc) for o in p.ops]
        assert [(o.flags, o.a) for o in q.ops] == [(o.flags, o.a) for o in p.ops]


def _ops(*after: Op) -> list[Op]:
    """A job in process 0 that is not waited for, and what comes after it."""
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW), Op(Spawn.number, arg=1),
        Op(Mmap.number, proc=1, len=PAGE, a=PROT_RW), access(0, flags=F_NOWAIT), *after,
    ]  # fmt: skip
    for n, o in enumerate(ops):
        o.phase = o.phase or n
    return normalise(ops, FILE_PAGES)


def access(proc: int, **more: int) -> Op:
    acc = [(int(Acc.WRITE), 0, 0, 0, 5, 0)]
    return Op(GpuAccess.number, proc, acc=acc, **more)  # type: ignore[arg-type]


def close(proc: int, **more: int) -> Op:
    return Op(CloseGpu.number, proc, **more)  # type: ignore[arg-type]


def test_a_close_breaks_off_the_job_before_it() -> None:
    ops = _ops(close(0))
    assert ops[3].flags & F_NOWAIT
    assert broken_off(ops, 3)


@pytest.mark.parametrize(
    "after",
    [
        [],
        [close(1)],
        # something runs beside the close, and would see what the job still does
        [close(0, phase=9), access(1, phase=9)],
        [access(0), close(0)],
    ],
)
def test_a_job_that_nothing_breaks_off_is_waited_for(after: list[Op]) -> None:
    ops = _ops(*after)
    assert len(ops) == 4 + len(after)
    assert not ops[3].flags & F_NOWAIT


def test_nobody_closes_under_a_user() -> None:
    ops = _ops(close(0, phase=9, actor=1), access(0, phase=9), access(1, phase=9))
    assert [o.op for o in ops[4:]] == [GpuAccess.number] * 2
    ops = _ops(close(0, phase=9, actor=1), access(1, phase=9))
    assert [o.op for o in ops[4:]] == [CloseGpu.number, GpuAccess.number]


def test_closes_at_work_and_beside_an_opening_are_generated() -> None:
    at_work = beside = 0
    for seed in range(120):
        ops = example(seed).ops
        for i, o in enumerate(ops):
            if o.op == CloseGpu.number:
                at_work += i > 0 and bool(ops[i - 1].flags & F_NOWAIT)
                beside += any(
                    n.phase == o.phase and n.op == GpuAccess.number and n.proc != o.proc
                    for n in ops
                )
    assert at_work > 10
    assert beside > 10


def spin(budget: int = ENDLESS, proc: int = 0) -> Op:
    return Op(GpuSpin.number, proc, flags=F_NOWAIT, a=budget)


def wait(proc: int = 0, **more: int) -> Op:
    return Op(WaitGpu.number, proc, **more)  # type: ignore[arg-type]


ENDERS = {
    "close": [close(0)], "exit": [Op(Exit.number)], "kill": [Op(Kill.number, 1, arg=0)],
    "end": [],
}  # fmt: skip


@pytest.mark.parametrize("ender", ENDERS)
def test_a_job_is_waited_for_before_one_that_does_not_end(ender: str) -> None:
    ops = _ops(spin(), wait(a=1), *ENDERS[ender])
    assert len(ops) == 6 + len(ENDERS[ender])
    assert ops[3].flags & F_NOWAIT
    assert not broken_off(ops, 3), "what it did is judged"
    assert (ops[4].a, ops[5].a) == (ENDLESS, 1)
    again = Program.decode(Program(ops, FILE_PAGES).encode()).ops
    assert normalise(again, FILE_PAGES) == ops


@pytest.mark.parametrize(
    "after",
    [
        [spin(), wait()],
        [spin(), wait(), close(0)],
        [spin(), wait(a=2), close(0)],
        [spin(), wait(1, a=1), close(0)],
        [spin(), wait(a=1), wait()],
        [spin(), wait(a=1), close(1)],
        [spin(), wait(a=1), access(0), close(0)],
        [spin(), access(0), wait(a=1), close(0)],
        [spin(), wait(a=1), close(0, phase=9), access(1, phase=9)],
        [spin(0), access(0)],
        [spin(), Op(Exit.number, 1)],
        [wait(a=1), close(0)],
        [spin(proc=1), wait(a=1), close(0)],
    ],
)
def test_nothing_waits_for_a_job_that_does_not_end(after: list[Op]) -> None:
    ops = _ops(*after)
    assert len(ops) == 4 + len(after)
    for o in ops:
        assert o.op != WaitGpu.number or o.a == 0
        assert o.op != GpuSpin.number or 0 < o.a <= SPIN_BUDGET


def test_a_job_that_does_not_end_may_be_broken_off() -> None:
    assert _ops(spin(), close(0))[4].a == ENDLESS


def test_jobs_before_one_that_does_not_end_are_generated() -> None:
    ends: Counter[int] = Counter()
    for seed in range(600):
        ops = example(seed).ops
        for i, o in enumerate(ops):
            if o.op != WaitGpu.number or not o.a:
                continue
            job, behind, end = ops[i - 2], ops[i - 1], ops[i + 1]
            assert (job.op, behind.op) == (GpuAccess.number, GpuSpin.number)
            assert job.flags == behind.flags, "the same context"
            assert behind.a == ENDLESS
            ends[end.op] += 1
    assert set(ends) == {CloseGpu.number, Exit.number, Kill.number}
    assert sum(ends.values()) > 20


@pytest.mark.parametrize(
    "after", [[spin(), wait(a=1), close(0)], [close(0)]], ids=["waited", "broken-off"]
)
def test_a_job_before_one_that_does_not_end_has_results(after: list[Op]) -> None:
    p = Program(_ops(*after), FILE_PAGES)
    r = Result.decode(fake.Fake().run(p.encode()), p)
    assert Checker(p, r).run() is None
    r.ops[3].acc[0] = (0, Ast.NOT_DONE, 0)
    v = Checker(p, r).run()
    assert bool(v) == (len(after) == 3)


def query(**more: int) -> Op:
    return Op(Query.number, len=PAGE, **more)  # type: ignore[arg-type]


def test_of_a_query_among_others_the_status_is_judged() -> None:
    """Its answer may be of any moment of the phase; an error is one."""
    drop = Op(Munmap.number, phase=9, len=PAGE)
    ops = _ops(query(phase=9, actor=1), drop)
    assert [o.op for o in ops[4:]] == [Query.number, Munmap.number]
    p = Program(ops, FILE_PAGES)
    r = Result.decode(fake.Fake().run(p.encode()), p)
    for status, data, wrong in (
        (0, b"\xff" * 4, ""), (-errno.EBUSY, b"", ""), (-errno.EAGAIN, b"", "EAGAIN"),
    ):  # fmt: skip
        r.ops[4].status, r.ops[4].data = status, data
        v = Checker(p, r).run()
        assert bool(v) == bool(wrong), status
        assert wrong in (v.message if v else "")


def test_a_migration_among_others_has_the_errors_it_may_have() -> None:
    move = Op(Migrate.number, phase=9, actor=1, len=PAGE, arg=1)
    p = Program(_ops(move, Op(Madvise.number, phase=9, len=PAGE, a=Advice.DONTNEED)), FILE_PAGES)
    r = Result.decode(fake.Fake().run(p.encode()), p)
    for status, fine in ((0, True), (-errno.EFAULT, True), (-errno.EAGAIN, False)):
        r.ops[4].status = status
        assert (Checker(p, r).run() is None) == fine


def test_nobody_closes_under_a_query() -> None:
    ops = _ops(close(0, phase=9, actor=1), query(phase=9))
    assert [o.op for o in ops[4:]] == [Query.number]


def test_narrow_races_are_generated() -> None:
    """A close beside mm operations, queries beside anything, exclusive pages taken back while
    they go, 2 MiB in VRAM given up in pieces while a CPU wants one, and lazily freed pages that
    are written, where they were or in VRAM, and paged out."""
    seen: Counter[str] = Counter()
    for seed in range(220):
        ops = example(seed).ops
        for i, o in enumerate(ops):
            beside = {
                n.op for n in ops if n.phase == o.phase and n.proc == o.proc and n.actor != o.actor
            }
            if o.op == CloseGpu.number and beside & {Mprotect.number, Madvise.number}:
                seen["close"] += 1
            if o.op == Query.number and beside:
                seen["query"] += 1
            if o.op in (Madvise.number, Munmap.number) and beside == {CpuAccess.number}:
                seen["revoke"] += i > 2 and any(n.op == Policy.number for n in ops[i - 6 : i])
            if o.op == Madvise.number and o.a == Advice.DONTNEED and o.actor == 0:
                whole = any(n.op == Migrate.number and n.len == HUGE for n in ops[:i])
                seen["tear"] += whole and beside == {CpuAccess.number}
            if o.op == Madvise.number and o.a == Advice.FREE:
                kinds = [n.op for n in ops[i + 1 : i + 6]]
                for who, written in (("cpu", CpuAccess.number), ("gpu", GpuAccess.number)):
                    out = [Madvise.number, CpuAccess.number]
                    seen[f"{who} in place"] += kinds[:3] == [written, *out]
                    moved = [written, Migrate.number]
                    if who == "gpu":
                        moved.reverse()
                    seen[f"{who} in VRAM"] += kinds == [*moved, Migrate.number, *out]
    assert len(seen) == 8
    assert min(seen[what] for what in ("close", "query", "revoke", "tear")) > 16, seen
    assert min(seen.values()) > 8, seen


@pytest.mark.parametrize("target", ["new", "read before", "dropped after", "replaced"])
@pytest.mark.parametrize("source", ["hole", "half a hole", "no access"])
@pytest.mark.parametrize("then", [Acc.READ, Acc.CAS, Acc.WRITE])
def test_after_a_refused_copy_the_target_may_be_a_copy_of_any_moment(
    then: Acc, source: str, target: str
) -> None:
    """Both ends fault.  Where the source's is refused, the target's is served before or after
    that, or not at all: a page of a private file mapping follows the file, or is a copy from
    before or after what is written to the file meanwhile (`run --seed 853`, example 1041)."""
    length = {"hole": 0, "half a hole": PAGE, "no access": 2 * PAGE}[source]
    file_word = (int(Acc.WRITE), 2, 0, 8, 0xBE, 0)
    look = (int(Acc.READ), 1, 0, 8, 0, 0)
    other = [
        Op(Munmap.number, region=1, len=PAGE),
        Op(Mmap.number, region=3, len=PAGE, arg=MapKind.FILE_PRIVATE, a=PROT_RW),
        Op(CpuAccess.number, acc=[(int(Acc.READ), 3, 0, 8, 0, 0)]),
        Op(Mremap.number, region=3, len=PAGE, arg=1, a=0, b=PAGE),
    ]
    ops = [
        Op(Mmap.number, region=0, len=length, a=PROT_RW if source != "no access" else PROT_NONE),
        Op(Mmap.number, region=1, len=PAGE, arg=MapKind.FILE_PRIVATE, a=PROT_RW),
        Op(Mmap.number, region=2, len=PAGE, arg=MapKind.FILE_SHARED, a=PROT_RW),
        Op(CpuAccess.number, acc=[look] if target == "read before" else []),
        Op(GpuCopy.number, region=0, off=PAGE - 512, len=1024, arg=1, a=0),
        Op(Madvise.number, region=1, len=PAGE * (target == "dropped after"), a=Advice.DONTNEED),
        *(other if target == "replaced" else []),
        Op(CpuAccess.number, acc=[file_word]),
        Op(Fork.number, arg=1),
        Op(CpuAccess.number, proc=1, acc=[look]),
        Op(CpuAccess.number, acc=[(int(Acc.WRITE), 2, 0, 8, 0xEF, 0)]),
        *(Op(CpuAccess.number, proc=p, acc=[(int(then), 1, 0, 8, 7, 0)]) for p in (1, 0)),
        *(Op(CpuAccess.number, proc=p, acc=[look]) for p in (0, 1)),
    ]
    ops = [o for o in ops if o.len or o.acc or o.op == Fork.number]
    for n, o in enumerate(ops):
        o.phase = n
    p = Program(normalise(ops, FILE_PAGES), FILE_PAGES)
    assert len(p.ops) == len(ops)
    seen = set()
    for seed in range(100):
        machine = fake.Fake(seed=seed)
        assert not judge(machine, p), f"seed {seed}"
        r = Result.decode(machine.run(p.encode()), p)
        seen.add(r.ops[-3].acc[0][0])
    if then == Acc.WRITE:  # reports nothing
        return
    # What comes before the hole is copied, for sure.
    certain = source == "half a hole" and target in ("new", "read before")
    assert seen == ({0} if certain else {0, 0xBE, 0xEF})
