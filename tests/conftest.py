# SPDX-License-Identifier: GPL-2.0-or-later
"""What all tests need."""

import os
import signal
import threading
from types import FrameType

import pytest

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: then nothing
# could be interrupted, and the tests of interruption would test the shell.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Seconds for fixtures to put away what they hold.
END_S = 30.0


def _end(number: int, frame: FrameType | None) -> None:
    """`hmmbench test` was told to end, or is gone: as Ctrl-C, but nobody may be left to ask twice
    where a test has caught that, or a fixture hangs."""
    del number, frame
    last = threading.Timer(END_S, os.kill, (os.getpid(), signal.SIGKILL))
    last.daemon = True
    last.start()
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, _end)


@pytest.hookimpl
def pytest_report_collectionfinish(items: list[pytest.Item]) -> list[str]:
    """With `test --full`, what is long about what is run."""
    if not os.environ.get("HMMBENCH_FULL"):
        return []
    words = {
        (item.nodeid.split("::")[0], mark.args[0])
        for item in items for mark in item.iter_markers("full")
    }  # fmt: skip
    return [f"long: {file}: {what}" for file, what in sorted(words)]
