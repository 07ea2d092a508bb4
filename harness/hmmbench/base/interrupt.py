# SPDX-License-Identifier: GPL-2.0-or-later
"""Being told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_told = threading.Event()


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end what is inside as Ctrl-C does: everything is tidied up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        _told.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM, signal.SIGHUP]
    # A shell ignores it for a background job, which then is not to end by it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        _told.clear()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def check() -> None:
    """Raises KeyboardInterrupt if we were told to end and it has been lost.

    Python drops an exception that a signal raises in a finalizer or a callback of the garbage
    collector (Hypothesis has one): who works for long asks now and then.
    """
    if _told.is_set() and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
