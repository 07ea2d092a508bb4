# SPDX-License-Identifier: GPL-2.0-or-later
"""Traces: parsed, brought to one clock within the stated error, and in the format's shape."""

from __future__ import annotations

import json

from hmmbench.example.tracer import Traced, parse_ftrace, parse_qemu
from hmmbench.guest.program import Op, OpResult, Program, Result
from hmmbench.model.ops.mapping import Mmap, Munmap
from hmmbench.report.trace import align, chrome

FTRACE = """\
# tracer: nop
     kworker/0:1-19      [000] .....    15.427283: hmm_gpu_fault: asid=1 addr=0x200014200000
           agent-84      [001] ...1.    15.415927: hmm_gpu_job: ctx=1 job=1 op=0x1
           agent-84      [001] ...1.    15.460000: hmm_gpu_tlb_invalidate: asid=1 0x2000..0x2fff
nonsense
"""
QEMU = """\
77@1700000000.000100:hmm_gpu_fault asid 65537 source 0x000000 va 0x200014200000 info 0x3000
77@1700000000.000050:hmm_gpu_launch ctx 1 entry 0x10 grid 1 block 32
77@1700000000.020000:hmm_gpu_launch_done ctx 1 err 0 instrs 9
qemu: a warning
"""


def test_both_traces_are_parsed() -> None:
    driver, device = parse_ftrace(FTRACE), parse_qemu(QEMU)
    assert [e.name for e in driver] == ["hmm_gpu_fault", "hmm_gpu_job", "hmm_gpu_tlb_invalidate"]
    assert driver[0].time_ns == 15_427_283_000
    assert driver[0].value("asid") == 1
    assert driver[0].where == "kworker/0:1-19"
    assert [e.name for e in device] == ["hmm_gpu_fault", "hmm_gpu_launch", "hmm_gpu_launch_done"]
    assert device[0].value("va") == 0x200014200000


def test_the_offset_is_within_the_stated_error() -> None:
    true = -1_000_000_000_000
    driver, device = [], []
    for k in range(20):
        host, slow, page = 10**13 + k * 10**6, 3_000 + 500 * k, 0x1000 * (k + 1)
        device.append(Traced(host, "hmm_gpu_fault", f"asid 65539 va {page:#x}"))
        driver.append(Traced(host + true + slow, "hmm_gpu_fault", f"asid=3 addr={page:#x}"))
        driver.append(
            Traced(host + true, "hmm_gpu_tlb_invalidate", f"asid=3 {page:#x}..{page + 1:#x}")
        )
        device.append(
            Traced(host + 2 * slow, "hmm_gpu_inval_start", f"asid 3 type 3 start {page:#x} len 1")
        )
    found = align(driver, device)
    assert found is not None
    assert found.error is not None
    assert abs(found.offset - true) <= found.error
    assert found.error <= 6_000
    one_side = align([e for e in driver if "fault" in e.name], device)
    assert one_side is not None
    assert one_side.error is None
    assert align([], device) is None


def test_the_json_has_the_shape_that_perfetto_reads() -> None:
    program = Program([Op(Mmap.number, len=4096), Op(Munmap.number, len=4096)])
    result = Result([OpResult(start_ns=15_400_000_000, time_ns=5000), OpResult(status=1)])
    data = json.loads(json.dumps(chrome(program, result, parse_ftrace(FTRACE), parse_qemu(QEMU))))
    events = data["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "i"}
    for e in events:
        if e["ph"] == "X":
            assert e["dur"] >= 0
        if e["ph"] != "M":
            assert isinstance(e["ts"], float | int)
            assert isinstance(e["tid"], int)
    slices = [e for e in events if e["ph"] == "X"]
    assert [(e["pid"], e["name"]) for e in slices] == [(1, "1 mmap"), (3, "launch")]
    # One axis: the launch lies between its submission and the fault's service.
    launch = slices[1]["ts"]
    assert 15_415_927 - 1 <= launch <= 15_427_283 + 1
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"Program (agent)", "Driver", "Device"}
    assert data["otherData"]["device_clock"].startswith("error at most")
