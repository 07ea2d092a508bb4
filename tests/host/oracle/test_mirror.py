# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading what the device's audit says."""

from __future__ import annotations

import pytest
from fake import device_says

from hmmbench.oracle import mirror

ONE = {
    "seq": 1, "check": "mirror-vram-in-system", "address": "0x7000", "asid": 1,
    "gpu_pte": "0x1", "cpu_entry": "0x5067", "cpu_level": 0, "engine": "sm", "unit": 1,
    "warp": 2, "pc": "0x10", "access": "write", "time": 5, "fill_time": 3, "inval_seq": 0,
    "inval_time": 0, "at_rest": False,
}  # fmt: skip


def test_nothing_found() -> None:
    audit = mirror.read(device_says(checks=9, undecided=1))
    assert (audit.checks, audit.undecided, audit.ready) == (9, 1, True)
    assert mirror.check(audit) is None


def test_the_first_is_told() -> None:
    wrong = mirror.check(mirror.read(device_says(ONE, dict(ONE, seq=2))))
    assert wrong is not None
    assert wrong.oracle == "mirror"
    assert wrong.message.startswith("mirror-vram-in-system: write at 0x7000 by sm 1 warp 2")
    assert wrong.details.startswith("2 violations")


def test_other_checks_are_others_business() -> None:
    assert mirror.check(mirror.read(device_says(dict(ONE, check="ring-misuse")))) is None


def test_no_json() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        mirror.read("nonsense")
