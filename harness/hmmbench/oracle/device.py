# SPDX-License-Identifier: GPL-2.0-or-later
"""The device oracle: nothing that a guest does may end QEMU."""

from __future__ import annotations

import signal

from hmmbench.oracle.violation import Violation
from hmmbench.vm.errors import VmDied

#: What a process ends by that broke itself. Any other signal, and an exit status, is somebody's
#: doing outside (a full disk, no memory): it says nothing.
CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
     signal.SIGSYS}
)  # fmt: skip


def check(error: VmDied) -> Violation | None:
    """Whether QEMU broke, and was not ended from outside."""
    if error.exit_status is None or -error.exit_status not in CRASHES:
        return None
    name = signal.Signals(-error.exit_status).name
    return Violation("device", f"QEMU crashed ({name})", details=error.message)


def died(error: VmDied) -> Violation | None:
    """What a machine's end is a violation of: QEMU broke, or the guest's kernel ended itself.
    None: it was ended from outside."""
    if crash := check(error):
        return crash
    if error.exit_status is None or error.panicked:
        return Violation("kernel", error.summary, details=error.message)
    return None
