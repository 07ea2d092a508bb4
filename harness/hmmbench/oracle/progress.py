# SPDX-License-Identifier: GPL-2.0-or-later
"""The progress oracle: every operation ends, every process dies when it is killed.

What is too long, and what is only slow, the agent decides (guest-driver/agent/patience.h).
"""

from __future__ import annotations

from hmmbench.guest.protocol import BUSY_TIMES, RES_SKIPPED, TIMEOUT_BUSY, Program, Result
from hmmbench.oracle.values import describe
from hmmbench.oracle.violation import Violation


def check(program: Program, result: Result) -> Violation | None:
    if result.stuck:
        return Violation("progress", f"{result.stuck} processes do not even end by SIGKILL")
    if result.timeout:
        waiting = next(
            (i for i, r in enumerate(result.ops) if r.status == RES_SKIPPED), len(result.ops)
        )
        first = max(waiting - 1, 0)
        what = describe(program.ops[first]) if program.ops else "nothing"
        limit_s = program.timeout_ms / 1000
        how = f"the program did not end in {limit_s:g} s, and does no work any more"
        if result.timeout == TIMEOUT_BUSY:
            how = f"the program did not end in {BUSY_TIMES * limit_s:g} s, though it does work"
        return Violation("progress", f"{how}; about at operation {first}: {what}", first)
    if result.died:
        dead = [p for p in range(8) if result.died >> p & 1]
        how = (
            f"failed by itself with code {result.died_signal & 0xFF}"
            if result.died_signal & 0x100
            else f"died from signal {result.died_signal}"
        )
        return Violation("progress", f"process {', '.join(map(str, dead))} {how}")
    return None
