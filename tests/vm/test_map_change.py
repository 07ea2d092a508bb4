# SPDX-License-Identifier: GPL-2.0-or-later
"""A change of the memory map, as an unplug makes it, does not cost the other CPU an access.

QEMU as it is ends itself here, two times of three, or its guest stands still for want of an
interrupt: see tcg-memory-map.patch in harness/hmmbench/build/qemu/.  Each time it fails in
tests/qtest/test_memory_map.py.
"""

from __future__ import annotations

from pathlib import Path

import work

from hmmbench.suites import driver_life
from hmmbench.vm.machine import Machine

TIMES = 30000


def test_cpus_keep_their_interrupts(vm: Machine, tmp_path: Path) -> None:
    vm.agent.check("echo 0000:01:00.0 >/sys/bus/pci/drivers/hmm_gpu/unbind")
    for path, content in driver_life.build(tmp_path, ["map_change"], work.WARNINGS).items():
        vm.agent.write_file(path, content, 0o755)
    config = "/sys/bus/pci/devices/0000:01:00.0/config"
    vm.agent.check(f"/tmp/map_change {config} {TIMES}", timeout=120)
