# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong in a session."""

from __future__ import annotations

from hmmbench.base.errors import EnvironmentFailure, UsageError, ViolationFound


class SessionError(EnvironmentFailure):
    """The session refused a request, or its program ended."""


class SessionOver(SessionError):
    """The session's program has ended, or gave no answer in time and was ended."""


class CompileError(UsageError):
    """A C file does not compile; the message has the compiler's words."""


class JobFailed(ViolationFound):
    """A kernel or copy ended with an error.

    kernel    -- its name
    error     -- errno, positive: EFAULT access, EILSEQ illegal instruction, ETIME budget
    function, file, line -- of the source, as far as known ("", "", 0)
    block, thread, address, pc -- where it happened
    """

    def __init__(
        self, kernel: str, report: str, error: int, *, function: str = "", file: str = "",
        line: int = 0, block: int = 0, thread: int = 0, address: int = 0, pc: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(f"kernel {kernel}: {report}")
        self.kernel = kernel
        self.error = error
        self.function = function
        self.file = file
        self.line = line
        self.block = block
        self.thread = thread
        self.address = address
        self.pc = pc
