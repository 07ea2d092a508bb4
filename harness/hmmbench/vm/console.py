# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's console: a file that QEMU writes from the first byte, read as it grows."""

from __future__ import annotations

import os
from pathlib import Path

from hmmbench.vm.errors import VmError, disk_full

#: Below this the next lines of a dying kernel might not be written any more (bytes).
_SPACE_NEEDED = 1 << 20


class Console:
    """Reads a console file. `before` is what an earlier life of the guest printed (snapshot)."""

    def __init__(self, path: Path, before: str = "") -> None:
        self.path = path
        self.before = before
        self._taken = 0
        path.touch()

    def take(self) -> str:
        """What was printed since the last call, whole lines only.

        A line that is being written comes with the next call, so that no splat is cut in two.
        Raises VmError if the disk is full: silence would prove nothing then.
        """
        self.check_space()
        data = self._read(self._taken)
        end = data.rfind(b"\n") + 1
        self._taken += end
        return _decode(data[:end])

    def rest(self) -> str:
        """As take(), with an unfinished last line: for a guest that prints no more."""
        data = self._read(self._taken)
        self._taken += len(data)
        return _decode(data)

    def text(self) -> str:
        """All since this virtual machine started."""
        return _decode(self._read(0))

    def tail(self, lines: int = 15) -> str:
        """The last lines that say something."""
        shown = [line for line in self.text().splitlines() if line.strip()]
        return "\n".join(shown[-lines:])

    def check_space(self) -> None:
        """Raise if the console's disk is full: an empty console proves nothing then."""
        stat = os.statvfs(self.path.parent)
        if stat.f_bavail * stat.f_frsize < _SPACE_NEEDED:
            raise disk_full(self.path)

    def _read(self, offset: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                return file.read()
        except FileNotFoundError as error:
            raise VmError(f"the console file {self.path} was removed while in use") from error


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r", "").replace("\0", "")
