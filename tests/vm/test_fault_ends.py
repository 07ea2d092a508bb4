# SPDX-License-Identifier: GPL-2.0-or-later
"""How faults end that are not simply served: fault_ends.c says what is done."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import work

from hmmbench.build import Artifacts
from hmmbench.guest import splat
from hmmbench.suites import driver_life
from hmmbench.vm.agent import ExecResult
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

TRACING = "/sys/kernel/tracing"

#: Interrupts of fences, with which jobs end.
LATE = "irq.message match=1 delay=1s"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return driver_life.build(tmp_path_factory.mktemp("ends"), ["fault_ends"], work.WARNINGS)


@contextmanager
def ready(vm: Machine, files: dict[str, bytes]) -> Iterator[Machine]:
    """The machine with the program, looked at in the end."""
    for path, content in files.items():
        vm.agent.write_file(path, content, 0o755)
    yield vm
    vm.check()
    assert splat.scan(vm.console.text()) == []


@contextmanager
def opened(
    spec: MachineSpec, snapshots: Snapshots, files: dict[str, bytes]
) -> Iterator[Machine]:
    with snapshots.open(spec) as vm, ready(vm, files):
        yield vm


def execute(machine: Machine, name: str, timeout: int = 60) -> ExecResult:
    return machine.agent.execute(f"/tmp/fault_ends {driver_life.KERNELS} {name}", timeout=timeout)


def passed(result: ExecResult, name: str) -> None:
    assert (result.status, f"{name} passed" in result.output) == (0, True), result.output


def traced(machine: Machine, name: str, events: str) -> Iterator[tuple[str, str, str, str, str]]:
    """What a test is seen to do: task, CPU, flags, event and the rest of each line."""
    machine.agent.check(
        f"cd {TRACING} && echo 0 > events/enable && "
        f"for e in {events}; do echo 1 > events/$e/enable; done && echo > trace && "
        "echo 1 > tracing_on"
    )
    result = execute(machine, name)
    machine.agent.check(f"echo 0 > {TRACING}/tracing_on; echo 0 > {TRACING}/events/enable")
    passed(result, name)
    for line in machine.agent.read_file(f"{TRACING}/trace").decode().splitlines():
        if found := re.match(r"\s*\S+?-(\d+)\s+\[(\d+)\] (\S+) .*?: (\w+): (.*)", line):
            task, cpu, flags, event, rest = found.groups()
            yield task, cpu, flags, event, rest


@pytest.fixture(scope="module")
def machine(
    spec: MachineSpec, snapshots: Snapshots, files: dict[str, bytes]
) -> Iterator[Machine]:
    """One for most tests: each leaves it as it was."""
    with opened(spec, snapshots, files) as vm:
        yield vm


@pytest.mark.parametrize(
    "name", ["memory", "charged", "accounted", "ended", "closed", "secret", "another"]
)
def test_fault_ends(machine: Machine, name: str) -> None:
    result = execute(machine, name)
    machine.agent.check(
        "cd /sys/kernel/debug/dri/0 && echo 0 > fail_tables && echo 0 > fail_exclusive && "
        "echo clear > delays"
    )
    passed(result, name)
    assert not any(work.live(machine).values())


@pytest.mark.parametrize(
    ("name", "times"), [("unreadable", 100000), ("unreadables", 100000), ("misread", 3)]
)
def test_page_of_vram_that_cannot_come_home(machine: Machine, name: str, times: int) -> None:
    """The way to VRAM is one copy; then some fail: of a list that does each piece is tried.

    Where there are several pages, the end of the job is told late: all have been refused by then.
    """
    late = [LATE] if name == "unreadables" else []
    machine.gpu.inject((f"ce.copy nth=2 count={times} error", *late))
    result = execute(machine, name)
    assert "fired=0" not in machine.gpu.injected()
    machine.gpu.inject()
    passed(result, name)
    assert not any(work.live(machine).values())


def test_the_device_goes_while_a_page_there_is_looked_at(
    spec: MachineSpec, snapshots: Snapshots, files: dict[str, bytes]
) -> None:
    """On a machine of its own: who looks in the wrong place dies of it."""
    with opened(spec, snapshots, files) as vm:
        result = execute(vm, "gone")
        passed(result, "gone")


def test_the_end_of_a_process_is_not_its_faults_service(machine: Machine) -> None:
    """Who serves a fault may be the last who has the memory; to free it is left to others."""
    running: dict[str, str] = {}
    ended_by = set()
    events = "mmap/exit_mmap workqueue/workqueue_execute_start workqueue/workqueue_execute_end"
    for task, _, _, event, rest in traced(machine, "killed", events):
        if event == "workqueue_execute_start":
            running[task] = rest.split("function ")[-1]
        elif event == "workqueue_execute_end":
            running.pop(task, None)
        elif event == "exit_mmap":
            ended_by.add(running.get(task, "itself"))
    assert "itself" in ended_by, "nothing was traced"
    assert any(name.startswith("mmput_async") for name in ended_by)
    assert not any(name.startswith("hg_") for name in ended_by), ended_by


def test_the_handler_of_the_interrupt_wakes_fault_service_itself(machine: Machine) -> None:
    """One hop, to where one may sleep: nothing runs between the interrupt and that work."""
    queued: dict[str, str] = {}
    running: dict[str, str] = {}
    handler: dict[str, str] = {}
    wakers = []
    events = (
        "irq/irq_handler_entry workqueue/workqueue_queue_work workqueue/workqueue_execute_start "
        "hmm_gpu/hmm_gpu_batch"
    )
    for task, cpu, flags, event, rest in traced(machine, "valid", events):
        work_at = re.search(r"work struct=?\s*(\S+?):? ", rest)
        if event == "irq_handler_entry":
            handler[cpu] = rest.split("name=")[-1]
        elif event == "workqueue_queue_work" and work_at:
            # "h" and "H": within a handler; it interrupts whatever runs on its CPU
            queued[work_at[1]] = handler[cpu] if re.search("[hH]", flags) else "a task"
        elif event == "workqueue_execute_start" and work_at:
            running[task] = work_at[1]
        elif event == "hmm_gpu_batch":
            wakers.append(queued[running[task]])
    assert len(wakers) >= 2, "nothing was traced"
    assert set(wakers) == {"hmm_gpu-fault"}


def test_entries_that_never_become_valid_cost_a_second_together(machine: Machine) -> None:
    """32 pages that one warp misses, all of whose entries stay without their last word."""
    machine.gpu.inject("fault.entry match=300000000000/fffffff00000 count=32 delay_valid=60s")
    result = execute(machine, "valid")
    assert "fired=32" in machine.gpu.injected()
    machine.gpu.inject()
    took = re.search(r"took (\d+) ms", result.output)
    assert took, result.output
    assert 900 < int(took[1]) < 16000


def test_entries_dropped_from_an_empty_ring_are_told_of(machine: Machine) -> None:
    """The same pages: no entry comes, nor anything after it, until OVERFLOW is seen."""
    machine.gpu.inject("fault.entry match=300000000000/fffffff00000 count=32 drop")
    result = execute(machine, "valid", timeout=20)
    assert "fired=32" in machine.gpu.injected()
    machine.gpu.inject()
    passed(result, "valid")


# Defined only where it is asked for: a skipped test looks like one that passed.
if os.environ.get("HMMBENCH_FULL"):

    @pytest.mark.full("a kernel with memfd_secret()")
    @pytest.mark.timeout(1800)
    def test_secret_memory(full_artifacts: Artifacts, files: dict[str, bytes]) -> None:
        with Opener(best_spec(full_artifacts)[0]) as opener, ready(opener(), files) as vm:
            passed(execute(vm, "memfd"), "memfd")
