# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent in the guest, as an object: one method a message of agent/protocol.h."""

from __future__ import annotations

import errno
import json
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hmmbench.guest.program import PROTOCOL_VERSION
from hmmbench.vm.channel import ProtocolError, Requests, protocol
from hmmbench.vm.errors import GuestHangs, VmError

#: How much longer than the guest's own limit the bench waits for an answer (seconds). The
#: guest's clock stands still while QEMU is not scheduled; the host's does not.
GRACE = 15.0


class AgentError(VmError):
    """The agent refused a request and said why."""


@dataclass(frozen=True)
class ExecResult:
    """End of a command in the guest. status: exit status, or -signal if a signal ended it, or
    -ETIMEDOUT if it did not end in its time."""

    status: int
    output: str


def answered(kind: int, answer: int, body: bytes) -> bytes:
    """The payload of an answer of type `answer` to a request of type `kind`.

    Raises AgentError if that is a refusal, ProtocolError if it answers something else.
    """
    proto = protocol()
    if answer == proto.HB_MSG_ERROR:
        raise AgentError(f"the guest's agent: {body.decode('utf-8', 'replace').strip()}")
    if answer != kind | proto.HB_MSG_REPLY:
        raise ProtocolError(f"the agent answered a request of type {kind} with {answer:#x}")
    return body


class Agent:
    """Requests to the agent. Each raises AgentError, AgentTimeout, VmDied or ProtocolError."""

    def __init__(self, channel: Requests) -> None:
        self._channel = channel

    def _ask(
        self, kind: int, payload: bytes, timeout: float, more: Callable[[], bool] = lambda: False
    ) -> bytes:
        answer, body = self._channel.request(kind, payload, timeout, more)
        return answered(kind, answer, body)

    def hello(self, timeout: float = 30.0) -> dict[str, Any]:
        """Who answers: protocol version, sizes of structs, kernel release, GPU parameters."""
        answer = _json(self._ask(protocol().HB_MSG_HELLO, b"", timeout))
        if answer.get("protocol") != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the agent speaks protocol {answer.get('protocol')},"
                f" the bench {PROTOCOL_VERSION}",
                "Run ./hmmbench build: agent and bench come from different sources.",
            )
        return answer

    def program(
        self, payload: bytes, timeout: float, moving: Callable[[], bool] = lambda: False
    ) -> bytes:
        """Run one program; both sides are encoded by hmmbench.guest.protocol.

        `moving` is asked each time `timeout` seconds are over: whether to wait as long again.
        """
        return self._ask(protocol().HB_MSG_PROGRAM, payload, timeout, moving)

    def example(
        self, payload: bytes, timeout: float, moving: Callable[[], bool] = lambda: False
    ) -> bytes:
        """Run a program with what surrounds it; both sides are encoded by hmmbench.guest.example.

        As program(). A stand within it is passed over.
        """
        return self._ask(protocol().HB_MSG_EXAMPLE, payload, timeout, moving)

    def execute(self, command: str, timeout: float = 30.0) -> ExecResult:
        """Run a shell command to its end. The guest kills it after `timeout` seconds."""
        payload = struct.pack("<I", int(timeout * 1000)) + command.encode()
        body = self._ask(protocol().HB_MSG_EXEC, payload, timeout + GRACE)
        if len(body) < 4:
            raise ProtocolError("the agent's answer to EXEC is cut short")
        (status,) = struct.unpack_from("<i", body)
        return ExecResult(status, body[4:].decode("utf-8", "replace"))

    def check(self, command: str, timeout: float = 30.0) -> str:
        """As execute(), but a command that fails raises AgentError, and GuestHangs one that does
        not end; its output."""
        result = self.execute(command, timeout)
        if result.status == -errno.ETIMEDOUT:
            raise GuestHangs(f"the command {command!r} did not end in the guest in {timeout:g} s")
        if result.status != 0:
            raise AgentError(
                f"the command {command!r} failed in the guest with status {result.status}:"
                f" {result.output.strip()}"
            )
        return result.output

    def read_file(self, path: str, timeout: float = 30.0) -> bytes:
        """The content of a file of the guest, /proc and debugfs included."""
        return self._ask(protocol().HB_MSG_READ_FILE, path.encode(), timeout)

    def write_file(
        self, path: str, content: bytes, mode: int = 0o644, timeout: float = 30.0
    ) -> None:
        """Create or replace a file. mode 0 writes into what exists (sysfs, debugfs, FIFOs)."""
        name = path.encode()
        payload = struct.pack("<II", mode, len(name)) + name + content
        self._ask(protocol().HB_MSG_WRITE_FILE, payload, timeout)

    def start(self, command: str, timeout: float = 10.0) -> int:
        """Start a shell command and leave it running; its process group."""
        return self._number("START", struct.pack("<I", 0) + command.encode(), timeout)

    def kill(self, pid: int, number: int = signal.SIGKILL, timeout: float = 30.0) -> None:
        """Signal what start() began; with SIGKILL it is gone and reaped on return."""
        self._ask(protocol().HB_MSG_KILL, struct.pack("<II", pid, number), timeout)

    def open(self, command: str, timeout: float = 10.0) -> int:
        """As start(), for pipe(); kill() is due also when the program has ended by itself."""
        return self._number("OPEN", struct.pack("<I", 0) + command.encode(), timeout)

    def pipe(self, pid: int, data: bytes, timeout: float = 30.0) -> bytes:
        """Write `data` to what open() began; the frame that it answers, without its length.

        AgentError says how the program ended, with its last words; or that it was silent for
        `timeout` seconds (only kill() is of use then).
        """
        payload = struct.pack("<II", pid, int(timeout * 1000)) + data
        return self._ask(protocol().HB_MSG_PIPE, payload, timeout + GRACE)

    def printed(self, timeout: float = 30.0) -> int:
        """Number of the mark that stands behind all that the kernel printed, see agent/klog.c.

        0 if it has printed nothing since the last call, or since the agent's start.
        Machine.catch_up() waits for the mark.
        """
        return self._number("PRINTED", b"", timeout)

    def _number(self, what: str, payload: bytes, timeout: float) -> int:
        """The answer to a request that a number answers: a process's, or a mark's."""
        body = self._ask(int(getattr(protocol(), f"HB_MSG_{what}")), payload, timeout)
        if len(body) != 4:
            raise ProtocolError(f"the agent's answer to {what} is no number")
        return int(struct.unpack("<I", body)[0])

    def bench(self, request: dict[str, Any], timeout: float = 120.0) -> dict[str, Any]:
        """Run one measurement of agent/bench.c in the guest."""
        return _json(self._ask(protocol().HB_MSG_BENCH, json.dumps(request).encode(), timeout))


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise ProtocolError(f"the agent sent no JSON: {body[:80]!r}") from error
    if not isinstance(value, dict):
        raise ProtocolError(f"the agent sent no JSON object: {body[:80]!r}")
    return value
