# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine without a guest: QEMU's qtest protocol, for tests of the device's glue.

Under ``-accel qtest`` no CPU runs. The test is the CPU: it reads and writes memory and ports,
moves the virtual clock, and talks QMP beside. A machine is there in about 0.1 s, an access
takes about 30 microseconds.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hmmbench.vm.errors import VmDied, VmError, guard_disk
from hmmbench.vm.qmp import Event, Qmp
from hmmbench.vm.running import start_qemu

_WIDTHS = {1: "b", 2: "w", 4: "l", 8: "q"}
# What one request carries; QEMU reads a request as one line.
_CHUNK = 1 << 20
# No CPU runs it, but a PC needs 64 KiB of firmware. A test can recognise it.
FIRMWARE = bytes(range(256)) * 256


class Qtest:
    """One QEMU under qtest. A context manager: QEMU and its files are gone at the end.

    qemu    -- the QEMU program
    args    -- its arguments after machine, accelerator, display and the two channels
    accel   -- "tcg" runs a CPU beside the test; it starts in the last 16 bytes of `firmware`
    timeout -- seconds for an answer before QEMU counts as hung
    Raises VmError (does not start, hangs) or VmDied (ended while needed, with its last words).
    """

    def __init__(
        self,
        qemu: Path,
        args: Sequence[str],
        *,
        accel: str = "qtest",
        firmware: bytes = FIRMWARE,
        timeout: float = 30.0,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hmmbench-qtest-")
        self._log = Path(self._folder.name) / "qemu.log"
        image = Path(self._folder.name) / "firmware.bin"
        self._process: subprocess.Popen[bytes] | None = None
        self.events: list[Event] = []
        ours, theirs = socket.socketpair()
        qmp_ours, qmp_theirs = socket.socketpair()
        self._socket = ours
        self._socket.settimeout(timeout)
        self._buffer = b""
        self._qmp = Qmp(qmp_ours, self.events.append, lambda: None, self._died)
        command = [
            str(qemu),
            *("-machine", "q35", "-accel", accel, "-display", "none", "-nodefaults"),
            *("-chardev", f"socket,id=qtest,fd={theirs.fileno()}"),
            *("-qtest", "chardev:qtest", "-qtest-log", "/dev/null"),
            *("-chardev", f"socket,id=qmp,fd={qmp_theirs.fileno()}"),
            *("-mon", "chardev=qmp,mode=control"),
            *("-bios", str(image), "-global", "apic-common.vapic=off"),
            *args,
        ]
        try:
            with guard_disk(image):
                image.write_bytes(firmware)
            with theirs, qmp_theirs:
                fds = [theirs.fileno(), qmp_theirs.fileno()]
                self._process = start_qemu(command, fds, self._log)
            try:
                self._qmp.connect(timeout)
            except AssertionError as error:
                # qemu.qmp asserts that QEMU is still there after its greeting.
                raise self._died() from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End QEMU and remove its files. May be called twice."""
        with contextlib.suppress(OSError):
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._qmp.close()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        """Of QEMU."""
        if self._process is None:
            raise VmError("the machine is closed")
        return self._process.pid

    def log(self) -> str:
        """What QEMU wrote so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def wait_exit(self, timeout: float = 30.0) -> int:
        """Exit status of a QEMU that ends by itself; VmError if it does not."""
        if self._process is None:
            raise VmError("the machine is closed")
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise VmError(f"QEMU still runs after {timeout:g} s") from None

    def _died(self) -> VmDied:
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(5.0)
        return VmDied("QEMU ended under qtest", exit_status=status, stderr=self.log()[-4000:])

    def qmp(self, command: str, arguments: Mapping[str, object] | None = None) -> Any:
        """One QMP command; QmpFailure if QEMU refuses it."""
        return self._qmp.execute(command, arguments)

    def request(self, line: str) -> str:
        """One request in qtest's own words; the words after OK. VmError if QEMU says FAIL."""
        return self.requests([line])[0]

    def requests(self, lines: Sequence[str]) -> list[str]:
        """Several at once: QEMU's main loop does nothing else between them, if they are short."""
        answers = []
        try:
            self._socket.sendall("".join(f"{line}\n" for line in lines).encode())
            for line in lines:
                answer = self._line()
                # Interrupt messages of irq_intercept may come between.
                while answer.startswith("IRQ "):
                    answer = self._line()
                if answer != "OK" and not answer.startswith("OK "):
                    raise VmError(f"qtest refused {line[:80]}: {answer}")
                answers.append(answer[3:])
        except TimeoutError:
            raise VmError(f"QEMU gives no answer to: {lines[len(answers)][:80]}") from None
        except OSError as error:
            raise self._died() from error
        return answers

    def _line(self) -> str:
        while b"\n" not in self._buffer:
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise self._died()
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode().strip()

    def load(self, address: int, width: int) -> int:
        """One CPU load of 1, 2, 4 or 8 bytes from physical memory."""
        return int(self.request(f"read{_WIDTHS[width]} {address:#x}"), 0)

    def store(self, address: int, value: int, width: int) -> None:
        """One CPU store of 1, 2, 4 or 8 bytes to physical memory."""
        mask = (1 << 8 * width) - 1
        self.request(f"write{_WIDTHS[width]} {address:#x} {value & mask:#x}")

    def read(self, address: int, size: int) -> bytes:
        """Bytes of physical memory."""
        out = bytearray()
        while len(out) < size:
            n = min(_CHUNK, size - len(out))
            out += base64.b64decode(self.request(f"b64read {address + len(out):#x} {n:#x}"))
        return bytes(out)

    def write(self, address: int, data: bytes) -> None:
        """Bytes to physical memory."""
        for at in range(0, len(data), _CHUNK):
            piece = data[at : at + _CHUNK]
            text = base64.b64encode(piece).decode()
            self.request(f"b64write {address + at:#x} {len(piece):#x} {text}")

    def inl(self, port: int) -> int:
        """32-bit port read."""
        return int(self.request(f"inl {port:#x}"), 0)

    def outl(self, port: int, value: int) -> None:
        """32-bit port write."""
        self.request(f"outl {port:#x} {value:#x}")

    def clock_step(self, ns: int) -> int:
        """Move the virtual clock by ns; its new value."""
        return int(self.request(f"clock_step {ns}"), 0)
