# SPDX-License-Identifier: GPL-2.0-or-later
"""A running QEMU: what it says of itself, how it ends, and being stopped.

Who may touch what: the QMP loop's thread writes what events say, under `_changed`, and the caller's
reads it there.  Everything else belongs to the caller, one thread at a time.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmmbench.base import processes
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.guest import splat
from hmmbench.vm.channel import Requests
from hmmbench.vm.console import Console
from hmmbench.vm.errors import AgentTimeout, VmDied, VmError, disk_full, guard_disk
from hmmbench.vm.qmp import Event, Qmp
from hmmbench.vm.spec import MachineSpec

STOPPED = "QEMU stopped the guest (internal error)"


def start_qemu(argv: Sequence[str], fds: Sequence[int], log: Path) -> subprocess.Popen[bytes]:
    """processes.start_bound(); raises VmError."""
    try:
        with guard_disk(log):
            return processes.start_bound(argv, fds, log)
    except EnvironmentFailure as error:
        raise VmError(error.message, error.hint) from error


class Running:
    """Of Machine, which starts it."""

    spec: MachineSpec
    folder: Path
    console: Console
    _log: Path
    _process: subprocess.Popen[bytes]
    _qmp: Qmp
    _requests: Requests

    def _reset(self) -> None:
        """The state of one that was not started yet."""
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
                    gone = STOPPED
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


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
