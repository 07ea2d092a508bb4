# SPDX-License-Identifier: GPL-2.0-or-later
"""What is kept of a failing execution of an exact machine, and where gdb stands in it.

One mutant for each way in which a violation is seen: the device's audit, its protocol checks, the
kernel's words, values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
import work

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.campaign import fleet
from hmmbench.campaign.evidence import exact_portrait
from hmmbench.campaign.repeat import exact_specs
from hmmbench.debug import session
from hmmbench.debug.back import Back
from hmmbench.device.events import Kind
from hmmbench.example import moment as exact_moment
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.judge import judge
from hmmbench.example.portrait import Portrait
from hmmbench.example.recipe import Environment
from hmmbench.guest import splat
from hmmbench.guest.program import MIGRATE_DEVICE, REGION_BASE, Acc, Op, Program
from hmmbench.model.ops.jobs import GpuAccess
from hmmbench.model.ops.mapping import Munmap
from hmmbench.report.page.execution import execution
from hmmbench.vm import decisions
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

HERE = Path(__file__).parent
MUTANTS = HERE.parent / "mutants"

CPUS = 2
SCHEDULE = "seed=7 slice=7:12 hold=2:14:16 span=400000"


def unmapped() -> Program:
    """A page that the GPU has mapped goes, and the GPU reads there again."""
    return Program(
        [
            work.mmap(1),
            work.cpu(work.acc(Acc.WRITE, 0, value=3), phase=1),
            work.gpu(work.acc(Acc.READ, 0), phase=2),
            Op(Munmap.number, len=4096, phase=3),
            work.gpu(work.acc(Acc.READ, 0), phase=4),
        ],
        settle_ms=3000, timeout_ms=20000,
    )  # fmt: skip


def migrated() -> Program:
    return Program(
        [
            work.mmap(1),
            work.cpu(work.acc(Acc.WRITE, 0, value=3), phase=1),
            work.migrate(1, MIGRATE_DEVICE, phase=2),
            work.gpu(work.acc(Acc.READ, 0), phase=3),
        ],
        settle_ms=3000, timeout_ms=20000,
    )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A mistake, a program that meets it, and how it is seen."""

    patch: Path
    program: Program
    audit: str
    oracle: str
    #: the operation under way at the moment
    op: int


CASES = {
    "mirror": Case(MUTANTS / "ignores-unmap.patch", unmapped(), "access", "mirror", 4),
    "values": Case(MUTANTS / "ignores-unmap.patch", unmapped(), "off", "values", 4),
    "protocol": Case(MUTANTS / "table-freed-too-early.patch", unmapped(), "access", "protocol", 3),
    "kernel": Case(HERE / "warns-when-migrating.patch", migrated(), "access", "kernel", 2),
    "dead": Case(HERE / "dies-when-migrating.patch", migrated(), "access", "progress", 2),
    "excused": Case(HERE / "warns-after-excused.patch", migrated(), "access", "kernel", 2),
}


#: Those whose violation has a moment.
SEEN = [name for name in CASES if name != "dead"]


@dataclass(frozen=True)
class Bench:
    case: Case
    artifacts: Artifacts
    spec: MachineSpec
    target: ExactTarget

    @property
    def environment(self) -> Environment:
        return Environment(audit=self.case.audit, schedule=SCHEDULE)


@contextmanager
def bench(name: str) -> Iterator[Bench]:
    case = CASES[name]
    artifacts = ensure(BuildRequest(driver_patches=(case.patch,)))
    spec = exact_specs(best_spec(artifacts)[0], (CPUS,))[CPUS]
    names = fleet.names_of(artifacts, spec)
    with Opener(spec) as opener, ExactTarget(opener, names=names) as target:
        yield Bench(case, artifacts, spec, target)


def portrait(made: Bench) -> Portrait:
    outcome = judge(made.target.execute(made.case.program, made.environment))
    assert [v.oracle for v in outcome.violations][:1] == [made.case.oracle], outcome.violations
    found = exact_portrait(
        made.target, (), made.case.program, made.environment, outcome.violations[0]
    )
    assert found is not None
    return found


@pytest.mark.parametrize("name", SEEN)
def test_a_portrait_is_the_same_execution(name: str, tmp_path: Path) -> None:
    with bench(name) as made:
        case = made.case
        found = portrait(made)
        decided = found.decided
        assert decided is not None
        # Looking has changed nothing.
        made.target.renew()
        made.target.execute(case.program, made.environment)
        made.target.write_log(tmp_path / "log")
        assert decisions.part(decisions.read(tmp_path / "log"), decided.log) is None
    # Each operation lies between two stands, one behind the other, and the device's part in them.
    assert found.result is not None
    assert decided.clock is not None
    times = [
        (decided.clock.virtual(r.start_ns), decided.clock.virtual(r.start_ns + r.time_ns))
        for r in found.result.ops
    ]
    stands = decided.log[decided.log["what"] == decisions.What.STANDS]
    assert decided.log["ns"][0] <= times[0][0]
    assert times[-1][1] <= stands["ns"][0]
    assert all(a[1] <= b[0] for a, b in pairwise(times))
    launches = [e.ns for e in decided.happened if e.kind == Kind.LAUNCH]
    reads = [n for n, o in enumerate(case.program.ops) if o.op == GpuAccess.number]
    assert all(any(times[n][0] < at < times[n][1] for at in launches) for n in reads)
    # The moment lies in the operation that meets the mistake, or at its end.
    assert decided.moment is not None
    begin, end = times[case.op]
    assert begin < decided.moment.ns <= end + 4
    assert found.when == f"at the violation: {decided.moment.what}"
    if name in ("mirror", "values"):
        (entry,) = found.pages
        assert entry.where == "the process, region 0, page 0"
        assert entry.cpu == "nothing"
        assert entry.gpu.startswith("frame 0x"), "it is the stale entry"
    # And it can be drawn.
    drawn = execution(case.program.ops, found.result.ops, found.violation.op, decided)
    assert drawn is not None
    assert drawn.violation is not None
    lanes = {lane for lane, _, _ in drawn.lanes}
    # Which CPUs had a part in it is the execution's matter.
    assert "front end" in lanes
    assert lanes & {"CPU 0", "CPU 1"}
    held = decided.log[decided.log["what"] == decisions.What.HELD]
    assert len(held) > 0
    # What begins behind the violation is not drawn.
    last = max([b for a, b in times if a <= decided.moment.ns] + [decided.moment.ns])
    assert len([b for b in drawn.bars if b.kind == "held"]) == len(
        [h for h in held if times[0][0] <= h["ns"] < last]
    )


#: The function where gdb stands, of what a CPU does by itself.
FUNCTION = {"kernel": "report_bug", "excused": "report_bug"}


@pytest.mark.parametrize("name", SEEN)
def test_gdb_stands_at_the_violation(name: str) -> None:
    """And goes back from there, and there again."""
    with bench(name) as made:
        case = made.case
        outcome = judge(made.target.execute(case.program, made.environment))
        # Symbols are enough here.
        debug = replace(
            made.artifacts, debug_vmlinux=made.artifacts.kernel_build_dir / "vmlinux",
            debug_module_dir=made.artifacts.module_dir,
        )  # fmt: skip
        back = Back(made.target, [(case.program, made.environment)], outcome.violations[0])
        moment = back.at_violation()
        assert moment is not None
        assert back.now == moment.instruction < back.end
        # What the report says comes after that, and what is excused before.
        printed = back.machine.console.text()
        assert splat.scan(printed) == []
        assert splat.excused(printed) == (name == "excused")
        said = session.batch(
            back.machine, debug, Snapshots().sections(made.spec),
            ["hmm-gpu", "info registers rip", "backtrace 12", f"hmm-pt {REGION_BASE:#x}",
             "hmm-back", "hmm-violation"],
            back,
        )  # fmt: skip
    places = [int(n) for n in re.findall(r"instruction (\d+) of \d+\.\.", said)]
    before, again = places[1:]
    assert places[0] == moment.instruction == again, said
    assert back.begin < before < again
    assert str(moment) in said
    violations = re.search(r'"total": (\d+)', said)
    assert violations is not None
    # At the first report of the device's, not behind all of them.
    assert int(violations[1]) == (1 if name in ("mirror", "protocol") else 0)
    if name in FUNCTION:
        assert len(re.findall(rf"#0  0x\w+ in {FUNCTION[name]} \(\)", said)) == 3, said
    if name in ("mirror", "values"):
        assert re.search(r"GPU: frame 0x.*\n(.*\n)*  CPU \(root from the driver\): nothing", said)


def test_a_place_that_it_never_comes_to() -> None:
    """Of a kernel that stands still: sought within the program's time, the machine's own."""
    with bench("dead") as made:
        names = made.target.names
        assert names is not None
        reports = names.addresses(exact_moment.REPORTS)
        assert len(reports) > 5

        def tell(vm: Machine) -> None:
            vm.exact.points(reports)
            vm.exact.stand_at_pc(reports)

        program = replace(made.case.program, timeout_ms=200, settle_ms=0)
        begun = made.target.vm.exact.state()["ns"]
        assert made.target.stop_where(program, made.environment, tell) is None
        vm = made.target.left
        assert vm is not None
        assert vm.standing
        assert 0.2 < (vm.exact.state()["ns"] - begun) / 1e9 < 12


def test_nothing_stands_where_nothing_is_wrong(spec: MachineSpec) -> None:
    """The sound driver, told to stand at a violation that there was with another."""
    case = CASES["mirror"]
    with bench("mirror") as made:
        violation = judge(made.target.execute(case.program, made.environment)).violations[0]
        environment = made.environment
    with Opener(exact_specs(spec, (CPUS,))[CPUS]) as opener, ExactTarget(opener) as target:
        back = Back(target, [(case.program, environment)], violation)
        assert back.at_violation() is None
        assert back.now == back.end
        assert exact_portrait(target, (), case.program, environment, violation) is None
