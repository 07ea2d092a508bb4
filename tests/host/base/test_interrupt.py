# SPDX-License-Identifier: GPL-2.0-or-later
"""Ctrl-C is not lost, wherever it arrives."""

from __future__ import annotations

import gc
import os
import signal

import pytest

from hmmbench.base import interrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_lost_interrupt_is_found_by_the_check(number: signal.Signals) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def collected(phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "start":
            os.kill(os.getpid(), number)

    try:
        with interrupt.interruptible():
            interrupt.check()
            gc.callbacks.append(collected)
            try:
                gc.collect()  # Python drops the exception
            finally:
                gc.callbacks.remove(collected)
            with pytest.raises(KeyboardInterrupt):
                interrupt.check()
            gc.collect()
        interrupt.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupt.interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            interrupt.check()
    finally:
        signal.signal(signal.SIGINT, before)
