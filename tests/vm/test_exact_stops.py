# SPDX-License-Identifier: GPL-2.0-or-later
"""Whoever stops an exact machine from outside, and lets it go on, changes nothing in it."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from hmmbench.campaign.repeat import difference, nth, surroundings
from hmmbench.example.exact_target import ExactTarget, Print
from hmmbench.example.schedules import Points
from hmmbench.vm.channel import protocol
from hmmbench.vm.errors import AgentTimeout, QmpFailure
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec


@pytest.fixture
def target(spec: MachineSpec, snapshots: Snapshots) -> Iterator[ExactTarget]:
    exact = replace(spec, accel="tcg", exact=True, cpus=2)
    with Opener(exact, snapshots) as opener, ExactTarget(opener, take=True) as one:
        yield one


def execute(target: ExactTarget, index: int, schedule: str) -> Print:
    target.renew()
    env = replace(surroundings(5, index, Points()), schedule=schedule)
    target.execute(nth(5, index), env)
    return target.print


def stopping(stops: Iterator[int]) -> Callable[[Machine, float], None]:
    """In place of Machine._wait_stop: the machine is stopped and goes on again and again."""
    wait = Machine._wait_stop

    def wait_stop(self: Machine, timeout: float) -> None:
        while not self.standing:
            time.sleep(0.003)
            self.qmp("stop")
            wait(self, timeout)
            if self.mailbox.stands != self._stands_before or self.exact.state()["stands"]:
                return
            next(stops)
            self._stops_before = self._stops
            self.qmp("cont")

    return wait_stop


SCHEDULES = ("seed=7 slice=5:14 step=9:13:0:8 irq=10:17", "seed=8 slice=7:12 hold=8:16:20")


def stopped(
    target: ExactTarget, monkeypatch: pytest.MonkeyPatch, first: list[Print], leak: int
) -> list[tuple[str, ...]]:
    """How executions with stops in them differ from `first`, where there were none."""
    found = []
    stops = count()
    for n, schedule in enumerate(SCHEDULES):
        target.renew()
        assert target.vm.standing
        target.vm.exact._set("leak", leak)
        with monkeypatch.context() as patch:
            patch.setattr(Machine, "_wait_stop", stopping(stops))
            target.execute(nth(5, n), replace(surroundings(5, n, Points()), schedule=schedule))
        found.append(difference(first[n], target.print))
    assert next(stops) > 0
    return found


def test_a_stop_at_a_time_of_the_hosts(
    target: ExactTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [execute(target, n, schedule) for n, schedule in enumerate(SCHEDULES)]
    assert stopped(target, monkeypatch, first, 0) == [(), ()]
    # Where a kick by another thread ends a slice they are not the same (hmm-exact-leaks.c).
    for differs in stopped(target, monkeypatch, first, 1):
        assert {"hash", "answer"} <= set(differs)


def test_a_schedule_is_changed_only_while_it_stands(target: ExactTarget) -> None:
    vm = target.vm
    with pytest.raises(QmpFailure, match="no word of it"):
        vm.exact.schedule(f"span={1 << 41}")
    vm.post(protocol().HB_MSG_EXEC, struct.pack("<I", 3_600_000) + b"while :; do :; done")
    with pytest.raises(AgentTimeout):
        vm.go(0.2)
    with pytest.raises(QmpFailure, match="the machine runs"):
        vm.exact.schedule("seed=1")
    vm.pause()
    vm.exact.schedule("seed=1")
