# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent and its mailbox, on the host: each stand, each request, and what may be wrong."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from host_mailbox import HostMailbox
from test_agent_fuzz import random_program

from hmmbench.guest import example
from hmmbench.guest import program as p
from hmmbench.guest.example import Answer, Example
from hmmbench.guest.program import Acc, Access, Op, Program, Result
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.processes import Exit, Fork, Kill, Nop, Sleep, Spawn
from hmmbench.vm.agent import AgentError, answered
from hmmbench.vm.channel import ProtocolError, protocol
from hmmbench.vm.mailbox import Mailbox, layout

HM = layout()
PROTO = protocol()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path("/tmp") / f"hmmbench-test-{os.getpid()}-{time.monotonic_ns() % 10**9}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def box(built: Path, folder: Path) -> Iterator[HostMailbox]:
    """An agent that stands because it is ready."""
    agent = HostMailbox(built / "agent", folder)
    try:
        assert agent.wait() == HM.HM_STAND_READY
        yield agent
    finally:
        agent.stop()


def poke(box: HostMailbox, offset: int, data: bytes) -> None:
    """Write into the memory past Mailbox's back."""
    with mmap.mmap(box.mailbox.fd, box.mailbox.size) as memory:
        memory[offset : offset + len(data)] = data


def test_requests_and_answers(box: HostMailbox, tmp_path: Path) -> None:
    hello = box.agent.hello()
    assert dict(hello["sizes"]) == {"header": 16, **p.STRUCT_SIZES, **example.STRUCT_SIZES}
    assert box.agent.execute("echo out; exit 7").output == "out\n"
    content = bytes(range(256)) * 10000
    box.agent.write_file(str(tmp_path / "f"), content)
    assert (tmp_path / "f").read_bytes() == content
    assert box.agent.read_file(str(tmp_path / "f")) == content
    with pytest.raises(AgentError, match="No such file"):
        box.agent.read_file(str(tmp_path / "none"))
    pid = box.agent.open("while read -r line; do :; done")
    box.agent.kill(pid)
    assert box.children() == []


def test_one_stand_a_request_and_none_is_counted_twice(box: HostMailbox) -> None:
    stands = box.mailbox.stands
    assert stands == 1
    for n in range(1, 20):
        box.ask(PROTO.HB_MSG_HELLO)
        assert box.mailbox.stands == stands + n


def test_let_go_without_a_request_it_stands_again(box: HostMailbox) -> None:
    for _ in range(3):
        assert box.go() == HM.HM_STAND_READY
    with pytest.raises(ProtocolError, match="nothing was asked"):
        box.mailbox.take()
    box.ask(PROTO.HB_MSG_HELLO)
    answer = box.mailbox.take()
    assert box.go() == HM.HM_STAND_READY
    assert box.mailbox.take() == answer


def test_a_program_runs(box: HostMailbox) -> None:
    accesses: list[Access] = [(Acc.WRITE, 0, 0, 0, 77, 0), (Acc.READ, 0, 0, 0, 0, 0)]
    ops = [Op(Mmap.number, len=p.PAGE, a=p.PROT_RW), Op(CpuAccess.number, acc=accesses)]
    program = Program(ops, settle_ms=0)
    result = Result.decode(box.agent.program(program.encode(), timeout=60), program)
    assert [a[0] for a in result.ops[1].acc] == [0, 77]


def test_the_largest_payload_fits_both_ways(box: HostMailbox, tmp_path: Path) -> None:
    path = str(tmp_path / "f").encode()
    content = os.urandom(PROTO.HB_MAX_PAYLOAD - 8 - len(path))
    head = struct.pack("<II", 0o600, len(path)) + path
    assert box.ask(PROTO.HB_MSG_WRITE_FILE, head + content)[0] != PROTO.HB_MSG_ERROR
    with (tmp_path / "f").open("ab") as file:
        file.write(b"x" * (PROTO.HB_MAX_PAYLOAD - len(content)))
    assert box.ask(PROTO.HB_MSG_READ_FILE, path) == (
        PROTO.HB_MSG_READ_FILE | PROTO.HB_MSG_REPLY, (tmp_path / "f").read_bytes()
    )  # fmt: skip
    with pytest.raises(ValueError, match="longer than HB_MAX_PAYLOAD"):
        box.mailbox.post(PROTO.HB_MSG_READ_FILE, bytes(PROTO.HB_MAX_PAYLOAD + 1))


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [(0, 1, "magic 0x1"), (8, 5, "payload of 5"), (8, 0xFFFFFFF0, "payload of 4294967280")],
)
def test_a_request_that_is_no_frame(box: HostMailbox, offset: int, value: int, reason: str) -> None:
    box.mailbox.post(PROTO.HB_MSG_HELLO)
    poke(box, HM.HM_FRAME + offset, struct.pack("<I", value))
    assert box.go() == HM.HM_STAND_ANSWER
    kind, _, body = box.mailbox.take()
    assert kind == PROTO.HB_MSG_ERROR
    assert reason in body.decode()
    assert box.agent.hello()["agent"] == "hmmbench"


def test_a_length_beyond_the_memory(box: HostMailbox) -> None:
    box.mailbox.post(PROTO.HB_MSG_HELLO)
    poke(box, 12, struct.pack("<I", HM.HM_SIZE))
    assert box.go() == HM.HM_STAND_ANSWER
    assert box.mailbox.take()[0] == PROTO.HB_MSG_ERROR
    assert box.agent.hello()["agent"] == "hmmbench"


def test_the_answer_of_an_agent_that_died(box: HostMailbox) -> None:
    box.ask(PROTO.HB_MSG_HELLO)
    box.mailbox.post(PROTO.HB_MSG_HELLO)
    box.process.kill()
    box.process.wait()
    box.start()
    # What the first was asked is not done by the second.
    assert box.wait() == HM.HM_STAND_READY
    with pytest.raises(ProtocolError, match=r"has not answered request 2.*ready") as error:
        box.mailbox.take()
    assert "another one is there now" in str(error.value)
    assert box.agent.hello()["agent"] == "hmmbench"


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (0, 1, "magic 0x1"),
        (4, 9, "version 9"),
        (16, 7, "has not answered request 1"),
        (20, 15, "answer of 15 bytes"),
        (20, HM.HM_SIZE, "answer of"),
        (20, 100, "no frame"),
        (HM.HM_FRAME, 3, "no frame in the mailbox: magic 0x3"),
        (HM.HM_FRAME + 4, 0x00090101, "an answer to request 9, not 1"),
    ],
)
def test_a_wrong_answer_is_seen(box: HostMailbox, offset: int, value: int, reason: str) -> None:
    box.ask(PROTO.HB_MSG_HELLO)
    poke(box, offset, struct.pack("<I", value))
    with pytest.raises(ProtocolError, match=reason):
        box.mailbox.take()


@pytest.mark.parametrize(
    ("registers", "reason"),
    [({"id": 7}, "no mailbox"), ({"version": HM.HM_VERSION + 1}, "no mailbox"),
     ({"size": 4096}, "too few")],
)  # fmt: skip
def test_a_device_that_is_none(
    built: Path, folder: Path, registers: dict[str, int], reason: str
) -> None:
    box = HostMailbox(built / "agent", folder, **registers)
    try:
        assert box.process.wait(30) == 3
        assert reason in box.log.read_text()
    finally:
        box.stop()


def test_memory_that_the_host_did_not_prepare(built: Path, folder: Path) -> None:
    box = HostMailbox(built / "agent", folder)
    try:
        assert box.wait() == HM.HM_STAND_READY
        poke(box, 0, b"\0")
        done = subprocess.run(
            [str(built / "agent"), str(box.device)], capture_output=True, text=True, timeout=30,
            check=False,
        )  # fmt: skip
        assert done.returncode == 3
        assert "the host made no mailbox" in done.stderr
    finally:
        box.stop()


# ---- examples: the stand within ----


def begin(box: HostMailbox, ops: list[Op], **fields: Any) -> tuple[Program, int]:
    """Post an example that stands when it has ended; why it stands then."""
    program = Program(ops, **({"settle_ms": 0} | fields))
    box.mailbox.post(PROTO.HB_MSG_EXAMPLE, Example(program, stand=True).encode())
    return program, box.go()


def finish(box: HostMailbox, program: Program) -> Result:
    assert box.go() == HM.HM_STAND_ANSWER
    kind, _, body = box.mailbox.take()
    assert box.children() == []
    assert box.mailbox.under_way == 0
    assert box.mailbox.phase is None
    return Answer.decode(answered(PROTO.HB_MSG_EXAMPLE, kind, body), program).result


def peek(pid: int, address: int) -> int:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return int.from_bytes(memory.read(8), "little")


def write_op(value: int, **fields: Any) -> Op:
    return Op(CpuAccess.number, acc=[(Acc.WRITE, 0, 0, 0, value, 0)], **fields)


MAP = Op(Mmap.number, len=p.PAGE, a=p.PROT_RW)


def test_what_surrounds_a_program_is_no_phase_of_it(box: HostMailbox) -> None:
    """Before it, when it is refused, and when it has ended: also at its time limit."""
    assert box.mailbox.phase is None
    for last in (0, 3):
        program, why = begin(box, [MAP, replace(write_op(5), phase=last)])
        assert (why, box.mailbox.phase) == (HM.HM_STAND_ENDED, last + 1)
        finish(box, program)
    late = [MAP, Op(Sleep.number, a=60_000_000, phase=2)]
    program, _ = begin(box, late, timeout_ms=300)
    assert (box.mailbox.phase, box.mailbox.under_way) == (2, 1)
    finish(box, program)
    files = Program(late, file_pages=(1 << 30, 0, 0, 0))
    assert box.ask(PROTO.HB_MSG_PROGRAM, files.encode())[0] == PROTO.HB_MSG_ERROR
    assert box.mailbox.phase is None


def test_at_the_first_stand_all_has_ended_and_all_live(box: HostMailbox) -> None:
    program, why = begin(box, [
        MAP, Op(Fork.number, arg=1, phase=1), Op(Spawn.number, arg=2, phase=1, actor=1),
        write_op(11, phase=2), write_op(12, proc=1, phase=2),
        Op(Nop.number, actor=2, phase=2), Op(Sleep.number, a=50_000, proc=1, actor=3, phase=3),
    ])  # fmt: skip
    assert why == HM.HM_STAND_ENDED
    pids = box.living()
    assert len(pids) == 3
    seen = []
    for pid in pids:
        with contextlib.suppress(OSError):
            seen.append(peek(pid, p.REGION_BASE))
    assert sorted(seen) == [11, 12]
    # Each thread that did something is there: 0, 1 and 2 of the first, 0 and 3 of the second.
    threads = sorted(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids)
    assert threads == [1, 2, 3]
    result = finish(box, program)
    assert [o.status for o in result.ops] == [0] * 7
    assert (result.died, result.timeout) == (0, 0)
    assert box.living() == []


def test_who_was_to_end_has_ended(box: HostMailbox) -> None:
    program, why = begin(box, [
        Op(Spawn.number, arg=1), Op(Spawn.number, arg=2), Op(Spawn.number, arg=3),
        Op(Exit.number, proc=1, phase=1), Op(Kill.number, arg=2, phase=1), Op(Nop.number, phase=2),
    ])  # fmt: skip
    assert why == HM.HM_STAND_ENDED
    assert len(box.living()) == 2
    result = finish(box, program)
    assert [o.status for o in result.ops] == [0] * 6
    assert result.died == 0


def test_who_outlives_the_first_is_waited_for(box: HostMailbox) -> None:
    program, why = begin(box, [
        Op(Spawn.number, arg=1), Op(Exit.number, phase=1),
        replace(MAP, proc=1, phase=2), Op(Sleep.number, a=500_000, proc=1, phase=2),
        write_op(6, proc=1, phase=3),
    ])  # fmt: skip
    assert why == HM.HM_STAND_ENDED
    (pid,) = box.living()
    assert box.mailbox.under_way == 0
    assert peek(pid, p.REGION_BASE) == 6
    assert [o.status for o in finish(box, program).ops] == [0] * 5


def test_when_nobody_is_left_it_stands_too(box: HostMailbox) -> None:
    program, why = begin(box, [Op(Exit.number)])
    assert why == HM.HM_STAND_ENDED
    assert box.living() == []
    assert [o.status for o in finish(box, program).ops] == [0]


def test_at_the_time_limit_it_stands_before_anybody_is_killed(box: HostMailbox) -> None:
    program, why = begin(box, [
        MAP, Op(Spawn.number, arg=1), write_op(5, phase=1),
        Op(Sleep.number, a=60_000_000, proc=1, phase=2), Op(Nop.number, phase=3),
    ], timeout_ms=300)  # fmt: skip
    assert why == HM.HM_STAND_ENDED
    pids = box.living()
    assert len(pids) == 2
    assert box.mailbox.under_way == 1
    assert peek(pids[0], p.REGION_BASE) == 5
    result = finish(box, program)
    assert result.timeout == p.TIMEOUT_STILL
    assert [o.status for o in result.ops] == [0, 0, 0, p.RES_KILLED, p.RES_SKIPPED]


def test_a_death_that_nobody_asked_for_does_not_hold_the_others(box: HostMailbox) -> None:
    program = Program([Op(Spawn.number, arg=1),
                       Op(Sleep.number, a=60_000_000, proc=1, phase=1)], settle_ms=0)  # fmt: skip
    box.mailbox.post(PROTO.HB_MSG_EXAMPLE, Example(program, stand=True).encode())
    box.process.send_signal(signal.SIGCONT)
    end = time.monotonic() + 10
    while len(pids := box.living()) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.05)
    os.kill(max(pids), signal.SIGABRT)
    assert box.wait() == HM.HM_STAND_ENDED
    assert len(box.living()) == 1
    result = finish(box, program)
    assert (result.died, result.died_signal) == (2, signal.SIGABRT)


@pytest.mark.parametrize("seed", range(3))
def test_random_programs_stand_once_and_once_more(box: HostMailbox, seed: int) -> None:
    """Who is born, dies or is killed whenever: the first stand comes, then the answer."""
    rng = random.Random(seed)
    ran = 0
    for _ in range(40):
        program = random_program(rng)
        box.mailbox.post(PROTO.HB_MSG_EXAMPLE, Example(program, stand=True).encode())
        if box.go() == HM.HM_STAND_ENDED:
            result = finish(box, program)
            assert result.died == 0, f"{program} died of {result.died_signal}"
            ran += 1
        else:
            assert box.mailbox.take()[0] == PROTO.HB_MSG_ERROR
        assert box.living() == []
    assert 5 < ran < 40


def test_without_the_flag_and_when_refused_it_stands_once(box: HostMailbox) -> None:
    program = Program([MAP], settle_ms=0)
    stands = box.mailbox.stands
    box.ask(PROTO.HB_MSG_EXAMPLE, Example(program).encode())
    kind, _ = box.ask(PROTO.HB_MSG_EXAMPLE, Example(program, delays="x", stand=True).encode())
    assert kind == PROTO.HB_MSG_ERROR
    assert box.mailbox.stands == stands + 2


def test_a_request_that_passes_over_the_stand(box: HostMailbox) -> None:
    program = Program([MAP], settle_ms=0)
    for _ in range(50):
        body = box.agent.example(Example(program, stand=True).encode(), timeout=30)
        assert Answer.decode(body, program).result.ops[0].status == 0
    assert box.mailbox.stands == 101


def test_ids_are_never_0_and_follow_the_number() -> None:
    box = Mailbox()
    try:
        seen = [box.post(PROTO.HB_MSG_HELLO) for _ in range(0x10001)]
        assert seen[0] == 1
        assert seen[0xFFFE:0x10001] == [0xFFFF, 1, 2]
        assert 0 not in seen
    finally:
        box.close()
        box.close()
