# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder that a run's report and evidence go to."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hmmbench.base.errors import UsageError

#: What a campaign writes there.
OURS = ("report.html", "violation-*", "machine-lost-*", "machine-failed-*")

#: Where that of the run before goes; what was there from earlier ones is removed.
BEFORE = "before"


@contextmanager
def own(out: Path, ours: Sequence[str] = OURS) -> Iterator[Path | None]:
    """The folder for this run alone, with room made in it (make_room(), whose answer this is).

    ours -- patterns of what such a run writes there

    The lock is the folder's own: whatever its holder ends by, it ends with it, and leaves nothing.
    What a holder starts does not inherit it.

    Raises UsageError if another run holds it, too.
    """
    with ExitStack() as stack:
        # A place that cannot be written is told of by who writes there, and some file systems
        # (NFS) lock no folder: better a run than none.
        with suppress(OSError):
            out.mkdir(parents=True, exist_ok=True)
            held = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, held)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"--out {out}: another run writes there",
                    "Give another folder, or wait until it has ended.",
                ) from None
        yield make_room(out, ours)


def make_room(out: Path, ours: Sequence[str] = OURS) -> Path | None:
    """Put away what an earlier run has left, so that no recipe or picture of it is taken for this
    run's; where it is now.

    Raises UsageError if what is in the way is none of ours, or cannot be moved.
    """
    found = [path for pattern in ours for path in sorted(out.glob(pattern))]
    if not found:
        return None
    before = out / BEFORE
    if others := [path.name for path in _in(before) if not any(map(path.match, ours))]:
        raise UsageError(
            f"--out {out}: an earlier run's results would go to {before}, and {others[0]} there is"
            " none of them",
            "Give another folder, or move that away.",
        )
    try:
        if before.exists():
            shutil.rmtree(before)
        before.mkdir()
        for path in found:
            path.rename(before / path.name)
    except OSError as error:
        raise UsageError(
            f"--out {out}: an earlier run's results cannot be put away: {error}",
            "Give another folder.",
        ) from error
    return before


def _in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
