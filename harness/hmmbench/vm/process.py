# SPDX-License-Identifier: GPL-2.0-or-later
"""Starting QEMU so that nothing can leave it behind, and the folder it works in.

However this process ends -- return, exception, Ctrl-C, SIGKILL -- QEMU ends with it: the
kernel sends it SIGKILL when the thread that started it ends (PR_SET_PDEATHSIG). So all
virtual machines are started by one thread that lives as long as the process; a thread of
somebody's pool would take its machine with it when it ends.

The folder of a virtual machine holds a file under flock. After a SIGKILL nobody removes the
folder, but the lock is gone with its owner; the next start removes such folders.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from hmmbench.vm.errors import VmError, guard_disk

_PREFIX = "hmmbench-vm-"
_OWNER = "owner"
#: Seconds in which a folder may still be without its lock.
_FRESH = 5.0

# Runs in the child before QEMU. The parent may have died before prctl: then nobody would be
# left to send the signal, hence the check afterwards. 1 is PR_SET_PDEATHSIG.
# SCHED_BATCH: a virtual CPU that is woken must not push aside the one that woke it, which often
# holds the lock that the other wants next and then spins for (a twentieth of the time on 2 CPUs).
_SHIM = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.getppid() == int(sys.argv[1]) or os._exit(125)
try:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
except OSError:
    pass  # some sandboxes refuse; it is slower then
os.execv(sys.argv[2], sys.argv[2:])
"""

_starter: concurrent.futures.ThreadPoolExecutor | None = None
_starter_lock = threading.Lock()


def _starter_thread() -> concurrent.futures.ThreadPoolExecutor:
    global _starter
    with _starter_lock:
        if _starter is None:
            _starter = concurrent.futures.ThreadPoolExecutor(1, "vm-starter")
        return _starter


def start(argv: Sequence[str], fds: Sequence[int], log: Path) -> subprocess.Popen[bytes]:
    """Start argv in a session of its own, its output in `log`; inherits only `fds`.

    A session of its own: a Ctrl-C of the terminal is for the bench, which ends its machines in
    order. Raises VmError if the program cannot be started.
    """
    program = shutil.which(argv[0])
    if program is None:
        raise VmError(f"{argv[0]} is no program that can be run")
    command = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), program, *argv[1:]]

    def popen() -> subprocess.Popen[bytes]:
        with guard_disk(log), log.open("wb") as out:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=list(fds),
                start_new_session=True,
                # A working folder somebody removes must not matter.
                cwd="/",
            )

    return _starter_thread().submit(popen).result()


def stop(process: subprocess.Popen[bytes], grace: float = 0.0) -> int:
    """End a process started here and reap it; its exit status.

    It is given `grace` seconds to end by itself. QEMU has nothing to lose: it writes no disk.
    """
    try:
        return process.wait(timeout=grace)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


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
