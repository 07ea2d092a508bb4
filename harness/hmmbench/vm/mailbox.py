# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests and answers through memory that is shared with a guest, while its machine stands.

Layout and registers are those of qemu-device/include/hmm_mailbox_hw.h. The host uses the memory
only while the machine stands, the guest only while it runs; so the order of reads and writes
here does not matter, and nothing of the host's time reaches the guest.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import weakref
from collections.abc import Callable
from functools import lru_cache

from hmmbench.base import paths
from hmmbench.device import cheader
from hmmbench.vm.channel import HEADER, ProtocolError, protocol
from hmmbench.vm.errors import AgentTimeout

#: struct hm_head
_HEAD = struct.Struct("<13I4xQ")
(_MAGIC, _VERSION, _REQUEST, _REQUEST_LEN, _ANSWER, _ANSWER_LEN, _STANDS, _WHY, _UNDER_WAY, _, _, _,
 _PHASE, _TIME) = range(14)  # fmt: skip


@lru_cache(maxsize=1)
def layout() -> cheader.Header:
    """The constants of hmm_mailbox_hw.h."""
    return cheader.load(paths.device_sources() / "include" / "hmm_mailbox_hw.h")


def why_name(why: int) -> str:
    """HM_STAND_* in words, for messages."""
    return layout().names("HM_STAND_").get(why, f"reason {why}").lower()


class Mailbox:
    """The memory: a file without a name, whose descriptor is for QEMU to map too.

    Machine says when the machine stands; here nobody looks.
    """

    def __init__(self) -> None:
        hm = layout()
        self.size = hm.HM_SIZE
        self.fd = os.memfd_create("hmmbench-mailbox", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, self.size)
            self._memory = mmap.mmap(self.fd, self.size)
        except BaseException:
            os.close(self.fd)
            raise
        self._finalizer = weakref.finalize(self, _close, self.fd, self._memory)
        self._set(_MAGIC, hm.HM_ID_MAGIC)
        self._set(_VERSION, hm.HM_VERSION)

    def close(self) -> None:
        """Give the memory back. May be called again."""
        self._finalizer()

    def _head(self) -> tuple[int, ...]:
        return _HEAD.unpack_from(self._memory)

    def _set(self, field: int, value: int) -> None:
        struct.pack_into("<I", self._memory, 4 * field, value)

    @property
    def stands(self) -> int:
        """How often the guest has stood, in its whole life: also before it was saved."""
        return self._head()[_STANDS]

    @property
    def why(self) -> int:
        """HM_STAND_* of the latest stand."""
        return self._head()[_WHY]

    @property
    def under_way(self) -> int:
        """Operations of the program that have begun and not ended; 0 when there is none."""
        return sum(self._head()[_UNDER_WAY:_PHASE])

    @property
    def phase(self) -> int | None:
        """Of the program, that began last; behind its last one that and 1; None: none runs."""
        phase = self._head()[_PHASE]
        return None if phase == layout().HM_NO_PHASE else phase

    @property
    def time_ns(self) -> int:
        """The guest's CLOCK_MONOTONIC at its latest stand."""
        return self._head()[_TIME]

    def check(self) -> None:
        """Raise ProtocolError if a snapshot, or a guest run wild, left no mailbox here."""
        hm, head = layout(), self._head()
        if head[_MAGIC] != hm.HM_ID_MAGIC or head[_VERSION] != hm.HM_VERSION:
            raise ProtocolError(
                f"no mailbox in the machine's memory: magic {head[_MAGIC]:#x},"
                f" version {head[_VERSION]}"
            )

    def post(self, kind: int, payload: bytes = b"") -> int:
        """Write a request, which the guest finds when it goes on; its id."""
        proto = protocol()
        if len(payload) > proto.HB_MAX_PAYLOAD:
            raise ValueError(f"a message of {len(payload)} bytes is longer than HB_MAX_PAYLOAD")
        self.check()
        number = (self._head()[_REQUEST] + 1) & 0xFFFFFFFF
        ident = _ident(number)
        at = layout().HM_FRAME
        frame = HEADER.pack(proto.HB_MAGIC, kind, ident, len(payload), 0) + payload
        self._memory[at : at + len(frame)] = frame
        self._set(_REQUEST_LEN, len(frame))
        self._set(_REQUEST, number)
        return ident

    def take(self) -> tuple[int, int, bytes]:
        """The answer to the latest request, for which the machine stands: (type, id, payload).

        Raises ProtocolError if there is none, or it is no answer to that request.
        """
        proto, hm = protocol(), layout()
        self.check()
        head = self._head()
        if not head[_REQUEST]:
            raise ProtocolError("nothing was asked of the agent yet")
        if head[_ANSWER] != head[_REQUEST]:
            raise ProtocolError(
                f"the agent has not answered request {head[_REQUEST]}"
                f" (it stands: {why_name(head[_WHY])})",
                "It was killed, or died, while it worked on it; another one is there now."
                if head[_WHY] == hm.HM_STAND_READY
                else "",
            )
        at, length = hm.HM_FRAME, head[_ANSWER_LEN]
        if not HEADER.size <= length <= self.size - at:
            raise ProtocolError(f"an answer of {length} bytes in the mailbox")
        magic, kind, ident, size, _ = HEADER.unpack_from(self._memory, at)
        if magic != proto.HB_MAGIC or HEADER.size + size != length:
            raise ProtocolError(
                f"no frame in the mailbox: magic {magic:#x}, {size} bytes in {length}"
            )
        if ident != _ident(head[_REQUEST]):
            raise ProtocolError(
                f"an answer to request {ident}, not {_ident(head[_REQUEST])}, in the mailbox"
            )
        return kind, ident, self._memory[at + HEADER.size : at + length]


def _ident(number: int) -> int:
    """hb_header.id of a request: never 0, so that an all-zero frame cannot be an answer."""
    return (number - 1) % 0xFFFF + 1


def _close(fd: int, memory: mmap.mmap) -> None:
    with contextlib.suppress(BufferError):
        memory.close()
    os.close(fd)


class MailboxChannel:
    """What Channel is for a stream (hmmbench.vm.channel): a request and its answer.

    go -- lets the machine go on until it stands again: Machine.go
    """

    def __init__(self, mailbox: Mailbox, go: Callable[[float], int]) -> None:
        self._mailbox = mailbox
        self._go = go

    def request(
        self,
        kind: int,
        payload: bytes = b"",
        timeout: float = 30.0,
        more: Callable[[], bool] = lambda: False,
    ) -> tuple[int, bytes]:
        """As Channel.request; stands within the request are passed over."""
        self._mailbox.post(kind, payload)
        self._resume(timeout, more)
        answer, _, body = self._mailbox.take()
        return answer, body

    def _resume(self, timeout: float, more: Callable[[], bool]) -> None:
        """Until it stands with the answer, or because there is none to come."""
        while self._go_on(timeout, more) == layout().HM_STAND_ENDED:
            pass

    def _go_on(self, timeout: float, more: Callable[[], bool]) -> int:
        while True:
            try:
                return self._go(timeout)
            except AgentTimeout:
                if not more():
                    raise

    def wake(self) -> None:
        """Nothing waits here: Machine.go does, and sees the machine's end by itself."""

    def close(self) -> None:
        self._mailbox.close()
