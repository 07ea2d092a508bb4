# SPDX-License-Identifier: GPL-2.0-or-later
"""Whatever a PROGRAM says, the agent answers it, in time, and serves the next."""

from __future__ import annotations

import contextlib
import random
import struct
import time

import pytest
from host_agent import HostAgent

from hmmbench.guest import program as p
from hmmbench.guest.program import Op, Program, Result
from hmmbench.model import ops
from hmmbench.model.ops.advice import Ksm, Madvise
from hmmbench.model.ops.device import TakeGpu
from hmmbench.model.ops.folios import Compact, Khugepaged, Mthp
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Mmap, Mremap
from hmmbench.model.ops.moving import Evict
from hmmbench.model.ops.nodes import NumaBalance, Offline
from hmmbench.model.ops.poison import Poison
from hmmbench.model.ops.processes import Exit, Fork, Nop, Sleep, Spawn
from hmmbench.model.ops.reclaim import Memcg
from hmmbench.model.ops.stores import Store, WriteBack
from hmmbench.vm.agent import AgentError

#: Not with random arguments on the host: they reach beyond the process.
UNSAFE = (
    Madvise.number, Ksm.number, Evict.number, Compact.number, Khugepaged.number, Mthp.number,
    WriteBack.number, Store.number, NumaBalance.number, Offline.number, Memcg.number, Poison.number,
    TakeGpu.number,
)  # fmt: skip
SAFE = [k for k in ops.OPERATIONS if k not in UNSAFE]


def random_program(rng: random.Random) -> Program:
    def number(limit: int) -> int:
        return rng.choice((0, 1, rng.randrange(limit), limit - 1, limit))

    ops = []
    phase = 0
    births = [1, 2, 3]
    for _ in range(rng.randrange(1, 25)):
        phase += rng.randrange(2)
        kind = rng.choice(SAFE)
        proc = rng.randrange(4 - len(births)) if rng.random() < 0.97 else rng.randrange(5)
        arg = rng.randrange(8)
        if kind in (Fork.number, Spawn.number) and births:
            arg = births.pop(0)
        alone = kind in (Fork.number, Exit.number)
        o = Op(
            kind, proc=proc, actor=0 if alone else rng.randrange(4), phase=phase,
            region=rng.randrange(4), arg=arg, off=rng.randrange(16) * p.PAGE,
            len=rng.randrange(8) * p.PAGE, a=rng.randrange(8), b=rng.randrange(5),
            c=rng.randrange(3), flags=rng.randrange(4),
        )  # fmt: skip
        if kind == Sleep.number:
            o.a = rng.choice((0, 100, 1000, 10**7))
        if kind == Mremap.number:
            o.arg, o.a, o.b = rng.randrange(4), rng.randrange(16) * p.PAGE, o.len
        if kind in (CpuAccess.number, GpuAccess.number):
            o.acc = [
                (rng.randrange(8), rng.randrange(4), number(100), 8 * rng.randrange(2000),
                 rng.randrange(1000), rng.randrange(3))
                for _ in range(rng.randrange(30))
            ]  # fmt: skip
        ops.append(o)
    return Program(ops, (1, 0, 4, 0), timeout_ms=400, settle_ms=0)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_are_answered(host_agent: HostAgent, seed: int) -> None:
    rng = random.Random(seed)
    agent = host_agent.connect()
    ran = refused = 0
    for _ in range(60):
        program = random_program(rng)
        start = time.monotonic()
        try:
            result = Result.decode(agent.program(program.encode(), timeout=20), program)
        except AgentError:
            refused += 1
            continue
        ran += 1
        assert time.monotonic() - start < 10
        assert result.died == 0, f"{program} died of {result.died_signal}"
        if not result.timeout:
            # Who was never killed has an answer to everything.
            assert all(o.status <= 2 for o in result.ops)
    assert ran > 10
    assert refused > 0
    assert host_agent.children() == []


@pytest.mark.parametrize("seed", range(3))
def test_damaged_messages_are_answered(host_agent: HostAgent, seed: int) -> None:
    rng = random.Random(seed)
    agent = host_agent.connect()
    for _ in range(120):
        program = random_program(rng)
        data = bytearray(program.encode())
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.1:
            del data[rng.randrange(len(data)) :]
        for n in range(min(len(program.ops), max(0, len(data) // 64 - 1))):
            (code,) = struct.unpack_from("<H", data, 64 + 64 * n)
            if code in UNSAFE:
                struct.pack_into("<H", data, 64 + 64 * n, Nop.number)
        if len(data) >= 24:
            struct.pack_into("<II", data, 16, 300, 0)  # time limit, settling
        with contextlib.suppress(AgentError):
            agent.program(bytes(data), timeout=20)
    nop = Program([Op(Nop.number)], settle_ms=0)
    assert Result.decode(agent.program(nop.encode(), 10), nop).ops[0].status == 0
    assert host_agent.children() == []


def test_largest_program(host_agent: HostAgent) -> None:
    agent = host_agent.connect()
    accesses = [(2, 0, n % 1000, 8 * (n % 512), 1, 0) for n in range(p.MAX_ACCESSES)]
    ops = [Op(Mmap.number, len=p.PAGE, a=3)]
    ops += [Op(CpuAccess.number, acc=accesses[n * 17 : n * 17 + 17]) for n in range(3855)]
    ops += [Op(Nop.number)] * (p.MAX_OPS - len(ops))
    for _ in range(2):
        program = Program(ops, settle_ms=0)
        result = Result.decode(agent.program(program.encode(), 60), program)
        assert all(o.status == 0 for o in result.ops)
        got = [a[0] for o in result.ops for a in o.acc]
        assert got == [n // 512 for n in range(3855 * 17)]
    one = Program([Op(GpuAccess.number, acc=[(0, 0, p.MAX_ACCESSES - 1, 0, 0, 0)])] * 17)
    with pytest.raises(AgentError, match="lanes in all launches"):
        agent.program(one.encode(), 10)
