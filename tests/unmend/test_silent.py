# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of the tests that a head names did not see the defect."""

from __future__ import annotations

from unmend import HERE, Unmend, silent


def test_each_named_test_has_to_fail() -> None:
    names = ("tests/x.py::test_a", "tests/x.py::test_cases", "tests/x.py::test_one[2]")
    unmend = Unmend(HERE / "x.patch", "One.", "1.1", names, False)
    passed = {
        "test_a": False, "test_cases[1]": True, "test_cases[2]": False,
        "test_one[1]": True, "test_one[2]": False, "test_other": True,
    }  # fmt: skip
    assert silent(unmend, passed) == []
    assert silent(unmend, passed | {"test_a": True}) == ["tests/x.py::test_a"]
    assert silent(unmend, passed | {"test_cases[2]": True}) == ["tests/x.py::test_cases"]
    assert silent(unmend, passed | {"test_one[2]": True, "test_one[1]": False}) == [
        "tests/x.py::test_one[2]"
    ]
    # What did not run did not fail.
    assert silent(unmend, {}) == list(names)
