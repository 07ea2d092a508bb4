# SPDX-License-Identifier: GPL-2.0-or-later
"""What this machine can give."""

from __future__ import annotations

import os
import re
from pathlib import Path


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def stolen_s() -> float:
    """CPU seconds since boot, all CPUs, in which this machine had work and its hypervisor ran
    somebody else (proc(5), the eighth figure of the line `cpu`); 0 on real hardware."""
    ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(ticks[8]) / os.sysconf("SC_CLK_TCK") if len(ticks) > 8 else 0.0


def memory_gb() -> float:
    """Memory that can be had without swapping, GB (10^9 bytes); 0 if the kernel does not say."""
    match = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(match[1]) * 1024 / 1e9 if match else 0.0
