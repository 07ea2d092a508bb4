# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent as a process of the host, for tests."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from hmmbench.vm.agent import Agent
from hmmbench.vm.channel import Channel

ROOT = Path(__file__).resolve().parents[2]


class HostAgent:
    """A running agent that listens on a Unix socket."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.path = folder / "agent.sock"
        self.log = folder / "agent.log"
        # Stands for the kernel's log, which is this machine's and no business of a test.
        self.kernel_log = folder / "kmsg"
        os.mkfifo(self.kernel_log)
        #: and for its debugfs: the drivers' folders
        self.dri = folder / "dri"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(binary), str(self.path)],
                stderr=log,
                env={**os.environ, "HMMBENCH_KMSG": str(self.kernel_log),
                     "HMMBENCH_DRI": str(self.dri)},
            )
        self._channels: list[Channel] = []

    def raw(self) -> socket.socket:
        """A connection; the agent serves one at a time."""
        end = time.monotonic() + 10
        while True:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(str(self.path))
                return sock
            except OSError:
                sock.close()
                assert time.monotonic() < end, self.log.read_text()
                time.sleep(0.01)

    def connect(self) -> Agent:
        channel = Channel(self.raw())
        self._channels.append(channel)
        return Agent(channel)

    def children(self) -> list[int]:
        """Living or dead children of the agent."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def stop(self) -> None:
        for channel in self._channels:
            channel.close()
        self.process.kill()
        self.process.wait()
