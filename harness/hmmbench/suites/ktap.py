# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the KTAP that a kernel selftest prints (Documentation/dev-tools/ktap.rst).

A suite that dies half-way prints no failure for the tests it never reached. So what the plan
promised and no line reported is a failure here, and a result without a plan is an error. A
skip is a skip, whatever "ok" stands before it, and what was expected to fail has not passed.
Times are not read: KTAP has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_PLAN = re.compile(r"^1\.\.(\d+)(?: +# *SKIP\b *(.*))?$", re.IGNORECASE)
_RESULT = re.compile(r"^(not ok|ok) (\d+)(?: +(.*))?$")
_DIRECTIVE = re.compile(r"(?:^|\s)# *(SKIP|XFAIL|XPASS|TIMEOUT|ERROR)\b:? *(.*)$", re.IGNORECASE)
_VERSION = re.compile(r"^(?:TAP|KTAP) version \d+$")


class KtapError(ValueError):
    """The text is not one whole KTAP document."""


@dataclass(frozen=True)
class Test:
    """One test's result: status is "pass", "fail", "skip" or "xfail"; reason: why, or empty."""

    number: int
    name: str
    status: str
    reason: str = ""


@dataclass
class Suite:
    """The results of one suite, in the order of their numbers 1 to planned."""

    planned: int
    tests: list[Test] = field(default_factory=list)
    #: Why the whole suite was skipped or stopped; empty if it was not.
    note: str = ""

    def count(self, status: str) -> int:
        """How many tests ended with this status."""
        return sum(test.status == status for test in self.tests)


def parse(text: str) -> Suite:
    """The suite in this text. Raises KtapError if there is no plan, two, or a number twice."""
    plan: int | None = None
    note = ""
    seen: dict[int, Test] = {}
    started = False
    for line in (raw.rstrip() for raw in text.splitlines()):
        if _VERSION.match(line):
            started = True
        elif not started:
            continue
        elif found := _PLAN.match(line):
            if plan is not None:
                raise KtapError(f"a second plan: {line!r}")
            plan, note = int(found[1]), found[2] or ""
        elif line.startswith("Bail out!"):
            note = line
        elif found := _RESULT.match(line):
            test = _result(found[1] == "ok", int(found[2]), found[3] or "")
            if test.number in seen:
                raise KtapError(f"test {test.number} is reported twice")
            seen[test.number] = test
    if plan is None:
        raise KtapError("no test plan: the suite did not start")
    if beyond := [number for number in seen if not 1 <= number <= plan]:
        raise KtapError(f"test {beyond[0]} is not in the plan of {plan}")
    lost = note or "not reported: the suite ended before"
    tests = [seen.get(n) or Test(n, "", "fail", lost) for n in range(1, plan + 1)]
    return Suite(plan, tests, note)


def _result(good: bool, number: int, rest: str) -> Test:
    found = _DIRECTIVE.search(rest)
    kind = found[1].upper() if found else ""
    name = (rest[: found.start()] if found else rest).strip().removeprefix("- ")
    reason = found[2].strip() if found else ""
    if kind == "SKIP" and good:
        # The low-level form, "ok 1 # SKIP name", has the name behind the directive.
        return Test(number, name or reason, "skip", reason)
    if kind == "XFAIL" and good:
        return Test(number, name or reason, "xfail", reason)
    if kind in ("XPASS", "TIMEOUT", "ERROR") or not good:
        return Test(number, name or reason, "fail", reason or kind.lower())
    return Test(number, name or reason, "pass", reason)
