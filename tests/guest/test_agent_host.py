# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of the agent that need no GPU, and its service messages, on the host."""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from host_agent import HostAgent

from hmmbench.guest import example
from hmmbench.guest import program as p
from hmmbench.guest.program import Acc, Ast, MapKind, Op, Program, Result
from hmmbench.model.ops.advice import Advice, Madvise
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, WaitGpu
from hmmbench.model.ops.mapping import Mmap, Mprotect, Mremap, Munmap
from hmmbench.model.ops.moving import Migrate
from hmmbench.model.ops.processes import Exit, Fork, Kill, Nop, Sleep, Spawn
from hmmbench.oracle import growth, leaks
from hmmbench.vm.agent import Agent, AgentError

RW = p.PROT_RW
SKIPPED, KILLED = p.RES_SKIPPED, p.RES_KILLED


def run(agent: Agent, ops: list[Op], **fields: Any) -> Result:
    program = Program(ops, **({"settle_ms": 0} | fields))
    return Result.decode(agent.program(program.encode(), timeout=60), program)


def mmap(pages: int, kind: MapKind = MapKind.ANON_PRIVATE, prot: int = RW, **k: Any) -> Op:
    return Op(Mmap.number, len=pages * p.PAGE, arg=kind, a=prot, **k)


def acc(kind: Acc, page: int, value: int = 0, expect: int = 0, region: int = 0, byte: int = 0):
    return (int(kind), region, 0, page * p.PAGE + byte, value, expect)


def cpu(*accesses: tuple[int, ...], **k: Any) -> Op:
    return Op(CpuAccess.number, acc=list(accesses), **k)  # type: ignore[arg-type]


def read(page: int, region: int = 0):
    return acc(Acc.READ, page, region=region)


def write(page: int, value: int, region: int = 0):
    return acc(Acc.WRITE, page, value, region=region)


def values(result: Result, op: int) -> list[int]:
    assert [a[1] for a in result.ops[op].acc] == [Ast.DONE] * len(result.ops[op].acc)
    return [a[0] for a in result.ops[op].acc]


def statuses(result: Result) -> list[int]:
    return [o.status for o in result.ops]


# ---- service messages ----


def test_hello_agrees_on_every_struct(agent: Agent) -> None:
    hello = agent.hello()
    sizes = dict(hello["sizes"])
    assert sizes.pop("header") == 16
    assert sizes == {**p.STRUCT_SIZES, **example.STRUCT_SIZES}
    assert hello["page_size"] == p.PAGE
    assert hello["kernel"] == os.uname().release


def test_exec_output_status_signal_and_limit(agent: Agent) -> None:
    assert agent.execute("echo out; echo err >&2; exit 7").status == 7
    assert agent.execute("echo out; echo err >&2").output == "out\nerr\n"
    assert agent.execute("kill -9 $$").status == -9
    start = time.monotonic()
    result = agent.execute("echo first; sleep 60; echo never", timeout=0.3)
    assert (result.status, result.output) == (-110, "first\n")
    assert time.monotonic() - start < 10


def test_exec_does_not_wait_for_background(agent: Agent) -> None:
    start = time.monotonic()
    assert agent.execute("sleep 20 & echo started").output == "started\n"
    assert time.monotonic() - start < 10


def test_exec_large_output(agent: Agent) -> None:
    result = agent.execute("head -c 3000000 /dev/zero | tr '\\0' x")
    assert result.output == "x" * 3000000


def test_start_and_kill(agent: Agent, host_agent: HostAgent) -> None:
    pid = agent.start("sleep 100 & sleep 100; true")
    os.kill(pid, 0)
    agent.kill(pid, signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)
    assert host_agent.children() == []
    with pytest.raises(AgentError, match="not made by START"):
        agent.kill(pid, signal.SIGKILL)
    with pytest.raises(AgentError, match="not made by START"):
        agent.kill(os.getpid(), signal.SIGKILL)


def test_files(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "f"
    content = bytes(range(256)) * 1000
    agent.write_file(str(path), content, mode=0o600)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert agent.read_file(str(path)) == content
    assert agent.read_file("/proc/version") == Path("/proc/version").read_bytes()
    with pytest.raises(AgentError, match="No such file"):
        agent.read_file(str(tmp_path / "none"))
    with pytest.raises(AgentError, match="No such file"):
        agent.write_file(str(tmp_path / "none"), b"x", mode=0)
    os.mkfifo(fifo := tmp_path / "fifo")
    with pytest.raises(AgentError, match="No such device"):
        agent.write_file(str(fifo), b"x", mode=0)
    assert agent.read_file(str(fifo)) == b""


def test_a_mark_stands_behind_what_the_console_shows(agent: Agent, host_agent: HostAgent) -> None:
    def print_(record: str) -> None:
        host_agent.kernel_log.write_text(record + "\n")

    assert agent.printed() == 0
    print_("6,1,100,-;hmm_gpu: level 6 is not shown")
    assert agent.printed() == 0
    print_("4,2,200,-;BUG: Bad page state")
    assert agent.printed() == 1
    assert agent.printed() == 0, "its own mark is nothing new"
    print_("28,3,300,-;of another facility, but level 4")
    assert agent.printed() == 2
    log = os.open(host_agent.kernel_log, os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(log, 100) == b"<0>hmmbench: mark 2\n"
    os.close(log)


def test_unknown_and_broken_requests(host_agent: HostAgent) -> None:
    header = struct.Struct("<IHHII")
    sock = host_agent.raw()

    def ask(raw: bytes) -> tuple[int, int, bytes]:
        sock.sendall(raw)
        magic, kind, ident, length, _ = header.unpack(sock.recv(16, 0x100))
        assert magic == 0x424D4D48
        return kind, ident, sock.recv(length, 0x100) if length else b""

    assert ask(header.pack(0x424D4D48, 99, 5, 0, 0)) == (0x1FF, 5, b"request type 99 is unknown")
    # Bytes that are no frame are skipped.
    kind, ident, _ = ask(b"garbage!" * 5 + header.pack(0x424D4D48, 1, 6, 0, 0))
    assert (kind, ident) == (0x101, 6)
    # A payload that is too long is refused, and the stream stays in step.
    huge = header.pack(0x424D4D48, 1, 7, 0x2000001, 0) + bytes(0x2000001)
    sock.sendall(huge)
    _, kind, ident, length, _ = header.unpack(sock.recv(16, 0x100))
    assert (kind, ident) == (0x1FF, 7)
    sock.recv(length, 0x100)
    assert ask(header.pack(0x424D4D48, 3, 8, 2, 0) + b"ab")[0] == 0x1FF
    # Half a frame and a new connection: the next client starts afresh.
    sock.sendall(header.pack(0x424D4D48, 4, 9, 100, 0) + b"/pro")
    sock.close()
    assert host_agent.connect().hello()["agent"] == "hmmbench"


# ---- programs in one process ----


def test_accesses_of_every_kind(agent: Agent) -> None:
    big = 0x1122334455667788
    result = run(agent, [
        mmap(2),
        cpu(
            read(0), write(0, big), read(0), acc(Acc.ADD, 0, 3), acc(Acc.XCHG, 0, 9),
            acc(Acc.CAS, 0, 20, expect=8), acc(Acc.CAS, 0, 20, expect=9), read(0),
            acc(Acc.WRITE32, 0, 0xFFFFFFFFAABBCCDD, byte=4), read(0),
            acc(Acc.READ32, 0, byte=4), acc(Acc.DELAY, 0, 1000), acc(Acc.ADD, 0, 2**64 - 1),
        ),
    ])  # fmt: skip
    assert values(result, 1) == [
        0, 0, big, big, big + 3, 9, 9, 20, 0, 0xAABBCCDD00000014, 0xAABBCCDD, 0,
        0xAABBCCDD00000014,
    ]  # fmt: skip
    assert [a[2] for a in result.ops[1].acc] == list(range(13))
    assert not result.timeout
    assert result.died == 0


@pytest.mark.parametrize("kind", [k for k in Acc if k != Acc.DELAY])
def test_each_access_kind_survives_sigsegv(agent: Agent, kind: Acc) -> None:
    result = run(agent, [mmap(3), Op(Munmap.number, off=p.PAGE, len=p.PAGE),
                         cpu(write(0, 5), acc(kind, 1, 7, 7), read(0), read(2))])  # fmt: skip
    assert [a[1] for a in result.ops[2].acc] == [
        Ast.DONE, Ast.SIGSEGV, Ast.DONE, Ast.DONE
    ]  # fmt: skip
    assert result.ops[2].acc[2][0] == 5
    assert result.died == 0


def test_sigsegv_by_protection_and_sigbus_beyond_a_file(agent: Agent) -> None:
    result = run(agent, [
        mmap(2),
        cpu(write(0, 1)),
        Op(Mprotect.number, len=p.PAGE, a=p.PROT_READ),
        cpu(read(0), write(0, 2), write(1, 3)),
        mmap(2, MapKind.FILE_SHARED, region=1, b=0),
        cpu(write(0, 4, region=1), read(1, region=1)),
    ], file_pages=(1, 0, 0, 0))  # fmt: skip
    assert [a[1] for a in result.ops[3].acc] == [Ast.DONE, Ast.SIGSEGV, Ast.DONE]
    assert [a[1] for a in result.ops[5].acc] == [Ast.DONE, Ast.SIGBUS]


def test_faults_of_four_threads_at_once(agent: Agent) -> None:
    """The fault handler has no state that threads could share."""
    hole = [acc(Acc.READ, 1), acc(Acc.READ, 0)] * 200
    result = run(agent, [mmap(1), cpu(write(0, 77))] + [
        cpu(*hole, actor=actor, phase=1) for actor in range(4)
    ])  # fmt: skip
    for o in result.ops[2:]:
        assert [a[1] for a in o.acc] == [Ast.SIGSEGV, Ast.DONE] * 200
        assert {a[0] for a in o.acc[1::2]} == {77}


def test_mm_calls(agent: Agent) -> None:
    result = run(agent, [
        mmap(8),
        cpu(*[write(i, 100 + i) for i in range(8)]),
        Op(Mremap.number, off=2 * p.PAGE, len=2 * p.PAGE, arg=3, a=5 * p.PAGE, b=2 * p.PAGE),
        cpu(read(2), read(5, 3), read(6, 3), read(4)),
        Op(Mremap.number, off=4 * p.PAGE, len=p.PAGE, arg=3, a=20 * p.PAGE, b=p.PAGE, c=1),
        cpu(read(4), read(20, 3)),
        Op(Mremap.number, region=3, off=5 * p.PAGE, len=2 * p.PAGE, arg=3, a=5 * p.PAGE,
           b=p.PAGE),
        cpu(read(5, 3), read(6, 3)),
        Op(Madvise.number, off=0, len=p.PAGE, a=Advice.DONTNEED),
        cpu(read(0), read(1)),
        Op(Madvise.number, off=0, len=p.PAGE, a=9999),
        Op(Munmap.number, off=p.REGION_SIZE, len=p.PAGE),
        Op(Mmap.number, off=p.REGION_SIZE - p.PAGE, len=2 * p.PAGE, a=RW),
        mmap(1, MapKind.FILE_PRIVATE, b=3),
    ])  # fmt: skip
    einval, ebadf = -22, -9
    assert statuses(result) == [0] * 10 + [einval, einval, einval, ebadf]
    assert [(a[0], a[1]) for a in result.ops[3].acc] == [
        (0, Ast.SIGSEGV), (102, Ast.DONE), (103, Ast.DONE), (104, Ast.DONE)
    ]  # fmt: skip
    assert [(a[0], a[1]) for a in result.ops[5].acc] == [(0, Ast.DONE), (104, Ast.DONE)]
    assert [a[1] for a in result.ops[7].acc] == [Ast.DONE, Ast.SIGSEGV]
    assert values(result, 9) == [0, 101]


def test_stack_and_global_regions(agent: Agent) -> None:
    hello = agent.hello()
    assert hello["stack_base"] > 0x7F0000000000  # a real stack
    for _ in range(2):  # fresh each time
        result = run(agent, [
            mmap(p.STACK_PAGES, MapKind.STACK, region=0),
            mmap(p.GLOBAL_PAGES, MapKind.GLOBAL, region=1),
            cpu(*[read(i, r) for r in (0, 1) for i in range(32)]),
            cpu(*[write(i, 7 + i, r) for r in (0, 1) for i in range(32)]),
            Op(Fork.number, arg=1, phase=1),
            cpu(*[read(i, r) for r in (0, 1) for i in range(32)], proc=1, phase=2),
            cpu(write(3, 1), write(3, 1, 1), proc=1, phase=2),
            cpu(read(3), read(3, 1), phase=3),
            Op(Madvise.number, len=p.PAGE * 2, a=Advice.DONTNEED, phase=4),
            cpu(read(0), read(1), read(2), phase=5),
            # Over it: the frames of the program must not lie there.
            Op(Mprotect.number, len=p.STACK_PAGES * p.PAGE, a=p.PROT_NONE, phase=6),
            cpu(read(0), phase=6),
            # "Mapped" again they are fresh.
            mmap(p.STACK_PAGES, MapKind.STACK, region=0, phase=7),
            mmap(p.GLOBAL_PAGES, MapKind.GLOBAL, region=1, phase=7),
            cpu(read(2), read(2, 1), phase=7),
        ])  # fmt: skip
        assert statuses(result) == [0] * 15
        assert values(result, 14) == [0, 0]
        assert values(result, 2) == [0] * 64
        assert values(result, 5) == [7 + i for i in range(32)] * 2
        assert values(result, 7) == [10, 10]
        assert values(result, 9) == [0, 0, 9]
        assert result.ops[11].acc[0][1] == Ast.SIGSEGV


# ---- several actors and processes ----


def test_phases_order_actors(agent: Agent) -> None:
    """Each phase has one writer; the others must see its value in the next."""
    ops = [mmap(1)]
    for n in range(1, 60):
        ops.append(cpu(write(0, n), actor=n % 4, phase=2 * n))
        ops += [cpu(read(0), actor=a, phase=2 * n + 1) for a in range(4)]
    result = run(agent, ops)
    for n in range(1, 60):
        base = 1 + (n - 1) * 5
        assert [values(result, base + 1 + a) for a in range(4)] == [[n]] * 4


def test_one_phase_runs_at_the_same_time(agent: Agent) -> None:
    result = run(agent, [Op(Sleep.number, a=200_000, actor=a) for a in range(4)])
    assert statuses(result) == [0] * 4
    assert result.elapsed_ns < 700_000_000
    serial = run(agent, [Op(Sleep.number, a=50_000, phase=a, actor=a) for a in range(4)])
    assert serial.elapsed_ns >= 200_000_000


def test_atomics_of_four_actors_lose_nothing(agent: Agent) -> None:
    result = run(agent, [mmap(1), *[
        cpu(*[acc(Acc.ADD, 0, 1)] * 1000, actor=a, phase=1) for a in range(4)
    ], cpu(read(0), phase=2)])  # fmt: skip
    assert values(result, 5) == [4000]
    olds = sorted(v for op in range(1, 5) for v in values(result, op))
    assert olds == list(range(4000))


@pytest.mark.parametrize("kind", [MapKind.ANON_PRIVATE, MapKind.ANON_SHARED,
                                  MapKind.FILE_PRIVATE, MapKind.FILE_SHARED])  # fmt: skip
def test_fork_shares_what_is_shared(agent: Agent, kind: MapKind) -> None:
    shared = kind in (MapKind.ANON_SHARED, MapKind.FILE_SHARED)
    result = run(agent, [
        mmap(2, kind),
        cpu(write(0, 1), write(1, 2)),
        Op(Fork.number, arg=1, phase=1),
        cpu(read(0), write(0, 10), proc=1, phase=2),
        cpu(write(1, 20), actor=2, phase=2),
        cpu(read(0), phase=3),
        cpu(read(1), proc=1, actor=3, phase=3),
    ], file_pages=(2, 0, 0, 0))  # fmt: skip
    assert values(result, 3)[0] == 1
    assert values(result, 5) == [10 if shared else 1]
    assert values(result, 6) == [20 if shared else 2]


def test_spawn_shares_files_only(agent: Agent) -> None:
    result = run(agent, [
        mmap(1), mmap(1, MapKind.FILE_SHARED, region=1, b=2), cpu(write(0, 1), write(0, 5, 1)),
        Op(Spawn.number, arg=3, actor=1, phase=1),
        cpu(read(0), proc=3, phase=2),
        mmap(1, MapKind.FILE_SHARED, region=4, b=2, proc=3, phase=2),
        cpu(acc(Acc.ADD, 0, 1, region=4), proc=3, phase=3),
        cpu(read(0, 1), phase=4),
    ], file_pages=(0, 0, 1, 0))  # fmt: skip
    assert result.ops[4].acc[0][1] == Ast.SIGSEGV
    assert values(result, 6) == [5]
    assert values(result, 7) == [6]


def test_grandchildren_and_exit(agent: Agent, host_agent: HostAgent) -> None:
    result = run(agent, [
        mmap(1, MapKind.ANON_SHARED),
        Op(Fork.number, arg=1),
        Op(Fork.number, arg=2, proc=1, phase=1),
        Op(Exit.number, proc=1, phase=2),
        cpu(acc(Acc.ADD, 0, 1), proc=2, phase=3),
        Op(Fork.number, arg=3, proc=2, phase=4),
        cpu(acc(Acc.ADD, 0, 1), proc=3, phase=5),
        Op(Exit.number, phase=6),
        cpu(read(0), proc=3, phase=7),
        cpu(read(0), proc=1, phase=7),
    ])  # fmt: skip
    assert statuses(result) == [0] * 9 + [SKIPPED]
    assert values(result, 8) == [2]
    assert (result.died, result.timeout) == (0, False)
    assert host_agent.children() == []


def test_kill_a_child_and_a_parent(agent: Agent, host_agent: HostAgent) -> None:
    """The killed one may be in the middle of something; its finished results stay."""
    result = run(agent, [
        mmap(1, MapKind.ANON_SHARED),
        Op(Fork.number, arg=1, phase=1),
        cpu(write(0, 42), read(0), proc=1, actor=2, phase=2),
        Op(Sleep.number, a=30_000_000, proc=1, phase=3),
        Op(Sleep.number, a=20_000, phase=3),
        Op(Kill.number, arg=1, phase=3),
        cpu(read(0), phase=4),
        cpu(read(0), proc=1, phase=4),
        Op(Kill.number, arg=1, phase=5),
        Op(Spawn.number, arg=2, phase=6),
        Op(Kill.number, arg=0, proc=2, phase=7),
        Op(Nop.number, phase=8),
        Op(Nop.number, proc=2, phase=9),
    ])  # fmt: skip
    assert statuses(result) == [0, 0, 0, KILLED, 0, 0, 0, SKIPPED, -3, 0, 0, SKIPPED, 0]
    assert values(result, 2) == [0, 42]
    assert values(result, 6) == [42]
    assert (result.died, result.timeout) == (0, False)
    assert host_agent.children() == []


def test_kill_before_the_victim_makes_a_child(agent: Agent) -> None:
    """Operations of a process that will never be born are skipped, not waited for."""
    result = run(agent, [
        Op(Spawn.number, arg=1),
        Op(Kill.number, arg=1, phase=1),
        Op(Fork.number, arg=2, proc=1, phase=2),
        Op(Nop.number, proc=2, phase=3),
        Op(Fork.number, arg=3, proc=2, phase=3),
        Op(Nop.number, proc=3, phase=4),
        Op(Nop.number, phase=5),
    ])  # fmt: skip
    assert statuses(result) == [0, 0, SKIPPED, SKIPPED, SKIPPED, SKIPPED, 0]
    assert not result.timeout


def test_kill_racing_with_fork_and_work(agent: Agent, host_agent: HostAgent) -> None:
    """Wherever the kill strikes, the program ends and every operation has an answer."""
    for delay in range(40):
        result = run(agent, [
            mmap(1, MapKind.ANON_SHARED),
            Op(Spawn.number, arg=1),
            mmap(1, proc=1, phase=1),
            cpu(*[acc(Acc.ADD, 0, 1)] * 500, proc=1, phase=2),
            Op(Fork.number, arg=2, proc=1, phase=2),
            cpu(*[acc(Acc.ADD, 0, 1)] * 500, proc=1, actor=1, phase=2),
            Op(Sleep.number, a=delay * 15, phase=2),
            Op(Kill.number, arg=1, phase=2),
            Op(Nop.number, proc=2, phase=3),
            cpu(read(0), phase=4),
        ])  # fmt: skip
        status = statuses(result)
        assert not result.timeout, status
        assert result.died == 0
        assert status[:3] == [0, 0, 0]
        assert status[6:8] == [0, 0]
        assert status[9] == 0
        assert status[8] == (0 if status[4] == 0 else status[8])
        for op in (3, 5):
            done = [a[1] for a in result.ops[op].acc]
            assert done == sorted(done, reverse=True), "results after a gap"
            assert status[op] in (0, KILLED, SKIPPED)
            assert (status[op] == 0) <= all(done)
    assert host_agent.children() == []


def test_timeout_kills_everything_and_keeps_results(
    agent: Agent, host_agent: HostAgent
) -> None:
    start = time.monotonic()
    result = run(agent, [
        mmap(1), cpu(write(0, 3), read(0)),
        Op(Fork.number, arg=1), Op(Fork.number, arg=2, proc=1, phase=1),
        Op(Sleep.number, a=60_000_000, proc=2, phase=2),
        Op(Nop.number, phase=3),
    ], timeout_ms=300)  # fmt: skip
    assert time.monotonic() - start < 10
    assert result.timeout == p.TIMEOUT_STILL
    assert statuses(result) == [0, 0, 0, 0, KILLED, SKIPPED]
    assert values(result, 1) == [0, 3]
    assert result.died == 0
    assert host_agent.children() == []
    assert statuses(run(agent, [Op(Nop.number)])) == [0]
    for limit in (0, 2**32 - 1):  # the default; and more than any clock can count
        assert not run(agent, [Op(Nop.number)], timeout_ms=limit).timeout


def test_what_is_only_slow_is_waited_for(agent: Agent) -> None:
    """Operations end one after the other, so work is done; but not for ever."""
    def slow(count: int, us: int) -> Result:
        return run(agent, [Op(Sleep.number, a=us, phase=n) for n in range(count)], timeout_ms=1000)

    result = slow(30, 40_000)
    assert result.elapsed_ns > 1.2e9
    assert (result.timeout, statuses(result)) == (0, [0] * 30)
    result = slow(300, 40_000)
    assert result.timeout == p.TIMEOUT_BUSY
    assert 6e9 <= result.elapsed_ns < 11e9
    assert 15 < statuses(result).count(0) < 300
    # It worked for a while, and then no more.
    stuck = [Op(Sleep.number, a=50_000, phase=n) for n in range(10)]
    stuck.append(Op(Sleep.number, a=60_000_000, phase=10))
    result = run(agent, stuck, timeout_ms=1000)
    assert result.timeout == p.TIMEOUT_STILL
    assert result.elapsed_ns < 2.5e9


def test_death_that_nobody_asked_for_is_reported(agent: Agent, host_agent: HostAgent) -> None:
    program = Program(
        [Op(Spawn.number, arg=1), Op(Sleep.number, a=60_000_000, proc=1, phase=1)], settle_ms=0
    )
    agent._channel._sock.sendall(  # the answer is read below
        struct.pack("<IHHII", 0x424D4D48, 2, 1, len(program.encode()), 0) + program.encode()
    )
    agent._channel._id = 1
    end = time.monotonic() + 10
    while len(children := host_agent.children()) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.05)
    os.kill(max(children), signal.SIGABRT)
    _, _, body = agent._channel._receive(time.monotonic() + 10, 0)
    result = Result.decode(body, program)
    assert (result.died, result.died_signal) == (2, signal.SIGABRT)
    assert statuses(result) == [0, KILLED]


def test_no_gpu_is_an_error_of_the_operation(agent: Agent) -> None:
    if Path("/dev/dri").exists():
        pytest.skip("this host has render nodes")
    result = run(agent, [
        mmap(1), Op(GpuAccess.number, acc=[(0, 0, 3, 0, 0, 0)]),
        Op(Migrate.number, len=p.PAGE, arg=1), Op(CloseGpu.number), Op(WaitGpu.number),
    ])  # fmt: skip
    enodev = -19
    assert statuses(result) == [0, enodev, enodev, 0, 0]
    assert result.ops[1].acc[0][1] == Ast.NOT_DONE


def test_query_data_and_counters_are_empty_without_driver(agent: Agent) -> None:
    result = run(agent, [Op(Nop.number)], flags=p.PF_COUNTERS, settle_ms=50)
    assert (result.counters_before, result.counters_after, result.live_nonzero) == ("", "", False)


def test_counters_that_are_gone_are_no_zeros(agent: Agent, host_agent: HostAgent) -> None:
    """Who waits for leaks to go away sees none where nothing can be read."""
    folder = host_agent.dri / "0"
    folder.mkdir(parents=True)
    for name in ("evict", "counters"):
        (folder / name).write_text("live_pages 0\n")
    assert leaks.check(run(agent, [Op(Nop.number)], settle_ms=50)) is None
    (folder / "counters").unlink()
    found = leaks.check(run(agent, [Op(Nop.number)], settle_ms=50))
    assert found is not None
    assert "cannot be read" in found.message


# ---- examples ----


def test_an_example_is_a_program_and_more(agent: Agent, host_agent: HostAgent) -> None:
    """No driver is here, so that nothing surrounds it; no machine either, so that none stands."""
    program = Program([mmap(1), cpu(write(0, 5), read(0))], settle_ms=0)

    def run_example(**fields: Any) -> example.Answer:
        body = agent.example(example.Example(program, **fields).encode(), timeout=60)
        return example.Answer.decode(body, program)

    answer = run_example(points=True, stand=True)
    assert values(answer.result, 1) == [0, 5]
    assert (answer.counters, answer.points, answer.mark) == ("", "", 0)
    host_agent.kernel_log.write_text("4,2,200,-;BUG: Bad page state\n")
    assert run_example().mark == 1
    assert run_example().mark == 0
    assert agent.printed() == 0
    with pytest.raises(AgentError, match="EXAMPLE: delays: No such device"):
        run_example(delays="clear\n")
    with pytest.raises(AgentError, match="EXAMPLE: vram_limit: No such device"):
        run_example(vram=5)


def test_bad_examples_are_refused_with_a_reason(agent: Agent) -> None:
    program = Program([Op(Nop.number)], settle_ms=0)
    good = example.Example(program).encode()

    def refused_example(data: bytes) -> str:
        with pytest.raises(AgentError) as error:
            agent.example(data, timeout=10)
        return str(error.value)

    assert "EXAMPLE: too short" in refused_example(good[:31])
    assert "bytes for 0 of delays" in refused_example(good + b"x")
    assert "bytes for 4294967295 of delays" in refused_example(
        good[:4] + struct.pack("<I", 0xFFFFFFFF) + good[8:]
    )
    assert "EXAMPLE: protocol version 9" in refused_example(good[:32] + b"\x09" + good[33:])
    agent.example(good, timeout=10)


# ---- bad programs ----


def raw_program(agent: Agent, data: bytes) -> str:
    with pytest.raises(AgentError) as error:
        agent.program(data, timeout=10)
    return str(error.value)


def refused(agent: Agent, ops: list[Op], **fields: Any) -> str:
    return raw_program(agent, Program(ops, **fields).encode())


def test_bad_programs_are_refused_with_a_reason(agent: Agent) -> None:
    nop = Op(Nop.number)
    good = Program([nop]).encode()
    assert "too short" in raw_program(agent, good[:63])
    assert "bytes for" in raw_program(agent, good + b"x")
    assert "protocol version 9" in raw_program(agent, b"\x09" + good[1:])
    assert "operations" in raw_program(
        agent, good[:4] + struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF) + good[12:]
    )
    for ops, reason in [
        ([Op(200)], "code 200 is unknown"),
        ([Op(0, proc=4)], "process 4"),
        ([Op(0, actor=4)], "actor 4"),
        ([Op(0, region=16)], "region 16"),
        ([Op(0, phase=1), nop], "phase 0 after 1"),
        ([Op(Fork.number, actor=1, arg=1)], "only actor 0"),
        ([Op(Exit.number, actor=1)], "only actor 0"),
        ([Op(Fork.number, arg=4)], "process 4"),
        ([Op(Fork.number, arg=0)], "process 0"),
        ([Op(Kill.number, arg=0)], "process 0"),
        ([Op(Fork.number, arg=1), Op(Spawn.number, arg=1)], "there already"),
        ([Op(0, proc=1)], "not there yet"),
        ([cpu((9, 0, 0, 0, 0, 0))], "kind 9"),
        ([cpu((0, 16, 0, 0, 0, 0))], "region 16"),
        ([cpu((0, 0, 0, 4, 0, 0))], "offset 0x4"),
        ([cpu((5, 0, 0, 2, 0, 0))], "offset 0x2"),
        ([cpu((0, 0, 0, p.REGION_SIZE, 0, 0))], "offset"),
        ([cpu((0, 0, 0x10000, 0, 0, 0))], "lane 65536"),
        ([mmap(1, MapKind.STACK), mmap(1)], "region 0"),
        ([mmap(1, MapKind.STACK), cpu(read(32))], "offset"),
    ]:
        assert reason in refused(agent, ops)
    assert "larger than a region" in refused(agent, [nop], file_pages=(0, 0x10000000, 0, 0))
    two = bytearray(Program([cpu(read(0)), cpu()]).encode())
    struct.pack_into("<II", two, 64 + 64 + 12, 0, 1)
    assert "used by two" in raw_program(agent, bytes(two))
    struct.pack_into("<II", two, 64 + 64 + 12, 1, 1)
    assert "beyond the table" in raw_program(agent, bytes(two))
    assert statuses(run(agent, [nop])) == [0]


def test_many_programs_leave_nothing(agent: Agent, host_agent: HostAgent) -> None:
    fds = Path(f"/proc/{host_agent.process.pid}/fd")
    assert statuses(run(agent, [Op(Nop.number)])) == [0]
    before = sorted(fds.iterdir())
    for _ in range(200):
        result = run(agent, [mmap(1), Op(Fork.number, arg=1), cpu(write(0, 1), proc=1, phase=1)],
                     file_pages=(1, 1, 0, 0))  # fmt: skip
        assert statuses(result) == [0, 0, 0]
    assert sorted(fds.iterdir()) == before
    assert host_agent.children() == []


def test_connection_lost_during_a_program(host_agent: HostAgent) -> None:
    sock = host_agent.raw()
    program = Program([Op(Sleep.number, a=200_000)], settle_ms=0).encode()
    sock.sendall(struct.pack("<IHHII", 0x424D4D48, 2, 1, len(program), 0) + program)
    sock.close()
    assert statuses(run(host_agent.connect(), [Op(Nop.number)])) == [0]


def test_a_program_that_runs_again(agent: Agent) -> None:
    """What is answered is of the first run, and behind the counters stands what was counted."""
    ops = [
        mmap(4), Op(CpuAccess.number, phase=1, acc=[acc(Acc.ADD, n, n + 1) for n in range(4)]),
        Op(CpuAccess.number, phase=2, acc=[acc(Acc.READ, n) for n in range(4)]),
    ]  # fmt: skip
    result = run(agent, ops, again=3)
    assert [r.status for r in result.ops] == [0, 0, 0]
    assert [value for value, _, _ in result.ops[2].acc] == [1, 2, 3, 4]
    assert result.strays == 0
    assert not result.timeout | result.died
    # More of them where this host's memory grew meanwhile, which is nobody's leak.
    assert 3 <= growth.looked(result) <= growth.LOOKS
    assert all(len(seen) >= 3 for seen in growth.series(result).values())
    assert "looks" not in run(agent, ops).counters_after
