# SPDX-License-Identifier: GPL-2.0-or-later
"""Injection rules and counters as QEMU's users reach them: property, qom-set, qom-get."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from qtest_machine import PAGE, Machine, eventually, hw
from qtest_work import Launch

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
