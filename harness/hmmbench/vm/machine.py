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
import re
import shutil
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hmmbench.base import processes
from hmmbench.device import cheader
from hmmbench.guest import splat
from hmmbench.vm.agent import Agent
from hmmbench.vm.channel import Channel, Requests
from hmmbench.vm.console import Console
from hmmbench.vm.errors import AgentTimeout, GuestHangs, QmpFailure, VmDied, VmError, guard_disk
from hmmbench.vm.exact import Exact
from hmmbench.vm.gpu import Gpu
from hmmbench.vm.mailbox import Mailbox, MailboxChannel
from hmmbench.vm.qmp import Qmp
from hmmbench.vm.running import start_qemu
from hmmbench.vm.saving import Saving
from hmmbench.vm.spec import (
    GPU_BUS,
    GPU_ID,
    MachineSpec,
    Wiring,
    arguments,
    gpu_properties,
)
from hmmbench.vm.standing import Standing
from hmmbench.vm.workdir import WorkDir

#: Seconds. A boot takes 3 s on an idle host; a loaded CI machine may need far longer.
BOOT_TIMEOUT = 400.0


#: HB_MARK of agent/protocol.h.
MARK = "hmmbench: mark "
#: Seconds between looks whether a report of the kernel goes on, and the longest it is waited for.
REPORT_STEP_S = 0.01
#: Virtual time in which an exact machine brings its console up to date, in steps.
CONSOLE_STEP_S = 0.01
REPORT_S = 2.0


class Machine(Standing, Saving):
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
        super()._reset()

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
            self._process = start_qemu(self.argv, fds, self._log)
            self._stack.callback(processes.stop, self._process)
        self.agent = Agent(self._requests)
        self._qmp = Qmp(qmp, self._on_event, self._on_closed, self._death)
        #: the schedule of an exact machine
        self.exact = Exact(self._qmp)
        #: the device, where the machine has one
        self.gpu = Gpu(self._qmp)
        self._stack.callback(self._qmp.close)
        self._qmp.connect()

    @property
    def pid(self) -> int:
        """Of QEMU."""
        return self._process.pid

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

    def ssh_port(self) -> int:
        """The port of 127.0.0.1 that leads to the guest's port 22."""
        match = re.search(
            r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)", self.monitor("info usernet")
        )
        if not match:
            raise VmError("this machine has no network", "Start it with network=True.")
        return int(match.group(1))

    # -- the device

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
                    raise GuestHangs(f"the guest did not give the device up within {timeout:g} s")
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
        hw = cheader.hardware()
        self.agent.check(
            'for d in /sys/bus/pci/devices/*; do if [ "$(cat $d/vendor)$(cat $d/device)" ='
            f" {hw.HG_PCI_VENDOR_ID:#06x}{hw.HG_PCI_DEVICE_ID:#06x} ]; then"
            " echo 1 >$d/reset; exit; fi; done; echo no hmm-gpu; exit 1"
        )

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
                (folder / "counters.json").write_text(json.dumps(self.gpu.counters(), indent=1))


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
