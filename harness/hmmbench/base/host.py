# SPDX-License-Identifier: GPL-2.0-or-later
"""What this machine can give."""

from __future__ import annotations

import contextlib
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


def cpu_s() -> float:
    """CPU seconds of this process and of all that it started and that still run or were waited
    for (proc(5), the 14th to 17th figure of a process)."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # The name in brackets may hold anything.
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                ticks += sum(int(field) for field in fields[11:15])
    return total + ticks / os.sysconf("SC_CLK_TCK")


def memory_gb() -> float:
    """Memory that can be had without swapping, GB (10^9 bytes); 0 if the kernel does not say."""
    match = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(match[1]) * 1024 / 1e9 if match else 0.0
