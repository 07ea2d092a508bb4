# SPDX-License-Identifier: GPL-2.0-or-later
"""Going back on an exact machine, and gdb's commands for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
import work

from hmmbench.base.errors import UsageError
from hmmbench.build import Artifacts
from hmmbench.campaign.repeat import exact_specs, nth, surroundings
from hmmbench.debug import session
from hmmbench.debug.back import Back, entry_at
from hmmbench.example import schedules
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import MIGRATE_DEVICE, REGION_BASE, Acc, Program
from hmmbench.vm import decisions
from hmmbench.vm.errors import VmError
from hmmbench.vm.gdb.server import physical
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

SCHEDULE = "seed=7 slice=7:12"


def looked_at() -> Program:
    """A page that goes to VRAM and that the GPU writes: both of its entries change."""
    return Program(
        [
            work.mmap(2),
            work.cpu(work.acc(Acc.WRITE, 0, value=3), phase=1),
            work.migrate(2, MIGRATE_DEVICE, phase=2),
            work.gpu(work.acc(Acc.WRITE, 0, value=7), phase=3),
        ],
        settle_ms=3000, timeout_ms=20000,
    )  # fmt: skip


@pytest.fixture(scope="module")
def exact(spec: MachineSpec) -> MachineSpec:
    return exact_specs(spec)[2]


@pytest.fixture(scope="module")
def back(exact: MachineSpec) -> Iterator[Back]:
    """Two programs, of which the second is looked at."""
    first = nth(5, 0), surroundings(5, 0, schedules.Points(), "random")
    second = looked_at(), Environment(audit="access", schedule=SCHEDULE)
    with Opener(exact) as opener, ExactTarget(opener) as target:
        yield Back(target, [first, second])


def registers(vm: Machine) -> str:
    return vm.monitor("info registers -a")


def test_the_same_instruction_twice(back: Back) -> None:
    middle = (back.begin + back.end) // 2
    seen = [registers(back.goto(n)) for n in (middle, middle + 1, middle)]
    assert seen[0] == seen[2]
    assert seen[0] != seen[1]
    assert back.now == middle


def test_both_ends(back: Back) -> None:
    assert back.goto(back.begin).exact.state()["icount"] == back.begin
    assert back.goto(back.end).exact.state()["icount"] == back.end
    for beyond in (back.begin - 1, back.end + 1):
        with pytest.raises(UsageError):
            back.goto(beyond)


def test_switches(back: Back) -> None:
    """At each the CPU stands where the log says that its slice ended."""
    found = back.switches(back.end, 200)
    assert len(found) == 200
    assert all(a.icount >= b.icount for a, b in pairwise(found))
    slices = [d for d in found if d.what == decisions.What.OVER]
    for d in slices[:3]:
        vm = back.goto(d.icount)
        cpu = vm.qmp("query-cpus-fast")[d.who]
        assert cpu["cpu-index"] == d.who
        rips = re.findall(r"RIP=(\w+)", registers(vm))
        assert int(rips[d.who], 16) == d.pc


def test_another_execution_is_seen(exact: MachineSpec) -> None:
    """A schedule with other chances, put under it: going back says where it parted."""
    with Opener(exact) as opener, ExactTarget(opener) as target:
        back = Back(target, [(looked_at(), Environment(schedule=SCHEDULE))])
        middle = (back.begin + back.end) // 2
        back.goto(middle)
        back._chain = ((looked_at(), Environment(schedule="seed=8 slice=7:12")),)
        with pytest.raises(VmError, match="not execute the same again: decision"):
            back.goto(middle)


@pytest.fixture
def debug(artifacts: Artifacts) -> Artifacts:
    """The kernel's symbols are enough here."""
    if artifacts.debug_vmlinux is not None and artifacts.debug_module_dir is not None:
        return artifacts
    return replace(
        artifacts, debug_vmlinux=artifacts.kernel_build_dir / "vmlinux",
        debug_module_dir=artifacts.module_dir,
    )  # fmt: skip


def test_commands(back: Back, debug: Artifacts, exact: MachineSpec, snapshots: Snapshots) -> None:
    middle = (back.begin + back.end) // 2
    vm = back.goto(back.end)
    said = session.batch(
        vm, debug, snapshots.sections(exact),
        ["hmm-goto", f"hmm-goto {middle}", "hmm-switches 3", "hmm-back", "hmm-back 2",
         "hmm-goto 1", "print 6 * 7"],
        back,
    )  # fmt: skip
    assert f"instruction {back.end} of {back.begin}..{back.end}" in said, said
    assert f"instruction {middle} of {back.begin}..{back.end}, CPU " in said
    first, *more = (d.icount for d in back.switches(middle, 3))
    assert f"instruction {first} of" in said
    assert f"instruction {more[1]} of" in said
    assert "instruction 1 is not of the example" in said
    assert "$1 = 42" in said


def test_from_a_breakpoint(
    back: Back, debug: Artifacts, exact: MachineSpec, snapshots: Snapshots
) -> None:
    """What gdb let run is where it came to: back is before that, and breakpoints stay."""
    vm = back.goto(back.begin)
    said = session.batch(
        vm, debug, snapshots.sections(exact),
        ["hbreak hmm_range_fault", "continue", "hmm-goto", "hmm-back", f"hmm-goto {back.begin}",
         "continue", "hmm-goto"],
        back,
    )  # fmt: skip
    places = [int(n) for n in re.findall(r"instruction (\d+) of \d+\.\.", said)]
    assert len(re.findall(r"hit Breakpoint 1", said)) == 2, said
    _, came, went, begin, again = places
    assert back.begin == begin < went < came == again


def test_last_write_in_gdb(
    back: Back, debug: Artifacts, exact: MachineSpec, snapshots: Snapshots
) -> None:
    """Of both entries of the page that went to VRAM: found, right, and gdb stands at it."""
    places = snapshots.sections(exact)
    # When the operations have ended their processes still live: that is the last STANDS but one.
    stands = back._log[back._log["what"] == decisions.What.STANDS]
    end = int(stands[0]["icount"])
    vm = back.goto(end)
    said = session.batch(vm, debug, places, [f"hmm-last-write {REGION_BASE:#x}"], back)
    found = re.findall(
        r"asid \d+, (GPU|CPU), level (\d), at (0x\w+): (0x\w+) -> (0x\w+) at instruction (\d+)"
        r" by CPU (\d) \((.*)\)", said,
    )  # fmt: skip
    assert {name for name, *_ in found} == {"GPU", "CPU"}, said
    for _, _, at, before, value, instruction, _, meaning in found:
        assert "VRAM" in meaning
        read = entry_at(int(at, 16), physical)
        assert read(back.goto(int(instruction))) == int(value, 16)
        assert read(back.goto(int(instruction) - 1)) == int(before, 16)
    latest = max(int(row[5]) for row in found)
    assert f"instruction {latest} of" in said
