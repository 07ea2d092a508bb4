# SPDX-License-Identifier: GPL-2.0-or-later
"""Child processes that never outlive us, however we end.

Each leads a session of its own: a Ctrl-C of the terminal is for the bench, which ends what it has
started in order, and a child is ended with what it started itself.

Who may touch what: `Children` may be used by any thread; its set and its end are under its lock,
so that a child either is in the set that `end` goes through, or is not started.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hmmbench.base.errors import Cancelled, EnvironmentFailure

#: Seconds that a child has between being told to end and being killed.
END_S = 3.0


class Children:
    """Some children that are ended together.

    end_s -- what each has to end by itself (seconds): a bench of its own ends its machines
    """

    def __init__(self, end_s: float = END_S) -> None:
        self._end_s = end_s
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._over = threading.Event()

    @property
    def over(self) -> bool:
        """Whether `end` was called: no more are started."""
        return self._over.is_set()

    @contextmanager
    def start(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """One that runs within the block, and has ended after it.

        Raises Cancelled after `end`, and EnvironmentFailure if there is no such program.
        """
        words = [str(word) for word in argv]
        with self._lock:
            if self.over:
                raise Cancelled("the work was stopped")
            program = _found(words[0], cwd, env)
            if program is None:
                raise EnvironmentFailure(
                    f"the program {words[0]} is missing",
                    "./hmmbench doctor names the package to install.",
                )

            def popen() -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    bound(signal.SIGTERM, [program, *words[1:]]),
                    cwd=cwd,
                    env=dict(env) if env is not None else None,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )

            child = _starter_thread().submit(popen).result()
            self._running.add(child)
        try:
            yield child
        finally:
            if child.poll() is None:
                self._end([child])
            for stream in (child.stdout, child.stderr, child.stdin):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            with self._lock:
                self._running.discard(child)

    def end(self) -> None:
        """End all of them and what they started, and start no more.  From any thread."""
        with self._lock:
            self._over.set()
            running = list(self._running)
        self._end(running)

    def _end(self, children: Sequence[subprocess.Popen[bytes]]) -> None:
        for child in children:
            # Not SIGINT, which a background job of a shell ignores and children inherit.
            _signal_group(child, signal.SIGTERM)
        deadline = time.monotonic() + self._end_s
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=max(0.0, deadline - time.monotonic()))
            # The leader may be gone and a compiler of its group not.
            _signal_group(child, signal.SIGKILL)
            child.wait()


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """A program to its end, and what it has said; its exit status is the caller's to look at.

    text -- what it reads; nothing without

    Raises EnvironmentFailure if there is no such program, and subprocess.TimeoutExpired.
    """
    words = [str(word) for word in argv]
    children = Children()
    with children.start(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            out, err = child.communicate(None if text is None else text.encode(), timeout)
        except BaseException as error:
            # What it has left behind, too: that may be all there is.
            children.end()
            if isinstance(error, subprocess.TimeoutExpired):
                # Of the program, and not of what binds it to us.
                error.cmd = words
            raise
    return subprocess.CompletedProcess(
        words,
        child.returncode,
        out.decode(errors="replace"),
        err.decode(errors="replace"),
    )


def _found(name: str, cwd: Path | None, env: Mapping[str, str] | None) -> str | None:
    """As the system would look for it from there."""
    if "/" in name:
        at = (cwd or Path()) / name
        return str(at.absolute()) if os.access(at, os.X_OK) else None
    return shutil.which(name, path=None if env is None else env.get("PATH"))


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


# -- however this process ends

# Runs in the child before the program. The parent may have died before prctl: then nobody would be
# left to send the signal, hence the check afterwards. 1 is PR_SET_PDEATHSIG.
# SCHED_BATCH, for QEMU: a virtual CPU that is woken must not push aside the one that woke it, which
# often holds the lock that the other wants next and then spins for (a twentieth of the time on 2
# CPUs).
_SHIM = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[2]))
os.getppid() == int(sys.argv[1]) or os._exit(125)
try:
    sys.argv[2] == "9" and os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
except OSError:
    pass  # some sandboxes refuse; it is slower then
os.execv(sys.argv[3], sys.argv[3:])
"""


def bound(number: signal.Signals, argv: Sequence[str]) -> list[str]:
    """A command that gets this signal when the thread that starts it ends (_starter_thread)."""
    return [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), str(int(number)), *argv]

_starter: concurrent.futures.ThreadPoolExecutor | None = None
_starter_lock = threading.Lock()


def _starter_thread() -> concurrent.futures.ThreadPoolExecutor:
    global _starter
    with _starter_lock:
        if _starter is None:
            _starter = concurrent.futures.ThreadPoolExecutor(1, "vm-starter")
        return _starter


def start_bound(argv: Sequence[str], fds: Sequence[int], log: Path) -> subprocess.Popen[bytes]:
    """Start QEMU, its output in `log`; it inherits only `fds`.

    However this process ends -- return, exception, Ctrl-C, SIGKILL -- it ends with it: the kernel
    sends it SIGKILL when the thread that started it ends (PR_SET_PDEATHSIG).  So all are started
    by one thread that lives as long as the process; a thread of somebody's pool would take its
    machine with it when it ends.

    Raises EnvironmentFailure if the program cannot be started, and OSError.
    """
    program = shutil.which(argv[0])
    if program is None:
        raise EnvironmentFailure(f"{argv[0]} is no program that can be run")
    command = bound(signal.SIGKILL, [program, *argv[1:]])

    def popen() -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
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
    """End one of start_bound() and reap it; its exit status.

    It is given `grace` seconds to end by itself. QEMU has nothing to lose: it writes no disk.
    """
    try:
        return process.wait(timeout=grace)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
