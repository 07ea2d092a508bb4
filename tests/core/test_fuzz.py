# SPDX-License-Identifier: GPL-2.0-or-later
"""The fuzzer gets as far as registers and descriptors allow, and the device bears it.

Some inputs from a seed, without the sanitizers that `make check` has, so that it takes no minute;
each hold of the device's lock is counted (base/lock.h)."""

from __future__ import annotations

import re
from pathlib import Path

from hg_lib import said_by

LARGEST = {
    "contexts": 64, "at once": 64, "ring": 4096, "slot": 4095,
    "fault ring": 65536, "fault slot": 65535,
}  # fmt: skip


def test_the_fuzzer_reaches_the_largest_sizes(tmp_path: Path) -> None:
    said = said_by("fuzz", tmp_path, "-O1 -DHG_COUNT_WORK", "400", "1")
    reached = re.search(r"^reached: (.*)$", said, re.MULTILINE)
    assert reached, said
    found = (word.rsplit(" ", 1) for word in reached[1].split(", "))
    assert {name: int(value) for name, value in found} == LARGEST


#: A prefetch has told of a fault, and nothing comes after it.
HINT = bytes.fromhex(
    "0703000100040000c7000007300001070030010700000007000000070000000700000007000000010100"
)


def test_sound_devices_pass(tmp_path: Path) -> None:
    """A prefetch's fault is pending until a replay; what is due while the clock is looked at."""
    said_by("fuzz", tmp_path, "-O1 -DHG_COUNT_WORK", "1", "32509")
    (tmp_path / "hint").write_bytes(HINT)
    said_by("fuzz", tmp_path, "-O1 -DHG_COUNT_WORK", "-f", str(tmp_path / "hint"))
