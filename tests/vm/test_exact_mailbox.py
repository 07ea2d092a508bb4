# SPDX-License-Identifier: GPL-2.0-or-later
"""Exact machines: asked and answering through memory while they stand."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from work import counts, delay_points, mixed, mmap, no_violation, run, set_delays, statuses

from hmmbench.example import delays
from hmmbench.guest import splat
from hmmbench.guest.example import Answer, Example
from hmmbench.guest.program import RES_KILLED, TIMEOUT_STILL, Acc, Op, Program
from hmmbench.model.ops.jobs import GpuAccess
from hmmbench.model.ops.processes import Sleep
from hmmbench.vm.agent import AgentError, answered
from hmmbench.vm.channel import ProtocolError, protocol
from hmmbench.vm.errors import AgentTimeout, VmDied
from hmmbench.vm.machine import MARK, Machine
from hmmbench.vm.mailbox import layout
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

HM = layout()
PROTO = protocol()


@pytest.fixture(scope="module")
def exact_spec(spec: MachineSpec) -> MachineSpec:
    return replace(spec, accel="tcg", exact=True)


@pytest.fixture
def exact(exact_spec: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    """A restored exact machine; a splat in it fails the test."""
    with snapshots.open(exact_spec) as machine:
        yield machine
        assert splat.scan(machine.console.text()) == []


def test_files_commands_and_programs(exact: Machine) -> None:
    assert exact.standing
    stands = exact.mailbox.stands
    assert exact.agent.check("ls /sys/class/virtio-ports /sys/class/net") == (
        "/sys/class/net:\nlo\n\n/sys/class/virtio-ports:\n"
    )
    content = os.urandom(3_000_000)
    exact.agent.write_file("/tmp/f", content)
    assert exact.agent.read_file("/tmp/f") == content
    with pytest.raises(AgentError, match="No such file"):
        exact.agent.read_file("/tmp/none")
    for seed in range(3):
        work = mixed(seed, pages=8, lanes=32)
        work.check(run(exact, work.program))
    assert exact.standing
    assert exact.mailbox.stands == stands + 7
    assert exact.printed() == ""


def test_no_virtual_time_passes_between_requests(exact: Machine) -> None:
    """The guest's clock moves by what the guest does, whatever the host does meanwhile."""

    def uptime() -> float:
        return float(exact.agent.read_file("/proc/uptime").split()[0])

    first = uptime()
    time.sleep(2.0)
    assert uptime() - first < 1.0


def driver_file(machine: Machine, name: str) -> str:
    return machine.agent.read_file(f"/sys/kernel/debug/dri/0/{name}").decode()


def test_an_example_stands_twice(exact: Machine) -> None:
    """First with all of it in place, then with nothing left."""
    exact.gpu.set_audit("fill")
    idle = exact.gpu.counters()["active_ctxs"]  # the driver's own
    point = delay_points(exact)[0].name
    work = mixed(7, pages=16, lanes=32)
    work.program.settle_ms = 2000
    example = Example(
        work.program, delays=f"clear\n{point} 50\n", vram=200, points=True, stand=True
    )
    for _ in range(2):
        exact.post(PROTO.HB_MSG_EXAMPLE, example.encode())
        assert exact.go() == HM.HM_STAND_ENDED
        assert exact.gpu.counters()["active_ctxs"] > idle
        # It can be asked of a machine that stands, and finds all mirrors as they should be.
        assert exact.gpu.audit_full() > 0
        no_violation(exact)
        with pytest.raises(ProtocolError, match="has not answered"):
            exact.take()
        assert exact.go() == HM.HM_STAND_ANSWER
        assert exact.gpu.counters()["active_ctxs"] == idle
        assert exact.gpu.audit_full() == 0
        kind, _, body = exact.take()
        answer = Answer.decode(answered(PROTO.HB_MSG_EXAMPLE, kind, body), work.program)
        work.check(answer.result)
        assert answer.result.counters_after == ""
        seen = counts(answer.counters)
        assert seen["dev_faults"] > 0
        assert [n for n, value in seen.items() if n.startswith("live_") and value] == []
        assert point in [one.name for one in delays.parse(answer.points)]
        assert answer.mark == 0
    assert driver_file(exact, "vram_limit") == "200\n"
    assert f"{point} 50 1000" in driver_file(exact, "delays")
    assert exact.printed() == ""


def test_an_example_leaves_alone_what_it_does_not_name(exact: Machine) -> None:
    exact.agent.write_file("/sys/kernel/debug/dri/0/vram_limit", b"123", mode=0)
    point = delay_points(exact)[0].name
    set_delays(exact, f"{point} 70")
    work = mixed(1, pages=4, lanes=8)
    body = exact.agent.example(Example(work.program).encode(), 60)
    answer = Answer.decode(body, work.program)
    work.check(answer.result)
    assert answer.points == ""
    assert driver_file(exact, "vram_limit") == "123\n"
    assert f"{point} 70 1000" in driver_file(exact, "delays")
    with pytest.raises(AgentError, match="EXAMPLE: delays: Invalid argument"):
        exact.agent.example(Example(work.program, delays="no_such_point 5\n").encode(), 60)


def test_the_mark_of_what_an_example_printed(exact: Machine) -> None:
    exact.agent.check("echo '<4>hmm_gpu: of no importance' >/dev/kmsg")
    work = mixed(1, pages=4, lanes=8)
    answer = Answer.decode(exact.agent.example(Example(work.program).encode(), 60), work.program)
    assert answer.mark > 0
    assert f"{MARK}{answer.mark}\n" in exact.console.text()


def test_a_hang_stands_before_anything_is_killed(exact: Machine) -> None:
    """Virtual time: what has to wait ten seconds costs none."""
    program = Program(
        [mmap(2), Op(GpuAccess.number, phase=1, acc=[(int(Acc.WRITE), 0, 0, 0, 5, 0)]),
         Op(Sleep.number, a=60_000_000, phase=2)],
        timeout_ms=10_000,
    )  # fmt: skip
    idle = exact.gpu.counters()["active_ctxs"]
    exact.post(PROTO.HB_MSG_EXAMPLE, Example(program, stand=True).encode())
    assert exact.go() == HM.HM_STAND_ENDED
    assert exact.gpu.counters()["active_ctxs"] > idle
    assert exact.go() == HM.HM_STAND_ANSWER
    kind, _, body = exact.take()
    result = Answer.decode(answered(PROTO.HB_MSG_EXAMPLE, kind, body), program).result
    assert result.timeout == TIMEOUT_STILL
    assert statuses(result) == [0, 0, RES_KILLED]
    assert not result.live_nonzero


def test_an_example_over_a_channel_does_not_stand(vm: Machine) -> None:
    work = mixed(3, pages=8, lanes=32)
    example = Example(work.program, delays="clear\n", vram=100, points=True, stand=True)
    answer = Answer.decode(vm.agent.example(example.encode(), 120), work.program)
    work.check(answer.result)
    assert counts(answer.counters)["dev_faults"] > 0
    assert delays.parse(answer.points) == delay_points(vm)
    assert driver_file(vm, "vram_limit") == "100\n"


def test_the_three_steps_of_a_request(exact: Machine) -> None:
    ident = exact.post(PROTO.HB_MSG_READ_FILE, b"/proc/version")
    with pytest.raises(ProtocolError, match="has not answered"):
        exact.take()
    assert exact.go() == HM.HM_STAND_ANSWER
    kind, found, body = exact.take()
    assert (kind, found) == (PROTO.HB_MSG_READ_FILE | PROTO.HB_MSG_REPLY, ident)
    assert body.startswith(b"Linux version")
    # Nothing is asked: it says so, and the answer stays.
    assert exact.go() == HM.HM_STAND_READY
    assert exact.take()[2] == body


def test_a_snapshot_within_a_chain(exact: Machine, exact_spec: MachineSpec, tmp_path: Path) -> None:
    exact.agent.write_file("/tmp/f", b"kept")
    ident = exact.post(PROTO.HB_MSG_READ_FILE, b"/tmp/f")
    # Saved with a request that is not taken yet.
    exact.save(tmp_path / "state")
    stands = exact.mailbox.stands
    with Machine(exact_spec, state=tmp_path / "state", greet=False) as other:
        assert other.standing
        assert other.mailbox.stands == stands
        assert other.go() == HM.HM_STAND_ANSWER
        assert other.take()[1:] == (ident, b"kept")
        assert other.mailbox.stands == stands + 1


def test_an_agent_that_is_killed_is_replaced(exact: Machine) -> None:
    with pytest.raises(ProtocolError, match="has not answered") as error:
        exact.agent.execute("kill -9 $PPID; sleep 1000")
    assert "another one is there now" in str(error.value)
    assert exact.agent.check("echo again") == "again\n"


def test_a_panic_is_the_end(exact_spec: MachineSpec, snapshots: Snapshots) -> None:
    with snapshots.open(exact_spec) as machine:
        with pytest.raises(VmDied) as error:
            machine.agent.execute("echo c >/proc/sysrq-trigger")
        assert error.value.panicked
        assert not machine.alive
        with pytest.raises(VmDied):
            machine.go()


def test_power_off_is_the_end(exact_spec: MachineSpec, snapshots: Snapshots) -> None:
    with (
        snapshots.open(exact_spec) as machine,
        pytest.raises(VmDied, match="switched itself off"),
    ):
        machine.agent.execute("poweroff -f")


def test_a_qemu_that_is_killed(exact_spec: MachineSpec, snapshots: Snapshots) -> None:
    with snapshots.open(exact_spec) as machine:
        os.kill(machine.pid, signal.SIGKILL)
        with pytest.raises(VmDied, match="signal 9") as error:
            machine.agent.hello()
        assert not error.value.panicked


def test_a_guest_that_runs_on(exact: Machine) -> None:
    command = struct.pack("<I", 3_600_000) + b"while [ ! -e /tmp/enough ]; do :; done; echo done"
    exact.post(PROTO.HB_MSG_EXEC, command)
    for _ in range(2):
        with pytest.raises(AgentTimeout, match="did not come to a stand"):
            exact.go(0.3)
        assert not exact.standing
        with pytest.raises(RuntimeError, match="the guest's"):
            exact.take()
        with pytest.raises(RuntimeError, match="the guest's"):
            exact.post(PROTO.HB_MSG_HELLO)
    exact.pause()
    assert exact.standing
    # Stopped by us in the middle, it goes on from there.
    with pytest.raises(AgentTimeout):
        exact.go(0.3)


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_stop_that_nobody_asked_for_is_an_error(exact: Machine, waited_for: bool) -> None:
    command = struct.pack("<I", 3_600_000) + b"while :; do :; done"
    exact.post(PROTO.HB_MSG_EXEC, command)
    with pytest.raises(AgentTimeout):
        exact.go(0.3)
    stopping = threading.Timer(0.5 if waited_for else 0.0, lambda: exact.qmp("stop"))
    stopping.start()
    if not waited_for:
        stopping.join()
    with pytest.raises(VmDied, match="QEMU stopped the guest"):
        exact.go(10.0)
    stopping.join()
