# SPDX-License-Identifier: GPL-2.0-or-later
"""A session: a process in the guest that does what it is told, one request at a time.

Layout and numbers are those of guest-driver/user/session/session.h.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType

from hmmbench.base import paths
from hmmbench.device import cheader
from hmmbench.gpu.errors import SessionError, SessionOver
from hmmbench.vm.agent import Agent, AgentError
from hmmbench.vm.errors import VmError

#: Bytes of memory in one message.
CHUNK = 8 << 20

_REQUEST = struct.Struct("<II")
_ALLOC = struct.Struct("<IIQQ")
_LAUNCH = struct.Struct("<IIIIIIQQ")
_MIGRATE = struct.Struct("<QQII")
_RESULT = struct.Struct("<iIIIQQQQ")

_names = itertools.count(1)


@lru_cache(maxsize=1)
def numbers() -> cheader.Header:
    """The constants of session.h."""
    return cheader.load(paths.user_sources() / "session" / "session.h")


@dataclass(frozen=True)
class Result:
    """How a job ended: error 0 or an errno, negative; `report` says it in words.

    printed -- bytes that kernels printed, for Process.printed()
    """

    error: int
    line: int
    block: int
    thread: int
    address: int
    pc: int
    instructions: int
    printed: int
    function: str
    file: str
    report: str


class Process:
    """The session's program, started and spoken to through the agent.

    agent   -- of the guest
    program -- a static executable (hmmbench.gpu.build.program)
    timeout -- seconds for one request; a job that takes longer ends the session

    Every method raises SessionError if the session refuses or its program has ended, and VmError
    if it is the machine that is gone.  A session that was silent for too long is killed.
    """

    def __init__(self, agent: Agent, program: bytes, timeout: float = 120.0) -> None:
        self._agent = agent
        self._timeout = timeout
        self._pid = 0
        path = f"/tmp/hmmbench-session-{next(_names)}"
        agent.write_file(path, program, 0o755)
        try:
            self._pid = agent.open(f"exec {path}")
            version, _ = struct.unpack("<II", self._ask(numbers().HS_HELLO, b""))
        except BaseException:
            self.close()
            raise
        finally:
            # The running program keeps its file; nothing is left when it ends.
            with contextlib.suppress(VmError):
                agent.check(f"rm -f {path}")
        if version != numbers().HS_VERSION:
            self.close()
            raise SessionError(f"the session speaks version {version}")

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program.  Nothing happens if it, or the machine, is gone."""
        pid, self._pid = self._pid, 0
        if pid:
            with contextlib.suppress(VmError):
                self._agent.kill(pid)

    def _ask(self, op: int, payload: bytes, timeout: float | None = None) -> bytes:
        if not self._pid:
            raise SessionError("the session is closed")
        try:
            body = self._agent.pipe(
                self._pid, _REQUEST.pack(len(payload), op) + payload, timeout or self._timeout
            )
        except AgentError as error:
            self.close()
            said = error.message.removeprefix("the guest's agent: ")
            raise SessionOver(f"the session is over: {said}") from error
        (status,) = struct.unpack_from("<i", body)
        if status:
            raise SessionError(f"the session: {body[4:].decode('utf-8', 'replace')}")
        return body[4:]

    def _number(self, op: int, payload: bytes, timeout: float | None = None) -> int:
        (value,) = struct.unpack("<Q", self._ask(op, payload, timeout))
        return int(value)

    # -- memory

    def allocate(self, kind: int, size: int, path: str = "") -> int:
        """Memory of kind HS_MEM_*; its address."""
        return self._number(numbers().HS_ALLOC, _ALLOC.pack(kind, 0, size, 0) + path.encode())

    def free(self, kind: int, size: int, address: int) -> None:
        self._ask(numbers().HS_FREE, _ALLOC.pack(kind, 0, size, address))

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Bytes into the session's memory, by its CPU."""
        for at in range(0, len(data), CHUNK):
            piece = struct.pack("<Q", address + at) + bytes(data[at : at + CHUNK])
            self._ask(numbers().HS_WRITE, piece)

    def read(self, address: int, size: int) -> bytes:
        """Bytes out of the session's memory, by its CPU."""
        out = bytearray()
        while len(out) < size:
            want = min(CHUNK, size - len(out))
            out += self._ask(numbers().HS_READ, struct.pack("<QQ", address + len(out), want))
        return bytes(out)

    # -- the GPU

    def load(self, elf: bytes) -> int:
        """Kernels into memory; the number of the file."""
        (number,) = struct.unpack("<I", self._ask(numbers().HS_LOAD, elf))
        return int(number)

    def symbol(self, kernel: int, name: str) -> int:
        """Address of a kernel or variable."""
        return self._number(numbers().HS_SYMBOL, struct.pack("<I", kernel) + name.encode())

    def launch(
        self, kernel: int, name: str, grid: int, block: int, args: bytes,
        shared: int = 0, local: int = 0, budget: int = 0,
    ) -> int:  # fmt: skip
        """Start a kernel; the job's number.  Every job has to be waited for."""
        raw = name.encode()
        head = _LAUNCH.pack(kernel, len(raw), grid, block, shared, local, budget, 0)
        return self._number(numbers().HS_LAUNCH, head + raw + args)

    def copy(self, dst: int, src: int, size: int) -> int:
        """Start a copy by the copy engine; the job's number."""
        return self._number(numbers().HS_COPY, struct.pack("<QQQ", dst, src, size))

    def fill(self, dst: int, pattern: int, size: int) -> int:
        """Start filling with a 64-bit pattern; the job's number."""
        return self._number(numbers().HS_FILL, struct.pack("<QQQ", dst, pattern, size))

    def wait(self, job: int, timeout: float | None = None) -> Result:
        """Wait for a job and all before it."""
        body = self._ask(numbers().HS_WAIT, struct.pack("<Q", job), timeout)
        error, line, block, thread, address, pc, instructions, said = _RESULT.unpack_from(body)
        function, file, report = (
            text.decode("utf-8", "replace") for text in body[_RESULT.size :].split(b"\0", 2)
        )
        return Result(
            error, line, block, thread, address, pc, instructions, said, function, file, report
        )

    def printed(self) -> str:
        """What kernels printed since the last time."""
        return self._ask(numbers().HS_PRINTED, b"").decode("utf-8", "replace")

    def migrate(
        self, address: int, size: int, to_device: bool, map_it: bool = False
    ) -> tuple[int, int]:
        """Move the pages that hold these bytes; how many moved, and how many could not."""
        body = self._ask(numbers().HS_MIGRATE, _MIGRATE.pack(address, size, to_device, map_it))
        moved, failed = struct.unpack("<QQ", body)
        return int(moved), int(failed)

    def query(self, address: int, pages: int) -> tuple[int, ...]:
        """HMM_GPU_Q_* of so many pages."""
        body = self._ask(numbers().HS_QUERY, struct.pack("<QQ", address, pages))
        return struct.unpack(f"<{pages}I", body)

    def policy(self, number: int) -> None:
        """HMM_GPU_POLICY_* from now on."""
        self._ask(numbers().HS_POLICY, struct.pack("<I", number))

    def call(self, name: str, args: bytes, timeout: float | None = None) -> int:
        """Run a function of the workload's C file on the CPU; what it returned."""
        raw = name.encode()
        body = self._ask(
            numbers().HS_CALL, struct.pack("<I", len(raw)) + raw + args, timeout
        )
        (value,) = struct.unpack("<q", body)
        return int(value)
