# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that is served, guarded, sealed or taken by others, without a GPU: agent and model against
the kernel of the host.  What that lacks, or forbids, the agent says."""

from __future__ import annotations

import errno
import random
import struct

import pytest
from host_agent import HostAgent
from test_files_and_pins import NOT_HERE, Run, cpu, io, mmap, run, seen

from hmmbench.campaign.generate import program, size_of
from hmmbench.guest.program import PAGE, PROT_READ, PROT_RW, Acc, Ast, MapKind, Op, Program, Result
from hmmbench.model import ops
from hmmbench.model.admit import normalise
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.advice import Advice, Madvise, Zap
from hmmbench.model.ops.base import NOT_THERE
from hmmbench.model.ops.dirty import CLEAR, LOOK, Dirty
from hmmbench.model.ops.guard import INSTALL, REMOVE, Guard, Seal
from hmmbench.model.ops.mapping import Mprotect, Munmap, Replace
from hmmbench.model.ops.nodes import Bind, MovePages
from hmmbench.model.ops.pins import How as By
from hmmbench.model.ops.processes import Fork, Spawn
from hmmbench.model.ops.reclaim import ProcessMadvise
from hmmbench.model.ops.stores import How as Dropping
from hmmbench.model.ops.stores import WriteBack
from hmmbench.model.ops.uffd import How, Uffd
from hmmbench.oracle.values import Checker

assert run  # a fixture

AT = [0, PAGE, 2 * PAGE, 3 * PAGE]


def at(number: int, arg: int = 0, pages: int = 4, **fields: int) -> Op:
    return Op(number, len=pages * PAGE, arg=arg, **fields)  # type: ignore[arg-type]


def there(r: Result, op: int) -> bool:
    """Whether the host's kernel has it, and lets us."""
    return r.ops[op].status != NOT_THERE


def test_missing_pages_come_from_the_process(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, *AT, value=1), at(Uffd.number, How.MISSING, a=7),
        cpu(Acc.READ, 0), io(By.VM_READ, PAGE, PAGE), cpu(Acc.WRITE, 0, value=9),
        Op(Madvise.number, len=PAGE, a=Advice.DONTNEED), cpu(Acc.READ, *AT),
        at(Uffd.number, How.LEAVE), cpu(Acc.READ, *AT),
    ])  # fmt: skip
    if there(r, 2):
        assert [v for v, _ in seen(r, 7)] == [7] * 4
        assert [v for v, _ in seen(r, 9)] == [0] * 4


def test_minor_faults_and_their_pages(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_SHARED), cpu(Acc.WRITE, *AT, value=3), at(Uffd.number, How.MINOR),
        cpu(Acc.READ, *AT), at(Zap.number), cpu(Acc.ADD, *AT, value=1), cpu(Acc.READ, *AT),
    ])  # fmt: skip
    assert [v for v, _ in seen(r, 6)] == [4] * 4


def test_writes_to_protected_pages_are_told_of(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, *AT[1:], value=1), cpu(Acc.READ, 0),
        at(Uffd.number, How.WRITES), at(Uffd.number, How.PROTECT), cpu(Acc.WRITE, PAGE, value=2),
        io(By.VM_WRITE, 2 * PAGE, 8, 5), Op(Fork.number, arg=1),
        cpu(Acc.WRITE, 3 * PAGE, value=2, proc=1), at(Uffd.number, How.LOOK),
        cpu(Acc.WRITE, 0, 3 * PAGE, value=3), at(Uffd.number, How.LOOK),
    ])  # fmt: skip
    if there(r, 3):
        # The page of zeroes is not promised; the child has nobody to tell.
        assert r.ops[4].data == b"\0\1\1\1"
        assert r.ops[9].data == b"\0\1\1\0"
        assert r.ops[11].data[1:] == b"\1\1\1"


def test_the_kernels_book(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, *AT[1:], value=1), cpu(Acc.READ, 0),
        at(Dirty.number, CLEAR), cpu(Acc.WRITE, PAGE, value=2), cpu(Acc.READ, *AT),
        at(Dirty.number, LOOK),
    ])  # fmt: skip
    if there(r, 3):
        assert r.ops[3].data == b"\0\1\1\1"
        assert r.ops[6].data[1:] == b"\1\0\0"


def test_guards(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, *AT, value=1), at(Guard.number, INSTALL, 2),
        cpu(Acc.READ, *AT), Op(Mprotect.number, len=4 * PAGE, a=PROT_READ),
        Op(Madvise.number, len=4 * PAGE, a=Advice.DONTNEED), Op(Fork.number, arg=1),
        cpu(Acc.READ, *AT, proc=1), cpu(Acc.READ, *AT),
        Op(4, len=2 * PAGE, arg=1, b=2 * PAGE), cpu(Acc.READ, 0, region=1),
        at(Guard.number, REMOVE, 2, region=1), cpu(Acc.READ, 0, region=1),
    ])  # fmt: skip
    if there(r, 2):
        refused, fine = (0, Ast.SIGSEGV), (0, Ast.DONE)
        assert seen(r, 7) == seen(r, 8) == [refused, refused, fine, fine]
        assert seen(r, 10) == [refused]
        assert seen(r, 12) == [fine]


def test_what_is_sealed(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, *AT, value=1), at(Seal.number, pages=2),
        at(Munmap.number, pages=2), at(Mprotect.number, pages=1, a=PROT_READ),
        at(Replace.number, MapKind.ANON_PRIVATE, 2, a=PROT_RW),
        Op(4, len=PAGE, arg=1, b=PAGE), at(Madvise.number, pages=1, a=Advice.DONTNEED),
        cpu(Acc.READ, *AT), Op(Fork.number, arg=1), at(Munmap.number, pages=2, proc=1),
    ])  # fmt: skip
    perm = -errno.EPERM
    assert [r.ops[i].status for i in (3, 4, 5, 6, 7, 10)] == [perm, perm, perm, perm, 0, perm]
    assert [v for v, _ in seen(r, 8)] == [0, 1, 1, 1]


def test_one_node(run: Run) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, PAGE, value=1), cpu(Acc.READ, 2 * PAGE),
        at(MovePages.number), at(Bind.number, pages=2), cpu(Acc.READ, PAGE),
    ])  # fmt: skip
    if there(r, 3):
        said = struct.unpack("<4i", r.ops[3].data)
        assert said == (-errno.ENOENT, 0, -errno.EFAULT, -errno.ENOENT)


@pytest.mark.parametrize("advice", [Advice.COLD, Advice.PAGEOUT, Advice.WILLNEED, 25])
def test_advice_about_another(run: Run, advice: int) -> None:
    r = run([
        mmap(MapKind.ANON_PRIVATE), cpu(Acc.WRITE, *AT, value=1), Op(Spawn.number, arg=1),
        at(ProcessMadvise.number, a=advice, b=0, proc=1), cpu(Acc.READ, *AT),
    ])  # fmt: skip
    if advice != 25 and r.ops[3].status == 0:
        assert r.ops[3].aux0 == 4 * PAGE
    assert [v for v, _ in seen(r, 4)] == [1] * 4


def test_programs_of_the_generator_without_their_gpu(host_agent: HostAgent) -> None:
    """Races too, and MADV_DONTNEED, with a real kernel: nothing is accused."""
    agent = host_agent.connect()
    rng = random.Random(5)
    met: set[str] = set()
    for seed in range(150):
        drawn = program(rng.randbytes(size_of(rng.randint(24, 60))))
        kept = [
            o for o in drawn.ops
            if not ops.of(o).uses_gpu
            and not (ops.of(o).name in ("mmap", "replace") and "HUGETLB" in MapKind(o.arg).name)
            and (ops.of(o).name not in NOT_HERE or (o.op == Madvise.number and o.a in (3, 4, 20)))
            and not (o.op == WriteBack.number and o.arg == Dropping.DROP_ALL)
        ]  # fmt: skip
        p = Program(normalise(kept, FILE_PAGES), FILE_PAGES, settle_ms=0)
        result = Result.decode(agent.program(p.encode(), 60), p)
        wrong = Checker(p, result).run()
        assert wrong is None, f"example {seed}: {wrong}"
        assert not result.died, f"example {seed}"
        met |= {ops.of(o).name for o in p.ops}
    assert {"uffd", "dirty", "guard", "seal", "move_pages", "bind", "process_madvise"} <= met
