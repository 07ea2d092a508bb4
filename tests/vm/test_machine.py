# SPDX-License-Identifier: GPL-2.0-or-later
"""The life of a virtual machine, and every way it can end. No GPU is needed for that."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hmmbench.guest import splat
from hmmbench.vm.errors import AgentTimeout, QmpFailure, VmDied, VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_boot(plain_spec: MachineSpec) -> None:
    """A boot from nothing: the agent answers, the console has the kernel's first line."""
    with Machine(replace(plain_spec, cmdline=("hmmbench.nodriver", "loglevel=7"))) as vm:
        assert vm.hello["kernel"] == vm.agent.check("uname -r").strip()
        assert vm.agent.check("nproc").strip() == str(plain_spec.cpus)
        text = vm.console.text()
        assert "Linux version" in text
        assert text.index("Linux version") < text.index("Run /init")
        assert splat.scan(text) == []
        folder, pid = vm.folder, vm.pid
        assert running(pid)
        assert os.sched_getscheduler(pid) == os.SCHED_BATCH
        assert "erms" not in vm.agent.check("cat /proc/cpuinfo").split() or vm.spec.accel == "kvm"
    assert not running(pid)
    assert not folder.exists()


def test_restored_machines_are_equal_and_separate(
    plain_spec: MachineSpec, snapshots: Snapshots
) -> None:
    with snapshots.open(plain_spec) as one, snapshots.open(plain_spec) as two:
        one.agent.write_file("/tmp/mark", b"1")
        assert two.agent.execute("cat /tmp/mark").status != 0
        assert one.agent.read_file("/tmp/mark") == b"1"
        assert one.ssh_port() != two.ssh_port()


def test_qemu_killed_while_a_request_waits(plain: Machine) -> None:
    threading.Timer(0.3, os.kill, (plain.pid, signal.SIGKILL)).start()
    begun = time.monotonic()
    with pytest.raises(VmDied, match="ended by signal 9") as caught:
        plain.agent.execute("sleep 60", timeout=60)
    assert time.monotonic() - begun < 20
    assert caught.value.exit_status == -9
    assert not plain.alive
    with pytest.raises(VmDied):
        plain.qmp("query-status")
    with pytest.raises(VmDied):
        plain.check()


def test_panic(plain_spec: MachineSpec, snapshots: Snapshots, tmp_path: Path) -> None:
    with snapshots.open(plain_spec) as vm:
        with pytest.raises(VmDied, match="panic") as caught:
            vm.agent.execute("echo c >/proc/sysrq-trigger", timeout=60)
        assert caught.value.panicked
        (found,) = splat.scan(vm.console.rest())
        assert found.functions[0] == "sysrq_handle_crash"
        # QEMU is still there to be asked, and what is kept is complete.
        assert vm.qmp("query-status")["running"] is False
        vm.keep(tmp_path / "evidence")
        folder = vm.folder
    assert "sysrq triggered crash" in (tmp_path / "evidence/console.log").read_text()
    assert "guest-reset" in (tmp_path / "evidence/events.json").read_text()
    assert not folder.exists()


def test_power_off(plain: Machine) -> None:
    with pytest.raises(VmDied, match="switched itself off") as caught:
        plain.agent.execute("poweroff -f", timeout=60)
    assert not caught.value.panicked


def test_agent_that_hangs(plain: Machine) -> None:
    """A guest that gives no answer is told from one that died; the machine still ends."""
    with pytest.raises(AgentTimeout, match="did not answer"):
        plain.channel.request(3, b"\xff\xff\0\0sleep 30", timeout=1.0)
    assert plain.alive


def told_by_the_kernel(vm: Machine) -> list[str]:
    """What the console shows of the kernel's own: records of processes name their facility."""
    return re.findall(r"^<[0-4]>.*", vm.agent.check("dmesg -r"), re.MULTILINE)


def test_all_that_the_kernel_printed_is_on_the_console(plain: Machine) -> None:
    for _ in range(3):
        before = told_by_the_kernel(plain)
        plain.catch_up()
        quiet = not plain.catch_up()
        plain.console.take()
        lines = plain.console.text().count("\n")
        plain.agent.check("echo '<6>not shown' >/dev/kmsg")
        quiet &= not plain.catch_up()
        plain.agent.check("for n in $(seq 300); do echo \"<4>line $n\" >/dev/kmsg; done")
        text = plain.printed()
        quiet &= plain.printed() == ""
        more = plain.console.text().count("\n") - lines
        if told_by_the_kernel(plain) == before:
            break
        # It said something meanwhile, of a host that stood still for example.
    assert quiet
    assert [line.rpartition("] ")[2] for line in text.splitlines()] == [
        f"line {n}" for n in range(1, 301)
    ]
    assert more == 301, "and one mark"


def test_late_answer_does_not_disturb(plain: Machine) -> None:
    with pytest.raises(AgentTimeout):
        plain.channel.request(3, b"\xff\xff\0\0sleep 1; echo late", timeout=0.2)
    assert plain.agent.check("echo timely") == "timely\n"


def test_bad_argument_of_qemu(plain_spec: MachineSpec) -> None:
    with (
        pytest.raises(VmDied, match="no-such-device") as caught,
        Machine(replace(plain_spec, extra=("-device", "no-such-device"))),
    ):
        pytest.fail("started")
    assert caught.value.exit_status == 1


@pytest.mark.parametrize("times", [1, 2])
def test_race_of_qemu_at_boot(plain_spec: MachineSpec, tmp_path: Path, times: int) -> None:
    """A QEMU that dies of its known race while booting is started once more, and only once."""
    count = tmp_path / "count"
    count.write_text("")
    fake = tmp_path / "qemu"
    fake.write_text(
        f"#!/bin/sh\necho >>{count}\n[ $(wc -l <{count}) -gt {times} ] ||"
        " { echo 'iotlb_to_section: Assertion failed' >&2; kill -ABRT $$; }\n"
        f'exec {plain_spec.qemu} "$@"\n'
    )
    fake.chmod(0o755)
    machine = Machine(replace(plain_spec, qemu=fake))
    if times == 1:
        with machine:
            assert machine.agent.check("echo up") == "up\n"
            machine.check()
    else:
        with pytest.raises(VmDied, match="signal 6"), machine:
            pytest.fail("started")
    assert count.read_text() == "\n\n"


def test_missing_files(plain_spec: MachineSpec, tmp_path: Path) -> None:
    with (
        pytest.raises(VmDied, match="could not open kernel file"),
        Machine(replace(plain_spec, kernel=tmp_path / "none")),
    ):
        pytest.fail("started")
    with (
        pytest.raises(VmError, match="no program that can be run"),
        Machine(replace(plain_spec, qemu=tmp_path / "none")),
    ):
        pytest.fail("started")


def test_refused_command(plain: Machine) -> None:
    with pytest.raises(QmpFailure) as caught:
        plain.qmp("device_del", id="no-such-device")
    assert caught.value.kind == "DeviceNotFound"
    plain.check()


def test_survives_the_thread_that_started_it(plain_spec: MachineSpec, snapshots: Snapshots) -> None:
    """The parent-death signal is bound to a thread: it must not be a short-lived one."""
    machine = snapshots.machine(plain_spec)
    thread = threading.Thread(target=machine.__enter__)
    thread.start()
    thread.join()
    with machine_closing(machine):
        time.sleep(0.3)
        assert machine.agent.check("echo here") == "here\n"


class machine_closing:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.machine.close()


CHILD = """
import pickle, sys, time
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
spec = pickle.load(sys.stdin.buffer)
with Snapshots().open(spec) as vm:
    print(vm.pid, vm.folder, flush=True)
    vm.agent.execute("sleep 60", timeout=60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
def test_the_bench_is_killed(
    plain_spec: MachineSpec, snapshots: Snapshots, number: signal.Signals
) -> None:
    """No QEMU stays behind, however the bench ends; no folder either, at the latest next time."""
    import pickle

    snapshots.ensure(plain_spec)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(pickle.dumps(plain_spec))
        child.stdin.close()
        pid_text, folder_text = child.stdout.readline().decode().split()
        pid, folder = int(pid_text), Path(folder_text)
        assert running(pid)
        assert folder.is_dir()
        child.send_signal(number)
        child.wait(timeout=30)
    assert wait_until(lambda: not running(pid))
    if number == signal.SIGKILL:
        # Nobody was left to remove it. It is taken for fresh for some seconds; make it older.
        os.utime(folder, (time.time() - 60, time.time() - 60))
        with snapshots.open(plain_spec):
            pass
    assert not folder.exists()


def test_folder_of_a_living_owner_stays(plain: Machine) -> None:
    from hmmbench.vm import workdir

    os.utime(plain.folder, (time.time() - 600, time.time() - 600))
    workdir.sweep()
    assert plain.folder.is_dir()


def test_save_and_restore(plain_spec: MachineSpec, snapshots: Snapshots, tmp_path: Path) -> None:
    """Memory, files, running programs and the clock go on where they were."""
    state = tmp_path / "state"
    with snapshots.open(plain_spec) as vm:
        vm.agent.write_file("/tmp/data", os.urandom(1 << 20))
        digest = vm.agent.check("sha256sum /tmp/data")
        count = "i=$((i+1)); echo $i >/tmp/next; mv /tmp/next /tmp/count"
        vm.agent.start(f"i=0; while sleep 0.05; do {count}; done")
        time.sleep(0.5)
        vm.save(state, resume=True)
        uptime = float(vm.agent.read_file("/proc/uptime").split()[0])
        assert vm.agent.check("sha256sum /tmp/data") == digest
    time.sleep(3)
    for _ in range(2):
        begun = time.monotonic()
        with Machine(plain_spec, state=state) as vm:
            assert vm.agent.check("sha256sum /tmp/data") == digest
            before = int(vm.agent.read_file("/tmp/count"))
            time.sleep(0.5)
            assert int(vm.agent.read_file("/tmp/count")) > before
            # Time stood still while nothing ran: no watchdog may see a jump.
            passed = float(vm.agent.read_file("/proc/uptime").split()[0]) - uptime
            assert passed < time.monotonic() - begun + 0.5
            assert splat.scan(vm.console.text()) == []


def test_snapshot_is_made_once_and_anew_when_damaged(
    plain_spec: MachineSpec, tmp_path: Path
) -> None:
    own = Snapshots(tmp_path)
    folder = own.ensure(plain_spec)
    made = (folder / "state").stat().st_mtime_ns
    assert own.ensure(plain_spec) == folder
    assert (folder / "state").stat().st_mtime_ns == made
    with (folder / "state").open("r+b") as file:
        file.write(b"damaged!")
    said: list[str] = []
    with Opener(plain_spec, own, said.append) as opener:
        assert opener().agent.check("echo fine") == "fine\n"
        assert (folder / "state").stat().st_mtime_ns != made
        (why,) = said
        assert "cannot be restored (QEMU" in why
        assert opener().agent.check("echo fine") == "fine\n"
    assert said == [why]
    other = own._key(replace(plain_spec, cmdline=("hmmbench.nodriver", "other")))
    assert other != folder.name
    assert [f for f in tmp_path.iterdir() if f.name != folder.name] == []


def test_old_snapshots_go(plain_spec: MachineSpec, tmp_path: Path) -> None:
    own = Snapshots(tmp_path, limit=1)
    for age, name in ((30, "old"), (20, "older"), (10, "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state").write_bytes(bytes(8192))
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))
    kept = own.ensure(plain_spec)
    assert list(tmp_path.iterdir()) == [kept]


def test_no_file_stays_in_the_temporary_folder(
    plain_spec: MachineSpec, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with snapshots.open(plain_spec) as vm:
        assert vm.folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made(
    plain_spec: MachineSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(VmError, match="cannot make a folder"), Machine(plain_spec):
        pytest.fail("started")
