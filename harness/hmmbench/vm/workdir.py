# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder a virtual machine works in.

It holds a file under flock. After a SIGKILL nobody removes the folder, but the lock is gone with
its owner; the next start removes such folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from hmmbench.vm.errors import VmError

_PREFIX = "hmmbench-vm-"
_OWNER = "owner"
#: Seconds in which a folder may still be without its lock.
_FRESH = 5.0


class WorkDir:
    """A temporary folder owned by this process; remove() is safe to call twice."""

    def __init__(self) -> None:
        sweep()
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        except OSError as error:
            raise _no_folder(error) from error
        try:
            self._owner = os.open(self.path / _OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise _no_folder(error) from error
        # Also when the interpreter ends with the machine still open.
        self._finalizer = weakref.finalize(self, _remove, self.path, self._owner)

    def remove(self) -> None:
        self._finalizer()


def _no_folder(error: OSError) -> VmError:
    return VmError(
        f"cannot make a folder for the VM in {tempfile.gettempdir()}: {error.strerror}",
        "Set TMPDIR to a folder you may write to, with some 100 MB free.",
    )


def _remove(path: Path, owner: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.close(owner)


def sweep() -> None:
    """Remove the folders of machines whose owner is dead. Never raises."""
    for path in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            # A fresh one may be between mkdtemp and flock.
            if time.time() - path.stat().st_mtime < _FRESH:
                continue
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(path / _OWNER, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                finally:
                    os.close(fd)
            shutil.rmtree(path, ignore_errors=True)
