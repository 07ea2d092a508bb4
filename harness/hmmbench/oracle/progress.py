# SPDX-License-Identifier: GPL-2.0-or-later
"""The progress oracle: every operation ends, every process dies when it is killed.

What is too long, and what is only slow, the agent decides
(guest-driver/user/agent/engine/patience.h).
"""

from __future__ import annotations

import signal

from hmmbench.guest.program import BUSY_TIMES, RES_SKIPPED, TIMEOUT_BUSY, Program, Result
from hmmbench.oracle.telling import describe
from hmmbench.oracle.violation import Violation


def by_sigbus(result: Result) -> bool:
    """Whether nothing is wrong but that a process died from SIGBUS."""
    # (Of several processes one's signal is told.)
    one = result.died.bit_count() == 1 and result.died_signal == signal.SIGBUS
    return one and not result.stuck and not result.timeout


def check(program: Program, result: Result) -> Violation | None:
    # Without an answer: those that were not begun, and what runs in a process that does not die.
    waiting = next(
        (i for i, r in enumerate(result.ops) if r.status == RES_SKIPPED), len(result.ops)
    )
    last = min(waiting if result.stuck else max(waiting - 1, 0), len(result.ops) - 1)
    where = f"about at operation {last}: {describe(program.ops[last])}" if program.ops else ""
    if result.stuck:
        how = f"{result.stuck} processes do not even end by SIGKILL"
        # Else they did all that was asked of them, and hang in their end.
        if result.timeout:
            return Violation("progress", f"{how}; {where}", last)
        return Violation("progress", how)
    if result.timeout:
        limit_s = program.timeout_ms / 1000
        how = f"the program did not end in {limit_s:g} s, and does no work any more"
        if result.timeout == TIMEOUT_BUSY:
            how = f"the program did not end in {BUSY_TIMES * limit_s:g} s, though it does work"
        return Violation("progress", f"{how}; {where}", last)
    if result.died:
        dead = [p for p in range(8) if result.died >> p & 1]
        how = (
            f"failed by itself with code {result.died_signal & 0xFF}"
            if result.died_signal & 0x100
            else f"died from signal {result.died_signal}"
        )
        return Violation("progress", f"process {', '.join(map(str, dead))} {how}")
    return None
