# SPDX-License-Identifier: GPL-2.0-or-later
"""What bounds the device towards its guest and its host: states, resets, properties, helpers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from qtest_machine import BAR_VRAM, Machine, eventually, hw
from test_glue_migration import load, save

from hmmbench.vm.qtest import FIRMWARE

Start = Callable[..., Machine]


def test_a_state_of_any_size_is_saved(start: Start, tmp_path: Path) -> None:
    """All contexts have launches whose warps have stalled: a guest can do that at any time."""
    shape = "sms=4,warps=16"
    machine = start(shape)
    machine.enumerate()
    machine.gpu.start()
    for number in range(hw.HG_NUM_CTXS):
        context = machine.gpu.context(number)
        context.submit(hw.HG_OP_LAUNCH, 0x1000, 0, 64 | 32 << 32, 0, 1024 << 32)

    def stalled() -> bool:
        machine.clock_step(2_000_000)
        return machine.gpu.counter(hw.HG_CNT_STALLED_WARPS) == 64 * 64

    eventually("all warps stalled", stalled, 60)
    save(machine, tmp_path / "state")
    machine.close()
    other = load(start, tmp_path / "state", machine, shape)
    assert other.gpu.counters()["stalled_warps"] == 64 * 64


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_reset_does_to_vram(start: Start, lost: bool) -> None:
    machine = start("flr-vram=lost" if lost else "")
    machine.enumerate()
    features = machine.gpu.r32(hw.HG_REG_FEATURES)
    assert bool(features & hw.HG_FEATURE_RESET_LOSES_VRAM) == lost
    for soft in (True, False):
        machine.store(BAR_VRAM + 0x100, 0x77, 8)
        if soft:
            machine.gpu.w32(hw.HG_REG_CTRL, hw.HG_CTRL_RESET)
        else:
            machine.flr()
            machine.enable_device()
        assert machine.load(BAR_VRAM + 0x100, 8) == (0x77 if soft or not lost else 0)


def test_reading_a_property_parks_no_engine(machine: Machine) -> None:
    """Who lists them all must change nothing: the audit is run by writing."""

    def get(name: str) -> object:
        return machine.qmp("qom-get", {"path": "/machine/peripheral/gpu", "property": name})

    assert get("audit-full") is False
    assert get("audit-full-compared") == 0
    machine.qmp(
        "qom-set", {"path": "/machine/peripheral/gpu", "property": "audit-full", "value": True}
    )
    assert get("audit-full") is False


@pytest.mark.parametrize(
    ("device", "patched"),
    [
        pytest.param((), False, id="none"),
        pytest.param(("-device", "pcie-root-port,id=rp", "-device", "hmm-gpu,bus=rp"), True,
                     id="gpu"),
    ],
)  # fmt: skip
def test_tcgs_helper_is_ours_with_our_device_alone(
    qemu: Path, tmp_path: Path, device: tuple[str, ...], patched: bool
) -> None:
    bios = tmp_path / "bios"
    bios.write_bytes(FIRMWARE)
    done = subprocess.run(
        [qemu, "-M", "q35", "-accel", "tcg", "-display", "none", "-nodefaults", "-S", *device,
         "-bios", bios,
         "-trace", "hmm_gpu_pause_helper", "-monitor", "stdio"],
        input="quit\n", capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ("hmm_gpu_pause_helper" in done.stderr) == patched, done.stderr
