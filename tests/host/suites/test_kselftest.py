# SPDX-License-Identifier: GPL-2.0-or-later
"""The reader of a kernel selftest's KTAP: nothing that did not pass counts as passed."""

from __future__ import annotations

import pytest

from hmmbench.suites import ktap

WHOLE = """noise before
ok 9 not of the suite
TAP version 13
1..4
# Starting 4 tests from 2 test cases.
#  RUN           hmm.private.one ...
#            OK  hmm.private.one
ok 1 hmm.private.one
not ok 2 hmm.private.two
ok 3 hmm.coherent.one # SKIP DEVICE_COHERENT not available
ok 4 hmm.coherent.two # XFAIL known
# FAILED: 3 / 4 tests passed.
"""


def test_each_status_is_read() -> None:
    suite = ktap.parse(WHOLE)
    assert [(t.name, t.status) for t in suite.tests] == [
        ("hmm.private.one", "pass"),
        ("hmm.private.two", "fail"),
        ("hmm.coherent.one", "skip"),
        ("hmm.coherent.two", "xfail"),
    ]
    assert suite.tests[2].reason == "DEVICE_COHERENT not available"
    assert [suite.count(s) for s in ("pass", "fail", "skip", "xfail")] == [1, 1, 1, 1]


def test_what_was_not_reported_failed() -> None:
    suite = ktap.parse("TAP version 13\n1..3\nok 1 a\n")
    assert [t.status for t in suite.tests] == ["pass", "fail", "fail"]
    assert "ended before" in suite.tests[1].reason


def test_bail_out_is_the_reason() -> None:
    suite = ktap.parse("TAP version 13\n1..2\nok 1 a\nBail out! no device\n")
    assert suite.tests[1] == ktap.Test(2, "", "fail", "Bail out! no device")


def test_a_suite_skipped_whole_passes_nothing() -> None:
    suite = ktap.parse("TAP version 13\n1..0 # SKIP no module\n")
    assert (suite.count("pass"), suite.note) == (0, "no module")


@pytest.mark.parametrize(
    "line", ["ok 1 a # XPASS", "ok 1 a # TIMEOUT 30", "not ok 1 # error a", "not ok 1 a # SKIP b"]
)
def test_no_pass(line: str) -> None:
    assert ktap.parse(f"TAP version 13\n1..1\n{line}\n").tests[0].status == "fail"


def test_the_low_level_skip_has_its_name() -> None:
    suite = ktap.parse("TAP version 13\n1..1\nok 1 # SKIP name\n")
    assert suite.tests[0] == ktap.Test(1, "name", "skip", "name")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok 1 a\n",
        "TAP version 13\nok 1 a\n",
        "TAP version 13\n1..1\nok 1 a\nok 1 a\n",
        "TAP version 13\n1..1\nok 2 a\n",
        "TAP version 13\n1..1\n1..1\nok 1 a\n",
    ],
)
def test_not_whole(text: str) -> None:
    with pytest.raises(ktap.KtapError):
        ktap.parse(text)
