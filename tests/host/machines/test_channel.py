# SPDX-License-Identifier: GPL-2.0-or-later
"""Framing and simple messages, against a small agent in a thread."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hmmbench.guest.program import PROTOCOL_VERSION
from hmmbench.vm.agent import Agent, AgentError
from hmmbench.vm.channel import HEADER, Channel, ProtocolError, protocol
from hmmbench.vm.errors import AgentTimeout, VmDied

PROTO = protocol()
REPLY = PROTO.HB_MSG_REPLY
Handler = Callable[[socket.socket, int, int, bytes], None]


def frame(kind: int, ident: int, body: bytes, magic: int = PROTO.HB_MAGIC) -> bytes:
    return HEADER.pack(magic, kind, ident, len(body), 0) + body


def read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


@contextlib.contextmanager
def served(handler: Handler) -> Iterator[Channel]:
    """A channel whose other end gives each request to `handler`."""
    near, far = socket.socketpair()

    def serve() -> None:
        with far, contextlib.suppress(EOFError, OSError):
            while True:
                magic, kind, ident, length, pad = HEADER.unpack(read(far, HEADER.size))
                assert (magic, pad) == (PROTO.HB_MAGIC, 0)
                handler(far, kind, ident, read(far, length))

    thread = threading.Thread(target=serve)
    thread.start()
    channel = Channel(near)
    try:
        yield channel
    finally:
        channel.close()
        thread.join(10)
        assert not thread.is_alive()


def echo(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
    sock.sendall(frame(kind | REPLY, ident, body))


def test_header_is_the_struct_of_the_contract() -> None:
    assert HEADER.size == 16
    assert HEADER.pack(PROTO.HB_MAGIC, 1, 2, 3, 0)[:4] == b"HMMB"


@pytest.mark.parametrize("size", [0, 1, 15, 65536, 3_000_000])
def test_round_trip(size: int) -> None:
    body = bytes(i & 0xFF for i in range(min(size, 256))) * (size // 256 + 1)
    with served(echo) as channel:
        for _ in range(3):
            assert channel.request(7, body[:size]) == (7 | REPLY, body[:size])


def test_ids_wrap_without_zero() -> None:
    seen: list[int] = []

    def note(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        seen.append(ident)
        echo(sock, kind, ident, body)

    with served(note) as channel:
        channel._id = 0xFFFE
        for _ in range(3):
            channel.request(1)
    assert seen == [0xFFFF, 1, 2]


def test_answer_in_pieces() -> None:
    def slowly(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        for byte in frame(kind | REPLY, ident, body):
            sock.sendall(bytes([byte]))
            time.sleep(0.001)

    with served(slowly) as channel:
        assert channel.request(3, b"0123456789")[1] == b"0123456789"


def test_late_answer_is_dropped() -> None:
    """After a timeout the next request gets its own answer, not the one that came late."""
    release = threading.Event()

    def late(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        if body == b"slow":
            release.wait(10)
        echo(sock, kind, ident, body)

    with served(late) as channel:
        with pytest.raises(AgentTimeout, match="within"):
            channel.request(1, b"slow", timeout=0.1)
        release.set()
        assert channel.request(1, b"quick")[1] == b"quick"


def test_timeout_between_header_and_payload_loses_nothing() -> None:
    release = threading.Event()

    def stalls(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        data = frame(kind | REPLY, ident, body)
        if body == b"slow":
            sock.sendall(data[: HEADER.size + 2])
            release.wait(10)
            sock.sendall(data[HEADER.size + 2 :])
        else:
            sock.sendall(data)

    with served(stalls) as channel:
        with pytest.raises(AgentTimeout):
            channel.request(1, b"slow", timeout=0.1)
        release.set()
        assert channel.request(1, b"quick")[1] == b"quick"


def test_post_and_collect() -> None:
    with served(echo) as channel:
        first = channel.post(1, b"one")
        second = channel.post(2, b"two")
        assert channel.collect(second) == (2 | REPLY, b"two")
        with pytest.raises(AgentTimeout):
            channel.collect(first, 0.1)  # dropped on the way to the second
        assert channel.request(3, b"three")[1] == b"three"


def test_peer_gone_is_told_at_once() -> None:
    def hang_up(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        sock.shutdown(socket.SHUT_RDWR)

    with served(hang_up) as channel:
        begun = time.monotonic()
        with pytest.raises(VmDied):
            channel.request(1, timeout=30)
        assert time.monotonic() - begun < 10


def test_wake_ends_a_waiting_request() -> None:
    def never(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        pass

    with served(never) as channel:
        threading.Timer(0.1, channel.wake).start()
        with pytest.raises(VmDied):
            channel.request(1, timeout=30)


@pytest.mark.parametrize(
    "answer",
    [
        frame(REPLY, 1, b"", magic=0x12345678),
        HEADER.pack(PROTO.HB_MAGIC, REPLY, 1, PROTO.HB_MAX_PAYLOAD + 1, 0),
    ],
    ids=["magic", "length"],
)
def test_garbage_is_refused(answer: bytes) -> None:
    with (
        served(lambda sock, kind, ident, body: sock.sendall(answer)) as channel,
        pytest.raises(ProtocolError),
    ):
        channel.request(1)


def test_half_a_frame_costs_one_answer() -> None:
    """As an agent leaves it that is killed while it writes; the next one's are understood."""
    torn = [frame(REPLY, 1, b"x" * 100)[:70]]

    def agent(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        rest = torn.pop() if torn else b""
        sock.sendall(rest + frame(kind | REPLY, ident, body))

    with served(agent) as channel:
        with pytest.raises((ProtocolError, AgentTimeout)):
            channel.request(1, b"one", 0.5)
        for _ in range(8):
            with contextlib.suppress(ProtocolError, AgentTimeout):
                assert channel.request(1, b"two", 0.5)[1] == b"two"
                break
        else:
            raise AssertionError("never in step again")


@pytest.mark.parametrize("came", [HEADER.size, HEADER.size + 1, 70, 50_000])
def test_a_long_answer_that_was_torn_does_not_swallow_the_next(came: int) -> None:
    """The small answers of the next agent would take for ever to fill what is missing of it."""
    torn = [frame(REPLY, 1, b"x" * 100_000)[:came]]

    def agent(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        sock.sendall(torn.pop() if torn else frame(kind | REPLY, ident, body))

    with served(agent) as channel:
        with pytest.raises(AgentTimeout):
            channel.request(1, b"one", 0.3)
        assert channel.request(1, b"two", 5)[1] == b"two"
        assert channel.request(1, b"three", 5)[1] == b"three"


def test_a_late_answer_that_looks_torn_is_waited_for() -> None:
    """It contains what looks like a frame, and the agent is only slow."""
    begun, ended = threading.Event(), threading.Event()
    late = frame(REPLY, 1, frame(REPLY, 77, b"not the one") * 100)

    def agent(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        if not begun.is_set():
            begun.set()
            sock.sendall(late[:500])
            ended.wait(20)
            sock.sendall(late[500:])
        else:
            sock.sendall(frame(kind | REPLY, ident, body))

    with served(agent) as channel:
        with pytest.raises(AgentTimeout):
            channel.request(1, b"one", 0.3)
        threading.Timer(0.2, ended.set).start()
        assert channel.request(1, b"two", 10)[1] == b"two"


def test_too_long_a_request_is_refused_here() -> None:
    with served(echo) as channel, pytest.raises(ValueError, match="HB_MAX_PAYLOAD"):
        channel.request(1, bytes(PROTO.HB_MAX_PAYLOAD + 1))


def test_agent_messages() -> None:
    files: dict[str, bytes] = {}

    def agent(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        if kind == PROTO.HB_MSG_HELLO:
            body = json.dumps({"protocol": PROTOCOL_VERSION, "kernel": "6.12"}).encode()
        elif kind == PROTO.HB_MSG_EXEC:
            (timeout,) = struct.unpack_from("<I", body)
            body = struct.pack("<i", -9) + f"{timeout} {body[4:].decode()}".encode()
        elif kind == PROTO.HB_MSG_WRITE_FILE:
            mode, length = struct.unpack_from("<II", body)
            files[f"{body[8 : 8 + length].decode()}:{mode:o}"] = body[8 + length :]
            body = b""
        elif kind == PROTO.HB_MSG_START:
            body = struct.pack("<I", 42)
        elif kind == PROTO.HB_MSG_KILL:
            assert struct.unpack("<II", body) == (42, 15)
            body = b""
        elif kind == PROTO.HB_MSG_READ_FILE:
            sock.sendall(frame(PROTO.HB_MSG_ERROR, ident, b"no such file: " + body))
            return
        sock.sendall(frame(kind | REPLY, ident, body))

    with served(agent) as channel:
        guest = Agent(channel)
        assert guest.hello()["kernel"] == "6.12"
        result = guest.execute("ls /", timeout=1.5)
        assert (result.status, result.output) == (-9, "1500 ls /")
        with pytest.raises(AgentError, match="status -9"):
            guest.check("false")
        guest.write_file("/tmp/ä", b"\0data", mode=0o755)
        assert files == {"/tmp/ä:755": b"\0data"}
        assert guest.start("sleep 5") == 42
        guest.kill(42, 15)
        with pytest.raises(AgentError, match="no such file: /nix"):
            guest.read_file("/nix")
        assert guest.program(b"P", 5) == b"P"


def test_a_slow_guest_is_waited_for_as_long_as_it_moves() -> None:
    done = threading.Event()

    def agent(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        done.wait(60)
        echo(sock, kind, ident, body)

    asked = 0

    def moves() -> bool:
        """What is asked for twice ends then."""
        nonlocal asked
        asked += 1
        if asked == 2:
            done.set()
        return True

    def stands() -> bool:
        nonlocal asked
        asked += 1
        return False

    with served(agent) as channel:
        guest = Agent(channel)
        assert guest.program(b"slow", 0.2, moves) == b"slow"
        assert asked >= 2
        asked = 0
        done.clear()
        with pytest.raises(AgentTimeout, match=r"within 0\.2 s"):
            guest.program(b"hangs", 0.2, stands)
        assert asked == 1
        done.set()
        # The late answer is nobody's.
        assert guest.program(b"next", 5) == b"next"


def test_other_protocol_version_is_refused() -> None:
    def agent(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        sock.sendall(frame(kind | REPLY, ident, json.dumps({"protocol": 99}).encode()))

    with served(agent) as channel, pytest.raises(ProtocolError, match="hmmbench build"):
        Agent(channel).hello()


def test_answer_of_another_type_is_refused() -> None:
    def agent(sock: socket.socket, kind: int, ident: int, body: bytes) -> None:
        sock.sendall(frame(PROTO.HB_MSG_KILL | REPLY, ident, b""))

    with served(agent) as channel, pytest.raises(ProtocolError, match="0x107"):
        Agent(channel).hello()
