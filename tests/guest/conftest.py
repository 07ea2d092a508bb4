# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent, built and run on the host: no virtual machine, no GPU."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hmmbench.guest.agent import Agent
from hmmbench.vm.channel import Channel

ROOT = Path(__file__).resolve().parents[2]
AGENT_SOURCES = ROOT / "guest-driver" / "agent"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with agent, libhmmgpu.a and kernels.elf, compiled from the tree."""
    out = tmp_path_factory.mktemp("agent-build")
    result = subprocess.run(
        ["make", "-C", str(AGENT_SOURCES), f"OUT={out}", "-j2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return out


class HostAgent:
    """A running agent that listens on a Unix socket."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.path = folder / "agent.sock"
        self.log = folder / "agent.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([str(binary), str(self.path)], stderr=log)
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


@pytest.fixture
def host_agent(built: Path, tmp_path: Path) -> Iterator[HostAgent]:
    # A socket's path is limited to 107 bytes, which pytest's folders can exceed.
    folder = Path(os.path.realpath(tmp_path))
    short = Path("/tmp") / f"hmmbench-test-{os.getpid()}-{time.monotonic_ns() % 10**9}"
    short.mkdir()
    agent = HostAgent(built / "agent", short)
    try:
        yield agent
    finally:
        agent.stop()
        shutil.copy(agent.log, folder)
        shutil.rmtree(short)


@pytest.fixture
def agent(host_agent: HostAgent) -> Agent:
    return host_agent.connect()
