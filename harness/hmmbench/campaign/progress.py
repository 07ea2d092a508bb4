# SPDX-License-Identifier: GPL-2.0-or-later
"""What people see while a campaign runs."""

from __future__ import annotations

import time

from hmmbench.base.ui import Stage
from hmmbench.report.tally import Tally


class Progress:
    """The line that moves while one portion's examples run.

    count   -- of all portions
    limit_s -- how long this one may take (none: `count` says when it is over)
    """

    def __init__(self, stage: Stage, tally: Tally, count: int, limit_s: float | None) -> None:
        self._stage, self._count, self._limit_s = stage, count, limit_s
        self._begun = self._said = time.monotonic()
        # What portions before have done took time before.
        self._before = tally.operations

    def __call__(self, tally: Tally, text: str) -> None:
        now = time.monotonic()
        if not text:
            if now - self._said <= 0.5:
                return
            self._said = now
            rate = (tally.operations - self._before) / (now - self._begun)
            text = f"{tally.gpu_accesses} GPU accesses, {rate:.0f} operations/s"
            if tally.reached:
                text += ", {features} states by {inputs} inputs".format(**tally.reached)
            if self._limit_s is not None:
                left = max(0.0, self._limit_s - (now - self._begun))
                text += f", {left:.0f} s left"
        if self._limit_s is None:
            self._stage.progress(tally.examples, self._count, text)
        else:
            self._stage.note(f"{tally.examples} examples, {text}")
