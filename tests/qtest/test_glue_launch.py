# SPDX-License-Identifier: GPL-2.0-or-later
"""GPU programs through the whole device: fault, ring entry, interrupt, PTE, replay, result."""

from __future__ import annotations

from collections.abc import Callable

from qtest_machine import PAGE, AddressSpace, Machine, eventually, hw
from qtest_programs import INCREMENT
from qtest_work import CODE, DATA, Launch


def test_program_without_faults(machine: Machine) -> None:
    machine.gpu.start()
    space = AddressSpace(machine.gpu)
    code, data, report = machine.alloc(), machine.alloc(2 * PAGE), machine.alloc()
    machine.write(code, INCREMENT)
    space.map(CODE, code)
    space.map(DATA, data)
    space.map(DATA + PAGE, data + PAGE)
    context = machine.gpu.context(0)
    context.submit(hw.HG_OP_LAUNCH, CODE, DATA, 64 << 32 | 16, 0, 0, 0, report)
    context.finish()
    assert machine.load(report + hw.HG_RPT_STATUS, 4) == hw.HG_ERR_NONE
    assert machine.read(data, 2 * PAGE) == (1).to_bytes(8, "little") * 1024
    counters = machine.gpu.counters()
    assert counters["launches"] == 1
    assert counters["faults"] == 0


def test_fault_replay_finish(machine: Machine) -> None:
    machine.gpu.start()
    launch = Launch(machine)
    launch.begin(machine.gpu)
    eventually("fault interrupt", lambda: machine.msi_arrived(hw.HG_VEC_FAULT))
    launch.finish(machine)
    eventually("fence interrupt", lambda: machine.msi_arrived(hw.HG_VEC_FENCE))
    counters = machine.gpu.counters()
    assert counters["faults"] >= 24
    assert counters["pending_faults"] == 0
    assert counters["stalled_warps"] == 0


def test_cancelled_fault_ends_the_launch(machine: Machine) -> None:
    machine.gpu.start()
    launch = Launch(machine)
    launch.begin(machine.gpu)
    list(machine.gpu.faults())
    machine.gpu.w32(hw.HG_REG_CANCEL_ASID, 1)
    machine.gpu.w32(hw.HG_REG_CANCEL_CMD, hw.HG_CANCEL_GLOBAL)
    eventually("fence", lambda: launch.context.reached(launch.fence))
    assert machine.load(launch.report + hw.HG_RPT_STATUS, 4) == hw.HG_ERR_FAULT
    assert DATA <= machine.load(launch.report + hw.HG_RPT_ADDR, 8) < DATA + 24 * PAGE
    assert [machine.load(frame, 8) for frame in launch.frames] == [1000 * n for n in range(24)]


def test_deterministic_mode_runs_on_the_virtual_clock(start: Callable[..., Machine]) -> None:
    """No threads: nothing happens until the clock moves, then the same happens again."""
    seen = []
    for _ in range(2):
        machine = start("deterministic=on,seed=7")
        machine.enumerate()
        machine.gpu.start()
        launch = Launch(machine)
        launch.context.submit(hw.HG_OP_LAUNCH, CODE, DATA, 24 << 32 | 1, 0, 0, 0, launch.report)
        assert machine.gpu.counter(hw.HG_CNT_FAULTS) == 0
        steps = 0
        while machine.gpu.counter(hw.HG_CNT_PENDING_FAULTS) < 24:
            machine.clock_step(10_000)
            steps += 1
            assert steps < 1000
        ring = [(f.address, f.access, f.reason) for f in machine.gpu.faults()]
        seen.append((steps, ring, machine.gpu.r64(hw.HG_REG_TIME), dict(machine.gpu.counters())))
        machine.close()
    assert seen[0] == seen[1]
