# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver's life under load: unbind, reset, hot-unplug, and what memory must survive."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hmmbench import paths
from hmmbench.oracle import splat
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

HERE = Path(__file__).parent
PROGRAM, KERNELS = "/tmp/driver_life", "/tmp/kernels.elf"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The test program and the GPU kernels it uses."""
    out = tmp_path_factory.mktemp("life")
    driver = paths.driver_sources()
    subprocess.run(["make", "-s", "-C", str(driver / "agent"), f"OUT={out}"], check=True)
    includes = [f"-I{driver / d}" for d in ("lib", "include/uapi", "kernels", "agent")]
    subprocess.run(
        ["gcc", "-static", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *includes,
         f"-I{paths.device_sources() / 'include'}", str(HERE / "driver_life.c"),
         str(out / "libhmmgpu.a"), "-lpthread", "-o", str(out / "driver_life")],
        check=True,
    )  # fmt: skip
    return (out / "driver_life").read_bytes(), (out / "kernels.elf").read_bytes()


@pytest.fixture
def machine(
    spec: MachineSpec, snapshots: Snapshots, files: tuple[bytes, bytes]
) -> Iterator[Machine]:
    """A machine of its own for each test; a splat in it fails the test."""
    with snapshots.open(spec) as vm:
        vm.agent.write_file(PROGRAM, files[0], 0o755)
        vm.agent.write_file(KERNELS, files[1])
        yield vm
        vm.check()
        assert splat.scan(vm.console.text()) == []


@pytest.fixture
def coherent_machine(
    spec: MachineSpec, snapshots: Snapshots, files: tuple[bytes, bytes]
) -> Iterator[Machine]:
    """The same with device-coherent memory."""
    with snapshots.open(spec.with_gpu(coherent=True)) as vm:
        vm.agent.write_file(PROGRAM, files[0], 0o755)
        vm.agent.write_file(KERNELS, files[1])
        yield vm
        vm.check()
        assert splat.scan(vm.console.text()) == []


def leftovers(vm: Machine) -> dict[str, int]:
    """What the driver still holds, by the names of its live counters."""
    text = vm.agent.check("cat /sys/kernel/debug/dri/0/counters")
    counts = dict(line.split() for line in text.splitlines())
    live = {name: int(value) for name, value in counts.items() if name.startswith("live_")}
    assert len(live) > 5, text
    return {name: value for name, value in live.items() if value}


@pytest.mark.parametrize("name", ["unbind", "reset", "lazyfree", "cow", "tight", "starve"])
def test_driver_life(machine: Machine, name: str) -> None:
    result = machine.agent.execute(f"{PROGRAM} {KERNELS} {name}", timeout=120)
    assert (result.status, f"{name} passed" in result.output) == (0, True), result.output
    assert leftovers(machine) == {}
    machine.agent.check("rmmod hmm_gpu")


@pytest.mark.parametrize("name", ["unbind", "reset", "lazyfree", "cow", "tight"])
def test_driver_life_with_coherent_memory(coherent_machine: Machine, name: str) -> None:
    test_driver_life(coherent_machine, name)


@pytest.mark.parametrize(
    ("name", "rule"),
    [("copyerr", "copy prob=0.05 error"), ("silent", "tlb_invalidate delay=60s")],
)
def test_driver_and_bad_device(machine: Machine, name: str, rule: str) -> None:
    """The device misbehaves; the driver says so and neither waits for ever nor loses data."""
    machine.inject(rule)
    result = machine.agent.execute(f"{PROGRAM} {KERNELS} {name}", timeout=120)
    assert "fired=0" not in machine.injected()
    machine.inject()
    assert (result.status, f"{name} passed" in result.output) == (0, True), result.output
    assert leftovers(machine) == {}
    machine.agent.check("rmmod hmm_gpu")


def wait_for(vm: Machine, path: str, text: str) -> None:
    """Until a file of the guest has a text; 20 s."""
    vm.agent.check(
        f"for i in $(seq 200); do grep -q '{text}' {path} && exit; sleep 0.1; done; false"
    )


def test_unplug(machine: Machine) -> None:
    """The port takes the device away from the driver while jobs run and pages are in VRAM."""
    log = "/tmp/unplug.log"
    machine.agent.check(f"{PROGRAM} {KERNELS} unplug >{log} 2>&1 & echo started")
    wait_for(machine, log, "unplug now")
    machine.unplug_gpu()
    wait_for(machine, log, "unplug passed")
    assert "0000:" not in machine.agent.check("ls /sys/bus/pci/drivers/hmm_gpu/")
    machine.agent.check("rmmod hmm_gpu")
