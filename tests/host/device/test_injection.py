# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of injections: it has what the device has, and the documentation says the same."""

from __future__ import annotations

import re

import pytest

from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.campaign.pieces import always
from hmmbench.device import injection
from hmmbench.example.recipe import Environment

PAIRS = [(line.event, line.action) for line in injection.TABLE]


def of_the_device() -> dict[tuple[str, str], str]:
    """Event and action, and the event's name of before."""
    source = (paths.device_sources() / "core/observe/inject.c").read_text()
    names = re.search(r"act_name\[HG_ACT_COUNT\] = \{(.*?)\};", source, re.DOTALL)
    enum = (paths.device_sources() / "core/hooks.h").read_text()
    acts = re.search(r"HG_ACT_NONE,(.*?), HG_ACT_COUNT", enum, re.DOTALL)
    assert names is not None
    assert acts is not None
    words = re.findall(r'"(\w*)"', names[1])[1:]
    action = dict(zip(re.findall(r"HG_ACT_(\w+)", acts[1]), words, strict=True))
    found = re.findall(
        r'\[HG_INJ_\w+\] = \{ "([\w.]+)", "(\w+)",((?:\s*(?:\|\s*)?ACT\(\w+\))+) \}', source
    )
    assert len(found) == len(re.findall(r"\[HG_INJ_(?!EVENTS)", source))
    return {
        (event, action[act]): before
        for event, before, bits in found for act in re.findall(r"ACT\((\w+)\)", bits)
    }  # fmt: skip


def test_the_table_has_what_the_device_has() -> None:
    device = of_the_device()
    assert len(set(PAIRS)) == len(PAIRS)
    assert set(PAIRS) == set(device)
    assert {before: event for (event, _), before in device.items()} == injection.EVENTS


def test_the_documentation_has_it_too() -> None:
    text = (paths.project_root() / "docs/device.md").read_text()
    section = text.split("## 7. Injection")[1].split("\n## 8.")[0]
    event, found = "", {}
    for row in section.splitlines():
        if not row.startswith("| ") or row.startswith("| event"):
            continue
        name, _, action, _, how = (cell.strip() for cell in row.strip("|").split("|"))
        event = name.strip("`") or event
        found[event, re.sub(r"[=\[].*", "", action.strip("`"))] = how
    assert found == {(line.event, line.action): line.words for line in injection.TABLE}


def test_what_is_not_survived_has_a_reason_and_is_not_drawn() -> None:
    for line in injection.TABLE:
        assert bool(line.survived) != bool(line.because)
        assert bool(line.rules()) == bool(line.survived)
        for rule in line.rules():
            assert injection.of(rule) is line
            # What may not come true each time comes true so many times.
            counted = "count=" in rule or "nth=" in rule
            assert counted or line.always


@pytest.mark.parametrize("rule", dict.fromkeys(injection.RULES))
def test_shrinking_goes_by_the_table(rule: str) -> None:
    line = injection.of(rule)
    assert line is not None
    (each,) = always((rule,))
    assert (each == rule) or line.always
    assert not line.always or "prob=" not in each


def test_how_often_jobs_may_end() -> None:
    copies, jobs = injection.COPIES, injection.JOBS
    assert injection.ends(("ce.copy nth=2 error",), copies) == 1
    assert injection.ends(("copy count=3 partial=8",), copies) == 3
    assert injection.ends(("ce.copy prob=0.5 error",), copies) > 1000
    assert injection.ends(("ce.copy nth=2 error", "irq.message lost"), jobs) == 0
    assert injection.ends(("bus.write count=2 error", "bus.read nth=1 error"), jobs) == 3
    # Of the driver's own copies, which go to bus addresses.
    own = "ce.copy match=20000000/ffffff0020000000 count=1 error"
    assert injection.ends((own,), copies) == 0
    assert injection.keeps_promises((own, "fault.entry duplicate", "of.tomorrow explode"))
    assert not injection.keeps_promises(("ce.copy nth=1 error",))
    assert not injection.keeps_promises(("fault.entry repeat=10us",))


def test_a_driver_that_does_not_look_again() -> None:
    assert set(injection.chosen("")) == set(injection.RULES)
    assert injection.chosen(None) == ()
    assert not injection.watch_ms(injection.chosen("", watched=False))
    assert injection.chosen("ring.doorbell:lost", watched=False) == ()
    assert injection.watch_ms(injection.chosen("ring.doorbell:lost"))
    assert {r.split()[0] for r in injection.chosen("bus.read, irq.message:delay")} == {
        "bus.read", "irq.message",
    }  # fmt: skip
    for wrong in ("irq", "irq.message:error"):
        with pytest.raises(UsageError, match=wrong):
            injection.chosen(wrong)


def test_the_driver_looks_again_where_something_is_lost() -> None:
    lost = Environment(inject=("irq.message count=3 lost",))
    assert lost.watch_ms == injection.WATCH_MS
    assert 3 * lost.watch_ms <= injection.waits_ms(lost.inject) < 1000
    assert Environment(inject=("irq.message nth=1 duplicate",)).watch_ms == 0
    assert Environment(inject=("ring.doorbell nth=2 lost",)).counted
