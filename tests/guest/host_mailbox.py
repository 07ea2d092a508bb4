# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent as a process of the host that speaks through a mailbox, for tests.

A folder takes the place of the device's in sysfs. Where a machine would stand, the agent stops
itself, and SIGCONT lets it go on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

from hmmbench.vm.agent import Agent
from hmmbench.vm.channel import protocol
from hmmbench.vm.errors import AgentTimeout
from hmmbench.vm.mailbox import Mailbox, MailboxChannel, layout


class HostMailbox:
    """A running agent that stands."""

    def __init__(self, binary: Path, folder: Path, **registers: int) -> None:
        """registers: what the device's registers read, by their names in small letters."""
        hm = layout()
        self.mailbox = Mailbox()
        self.device = folder / "device"
        self.device.mkdir()
        values = {"id": hm.HM_ID_MAGIC, "version": hm.HM_VERSION, "size": hm.HM_SIZE, **registers}
        words = struct.pack("<3I", values["id"], values["version"], values["size"])
        (self.device / "resource0").write_bytes(words.ljust(hm.HM_BAR0_SIZE, b"\0"))
        (self.device / "resource2").symlink_to(f"/proc/{os.getpid()}/fd/{self.mailbox.fd}")
        self.binary = binary
        self.log = folder / "agent.log"
        # Stands for the kernel's log, which is this machine's and no business of a test.
        self.kernel_log = folder / "kmsg"
        os.mkfifo(self.kernel_log)
        #: Seconds until it has to stand.
        self.patience = 30.0
        self.agent = Agent(MailboxChannel(self.mailbox, self.go))
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binary), str(self.device)],
                stderr=log,
                env={**os.environ, "HMMBENCH_KMSG": str(self.kernel_log)},
            )

    def wait(self, timeout: float = 60.0) -> int:
        """Until it stands: why. AssertionError if it ends."""
        timeout = min(timeout, self.patience)
        end = time.monotonic() + timeout
        while True:
            seen = os.waitid(
                os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
            )
            if seen is not None:
                break
            if time.monotonic() > end:
                raise AgentTimeout(f"the agent did not stand within {timeout:g} s")
            time.sleep(0.0005)
        assert seen.si_code == os.CLD_STOPPED, self.log.read_text()
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        stood = struct.unpack_from("<I", self.registers(), layout().HM_REG_STAND)[0]
        assert stood == self.mailbox.why
        return self.mailbox.why

    def registers(self) -> bytes:
        return (self.device / "resource0").read_bytes()

    def go(self, timeout: float = 60.0) -> int:
        self.process.send_signal(signal.SIGCONT)
        return self.wait(timeout)

    def ask(self, kind: int, payload: bytes = b"") -> tuple[int, bytes]:
        """One request that ends by one stand, with its answer."""
        ident = self.mailbox.post(kind, payload)
        assert self.go() == layout().HM_STAND_ANSWER
        answer, found, body = self.mailbox.take()
        assert found == ident
        assert answer in (kind | protocol().HB_MSG_REPLY, protocol().HB_MSG_ERROR)
        return answer, body

    def children(self) -> list[int]:
        """Living or dead children of the agent."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def living(self) -> list[int]:
        """Processes of the agent's program, but for those that are dead."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if (folder / "exe").resolve() == self.binary.resolve() and state != "Z":
                    found.append(int(folder.name))
        return [pid for pid in found if pid != self.process.pid]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        # A broken agent lets nobody go.
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.mailbox.close()
