# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong with a virtual machine, as errors that say what was seen."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hmmbench.base.errors import EnvironmentFailure


class VmError(EnvironmentFailure):
    """The virtual machine or the way to it failed."""


class QmpFailure(VmError):
    """QEMU refused a QMP command. `kind` is QEMU's error class."""

    def __init__(self, command: str, kind: str, description: str) -> None:
        super().__init__(f"QEMU refused {command}: {description}")
        self.kind = kind
        self.description = description


class VmDied(VmError):
    """QEMU ended, or the guest panicked or switched off, while it was needed.

    summary     -- what happened, in one line; `message` has console and QEMU's words too
    exit_status -- of QEMU: negative is a signal, None if it still runs (guest gone, QEMU not)
    panicked    -- the guest's kernel ended itself (panic, or the reboot that follows one)
    console     -- the last lines of the guest's console
    stderr      -- what QEMU itself said
    """

    def __init__(
        self,
        summary: str,
        *,
        exit_status: int | None = None,
        panicked: bool = False,
        console: str = "",
        stderr: str = "",
    ) -> None:
        parts = [summary]
        if stderr:
            parts.append("QEMU said:\n" + _indent(stderr))
        if console:
            parts.append("Last lines of the console:\n" + _indent(console))
        super().__init__("\n".join(parts))
        self.summary = summary
        self.exit_status = exit_status
        self.panicked = panicked
        self.console = console
        self.stderr = stderr

    @property
    def signalled(self) -> bool:
        """A signal ended QEMU, its own or somebody's."""
        return self.exit_status is not None and self.exit_status < 0


class GuestHangs(VmError):
    """The guest did not do in time what it was asked for: it hangs, or is much too slow."""


class AgentTimeout(GuestHangs):
    """The guest's agent gave no answer in time."""


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


def disk_full(path: Path) -> VmError:
    """The sentence for ENOSPC and EDQUOT."""
    return VmError(
        f"the disk is full (writing {path})",
        "Free some space, or point TMPDIR (files of the running VM), HMMBENCH_CACHE (builds and"
        " snapshots) or --out (evidence) at a larger disk.",
    )


@contextmanager
def guard_disk(path: Path) -> Iterator[None]:
    """Turn ENOSPC, EDQUOT and a file size limit into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise disk_full(path) from error
        raise
