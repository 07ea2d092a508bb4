# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults from outside: what is killed while it works leaves nothing, and says what happened."""

from __future__ import annotations

import contextlib
import random
import signal
import struct
import threading
import time

import pytest
import work
from work import live

from hmmbench.guest import splat
from hmmbench.guest.program import Result
from hmmbench.vm.channel import ProtocolError, protocol
from hmmbench.vm.errors import AgentTimeout, VmDied
from hmmbench.vm.machine import Machine

KILLS = 200

# Kills the processes of the agent's program: its children of its own name (shells have another)
# that were started after this shell. Builtins only: what is to be met lives for a moment.
KILLER = """
sleep {delay:.4f}
i=$$
while [ $i -lt $(($$ + 40)) ]; do
  i=$((i + 1))
  [ -e /proc/$i/stat ] && read -r pid comm state parent rest </proc/$i/stat &&
    [ "$comm" = "(agent)" ] && [ $parent = {agent} ] && kill -9 $i
done 2>/dev/null
"""


def agent_pid(machine: Machine, timeout: float = 30.0) -> int:
    """The agent itself: what the command of an EXEC has as parent."""
    request = struct.pack("<I", int(timeout * 1000)) + b"echo $PPID"
    _, body = machine.channel.request(protocol().HB_MSG_EXEC, request, timeout)
    return int(body[4:])


def long_job(seed: int) -> work.Work:
    return work.mixed(seed, pages=128, lanes=64, each=4, rounds=6)


def sound(machine: Machine) -> None:
    """The guest works, holds nothing, and its kernel did not complain."""
    counts = live(machine)
    deadline = time.monotonic() + 10
    while any(counts.values()) and time.monotonic() < deadline:
        time.sleep(0.2)
        counts = live(machine)
    assert not any(counts.values()), counts
    gauges = machine.gpu.counters()
    assert gauges["pending_faults"] == 0
    assert gauges["stalled_warps"] == 0
    for seed in range(3):
        job = work.mixed(seed)
        job.check(work.run(machine, job.program))
    assert splat.scan(machine.console.text()) == []


def test_guest_program_killed(vm: Machine) -> None:
    """kill -9 of the program at random points: while it maps, faults, migrates, copies, exits."""
    rng = random.Random(1)
    contexts = vm.gpu.counters()["active_ctxs"]
    agent = agent_pid(vm)
    # How long the program takes decides where the kills fall.
    begun = time.monotonic()
    job = long_job(0)
    job.check(work.run(vm, job.program))
    length = time.monotonic() - begun
    died = attempts = 0
    while died < KILLS and attempts < 4 * KILLS:
        attempts += 1
        job = long_job(attempts)
        vm.agent.start(KILLER.format(delay=rng.uniform(0, length), agent=agent))
        result = work.run(vm, job.program)
        assert not result.timeout
        assert not result.live_nonzero, result.counters_after
        if result.died:
            assert result.died_signal == signal.SIGKILL
            died += 1
        else:
            job.check(result)
    assert died == KILLS, f"only {died} of {attempts} kills met the program"
    assert vm.gpu.counters()["active_ctxs"] == contexts
    # A kill that came too late for its program would hit the next one, or the shell of a command.
    time.sleep(length + 2)
    assert agent_pid(vm) == agent
    sound(vm)


def test_agent_killed(vm: Machine) -> None:
    """The agent itself dies with a program running: init starts it anew, nothing stays."""
    for delay in (0.0, 0.05, 0.1, 0.2):
        job = work.mixed(3, pages=256, lanes=256, each=16)
        pid = agent_pid(vm)
        vm.agent.start(f"sleep {delay}; kill -9 {pid}")
        # Mostly its answer never comes; without a delay long enough it was quicker.
        with contextlib.suppress(AgentTimeout):
            Result.decode(vm.agent.program(job.program.encode(), 3.0), job.program)
        deadline = time.monotonic() + 60
        while True:
            # A request that the dying agent took is never answered: short limits, and again.
            # It may also have been killed in the middle of an answer.
            with contextlib.suppress(AgentTimeout, ProtocolError):
                if agent_pid(vm, timeout=2.0) != pid:
                    break
            assert time.monotonic() < deadline
        sound(vm)


def test_qemu_killed_mid_run(vm: Machine) -> None:
    """SIGKILL of QEMU with GPU work under way: told at once, with evidence, and no hang."""
    job = work.mixed(5, pages=512, lanes=480, each=32)
    timer = threading.Timer(0.05, vm._process.kill)
    timer.start()
    begun = time.monotonic()

    def until_it_dies() -> None:
        while time.monotonic() - begun < 60:
            work.run(vm, job.program)

    with pytest.raises(VmDied, match="signal 9"):
        until_it_dies()
    assert time.monotonic() - begun < 30
    timer.join()
