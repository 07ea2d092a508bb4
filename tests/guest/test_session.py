# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions on the host, without a GPU: the agent's OPEN and PIPE, and the session's program."""

from __future__ import annotations

import os
import re
import signal
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from c_layout import Layout
from host_agent import HostAgent

from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.device import cheader
from hmmbench.gpu import build, session
from hmmbench.gpu import process as gp
from hmmbench.gpu.errors import CompileError, SessionError
from hmmbench.gpu.process import Process, numbers
from hmmbench.vm.agent import Agent, AgentError
from hmmbench.vm.channel import protocol

HOST = r"""
#include <stdio.h>
#include <stdlib.h>
#include "hmm_host.h"
struct args { uint32_t *x; uint64_t n; double factor; int64_t minus; };
HMM_HOST(scale, struct args)
{
    printf("this is not a frame\n");
    for (uint64_t i = 0; i < args->n; i++)
        args->x[i] = (uint32_t)(args->x[i] * args->factor);
    return args->minus;
}
HMM_HOST(fall, struct args)
{
    fprintf(stderr, "about to fall\n");
    *(volatile int *)args->n = 1;
    return 0;
}
HMM_HOST(leave, struct args)
{
    exit((int)args->n);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    source = tmp_path_factory.mktemp("session") / "host.c"
    source.write_text(HOST)
    return build.program(source)


def gone(host_agent: HostAgent) -> None:
    """No process is left, and after the next request not even a dead one."""
    end = time.monotonic() + 10
    while host_agent.children() and time.monotonic() < end:
        time.sleep(0.01)
    assert host_agent.children() == []


# ---- OPEN and PIPE ----


def frame(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def test_frames_go_both_ways(agent: Agent, host_agent: HostAgent) -> None:
    pid = agent.open("exec cat")
    assert agent.pipe(pid, frame(b"hello")) == b"hello"
    assert agent.pipe(pid, frame(b"")) == b""
    # More than the pipes hold: only a program that reads all before it answers can do this.
    other = agent.open("dd bs=4000004 count=1 iflag=fullblock 2>/dev/null")
    assert agent.pipe(other, frame(bytes(4_000_000))) == bytes(4_000_000)
    assert agent.pipe(pid, frame(b"still here")) == b"still here"
    agent.kill(pid)
    agent.kill(other)
    agent.execute("true")
    gone(host_agent)


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("read x; echo some words >&2; exit 7", "ended with exit status 7: some words"),
        ("read x; kill -SEGV $$", r"was ended by signal 11"),
        ("read x; exec >&-; sleep 60", "closed its output"),
        ("read x; yes words | head -n 9999 >&2; echo last >&2; exit 1",
         r"exit status 1: [\s\S]{350,400}last$"),
    ],
)
def test_a_program_that_ends_says_why(
    agent: Agent, host_agent: HostAgent, command: str, how: str
) -> None:
    pid = agent.open(command)
    for _ in range(2):
        with pytest.raises(AgentError, match=how):
            agent.pipe(pid, b"go\n")
    agent.kill(pid)
    with pytest.raises(AgentError, match="not made by OPEN"):
        agent.pipe(pid, b"")
    gone(host_agent)


def test_ended_between_two_requests(agent: Agent, host_agent: HostAgent) -> None:
    pid = agent.open("exit 5")
    while agent.execute(f"kill -0 {pid}").status == 0:
        pass
    with pytest.raises(AgentError, match="ended with exit status 5"):
        agent.pipe(pid, b"x")
    agent.kill(pid)
    with pytest.raises(AgentError, match="killed already"):
        agent.kill(pid)
    gone(host_agent)


def test_a_silent_program_is_given_up(agent: Agent) -> None:
    pid = agent.open("exec sleep 60")
    with pytest.raises(AgentError, match="did not answer in 100 ms"):
        agent.pipe(pid, b"x", timeout=0.1)
    agent.kill(pid, signal.SIGKILL)


def test_another_request_ends_the_waiting(agent: Agent, host_agent: HostAgent) -> None:
    """As after Ctrl-C: the session can be ended at once, and its late answer is nobody's."""
    pid = agent.open("exec sleep 60")
    payload = struct.pack("<II", pid, 60_000)
    agent._channel.post(protocol().HB_MSG_PIPE, payload)
    agent.kill(pid, timeout=20)
    assert agent.execute("echo next").output == "next\n"
    gone(host_agent)


def test_bad_frames_and_requests(agent: Agent) -> None:
    pid = agent.open("exec cat")
    with pytest.raises(AgentError, match="a frame of 4294967295 bytes"):
        agent.pipe(pid, b"\xff\xff\xff\xff")
    agent.kill(pid)
    for pid in (0, 1, os.getpid()):
        with pytest.raises(AgentError, match="not made by OPEN"):
            agent.pipe(pid, b"x")
    started = agent.start("sleep 60")
    with pytest.raises(AgentError, match="not made by OPEN"):
        agent.pipe(started, b"x")
    agent.kill(started)


def test_many_are_refused_and_room_comes_back(agent: Agent, host_agent: HostAgent) -> None:
    agent.execute("true")
    files = len(os.listdir(f"/proc/{host_agent.process.pid}/fd"))  # noqa: PTH208
    pids = [agent.open("exec cat") for _ in range(16)]
    with pytest.raises(AgentError, match="too many"):
        agent.open("exec cat")
    for pid in pids:
        agent.kill(pid)
    assert len(os.listdir(f"/proc/{host_agent.process.pid}/fd")) == files  # noqa: PTH208
    pid = agent.open("exec cat")
    assert agent.pipe(pid, frame(b"x")) == b"x"
    agent.kill(pid)


# ---- the session ----


def test_structs_are_those_of_the_header() -> None:
    """And the order of their fields is that in which they are packed and unpacked."""
    header = paths.user_sources() / "session" / "session.h"
    told = {
        "hs_alloc": (gp._ALLOC, "kind pad size addr"),
        "hs_launch": (gp._LAUNCH, "kernel name_len grid block shared_size local_size budget pad"),
        "hs_migrate": (gp._MIGRATE, "addr len to_device map"),
        "hs_result": (gp._RESULT, "error line block thread addr pc instrs printed"),
    }
    assert set(re.findall(r"^struct (hs_\w+) \{", header.read_text(), re.MULTILINE)) == set(told)
    for name, (packed, names) in told.items():
        layout = Layout(name, header)
        assert (packed.format, names.split()) == (layout.form.format, layout.names)
    assert isinstance(numbers(), cheader.Header)
    assert all(f"HS_MEM_{m.upper()}" in numbers() for m in session.MEMORY)


@pytest.mark.parametrize("kind", ["MALLOC", "ANON", "SHARED", "FILE", "STACK", "GLOBAL"])
def test_memory(agent: Agent, program: bytes, tmp_path: Path, kind: str) -> None:
    number = numbers()[f"HS_MEM_{kind}"]
    file = tmp_path / "file"
    data = np.random.default_rng(1).bytes(100_000)
    with Process(agent, program) as p:
        at = p.allocate(number, len(data), str(file) if kind == "FILE" else "")
        p.write(at, data)
        assert p.read(at, len(data)) == data
        assert p.read(at + 99_999, 1) == data[-1:]
        p.write(at + 5, b"between")
        assert p.read(at + 4, 9) == data[4:5] + b"between" + data[12:13]
        if kind == "FILE":
            assert file.read_bytes()[5:12] == b"between"
        p.free(number, len(data), at)


def test_functions_of_the_host_file(agent: Agent, program: bytes) -> None:
    with Process(agent, program) as p:
        at = p.allocate(numbers().HS_MEM_MALLOC, 400)
        p.write(at, np.arange(100, dtype=np.uint32).tobytes())
        assert p.call("scale", struct.pack("<QQdq", at, 100, 2.5, -7)) == -7
        got = np.frombuffer(p.read(at, 400), np.uint32)
        assert (got == (np.arange(100) * 2.5).astype(np.uint32)).all()
        with pytest.raises(SessionError, match="no function other"):
            p.call("other", b"")
        assert p.call("scale", struct.pack("<QQdq", at, 0, 0.0, 1)) == 1


def test_a_session_that_ends(agent: Agent, host_agent: HostAgent, program: bytes) -> None:
    with (
        Process(agent, program) as p,
        pytest.raises(SessionError, match=r"signal 11 .*about to fall"),
    ):
        p.call("fall", struct.pack("<QQ", 0, 16))
    with Process(agent, program) as p:
        with pytest.raises(SessionError, match="exit status 9"):
            p.call("leave", struct.pack("<QQ", 0, 9))
        with pytest.raises(SessionError, match="is closed"):
            p.read(0, 1)
    for act in (lambda p: p.write(16, b"x"), lambda p: p.read(16, 1)):
        with Process(agent, program) as p, pytest.raises(SessionError, match="0x10: Bad address"):
            act(p)
    with Process(agent, program) as p, pytest.raises(SessionError, match="request 99 of 0 bytes"):
        p._ask(99, b"")
    agent.execute("true")
    gone(host_agent)
    assert agent.check("ls /tmp | grep -c '^hmmbench-session'; true") == "0\n"


def test_without_a_gpu_it_says_so(agent: Agent, program: bytes, tmp_path: Path) -> None:
    source = tmp_path / "k.c"
    source.write_text(
        '#include "hmm_gpu_kernel.h"\nstruct args { int x; };\nuint64_t counter = 41;\n'
        "HMM_KERNEL(nothing, struct args) { (void)args; counter++; }\n"
    )
    with Process(agent, program) as p:
        k = p.load(build.kernels(source))
        assert p.symbol(k, "nothing") % 2 == 0
        assert struct.unpack("<Q", p.read(p.symbol(k, "counter"), 8)) == (41,)
        with pytest.raises(SessionError, match="no kernel or variable something"):
            p.symbol(k, "something")
        with pytest.raises(SessionError, match="opening the GPU: "):
            p.launch(k, "nothing", 1, 1, b"")
        with pytest.raises(SessionError, match="loading kernels"):
            p.load(b"no ELF file")
        with pytest.raises(SessionError, match=r"allocating .*: Cannot allocate"):
            p.allocate(numbers().HS_MEM_STACK, 1 << 40)


def test_the_compilers_words(tmp_path: Path) -> None:
    file = tmp_path / "wrong.c"
    file.write_text("int f(void) { int unused; }\n")
    for compile_ in (build.kernels, build.program):
        with pytest.raises(CompileError, match=r"wrong\.c:1"):
            compile_(file)
        with pytest.raises(CompileError, match="is not a file"):
            compile_(tmp_path / "absent.c")


def test_arguments() -> None:
    array = session.Array(None, 0x7F0000001000, (3,), np.int8)  # type: ignore[arg-type]
    packed = session.pack([array, -1, (1 << 64) - 1, np.uint8(7), 0.5, np.float32(0.25), True])
    assert struct.unpack("<QqQQddQ", packed) == (
        0x7F0000001000, -1, (1 << 64) - 1, 7, 0.5, 0.25, 1
    )  # fmt: skip
    for wrong, said in ((1 << 64, "64 bits"), ("text", "a str"), (np.zeros(3), "ndarray")):
        with pytest.raises(UsageError, match=said):
            session.pack([wrong])
    with pytest.raises(UsageError, match="more than 64"):
        session.pack([0] * 65)
