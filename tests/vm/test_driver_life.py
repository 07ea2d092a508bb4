# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver's life under load: unbind, reset, hot-unplug, and what memory must survive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import work

from hmmbench.guest import splat
from hmmbench.suites import driver_life
from hmmbench.suites.driver_life import KERNELS
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

PROGRAM = "/tmp/driver_life"
LIFE = ["unbind", "reset", "lazyfree", "batches", "cow", "tight"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The test program and the GPU kernels it uses."""
    return driver_life.build(tmp_path_factory.mktemp("life"), ["driver_life"], work.WARNINGS)


@pytest.fixture
def machine(
    request: pytest.FixtureRequest, spec: MachineSpec, snapshots: Snapshots,
    files: dict[str, bytes],
) -> Iterator[Machine]:  # fmt: skip
    """A machine of its own for each test; a splat in it fails the test.

    A test's parameter are properties of its GPU.
    """
    with snapshots.open(spec.with_gpu(**getattr(request, "param", {}))) as vm:
        for path, content in files.items():
            vm.agent.write_file(path, content, 0o755)
        yield vm
        vm.check()
        assert splat.scan(vm.console.text()) == []


def leftovers(vm: Machine) -> dict[str, int]:
    """What the driver still holds, by the names of its live counters."""
    return {name: value for name, value in work.live(vm).items() if value}


@pytest.mark.parametrize("name", [*LIFE, "starve"])
def test_driver_life(machine: Machine, name: str) -> None:
    result = machine.agent.execute(f"{PROGRAM} {KERNELS} {name}", timeout=120)
    assert (result.status, f"{name} passed" in result.output) == (0, True), result.output
    assert leftovers(machine) == {}
    machine.agent.check("rmmod hmm_gpu")


@pytest.mark.parametrize("name", LIFE)
@pytest.mark.parametrize("machine", [{"coherent": True}], ids=["coherent"], indirect=True)
def test_driver_life_with_coherent_memory(machine: Machine, name: str) -> None:
    test_driver_life(machine, name)


@pytest.mark.parametrize(
    ("name", "rule"),
    [("copyerr", "copy prob=0.05 error"), ("silent", "tlb_invalidate count=1 delay=60s")],
)
def test_driver_and_bad_device(machine: Machine, name: str, rule: str) -> None:
    """The device misbehaves; the driver says so and neither waits for ever nor loses data."""
    machine.gpu.inject(rule)
    result = machine.agent.execute(f"{PROGRAM} {KERNELS} {name}", timeout=120)
    assert "fired=0" not in machine.gpu.injected()
    machine.gpu.inject()
    assert (result.status, f"{name} passed" in result.output) == (0, True), result.output
    assert leftovers(machine) == {}
    machine.agent.check("rmmod hmm_gpu")


def test_unplug(machine: Machine) -> None:
    """The port takes the device away from the driver while jobs run and pages are in VRAM."""
    log = "/tmp/unplug.log"
    machine.agent.check(f"{PROGRAM} {KERNELS} unplug >{log} 2>&1 & echo started")
    work.wait_for(machine, log, "unplug now")
    machine.unplug_gpu()
    work.wait_for(machine, log, "unplug passed")
    assert "0000:" not in machine.agent.check("ls /sys/bus/pci/drivers/hmm_gpu/")
    machine.agent.check("rmmod hmm_gpu")


def test_unload_while_pages_cannot_leave(machine: Machine) -> None:
    """Who waits for them runs the module's code, and the kernel comes back to it for each."""
    result = machine.agent.execute(f"{PROGRAM} {KERNELS} unload", timeout=60)
    assert (result.status, "unload passed" in result.output) == (0, True), result.output
