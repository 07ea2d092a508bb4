# SPDX-License-Identifier: GPL-2.0-or-later
"""Injection rules and counters as QEMU's users reach them: property, qom-set, qom-get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from qtest_machine import PAGE, Machine, eventually, hw
from qtest_work import Launch
from test_glue_migration import plain_save

from hmmbench.vm.errors import QmpFailure

GPU_PATH = "/machine/peripheral/gpu"


def _set(machine: Machine, rules: str) -> None:
    machine.qmp("qom-set", {"path": GPU_PATH, "property": "inject", "value": rules})


def _get(machine: Machine) -> str:
    text = machine.qmp("qom-get", {"path": GPU_PATH, "property": "inject"})
    assert isinstance(text, str)
    return text


def _copy_fails(machine: Machine, number: int) -> bool:
    context = machine.gpu.context(number, priv=True)
    report = machine.alloc()
    ram = hw.HG_SPACE_SYS
    flags = ram << hw.HG_COPY_SRC_SHIFT | ram << hw.HG_COPY_DST_SHIFT
    source, target = machine.alloc(), machine.alloc()
    context.submit(hw.HG_OP_COPY | flags, source, target, PAGE, 0, 0, 0, report)
    eventually("report", lambda: machine.load(report + hw.HG_RPT_DONE, 8) != 0)
    return machine.load(report + hw.HG_RPT_STATUS, 4) != hw.HG_ERR_NONE


def test_rule_by_qom(machine: Machine) -> None:
    machine.gpu.start()
    assert not _copy_fails(machine, 0)
    _set(machine, "copy count=1 error")
    assert _copy_fails(machine, 1)
    assert not _copy_fails(machine, 2)
    assert "copy" in _get(machine)
    _set(machine, "")
    assert "copy" not in _get(machine)


def test_rule_by_property(start: Callable[..., Machine]) -> None:
    machine = start("inject=copy nth=2 count=1 error")
    machine.enumerate()
    machine.gpu.start()
    assert [_copy_fails(machine, number) for number in range(3)] == [False, True, False]


def test_bad_rule_leaves_the_old_ones(machine: Machine) -> None:
    _set(machine, "copy error")
    before = _get(machine)
    with pytest.raises(QmpFailure, match="inject"):
        _set(machine, "copy explode")
    assert _get(machine) == before


def test_lost_interrupt(machine: Machine) -> None:
    """The status bit is there, the message is not."""
    machine.gpu.start()
    _set(machine, f"irq match={hw.HG_VEC_FENCE:x} count=1 lost")
    context = machine.gpu.context(0)
    value = context.fence(hw.HG_FENCE_IRQ)
    eventually("fence", lambda: context.reached(value))
    context.finish()
    assert not machine.msi_arrived(hw.HG_VEC_FENCE)
    assert machine.gpu.r32(hw.HG_REG_INTR_STATUS) & 1 << hw.HG_VEC_FENCE


def _arrives(machine: Machine) -> None:
    eventually("message", lambda: machine.msi_arrived(hw.HG_VEC_FENCE))


def test_a_duplicate_interrupt_is_a_second_message(machine: Machine) -> None:
    """Also if QEMU's main loop is busy until both would have been due."""
    machine.gpu.start()
    _set(machine, f"irq match={hw.HG_VEC_FENCE:x} duplicate")
    context = machine.gpu.context(0)
    size = 24 << 20
    word, busy = machine.alloc(), f"memset {machine.alloc(size):#x} {size:#x} 1"
    for _ in range(5):
        doorbell = context.prepare(hw.HG_OP_FENCE | hw.HG_FENCE_IRQ, word, 1)
        machine.requests([doorbell, busy, "clock_step 12000", busy])
        _arrives(machine)
        for _ in range(10):  # not before its time
            assert not machine.msi_arrived(hw.HG_VEC_FENCE)
        machine.clock_step(12_000)
        _arrives(machine)
        machine.gpu.w32(hw.HG_REG_INTR_STATUS, 1 << hw.HG_VEC_FENCE)
        machine.clock_step(1_000_000)
        assert not machine.msi_arrived(hw.HG_VEC_FENCE)


def _exact(start: Callable[..., Machine], *args: str) -> Machine:
    """A CPU that turns on the spot, and messages in the log."""
    return start(
        "deterministic=on",
        *("-icount", "shift=1,sleep=off", "-device", "hmm-exact,id=exact0"),
        *("-trace", "hmm_gpu_msix", *args),
        accel="tcg,thread=single",
        firmware=bytes.fromhex("ebfe").rjust(0xFFF2, b"\xf4").ljust(1 << 16, b"\xf4"),
    )


def _late(start: Callable[..., Machine], log2: int) -> Machine:
    """Its messages come 2^log2 ns after they were raised, and twice."""
    machine = _exact(start)
    machine.enumerate()
    machine.gpu.start()
    _set(machine, f"irq match={hw.HG_VEC_FENCE:x} duplicate")
    machine.qmp("stop")
    schedule = {"path": "/machine/peripheral/exact0", "property": "schedule"}
    machine.qmp("qom-set", {**schedule, "value": f"seed=1 irq={log2}:{log2}"})
    machine.qmp("cont")
    return machine


def _sends(machine: Machine, count: int) -> None:
    eventually("messages", lambda: machine.log().count("hmm_gpu_msix") == count)


def test_a_duplicate_comes_behind_a_late_one(start: Callable[..., Machine]) -> None:
    """In an exact machine a message may come later than 10 us after it was raised."""
    machine = _late(start, 15)
    context = machine.gpu.context(0)
    for number in range(1, 4):
        context.fence(hw.HG_FENCE_IRQ)
        _sends(machine, 2 * number)


def test_a_late_one_is_saved_with_its_duplicate(
    start: Callable[..., Machine], tmp_path: Path
) -> None:
    machine = _late(start, 28)
    context = machine.gpu.context(0)
    value = context.fence(hw.HG_FENCE_IRQ)
    eventually("fence", lambda: context.reached(value))
    plain_save(machine, tmp_path / "state")
    assert "hmm_gpu_msix" not in machine.log()
    machine.close()
    other = _exact(start, "-incoming", f"file:{tmp_path / 'state'}")
    eventually("loaded", lambda: other.qmp("query-status")["status"] in ("paused", "postmigrate"))
    other.qmp("cont")
    _sends(other, 2)


def test_dma_error_by_address(machine: Machine) -> None:
    """A rule that comes while pointers to RAM are cached by the TLBs still acts."""
    machine.gpu.start()
    launch = Launch(machine)
    launch.begin(machine.gpu)
    _set(machine, f"dma_write match={launch.frames[3]:x} error")
    for fault in machine.gpu.faults():
        page = (fault.address - 0x4000_0000) // PAGE
        launch.space.map(fault.address, launch.frames[page])
    machine.gpu.replay()
    eventually("fence", lambda: launch.context.reached(launch.fence))
    assert machine.load(launch.report + hw.HG_RPT_STATUS, 4) == hw.HG_ERR_FAULT
    assert machine.load(launch.report + hw.HG_RPT_REASON, 4) == hw.HG_REASON_POISON


def test_counters_cannot_be_set(machine: Machine) -> None:
    with pytest.raises(QmpFailure):
        machine.qmp("qom-set", {"path": GPU_PATH, "property": "counters", "value": {}})


def test_counters_agree_with_registers(machine: Machine) -> None:
    machine.gpu.start()
    launch = Launch(machine)
    launch.begin(machine.gpu)
    launch.finish(machine)
    by_name = machine.gpu.counters()
    names = {
        value: name.removeprefix("HG_CNT_").lower()
        for name, value in hw.items()
        if name.startswith("HG_CNT_")
    }
    assert len(by_name) == len(names) == hw.HG_NUM_COUNTERS
    assert {n: machine.gpu.counter(v) for v, n in names.items()} == dict(by_name)
