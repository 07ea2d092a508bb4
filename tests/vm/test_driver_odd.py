# SPDX-License-Identifier: GPL-2.0-or-later
"""What no program of memory operations does to the driver: driver_odd.c says what."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hmmbench import paths
from hmmbench.vm.machine import Machine

HERE = Path(__file__).parent


def test_odd_calls_and_places(vm: Machine, tmp_path: Path) -> None:
    driver = paths.driver_sources()
    subprocess.run(["make", "-s", "-C", str(driver / "agent"), f"OUT={tmp_path}"], check=True)
    includes = [f"-I{driver / d}" for d in ("lib", "include/uapi", "kernels", "agent")]
    subprocess.run(
        ["gcc", "-static", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *includes,
         f"-I{paths.device_sources() / 'include'}", str(HERE / "driver_odd.c"),
         str(tmp_path / "libhmmgpu.a"), "-lpthread", "-o", str(tmp_path / "odd")],
        check=True,
    )  # fmt: skip
    vm.agent.write_file("/tmp/odd", (tmp_path / "odd").read_bytes(), 0o755)
    vm.agent.write_file("/tmp/kernels.elf", (tmp_path / "kernels.elf").read_bytes())
    result = vm.agent.execute("/tmp/odd /tmp/kernels.elf", timeout=120)
    assert (result.status, "odd passed" in result.output) == (0, True), result.output
    # Whatever the calls began ended with their file.
    vm.agent.check("rmmod hmm_gpu")
