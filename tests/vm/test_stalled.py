# SPDX-License-Identifier: GPL-2.0-or-later
"""One process whose page never comes, and who must not notice: stalled.c says what is done."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import work

from hmmbench.build import Artifacts
from hmmbench.guest import splat
from hmmbench.suites import driver_life
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec

#: Microseconds that something takes at most that waits for nobody.  The page takes 20 s or more.
SOON = 8_000_000


def put(machine: Machine, folder: Path) -> None:
    for path, content in driver_life.build(folder, ["stalled"], work.WARNINGS).items():
        machine.agent.write_file(path, content, 0o755)


def measured(output: str) -> dict[str, int]:
    """What the program said, by name."""
    assert "stalled passed" in output, output
    print(output)
    lines = [line.split() for line in output.splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def stalled(machine: Machine, how: str, folder: Path) -> dict[str, int]:
    put(machine, folder)
    result = machine.agent.execute(f"/tmp/stalled {driver_life.KERNELS} {how}", timeout=180)
    assert result.status == 0, result.output
    return measured(result.output)


def unplugged(machine: Machine, how: str, folder: Path) -> dict[str, int]:
    """The port takes the device away, as QMP tells it to."""
    put(machine, folder)
    log = "/tmp/stalled.log"
    run = f"/tmp/stalled {driver_life.KERNELS} {how} unplug"
    machine.agent.check(f"{run} >{log} 2>&1 & echo started")
    work.wait_for(machine, log, "unplug now")
    machine.unplug_gpu(15)
    work.wait_for(machine, log, "stalled passed")
    return measured(machine.agent.check(f"cat {log}"))


def nobody_waits(seen: dict[str, int]) -> None:
    # One page and one engine wait: 2 faults for each replay of others at most.
    assert seen["faults"] - seen["served"] <= 2 * seen["replays"] + 10
    # The service of the fault that waits had the mirror all the time, so it was not waited for.
    assert seen["mirrors"] == 2
    assert min(seen["closed_mirrors"], seen["killed_mirrors"], seen["reset_mirrors"]) >= 2
    for name in ("close", "exit", "kill", "reset", "rmmod", "unbind", "unbound_kill"):
        assert seen[name] < SOON, name
    assert seen["rmmod_error"] == errno.EWOULDBLOCK


def unplug_waits_for_nobody(seen: dict[str, int]) -> None:
    # The port gives people 5 s for a second thought.
    assert seen["unplug"] < SOON + 5_000_000
    assert seen["unplugged_kill"] < SOON


def test_who_waits_for_a_page_makes_nobody_else_wait(vm: Machine, tmp_path: Path) -> None:
    nobody_waits(stalled(vm, "delay", tmp_path))


def test_a_device_is_unplugged_beside_who_waits(vm: Machine, tmp_path: Path) -> None:
    unplug_waits_for_nobody(unplugged(vm, "delay", tmp_path))


def test_the_driver_leaves_beside_who_stands_in_calls(vm: Machine, tmp_path: Path) -> None:
    """Before the arguments, behind the answer, and for the mmap lock; all can be killed."""
    seen = stalled(vm, "delay calls", tmp_path)
    for name in ("unbind", "arguments", "answer", "lock"):
        assert seen[name] < SOON, name


# Defined only where it is asked for: a skipped test looks like one that passed.
if os.environ.get("HMMBENCH_FULL"):

    @pytest.mark.full("a kernel with FUSE")
    @pytest.mark.timeout(1800)
    def test_a_page_of_fuse_that_never_comes(full_artifacts: Artifacts, tmp_path: Path) -> None:
        with Opener(best_spec(full_artifacts)[0]) as opener:
            machine = opener()
            seen = stalled(machine, "fuse", tmp_path)
            assert splat.scan(machine.console.text()) == []
        nobody_waits(seen)
        assert seen["beside"] <= 2 * seen["alone"]
        assert seen["module_left"] == 0

    @pytest.mark.full("a kernel with FUSE")
    @pytest.mark.timeout(1800)
    def test_a_device_is_unplugged_beside_a_page_of_fuse(
        full_artifacts: Artifacts, tmp_path: Path
    ) -> None:
        with Opener(best_spec(full_artifacts)[0]) as opener:
            machine = opener()
            seen = unplugged(machine, "fuse", tmp_path)
            assert splat.scan(machine.console.text()) == []
        unplug_waits_for_nobody(seen)
        assert seen["module_left"] == 0
