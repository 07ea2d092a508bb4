# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames between bench and agent, over any stream socket.

One request is outstanding at a time, and its answer carries its id. So an answer that comes
after its request was given up is recognised by its id and dropped, and the stream stays in
step. Layout and constants come from guest-driver/user/agent/protocol.h.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Protocol

from hmmbench.base import paths
from hmmbench.device import cheader
from hmmbench.vm.errors import AgentTimeout, VmDied, VmError

#: struct hb_header
HEADER = struct.Struct("<IHHII")


@lru_cache(maxsize=1)
def protocol() -> cheader.Header:
    """The constants of protocol.h."""
    return cheader.load(paths.user_sources() / "agent" / "protocol.h")


class ProtocolError(VmError):
    """What came over the channel is no frame: agent and bench are out of step for good."""


class Requests(Protocol):
    """A way to the agent: Channel, or MailboxChannel of hmmbench.vm.mailbox."""

    def request(
        self,
        kind: int,
        payload: bytes = b"",
        timeout: float = 30.0,
        more: Callable[[], bool] = lambda: False,
    ) -> tuple[int, bytes]: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Channel:
    """Request and answer over a connected stream socket.

    Only one thread at a time may send or wait; wake() may be called from any thread.
    `closed` makes the error for a peer that is gone: the machine knows why, the socket does not.
    """

    def __init__(self, sock: socket.socket, closed: Callable[[], Exception] | None = None) -> None:
        self._sock = sock
        self._closed = closed or (lambda: VmDied("the agent's channel was closed"))
        self._id = 0
        self._received = bytearray()
        self._waiting = False

    def request(
        self,
        kind: int,
        payload: bytes = b"",
        timeout: float = 30.0,
        more: Callable[[], bool] = lambda: False,
    ) -> tuple[int, bytes]:
        """Send one request; the type and payload of its answer.

        timeout in seconds for the whole exchange; `more` is asked when they are over, whether to
        wait as long again. Raises AgentTimeout, ProtocolError, and what `closed` makes when the
        peer is gone.
        """
        begun = time.monotonic()
        ident = self.post(kind, payload, timeout)
        left = timeout - (time.monotonic() - begun)
        while True:
            try:
                return self.collect(ident, left, timeout)
            except AgentTimeout:
                if not more():
                    raise
                left = timeout

    def post(self, kind: int, payload: bytes = b"", timeout: float = 30.0) -> int:
        """Send a request and do not wait: its id, for collect().

        The answer may be collected from another channel, if the machine was saved after the
        agent had taken the request and restored with that channel.
        """
        proto = protocol()
        if len(payload) > proto.HB_MAX_PAYLOAD:
            raise ValueError(f"a message of {len(payload)} bytes is longer than HB_MAX_PAYLOAD")
        # 0 is never used, so that an all-zero frame cannot be an answer.
        self._id = self._id % 0xFFFF + 1
        header = HEADER.pack(proto.HB_MAGIC, kind, self._id, len(payload), 0)
        with self._exclusive():
            try:
                self._send(header, payload, time.monotonic() + timeout)
            except TimeoutError:
                raise AgentTimeout(f"the agent did not take a request in {timeout:g} s") from None
        return self._id

    def collect(
        self, ident: int, timeout: float = 30.0, told: float | None = None
    ) -> tuple[int, bytes]:
        """Wait for the answer to request `ident`; answers to others are dropped.

        `told` is the time limit that the error names, if it is not `timeout`.
        """
        deadline = time.monotonic() + timeout
        # A restored channel goes on counting where the old one was.
        self._id = max(self._id, ident)
        with self._exclusive():
            try:
                while True:
                    kind, found, body = self._receive(deadline, ident)
                    if found == ident:
                        return kind, body
            except TimeoutError:
                limit = timeout if told is None else told
                raise AgentTimeout(f"the agent did not answer within {limit:g} s") from None

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        if self._waiting:
            raise RuntimeError("another thread uses this channel")
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def wake(self) -> None:
        """Make a request that waits fail now, as if the peer had closed (any thread)."""
        # An error means already disconnected: the waiting side sees that by itself.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()

    def _arm(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)

    def _send(self, header: bytes, payload: bytes, deadline: float) -> None:
        # A request that is given up half sent would put the agent out of step, so this closes.
        view = memoryview(header + payload)
        sent = 0
        try:
            while sent < len(view):
                self._arm(deadline)
                sent += self._sock.send(view[sent:])
        except TimeoutError:
            if sent:
                self._sock.close()
            raise
        except OSError as error:
            raise self._closed() from error

    def _receive(self, deadline: float, wanted: int) -> tuple[int, int, bytes]:
        """One frame, while the answer to `wanted` is waited for."""
        proto = protocol()
        magic, kind, ident, length, _ = HEADER.unpack(self._read(HEADER.size, deadline))
        if magic != proto.HB_MAGIC:
            # An agent that was killed while it wrote leaves half a frame: the next request goes
            # on at the frame that follows.
            self._received[:0] = HEADER.pack(magic, kind, ident, length, 0)[1:]
            at = self._received.find(proto.HB_MAGIC.to_bytes(4, "little"))
            del self._received[: at if at >= 0 else max(0, len(self._received) - 3)]
            raise ProtocolError(f"no frame from the agent: magic {magic:#x}")
        if length > proto.HB_MAX_PAYLOAD:
            raise ProtocolError(f"a frame of {length} bytes from the agent")
        # Header and payload are taken together: a timeout between them loses nothing.
        try:
            while len(self._received) < length:
                if ident != wanted and (torn := self._find(wanted)) is not None:
                    # The agent was killed while it wrote this; another one answers.
                    del self._received[:torn]
                    return self._receive(deadline, wanted)
                self._more(length - len(self._received), deadline)
        except TimeoutError:
            self._received[:0] = HEADER.pack(magic, kind, ident, length, 0)
            raise
        return kind, ident, self._take(length)

    def _find(self, wanted: int) -> int | None:
        """Where the header of the answer to `wanted` begins in what was received."""
        proto = protocol()
        magic = proto.HB_MAGIC.to_bytes(4, "little")
        at = self._received.find(magic)
        while 0 <= at <= len(self._received) - HEADER.size:
            _, kind, ident, length, _ = HEADER.unpack_from(self._received, at)
            reply = kind & proto.HB_MSG_REPLY  # HB_MSG_ERROR has the bit too
            if reply and ident == wanted and length <= proto.HB_MAX_PAYLOAD:
                return at
            at = self._received.find(magic, at + 1)
        return None

    def _read(self, count: int, deadline: float) -> bytes:
        while len(self._received) < count:
            self._more(count - len(self._received), deadline)
        return self._take(count)

    def _more(self, count: int, deadline: float) -> None:
        self._arm(deadline)
        try:
            data = self._sock.recv(max(65536, count))
        except TimeoutError:
            raise
        except OSError as error:
            raise self._closed() from error
        if not data:
            raise self._closed()
        self._received += data

    def _take(self, count: int) -> bytes:
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken
