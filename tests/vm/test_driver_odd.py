# SPDX-License-Identifier: GPL-2.0-or-later
"""What no program of memory operations does to the driver: driver_odd.c says what."""

from __future__ import annotations

from pathlib import Path

import work

from hmmbench.suites import driver_life
from hmmbench.vm.machine import Machine


def test_odd_calls_and_places(vm: Machine, tmp_path: Path) -> None:
    for path, content in driver_life.build(tmp_path, ["driver_odd"], work.WARNINGS).items():
        vm.agent.write_file(path, content, 0o755)
    result = vm.agent.execute(f"/tmp/driver_odd {driver_life.KERNELS}", timeout=120)
    assert (result.status, "odd passed" in result.output) == (0, True), result.output
    # Whatever the calls began ended with their file.
    vm.agent.check("rmmod hmm_gpu")
