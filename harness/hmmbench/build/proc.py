# SPDX-License-Identifier: GPL-2.0-or-later
"""Running build programs: logged, watched for progress, and never left behind.

Every child leads its own process group, so that stopping it stops the compilers it started.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hmmbench.base.errors import Cancelled, EnvironmentFailure

#: How many lines of a failed program's output are worth showing.
TAIL_LINES = 12

_DISK_FULL = re.compile(r"No space left|Disk quota exceeded|enough free space")
_ERROR_LINE = re.compile(
    r"error:|\bError \d+|fatal:|^E: |^FAILED:|undefined reference|No space left|Disk quota exceeded"
)

Watcher = Callable[[str], None]


class Runner:
    """Starts programs for one build; cancel() stops all of them, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise if the build was cancelled: called between the steps that start no program."""
        if self._cancelled.is_set():
            raise Cancelled("the build was stopped")

    def cancel(self) -> None:
        """Stop every child and its children, and refuse to start more."""
        self._cancelled.set()
        with self._lock:
            children = list(self._children)
        for child in children:
            _signal_group(child, signal.SIGTERM)
        deadline = time.monotonic() + 3.0
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=max(0.0, deadline - time.monotonic()))
            # The leader may be gone and a compiler of its group not.
            _signal_group(child, signal.SIGKILL)

    @contextmanager
    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = subprocess.STDOUT,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A child that is registered while the block runs, and gone after it."""
        words = [str(word) for word in argv]
        with self._lock:
            self.check()
            try:
                child = subprocess.Popen(
                    words,
                    cwd=cwd,
                    env=dict(env) if env is not None else None,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise EnvironmentFailure(
                    f"the program {words[0]} is missing",
                    "./hmmbench doctor names the package to install.",
                ) from error
            self._children.add(child)
        try:
            yield child
        finally:
            if child.poll() is None:
                _signal_group(child, signal.SIGKILL)
            for stream in (child.stdout, child.stderr, child.stdin):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            child.wait()
            with self._lock:
                self._children.discard(child)

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        what: str,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        watch: Watcher | None = None,
    ) -> None:
        """Run to the end with its output in `log`; a failure shows the lines that matter."""
        tail: list[str] = []
        errors: list[str] = []
        log.parent.mkdir(parents=True, exist_ok=True)
        with guard_disk(log), log.open("ab") as out:
            out.write(f"+ {' '.join(str(word) for word in argv)}\n".encode())
            out.flush()
            with self.popen(argv, cwd=cwd, env=env) as child:
                assert child.stdout is not None
                for raw in child.stdout:
                    out.write(raw)
                    line = raw.decode(errors="replace").rstrip()
                    tail.append(line)
                    del tail[:-TAIL_LINES]
                    if _ERROR_LINE.search(line) and len(errors) < TAIL_LINES:
                        errors.append(line)
                    if watch is not None:
                        watch(line)
                code = child.wait()
        self.check()
        if code != 0:
            shown = errors or tail
            if any(_DISK_FULL.search(line) for line in errors):
                raise disk_full(log)
            raise EnvironmentFailure(
                f"{what} failed (exit code {code}):\n    " + "\n    ".join(shown),
                f"The whole log: {log}",
            )

    def output(
        self,
        argv: Sequence[str | Path],
        *,
        what: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> str:
        """The standard output of a short program."""
        with self.popen(argv, cwd=cwd, env=env, stderr=subprocess.PIPE) as child:
            out, err = child.communicate()
        self.check()
        if child.returncode != 0:
            said = err.decode(errors="replace").strip()
            raise EnvironmentFailure(f"{what} failed (exit code {child.returncode}): {said}")
        return out.decode(errors="replace")


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def disk_full(path: Path) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"the disk is full (writing {path})",
        "Free some space (the first build needs about 6 GB) or set HMMBENCH_CACHE to a folder on"
        " a larger disk; nothing half-written is used, so simply run the command again.",
    )


@contextmanager
def guard_disk(path: Path) -> Iterator[None]:
    """Turn ENOSPC and EDQUOT into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(path) from error
        raise
