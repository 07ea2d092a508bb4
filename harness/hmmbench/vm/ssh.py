# SPDX-License-Identifier: GPL-2.0-or-later
"""SSH into the guest: for people, and for files too large for one message to the agent.

The way leads over a forwarded port of the loopback interface to dropbear in the guest. The
guest has no sftp server: files go through cat.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shlex
import shutil
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import BinaryIO, Self

import paramiko

from hmmbench.vm.agent import ExecResult
from hmmbench.vm.errors import VmError, guard_disk
from hmmbench.vm.machine import Machine

_CHUNK = 1 << 16

#: Seconds of silence after which to look whether the guest is still there: a guest that is gone
#: leaves a QEMU that stands, and so its end of the connection open.
_LOOK_S = 1.0

#: Seconds that a copy may stand still.
_COPY_S = 60.0

# Its threads report each attempt before dropbear listens; our errors say what matters.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class _AnyHostKey(paramiko.MissingHostKeyPolicy):
    """Takes every host key.

    The port on the loopback interface was opened by our own QEMU, and a guest of the user's
    own making may have any key.
    """

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        del client, hostname, key


class Ssh:
    """A connection to the guest of `machine`, as root."""

    def __init__(self, machine: Machine, key: Path, timeout: float = 20.0) -> None:
        self._machine = machine
        self._key = key
        self._timeout = timeout
        self._client = paramiko.SSHClient()
        self._client.set_missing_host_key_policy(_AnyHostKey())

    def __enter__(self) -> Self:
        try:
            key = paramiko.Ed25519Key.from_private_key_file(str(self._key))
        except (OSError, paramiko.SSHException) as error:
            raise VmError(f"cannot use the SSH key {self._key}: {error}") from error
        port = self._machine.ssh_port()
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                self._connect(port, key)
                return self
            except (OSError, EOFError, paramiko.SSHException) as error:
                # Until dropbear listens, slirp accepts and then closes.
                self._client.close()
                self._machine.check()
                if time.monotonic() > deadline:
                    raise VmError(
                        f"no SSH into the guest within {self._timeout:g} s: {error}",
                        "Is dropbear in the initramfs? ./hmmbench doctor tells.",
                    ) from error
                time.sleep(0.2)

    def _connect(self, port: int, key: paramiko.PKey) -> None:
        # A socket of our own, so that no host name is looked up and no agent is asked.
        sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        try:
            self._client.connect(
                "hmmbench-guest",
                username="root",
                pkey=key,
                sock=sock,
                look_for_keys=False,
                allow_agent=False,
                banner_timeout=self._timeout,
                auth_timeout=self._timeout,
            )
        except BaseException:
            sock.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def execute(self, command: str, timeout: float | None = None) -> ExecResult:
        """Run a command; stdout and stderr together. timeout in seconds of silence."""
        channel = self._open()
        with contextlib.closing(channel):
            channel.set_combine_stderr(True)
            channel.exec_command(command)
            channel.shutdown_write()
            output = b"".join(self._received(channel, timeout))
            return ExecResult(self._status(channel), output.decode("utf-8", "replace"))

    def stream(self, command: str, out: BinaryIO, err: BinaryIO) -> int:
        """Run a command and pass on what it prints as it comes; its exit status."""
        channel = self._open()
        with contextlib.closing(channel):
            channel.exec_command(command)
            channel.shutdown_write()
            while True:
                select.select([channel], [], [], _LOOK_S)
                idle = True
                for ready, receive, sink in (
                    (channel.recv_ready, channel.recv, out),
                    (channel.recv_stderr_ready, channel.recv_stderr, err),
                ):
                    while ready():
                        sink.write(receive(_CHUNK))
                        sink.flush()
                        idle = False
                if idle and channel.exit_status_ready():
                    return self._status(channel)
                if idle:
                    self._machine.check()

    def put(self, local: Path, remote: str, mode: int = 0o644) -> None:
        """Copy a file into the guest."""
        name = shlex.quote(remote)
        channel = self._open()
        with contextlib.closing(channel), local.open("rb") as source:
            channel.settimeout(_COPY_S)
            channel.exec_command(f"cat >{name} && chmod {mode:o} {name}")
            while (data := source.read(_CHUNK)) and self._sent(channel, data):
                pass
            channel.shutdown_write()
            self._must_end_well(channel, f"copying {local} to {remote}")

    def get(self, remote: str, local: Path) -> None:
        """Copy a file out of the guest; nothing is left at `local` if that fails."""
        channel = self._open()
        part = local.with_name(local.name + ".part")
        try:
            with contextlib.closing(channel), guard_disk(local):
                channel.exec_command(f"cat {shlex.quote(remote)}")
                channel.shutdown_write()
                with part.open("wb") as sink:
                    for data in self._received(channel, _COPY_S):
                        sink.write(data)
                self._must_end_well(channel, f"copying {remote} out of the guest")
                part.replace(local)
        finally:
            part.unlink(missing_ok=True)

    def shell(self) -> int:
        """An interactive shell on this process's terminal; its exit status."""
        channel = self._open()
        with contextlib.closing(channel), _raw_terminal():
            size = shutil.get_terminal_size()
            channel.get_pty(os.environ.get("TERM", "vt100"), size.columns, size.lines)

            def resized(number: int, frame: FrameType | None) -> None:
                del number, frame
                size = shutil.get_terminal_size()
                with contextlib.suppress(paramiko.SSHException):
                    channel.resize_pty(size.columns, size.lines)

            before = signal.signal(signal.SIGWINCH, resized)
            try:
                channel.invoke_shell()
                self._pump(channel)
            finally:
                signal.signal(signal.SIGWINCH, before)
            return self._status(channel)

    def _pump(self, channel: paramiko.Channel) -> None:
        """Terminal to channel and back, until the shell ends."""
        keyboard = sys.stdin.fileno()
        sources: list[paramiko.Channel | int] = [channel, keyboard]
        while True:
            ready, _, _ = select.select(sources, [], [], 1.0)
            if channel in ready:
                data = channel.recv(_CHUNK)
                if not data:
                    return
                os.write(sys.stdout.fileno(), data)
            if keyboard in ready:
                typed = os.read(keyboard, 4096)
                if typed:
                    channel.sendall(typed)
                else:
                    channel.shutdown_write()
                    sources.remove(keyboard)
            if not ready and not self._machine.alive:
                return

    def _open(self) -> paramiko.Channel:
        transport = self._client.get_transport()
        if transport is None:
            raise VmError("the SSH connection to the guest is not open")
        try:
            channel = transport.open_session(timeout=20)
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._machine.check()
            raise VmError(f"the SSH connection to the guest is lost: {error}") from error
        return channel

    def _sent(self, channel: paramiko.Channel, data: bytes) -> bool:
        """Whether the command took it; not if it has ended, and its status says why."""
        try:
            channel.sendall(data)
        except TimeoutError:
            self._machine.check()
            raise VmError("a command in the guest took no input for too long") from None
        except OSError:  # paramiko's word for a channel that the other side has closed
            return False
        return True

    def _received(self, channel: paramiko.Channel, silence: float | None) -> Iterator[bytes]:
        """What the command prints, until it ends; VmError after `silence` seconds of none."""
        channel.settimeout(_LOOK_S)
        last = time.monotonic()
        while True:
            try:
                data = channel.recv(_CHUNK)
            except TimeoutError:
                self._machine.check()
                if silence is not None and time.monotonic() - last > silence:
                    raise VmError("a command in the guest gave no output for too long") from None
                continue
            if not data:
                return
            yield data
            last = time.monotonic()

    def _status(self, channel: paramiko.Channel) -> int:
        while not channel.status_event.wait(_LOOK_S):
            self._machine.check()
        status = channel.recv_exit_status()
        if status < 0:
            # The channel ended without one: the guest is gone, or the command was killed.
            self._machine.check()
        return status

    def _must_end_well(self, channel: paramiko.Channel, what: str) -> None:
        status = self._status(channel)
        if status != 0:
            said = channel.recv_stderr(_CHUNK).decode("utf-8", "replace").strip()
            raise VmError(f"{what} failed with status {status}: {said}")


@contextlib.contextmanager
def keys() -> Iterator[Callable[[float], bytes | None]]:
    """A reader of typed keys: given seconds to wait, the bytes typed (none: b"", end: None)."""
    ended = False

    def read(seconds: float) -> bytes | None:
        nonlocal ended
        if ended:
            return None
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
        if not ready:
            return b""
        typed = os.read(sys.stdin.fileno(), 4096)
        ended = not typed
        return typed or None

    with _raw_terminal():
        yield read


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Keys go to the guest one by one, Ctrl-C too, for as long as the block runs."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        # Not setraw's default, which drops what was typed ahead.
        tty.setraw(sys.stdin, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
