# SPDX-License-Identifier: GPL-2.0-or-later
"""One virtual machine, from its start to its end.

    with Machine(spec) as vm:
        print(vm.hello["kernel"], vm.agent.execute("free").output)

Three parties talk about one QEMU: the caller's thread (agent channel, QMP commands), the QMP
loop's thread (events), and the kernel (death of QEMU closes both sockets). Whoever first sees
the guest gone writes `_gone` and wakes the channel; the caller's thread alone makes the error
out of it, so that every way to die is reported once and in full.

An exact machine (MachineSpec.exact) has no channel: it stands while it is not told to go on.

    with Machine(spec) as vm:            # stands: its agent is ready
        vm.post(kind, payload)
        why = vm.go()                    # HM_STAND_*: stands again
        kind, ident, answer = vm.take()

`agent` works on it too; each of its requests is these three.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hmmbench.base import processes
from hmmbench.guest import splat
from hmmbench.vm.agent import Agent
from hmmbench.vm.channel import Channel, Requests
from hmmbench.vm.console import Console
from hmmbench.vm.errors import AgentTimeout, QmpFailure, VmDied, VmError, disk_full, guard_disk
from hmmbench.vm.exact import Exact
from hmmbench.vm.mailbox import Mailbox, MailboxChannel
from hmmbench.vm.qmp import Event, Qmp
from hmmbench.vm.spec import (
    GPU_BUS,
    GPU_ID,
    GPU_PATH,
    MachineSpec,
    Wiring,
    arguments,
    gpu_properties,
)
from hmmbench.vm.workdir import WorkDir

#: Seconds of the host after which an exact machine is given up: far more than any request takes,
#: since hangs are seen in virtual time.
HOST_S = 600.0

#: Seconds. A boot takes 3 s on an idle host; a loaded CI machine may need far longer.
BOOT_TIMEOUT = 400.0
RESTORE_TIMEOUT = 60.0

_STOPPED = "QEMU stopped the guest (internal error)"

#: HB_MARK of agent/protocol.h.
MARK = "hmmbench: mark "
#: Seconds between looks whether a report of the kernel goes on, and the longest it is waited for.
REPORT_STEP_S = 0.01
#: Virtual nanoseconds in which an agent with nothing to do says so once more.
AGENT_NS = 1_000_000_000
#: Virtual time in which an exact machine brings its console up to date, in steps.
CONSOLE_STEP_S = 0.01
REPORT_S = 2.0


class Machine:
    """A running guest with the agent at work in it.

    spec     -- what to start
    state    -- a file written by save() of an equal spec: restored instead of booted
    before   -- what the guest printed before it was saved, for evidence
    console  -- an interactive console: a socket the guest's serial port is connected to
    greet    -- False: do not wait for the agent; for a machine saved while the agent worked,
                whose answer is to be collected from `channel`
    """

    def __init__(
        self,
        spec: MachineSpec,
        *,
        state: Path | None = None,
        before: str = "",
        console: socket.socket | None = None,
        boot_timeout: float = BOOT_TIMEOUT,
        greet: bool = True,
    ) -> None:
        self.spec = spec
        #: The agent's answer to HELLO.
        self.hello: dict[str, Any] = {}
        #: Seconds from the start of QEMU to the first answer of the agent (or to its running).
        self.ready_s = 0.0
        self._state = state
        self._before = before
        self._console_socket = console
        self._boot_timeout = boot_timeout
        self._greet = greet
        self._reset()

    def _reset(self) -> None:
        """The state of a machine that was not started yet."""
        self._stack = ExitStack()
        self._events: list[Event] = []
        # Guarded by _changed: written in the QMP loop's thread, read in the caller's.
        self._changed = threading.Condition()
        self._gone = ""
        self._migration = ""
        self._closing = False
        # We stopped the guest: a STOP event is nobody's failure.
        self._pausing = False
        # STOP events, and how many of them there were when it was last let go. An exact machine
        # stands until then.
        self._stops = 1
        self._stops_before = 0
        # What the guest had counted of its stands then; -1: it was not let go yet.
        self._stands_before = -1

    # -- start and end

    def __enter__(self) -> Self:
        try:
            self._bring_up()
        except VmDied as error:
            self.close()
            if self._state is not None or not _is_boot_race(error):
                raise
            self._reset()
            try:
                self._bring_up()
            except BaseException:
                self.close()
                raise
        except BaseException:
            self.close()
            raise
        return self

    def _bring_up(self) -> None:
        self._start()
        if self._state is not None:
            self._load(self._state)
        elif self.spec.exact:
            self.go(self._boot_timeout)
        if self._greet:
            self.hello = self.agent.hello(self._boot_timeout)
        self.ready_s = time.monotonic() - self._started

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End QEMU and remove its folder. May be called again, and from an exception handler."""
        self._closing = True
        with self._changed:
            # Another thread may wait for an exact machine to stand, and hears of nothing more.
            self._gone = self._gone or "QEMU ended"
            self._changed.notify_all()
        self._stack.close()

    def _start(self) -> None:
        self._started = time.monotonic()
        work = WorkDir()
        self._stack.callback(work.remove)
        self.folder = work.path
        ours = ExitStack()  # the ends that only QEMU keeps
        with ours:
            qmp, qmp_peer = _pair(self._stack, ours)
            agent_fd = mailbox_fd = None
            self._requests: Requests
            if self.spec.exact:
                self.mailbox = Mailbox()
                self._stack.callback(self.mailbox.close)
                self._requests = MailboxChannel(self.mailbox, self._go_for_answer)
                mailbox_fd = self.mailbox.fd
            else:
                agent, agent_peer = _pair(self._stack, ours)
                self._requests = self.channel = Channel(agent, self._death)
                agent_fd = agent_peer.fileno()
            wiring = Wiring(
                qmp_fd=qmp_peer.fileno(),
                agent_fd=agent_fd,
                folder=self.folder,
                console_fd=self._console_socket.fileno() if self._console_socket else None,
                incoming=self._state is not None,
                mailbox_fd=mailbox_fd,
            )
            self.argv = arguments(self.spec, wiring)
            fds = [fd for fd in (wiring.qmp_fd, agent_fd, mailbox_fd) if fd is not None]
            if self._console_socket:
                fds.append(self._console_socket.fileno())
            with guard_disk(self.folder):
                self.console = Console(wiring.console, self._before)
            self._log = self.folder / "qemu.log"
            with guard_disk(self._log):
                self._process: subprocess.Popen[bytes] = processes.start_bound(
                    self.argv, fds, self._log
                )
            self._stack.callback(processes.stop, self._process)
        self.agent = Agent(self._requests)
        self._qmp = Qmp(qmp, self._on_event, self._on_closed, self._death)
        #: the schedule of an exact machine
        self.exact = Exact(self._qmp)
        self._stack.callback(self._qmp.close)
        self._qmp.connect()

    @property
    def pid(self) -> int:
        """Of QEMU."""
        return self._process.pid

    # -- death

    def _on_event(self, event: Event) -> None:
        """QMP loop's thread."""
        name, data = event.get("event", ""), event.get("data", {})
        gone = ""
        with self._changed:
            self._events.append(event)
            if name == "GUEST_PANICKED":
                gone = "the guest's kernel panicked"
            elif name == "SHUTDOWN" and data.get("guest"):
                # With panic=-1 this is what a panic without pvpanic looks like.
                reset = data.get("reason") == "guest-reset"
                gone = (
                    "the guest's kernel restarted itself (a panic)"
                    if reset
                    else ("the guest switched itself off")
                )
            elif name == "STOP":
                self._stops += 1
                # Nobody asked for it: KVM gave up, or QEMU cannot go on. Of an exact machine go()
                # says so.
                if not self._pausing and not self.spec.exact:
                    gone = _STOPPED
            elif name == "MIGRATION":
                self._migration = data.get("status", "")
            if gone and not self._gone:
                self._gone = gone
            self._changed.notify_all()
        if gone:
            self._requests.wake()

    def _on_closed(self) -> None:
        """QMP loop's thread: QEMU closed the session, that is, it ends."""
        with self._changed:
            if not self._gone:
                self._gone = "QEMU ended"
            self._changed.notify_all()
        self._requests.wake()

    def _death(self) -> Exception:
        """The error for a machine that is gone; caller's thread."""
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            # The sockets close a moment before the process is gone.
            status = self._process.wait(timeout=0.2 if self._gone_guest() else 3.0)
        with contextlib.suppress(VmError):
            tail = self.console.tail()
        stderr = _text(self._log).strip()
        if "No space left" in stderr:
            return disk_full(self.folder)
        if self._gone_guest():
            message, panicked = self._gone, "panic" in self._gone
            for found in splat.scan(self.console.text())[:1]:
                message += f": {found.title}"
        elif status is None:
            message, panicked = "the channel to the guest was lost, though QEMU still runs", False
        elif status < 0:
            message, panicked = f"QEMU was ended by signal {-status}", False
        else:
            message, panicked = f"QEMU ended with exit status {status}", False
        return VmDied(message, exit_status=status, panicked=panicked, console=tail, stderr=stderr)

    def _gone_guest(self) -> bool:
        with self._changed:
            return bool(self._gone) and self._gone != "QEMU ended"

    @property
    def alive(self) -> bool:
        """The guest can be worked with: QEMU runs, and neither panic nor power-off was seen."""
        return not self._closing and not self._gone and self._process.poll() is None

    @property
    def reachable(self) -> bool:
        """QEMU runs and can be asked, also of a guest that panicked."""
        return not self._closing and self._process.poll() is None

    def check(self) -> None:
        """Raise VmDied if the machine is gone, VmError if its disk is full."""
        if not self.alive:
            raise self._death()
        self.console.check_space()

    def events(self, name: str = "") -> list[Event]:
        """QMP events so far, all or of one name."""
        with self._changed:
            return [e for e in self._events if not name or e.get("event") == name]

    def catch_up(self, timeout: float = 60.0) -> bool:
        """Wait until the console has all that the kernel printed; whether that was anything.

        A kernel may write its console later than it prints, from a thread of its own.
        Raises what Agent.printed() raises; AgentTimeout also if the mark does not come, since a
        guest that prints no more in so long a time hangs.
        """
        mark = self.agent.printed()
        if mark:
            self.wait_mark(mark, timeout)
        return bool(mark)

    def wait_mark(self, mark: int, timeout: float = 60.0) -> None:
        """Wait until the console shows this mark; an exact machine goes on for so long.

        Raises as catch_up().
        """
        line = f"{MARK}{mark}\n"
        begun = time.monotonic()
        waited = 0.0
        while line not in self.console.text():
            self.check()
            if waited > timeout:
                raise AgentTimeout(f"the console is {timeout:g} s behind what the kernel printed")
            waited = self._nap(waited, begun, CONSOLE_STEP_S if self.spec.exact else 0.002)

    def _nap(self, waited: float, begun: float, seconds: float) -> float:
        """Some time for the guest: its own for an exact machine, else the host's; all of it."""
        if self.spec.exact:
            self.idle_for(int(seconds * 1e9))
            return waited + seconds
        time.sleep(seconds)
        return time.monotonic() - begun

    def printed(self) -> str:
        """What the console got since it was last taken, with all that the kernel printed by now.

        A report that is still being printed by another processor is waited for.
        """
        more = self.catch_up()
        text = self.console.take()
        return self._whole_reports(text, more)

    def printed_to(self, mark: int) -> str:
        """As printed(), with the mark that the guest has put behind it already; 0: nothing."""
        if mark:
            self.wait_mark(mark)
        return self._whole_reports(self.console.take(), bool(mark))

    def _whole_reports(self, text: str, more: bool) -> str:
        begun = time.monotonic()
        waited = 0.0
        while more and splat.scan(text) and waited < REPORT_S:
            waited = self._nap(waited, begun, REPORT_STEP_S)
            more = self.catch_up()
            text += self.console.take()
        return "".join(line for line in text.splitlines(keepends=True) if MARK not in line)

    # -- QEMU

    def qmp(self, command: str, timeout: float = 60.0, **arguments: object) -> Any:
        """Run a QMP command; "_" in argument names stands for "-" (qom_type is qom-type)."""
        return self._qmp.execute(
            command, {n.replace("_", "-"): v for n, v in arguments.items()}, timeout
        )

    def monitor(self, line: str) -> str:
        """Run a line of the human monitor, for what QMP has no command for."""
        return str(self._qmp.execute("human-monitor-command", {"command-line": line}))

    def pause(self) -> None:
        """Stop the guest's clock, processors and GPU; resume() lets them go on.

        An exact machine that stands already stays as it is; one that runs (go() has given up) is
        stopped where it is, and go() lets it go on.
        """
        with self._changed:
            self._pausing = True
        self.qmp("stop")
        if self.spec.exact:
            self._wait_stop(60.0)

    def resume(self) -> None:
        if self.spec.exact:
            raise RuntimeError("an exact machine goes on by go()")
        self.qmp("cont")
        # Events come in order with answers: a STOP that is still to come is not ours any more.
        with self._changed:
            self._pausing = False

    # -- an exact machine

    @property
    def standing(self) -> bool:
        """It stands, so its mailbox and memory are ours."""
        with self._changed:
            return self._stops > self._stops_before

    def post(self, kind: int, payload: bytes = b"") -> int:
        """Hand a request to the agent, which finds it when the machine goes on; its id."""
        self._must_stand()
        return self.mailbox.post(kind, payload)

    def take(self) -> tuple[int, int, bytes]:
        """The answer for which the machine stands: (type, id, payload)."""
        self._must_stand()
        return self.mailbox.take()

    def go(self, timeout: float = 60.0, limit_s: float | None = None) -> int:
        """Let the machine go on until it stands again: why, HM_STAND_*.

        Raises AgentTimeout after so many seconds of the host; it runs then, and go() waits again.
        Raises AgentTimeout after `limit_s` seconds of virtual time, too; it stands then, and
        that repeats.  Raises VmDied if the guest or QEMU is gone.
        """
        self.check()
        with self._changed:
            stood, paused = self._stops > self._stops_before, self._pausing
        if stood:
            if not paused:
                self._must_have_stood()
            with self._changed:
                self._stops_before = self._stops
                self._stands_before = self.mailbox.stands
                self._pausing = False
            if limit_s is not None:
                self.exact.stand_after(int(limit_s * 1e9))
            self.qmp("cont")
        self._wait_stop(timeout)
        if limit_s is not None:
            if self.mailbox.stands == self._stands_before and self.exact.state()["stands"]:
                self._stands_by_us()
                raise AgentTimeout(f"the guest did not answer within {limit_s:g} s of its own time")
            self.exact.stand_after(-1)
        self._must_have_stood()
        return self.mailbox.why

    def _go_for_answer(self, timeout: float) -> int:
        """go() for a request of the agent's: its limit is the guest's own time, so that a busy
        host makes no hang."""
        return self.go(HOST_S, timeout)

    def go_for(self, ns: int, timeout: float = 60.0) -> None:
        """Let an exact machine that stands go on for so many nanoseconds of virtual time, in the
        middle of a request: without one the agent stands at once, see idle_for()."""
        self._must_stand()
        self.exact.stand_after(ns)
        self._let_go(timeout)
        # The guest may have stood before: then this limit is none of the next request's.
        self.exact.stand_after(-1)
        self._stands_by_us()

    def idle_for(self, ns: int, timeout: float = 60.0) -> None:
        """Let an exact machine whose agent has nothing to do go on for so many nanoseconds.

        It stands again by the agent's own word soon after that: the agent says so again and
        again.  One that is gone is waited for a second more.
        """
        self._must_stand()
        self.exact.deaf_for(ns)
        self.exact.stand_after(ns + AGENT_NS)
        self._let_go(timeout)
        # It is none of the next request's.
        self.exact.stand_after(-1)
        if self.mailbox.stands == self._stands_before:
            self._stands_by_us()

    def go_to(self, instruction: int, timeout: float = 60.0) -> bool:
        """Let an exact machine that stands go on until this instruction.

        False: it stands before that, by the guest's own word (mailbox.why).
        """
        self._must_stand()
        self.exact.stand_at(instruction)
        if self.go_until(timeout):
            return True
        self.exact.stand_at(-1)
        return False

    def go_until(self, timeout: float = 60.0, limit_s: float | None = None) -> bool:
        """Let an exact machine that stands go on to where it was told to stand (`exact`, or
        stand_at_violation()); False as go_to().

        Raises AgentTimeout as go(); `limit_s` takes the place of a time at which it is to stand.
        """
        self._must_stand()
        end = None
        if limit_s is not None:
            self.exact.stand_after(int(limit_s * 1e9))
            end = self.exact.state()["ns"] + int(limit_s * 1e9)
        self._let_go(timeout)
        by_us = self.mailbox.stands == self._stands_before
        if by_us:
            state = self.exact.state()
            if not state["stands"]:
                self._must_have_stood()
            self._stands_by_us()
            if end is not None and state["ns"] >= end:
                raise AgentTimeout(f"it came to no such place within {limit_s:g} s of its own time")
        if end is not None:
            self.exact.stand_after(-1)
        return by_us

    def _let_go(self, timeout: float) -> None:
        with self._changed:
            self._stops_before = self._stops
            self._stands_before = self.mailbox.stands
            self._pausing = False
        self.qmp("cont")
        self._wait_stop(timeout)

    def _stands_by_us(self) -> None:
        """It stands because we said so: go() expects no word of the guest's for that."""
        with self._changed:
            self._pausing = True

    def _must_have_stood(self) -> None:
        """Raise VmDied if the guest was stopped by somebody else."""
        if self.mailbox.stands == self._stands_before:
            with self._changed:
                self._gone = self._gone or _STOPPED
            raise self._death()

    def _must_stand(self) -> None:
        if not self.standing:
            raise RuntimeError("the machine runs: its mailbox is the guest's")

    def _wait_stop(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self._gone and self._stops == self._stops_before:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AgentTimeout(f"the guest did not come to a stand within {timeout:g} s")
                self._changed.wait(left)
            gone = self._gone
        if gone:
            raise self._death()

    def ssh_port(self) -> int:
        """The port of 127.0.0.1 that leads to the guest's port 22."""
        match = re.search(
            r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)", self.monitor("info usernet")
        )
        if not match:
            raise VmError("this machine has no network", "Start it with network=True.")
        return int(match.group(1))

    # -- the device

    def inject(self, rules: str | Iterable[str] = "") -> None:
        """Replace all injection rules (docs/device.md has the grammar); none ends injection.

        Raises QmpFailure with the device's words for a rule it does not understand.
        """
        text = rules if isinstance(rules, str) else ";".join(rules)
        self._qmp.execute("qom-set", {"path": GPU_PATH, "property": "inject", "value": text})

    def injected(self) -> str:
        """The rules in force, with their hits."""
        return str(self._gpu("inject"))

    def set_audit(self, mode: str) -> None:
        """Mirror audit: off, fill, sampled, sampled=N or access.  Raises QmpFailure."""
        self._qmp.execute("qom-set", {"path": GPU_PATH, "property": "audit", "value": mode})

    def violations(self) -> str:
        """What the device's own checks found, as JSON text (docs/audit.md, checks.md)."""
        return str(self._gpu("violations"))

    def clear_violations(self) -> None:
        self._qmp.execute(
            "qom-set", {"path": GPU_PATH, "property": "clear-violations", "value": True}
        )

    def audit_full(self) -> int:
        """Compare all of every mirror now (processes at rest); how many entries that were."""
        return int(self._gpu("audit-full"))

    def counters(self) -> dict[str, int]:
        """All counters of the device (HG_CNT_*), by the device's names."""
        return {str(n): int(v) for n, v in self._gpu("counters").items()}

    def keep_events(self) -> None:
        """From here on an exact machine keeps its device's events, which it does not notice."""
        self._set_gpu("keep-events", True)

    def write_events(self, path: Path) -> None:
        """They go to a file, for device_events.read()."""
        self._set_gpu("write-events", str(path))

    def stand_at_violation(self, on: bool) -> None:
        """An exact machine stands where a check of its device finds something."""
        self._set_gpu("stand-at-violation", on)

    def engines(self) -> list[str]:
        """Names of the device's engines, in its order."""
        of_each = (("SM", int(self._gpu("sms"))), ("copy engine", int(self._gpu("ces"))))
        return [f"{name} {n}" for name, count in of_each for n in range(count)] + ["front end"]

    def _set_gpu(self, name: str, value: object) -> None:
        self._qmp.execute("qom-set", {"path": GPU_PATH, "property": name, "value": value})

    def _gpu(self, name: str) -> Any:
        return self._qmp.execute("qom-get", {"path": GPU_PATH, "property": name})

    def unplug_gpu(self, timeout: float = 30.0) -> None:
        """Ask the guest to give the device up (attention button) and wait until it has."""
        self.qmp("device_del", id=GPU_ID)
        deadline = time.monotonic() + timeout
        with self._changed:
            while not any(
                e.get("event") == "DEVICE_DELETED" and e["data"].get("device") == GPU_ID
                for e in self._events
            ):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise VmError(f"the guest did not give the device up within {timeout:g} s")
                if self._gone:
                    break
                self._changed.wait(left)
        self.check()

    def plug_gpu(self) -> None:
        """Plug a device as in the spec into the empty port; the guest finds it by itself."""
        with self._changed:
            self._events = [e for e in self._events if e.get("event") != "DEVICE_DELETED"]
        arguments = {
            "driver": "hmm-gpu", "id": GPU_ID, "bus": GPU_BUS, **gpu_properties(self.spec)
        }  # fmt: skip
        self._qmp.execute("device_add", arguments)

    def reset_gpu(self) -> None:
        """Function-level reset, asked for in the guest through sysfs."""
        self.agent.check(
            'for d in /sys/bus/pci/devices/*; do if [ "$(cat $d/vendor)$(cat $d/device)" ='
            " 0x12340x4d47 ]; then echo 1 >$d/reset; exit; fi; done; echo no hmm-gpu; exit 1"
        )

    # -- snapshots

    def save(self, state: Path, resume: bool = False) -> None:
        """Write the whole machine to a file, also in the middle of GPU work.

        The guest is stopped for it; afterwards it goes on if `resume`, else stays stopped. An
        exact machine stands before and after; one that is saved within an example goes on with
        it when it is restored (with `greet` False), as if it had not been saved. That is refused
        while an engine of the device is in a slice: a little later it is not.
        On failure (a full disk, say) the file is removed and VmError raised.
        """
        try:
            self.pause()
            self._capabilities()
            with self._changed:
                self._migration = ""
            self._qmp.execute("migrate", {"uri": f"file:{state}"})
            self._wait_migration("saving the virtual machine", state, 300.0)
            self._wait_finalized()
            if not state.is_file():
                raise VmError(f"QEMU wrote no snapshot to {state}")
        except BaseException:
            with contextlib.suppress(OSError):
                state.unlink()
            raise
        if resume:
            self.resume()

    def _load(self, state: Path) -> None:
        self._capabilities()
        self._qmp.execute("migrate-incoming", {"uri": f"file:{state}"})
        self._wait_migration("restoring the virtual machine", state, RESTORE_TIMEOUT)
        if not self.spec.exact:
            self.resume()

    def _capabilities(self) -> None:
        # mapped-ram: each page has its place in the file; zero pages take none. events: the end
        # is told, not polled for.
        names = ("mapped-ram", "events")
        self._qmp.execute(
            "migrate-set-capabilities",
            {"capabilities": [{"capability": name, "state": True} for name in names]},
        )

    def _wait_migration(self, what: str, state: Path, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._migration not in ("completed", "failed", "cancelled"):
                if self._gone:
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    raise VmError(f"{what} took longer than {timeout:g} s")
                self._changed.wait(left)
            status = self._migration
        if not status:
            raise self._death()
        if status != "completed":
            reason = str(self.qmp("query-migrate").get("error-desc", status))
            if re.search(r"No space left|File too large|quota", reason, re.I) or _full(state):
                raise disk_full(state)
            raise VmError(f"{what} failed: {reason}")

    def _wait_finalized(self) -> None:
        """`completed` is said a moment before QEMU has closed the file and may go on."""
        deadline = time.monotonic() + 60.0
        while self.qmp("query-status")["status"] == "finish-migrate":
            if time.monotonic() > deadline:
                raise VmError("QEMU does not finish saving the virtual machine")
            time.sleep(0.005)

    # -- evidence

    def keep(self, folder: Path) -> None:
        """Copy what this machine leaves (console, QEMU's words, trace, events) to a folder."""
        with guard_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "console.log").write_text(self.console.before + self.console.text())
            for name in ("qemu.log", "trace.log"):
                if (self.folder / name).exists():
                    shutil.copyfile(self.folder / name, folder / name)
            (folder / "qemu.cmdline").write_text("\n".join(self.argv) + "\n")
            (folder / "events.json").write_text(
                "".join(json.dumps(event) + "\n" for event in self.events())
            )
            with contextlib.suppress(VmError, QmpFailure):
                (folder / "counters.json").write_text(json.dumps(self.counters(), indent=1))


def _is_boot_race(error: VmDied) -> bool:
    """QEMU 10.0 died of its own race, which a boot runs into once in some hundred times.

    Under TCG with several processors, an access to a device that another thread is just mapping
    can look the device up in the new memory map by its number in the old one
    (system/physmem.c, iotlb_to_section). The guest had no part in it: a boot is tried again.
    """
    return error.exit_status == -signal.SIGABRT and "iotlb_to_section" in error.stderr


def _pair(ours: ExitStack, theirs: ExitStack) -> tuple[socket.socket, socket.socket]:
    """A connected pair: our end lives as long as the machine, QEMU's copy in us only briefly."""
    near, far = socket.socketpair()
    ours.callback(near.close)
    theirs.callback(far.close)
    return near, far


def _full(path: Path) -> bool:
    try:
        stat = os.statvfs(path.parent)
    except OSError:
        return False
    return stat.f_bavail * stat.f_frsize < 1 << 20


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
