# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors a user can act on, and the exit code each kind ends with.

Exit codes are part of the command's interface:

    0  done; for `run`: nothing was violated
    1  a violation was found (a bug in the driver, the kernel or the device)
    2  the command was used wrongly, or packages are missing and may not be installed
    3  the environment failed: download, build, disk, a VM that does not start
    4  hmmbench itself failed: a defect of the bench, which says nothing about the driver
  5  nothing was violated, but less was looked at than a pass needs
  130  interrupted
"""

from __future__ import annotations

from typing import ClassVar

EXIT_OK = 0
EXIT_VIOLATION = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_INTERNAL = 4
EXIT_SHORT = 5
EXIT_INTERRUPTED = 130


class HmmbenchError(Exception):
    """Something the user should read without a traceback: what happened, and what to do."""

    exit_code: ClassVar[int] = EXIT_ENVIRONMENT

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(HmmbenchError):
    """The command line, or a file or folder it names, is wrong."""

    exit_code = EXIT_USAGE


class ViolationFound(HmmbenchError):
    """An oracle saw the contract broken: the bench worked, what it tests did not."""

    exit_code = EXIT_VIOLATION


class EnvironmentFailure(HmmbenchError):
    """Host, network, disk or build failed; nothing can be said about the driver."""

    exit_code = EXIT_ENVIRONMENT


class Cancelled(HmmbenchError):
    """Work stopped because another part failed or the user pressed Ctrl-C."""

    exit_code = EXIT_INTERRUPTED
