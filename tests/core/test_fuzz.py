# SPDX-License-Identifier: GPL-2.0-or-later
"""The fuzzer gets as far as registers and descriptors allow, and the device bears it.

Some inputs from a seed, without the sanitizers that `make check` has, so that it takes no minute;
each hold of the device's lock is counted (base/lock.h)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from hmmbench.base import paths

LARGEST = {
    "contexts": 64, "at once": 64, "ring": 4096, "slot": 4095,
    "fault ring": 65536, "fault slot": 65535,
}  # fmt: skip


def test_the_fuzzer_reaches_the_largest_sizes(tmp_path: Path) -> None:
    tests = paths.device_sources() / "tests"
    binary = tmp_path / "fuzz"
    made = subprocess.run(
        ["make", "-C", str(tests), f"OUT={tmp_path}", "ASAN=-O1 -DHG_COUNT_WORK", str(binary)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    done = subprocess.run(
        [str(binary), "400", "1"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reached = re.search(r"^reached: (.*)$", done.stdout, re.MULTILINE)
    assert reached, done.stdout
    found = (word.rsplit(" ", 1) for word in reached[1].split(", "))
    assert {name: int(value) for name, value in found} == LARGEST
