# SPDX-License-Identifier: GPL-2.0-or-later
"""Running build programs: logged, watched for progress, and never left behind."""

from __future__ import annotations

import errno
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hmmbench.base.errors import Cancelled, EnvironmentFailure
from hmmbench.base.processes import Children

#: How many lines of a failed program's output are worth showing.
TAIL_LINES = 12

_DISK_FULL = re.compile(r"No space left|Disk quota exceeded|enough free space")
_ERROR_LINE = re.compile(
    r"error:|\bError \d+|fatal:|^E: |^FAILED:|undefined reference|No space left|Disk quota exceeded"
)

Watcher = Callable[[str], None]


class Programs(Children):
    """Those of one build; end() stops all of them, from any thread."""

    def check(self) -> None:
        """Raise if the build was stopped: called between the steps that start no program."""
        if self.over:
            raise Cancelled("the build was stopped")

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
            with self.start(
                argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            ) as child:
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
        with self.start(
            argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            out, err = child.communicate()
        self.check()
        if child.returncode != 0:
            said = err.decode(errors="replace").strip()
            raise EnvironmentFailure(f"{what} failed (exit code {child.returncode}): {said}")
        return out.decode(errors="replace")


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
