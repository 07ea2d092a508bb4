# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole machine to a file, and back."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from hmmbench.vm.errors import VmError, disk_full
from hmmbench.vm.running import Running

RESTORE_TIMEOUT = 60.0


class Saving(Running):
    """The part of Machine that saves and restores."""

    def save(self, state: Path, resume: bool = False) -> None:
        """Write the whole machine to a file, also in the middle of GPU work.

        The guest is stopped for it; afterwards it goes on if `resume`, else stays stopped. An
        exact machine stands before and after; one that is saved within an example goes on with
        it when it is restored (with `greet` False), as if it had not been saved. That is refused
        while an engine of the device is in a slice: a little later it is not.
        On failure (a full disk, say) the file is removed and VmError raised.
        """
        try:
            self.pause()
            self._capabilities()
            with self._changed:
                self._migration = ""
            self._qmp.execute("migrate", {"uri": f"file:{state}"})
            self._wait_migration("saving the virtual machine", state, 300.0)
            self._wait_finalized()
            if not state.is_file():
                raise VmError(f"QEMU wrote no snapshot to {state}")
        except BaseException:
            with contextlib.suppress(OSError):
                state.unlink()
            raise
        if resume:
            self.resume()

    def _load(self, state: Path) -> None:
        self._capabilities()
        self._qmp.execute("migrate-incoming", {"uri": f"file:{state}"})
        self._wait_migration("restoring the virtual machine", state, RESTORE_TIMEOUT)
        if not self.spec.exact:
            self.resume()

    def _capabilities(self) -> None:
        # mapped-ram: each page has its place in the file; zero pages take none. events: the end
        # is told, not polled for.
        names = ("mapped-ram", "events")
        self._qmp.execute(
            "migrate-set-capabilities",
            {"capabilities": [{"capability": name, "state": True} for name in names]},
        )

    def _wait_migration(self, what: str, state: Path, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._migration not in ("completed", "failed", "cancelled"):
                if self._gone:
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    raise VmError(f"{what} took longer than {timeout:g} s")
                self._changed.wait(left)
            status = self._migration
        if not status:
            raise self._death()
        if status != "completed":
            reason = str(self.qmp("query-migrate").get("error-desc", status))
            if re.search(r"No space left|File too large|quota", reason, re.I) or _full(state):
                raise disk_full(state)
            raise VmError(f"{what} failed: {reason}")

    def _wait_finalized(self) -> None:
        """`completed` is said a moment before QEMU has closed the file and may go on."""
        deadline = time.monotonic() + 60.0
        while self.qmp("query-status")["status"] == "finish-migrate":
            if time.monotonic() > deadline:
                raise VmError("QEMU does not finish saving the virtual machine")
            time.sleep(0.005)


def _full(path: Path) -> bool:
    try:
        stat = os.statvfs(path.parent)
    except OSError:
        return False
    return stat.f_bavail * stat.f_frsize < 1 << 20
