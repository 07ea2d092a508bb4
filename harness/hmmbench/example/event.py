# SPDX-License-Identifier: GPL-2.0-or-later
"""A moment on the guest's clock: what the report's timeline marks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimedEvent:
    """Something that driver or device traced.  `time_ns`: the guest's CLOCK_MONOTONIC."""

    time_ns: int
    lane: str
    name: str
