# SPDX-License-Identifier: GPL-2.0-or-later
"""The device from outside, with the driver at work: injection, counters, reset, hot-unplug."""

from __future__ import annotations

import pytest
import work

from hmmbench.vm.errors import QmpFailure
from hmmbench.vm.machine import Machine


def works(vm: Machine, seed: int = 0) -> None:
    job = work.mixed(seed)
    job.check(work.run(vm, job.program))


def test_counters_follow_the_work(vm: Machine) -> None:
    before = vm.gpu.counters()
    works(vm)
    after = vm.gpu.counters()
    for name in ("launches", "faults", "replays", "atomics", "copies", "irqs"):
        assert after[name] > before[name], name
    assert after["atomics"] - before["atomics"] == 128 * 8
    assert after["guest_errors"] == before["guest_errors"]


def test_injected_faults_are_met(vm: Machine) -> None:
    """A device that misbehaves as hardware may is survived, and the rules count their hits."""
    vm.gpu.inject(["tlb_invalidate prob=0.5 delay=100000", "fault prob=0.5 duplicate"])
    for seed in range(5):
        works(vm, seed)
    hits = vm.gpu.injected()
    vm.gpu.inject()
    assert "mmu.invalidate" in hits
    assert "fault" in hits
    assert vm.gpu.injected() != hits
    works(vm)


def test_rule_that_makes_no_sense(vm: Machine) -> None:
    with pytest.raises(QmpFailure, match="inject"):
        vm.gpu.inject("no_such_event always explode")
    works(vm)


def test_function_level_reset(vm: Machine) -> None:
    vm.agent.check("echo 0000:01:00.0 >/sys/bus/pci/drivers/hmm_gpu/unbind")
    vm.reset_gpu()
    vm.agent.check("echo 0000:01:00.0 >/sys/bus/pci/drivers/hmm_gpu/bind")
    works(vm)


def test_unplug_and_plug(vm: Machine) -> None:
    """The guest gives the device up when asked, and takes a new one into use."""
    works(vm)
    vm.unplug_gpu()
    assert vm.agent.execute("ls /sys/bus/pci/devices/0000:01:00.0").status != 0
    assert vm.agent.execute("ls /dev/dri/renderD128").status != 0
    vm.plug_gpu()
    vm.agent.check(
        "n=0; until [ -e /dev/dri/renderD128 ] || [ $n = 100 ]; do sleep 0.1;"
        " n=$((n+1)); done; [ -e /dev/dri/renderD128 ]",
        timeout=40,
    )
    works(vm)
