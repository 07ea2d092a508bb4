# SPDX-License-Identifier: GPL-2.0-or-later
"""Campaign, shrinking, replay and report on the fake machine: no VM."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from xml.etree import ElementTree

import fake
import pytest
from fake import FakeTarget
from rich.console import Console

from hmmbench.campaign.export_c import export
from hmmbench.campaign.findings import repeats
from hmmbench.campaign.replay import replay
from hmmbench.campaign.runner import BETTER_S, Campaign
from hmmbench.campaign.shrink import SMALL, Shrinker
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.example.target import Execution
from hmmbench.example.totals import Totals
from hmmbench.guest.program import F_NOWAIT, PAGE, PROT_RW, TIMEOUT_MS, Acc, Op, Program
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, GpuCopy, GpuSpin, WaitGpu
from hmmbench.model.ops.mapping import Mmap, Mremap
from hmmbench.model.ops.moving import Policy, Query
from hmmbench.model.ops.processes import Fork, Spawn
from hmmbench.model.scenes import ENDLESS
from hmmbench.model.space import gp_of
from hmmbench.oracle.violation import Violation
from hmmbench.report.filling import conclude, fill
from hmmbench.report.result import Report
from hmmbench.report.tally import Finding, Tally
from hmmbench.vm.errors import VmError


@pytest.fixture(autouse=True)
def own_time() -> Iterator[None]:
    with fake.own_time():
        yield


def in_turn(ops: list[Op]) -> Program:
    """A program for the shrinker, of operations one after another."""
    for n, o in enumerate(ops):
        o.phase = n
    return Program(ops, (24, 600, 0, 0))


class Late(FakeTarget):
    """What an example with an injected fault leaves behind is seen when the next one begins."""

    left = False

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        if self.left:
            done.violations.append(Violation("protocol", "asid-reuse: of the example before"))
        self.left = bool(environment.inject)
        return done

    def renew(self) -> None:
        self.left = False


def test_a_sound_machine_passes_every_example(tmp_path: Path) -> None:
    target = FakeTarget()
    tally = Campaign(target, tmp_path / "out", seed=3, grammar=2, examples=120).run()
    assert tally.findings == []
    assert tally.examples == 120
    assert len(target.programs) == 120
    assert not (tmp_path / "out").exists()


def test_the_seed_fixes_everything(tmp_path: Path) -> None:
    runs = []
    for seed in (5, 5, 6):
        target = FakeTarget()
        Campaign(target, tmp_path, seed=seed, grammar=2, examples=30, delays=["a", "b"]).run()
        runs.append((target.programs, target.environments))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert any(e.delays for e in runs[0][1])


@pytest.mark.parametrize(
    "bug", ["stale_tlb", "ro_writable", "lost_update", "silent_fault", "stale_after_migrate"]
)
def test_failures_become_small_recipes_that_repeat(tmp_path: Path, bug: str) -> None:
    tally = Campaign(FakeTarget(bug), tmp_path, seed=1, grammar=2, examples=300, shrink_s=40).run()
    (finding,) = tally.findings
    recipe = Recipe.read(finding.recipe)
    assert len(recipe.program.ops) <= 10
    assert finding.operations == len(recipe.program.ops)
    again = [replay(FakeTarget(bug, seed), recipe).found for seed in range(10)]
    assert sum(again) >= 9
    assert not any(replay(FakeTarget("", seed), recipe).found for seed in range(10))
    assert "REPRO_MAIN" in export(recipe)


def test_a_mistake_that_shows_one_example_late(tmp_path: Path) -> None:
    """What an example left behind is found when the next begins: the recipe is the first one."""
    tally = Campaign(Late(), tmp_path, seed=2, grammar=2, examples=300, shrink_s=20).run()
    (finding,) = tally.findings
    recipe = Recipe.read(finding.recipe)
    assert recipe.environment.inject
    assert finding.rate > 0.5
    assert len(recipe.program.ops) <= 2
    assert replay(Late(), recipe).found


class Remainder(FakeTarget):
    """What a closed GPU leaves behind is seen when the driver is unbound, however much later."""

    left = False

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        self.left |= any(o.op == CloseGpu.number for o in program.ops)
        if self.left and environment.rebind:
            done.violations.append(Violation("leak", "the driver was unbound and left something"))
        return done

    def renew(self) -> None:
        self.left = False


def test_what_shows_at_the_unbinding_is_of_the_example_before(tmp_path: Path) -> None:
    for seed in range(60):
        target = FakeTarget()
        Campaign(target, tmp_path, seed=seed, grammar=2, examples=8).run()
        closes = [
            any(o.op == CloseGpu.number for o in Program.decode(p).ops) for p in target.programs
        ]
        if closes[6] and not closes[7]:
            break
    assert target.environments[7].rebind
    tally = Campaign(Remainder(), tmp_path, seed=seed, grammar=2, examples=9, shrink_s=4).run()
    (finding,) = tally.findings
    recipe = Recipe.read(finding.recipe)
    assert recipe.environment.rebind
    assert CloseGpu.number in [o.op for o in recipe.program.ops]
    assert len(recipe.program.ops) <= 2
    assert replay(Remainder(), recipe).found


def test_several_machines_share_the_examples(tmp_path: Path) -> None:
    """Each example runs once, on one machine, whatever their speed; none is made otherwise."""

    class Slow(FakeTarget):
        def execute(self, program: Program, environment: Environment) -> Execution:
            time.sleep(0.002 * (len(self.programs) % 3))
            return super().execute(program, environment)

    alone = FakeTarget()
    Campaign(alone, tmp_path, seed=7, grammar=2, examples=60, delays=["a"]).run()
    several = [FakeTarget(), Slow(), FakeTarget()]
    tally = Campaign(several, tmp_path, seed=7, grammar=2, examples=60, delays=["a"]).run()
    assert tally.examples == 60
    assert all(len(target.programs) > 5 for target in several)
    ran = Counter(zip([p for t in several for p in t.programs],
                      [e for t in several for e in t.environments], strict=True))  # fmt: skip
    assert ran == Counter(zip(alone.programs, alone.environments, strict=True))


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_failure_on_one_of_several_machines(tmp_path: Path, broken: int) -> None:
    """It is made small on the machine that failed."""
    targets = [FakeTarget("stale_tlb" if n == broken else "") for n in range(3)]
    tally = Campaign(targets, tmp_path, seed=1, grammar=2, examples=100, shrink_s=40).run()
    # Which examples that machine gets is a matter of time, and some fail there but now and then:
    # after a failure that is not seen again another is looked for.
    finding = tally.finding
    assert finding is not None
    assert finding.operations <= 10
    # On another machine it would not have been seen again.
    assert finding.rate > 0
    recipe = Recipe.read(finding.recipe)
    assert recipe.seed == 1
    assert replay(FakeTarget("stale_tlb", 3), recipe).found
    # What it is called in the campaign: the example with that number, made anew.
    original = Recipe.read(finding.folder / "original.json")
    sound = FakeTarget()
    Campaign(sound, tmp_path / "again", seed=1, grammar=2, examples=100).run()
    assert original.program.ops == Program.decode(sound.programs[original.example]).ops


def test_the_example_before_is_that_of_the_same_machine(tmp_path: Path) -> None:
    """See test_a_mistake_that_shows_one_example_late; the other machine has no such mistake."""
    targets = [FakeTarget(), Late()]
    tally = Campaign(targets, tmp_path, seed=2, grammar=2, examples=300, shrink_s=20).run()
    (finding,) = tally.findings
    assert Recipe.read(finding.recipe).environment.inject
    assert finding.rate > 0.5


def test_a_tainted_machine_is_judged_before_it_is_used_again(tmp_path: Path) -> None:
    class Tainted(FakeTarget):
        kept = -1

        def execute(self, program: Program, environment: Environment) -> Execution:
            done = super().execute(program, environment)
            if len(self.programs) == 9:
                done.tainted = True
                done.violations.append(Violation("kernel", "splat"))
            return done

        def keep(self, folder: Path) -> None:
            self.kept = len(self.programs)

    targets = [Tainted(), FakeTarget(), FakeTarget()]
    (finding,) = Campaign(targets, tmp_path, grammar=2, examples=60, shrink_s=0).run().findings
    assert finding.violation.oracle == "kernel"
    assert targets[0].kept == 9  # type: ignore[attr-defined]


def test_after_a_failure_that_does_not_repeat_another_is_looked_for(tmp_path: Path) -> None:
    class Elusive(FakeTarget):
        """Fails once for no reason, and later as often as one likes."""

        def execute(self, program: Program, environment: Environment) -> Execution:
            done = super().execute(program, environment)
            if len(self.programs) == 5:
                done.violations.append(Violation("mirror", "once"))
            if any(o.op == Fork.number for o in program.ops):
                done.violations.append(Violation("kernel", "often"))
            return done

    tally = Campaign(Elusive(), tmp_path, seed=4, grammar=1, examples=300, shrink_s=20).run()
    assert [f.violation.message for f in tally.findings] == ["once", "often"]
    assert [f.rate > 0.5 for f in tally.findings] == [False, True]
    assert tally.finding is tally.findings[1]
    assert tally.found_examples == 5
    assert Recipe.read(tally.findings[1].recipe).oracle == "kernel"
    again = Campaign(Elusive(), tmp_path / "b", seed=4, grammar=1, shrink_s=0)
    assert again.run().found_examples == 5


class Twofold(FakeTarget):
    """Fails when much was done, and for the same reason at a single operation of another kind."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        if any(o.op == Fork.number for o in program.ops):
            done.violations.append(Violation("kernel", "small"))
        elif len(program.ops) > 30:
            done.violations.append(Violation("mirror", "large"))
        return done


def test_instead_of_a_large_recipe_a_small_one_is_looked_for(tmp_path: Path) -> None:
    """Both are kept, the small one is named; and it is not looked for without end."""
    tally = Campaign(Twofold(), tmp_path, seed=4, grammar=2, examples=300, shrink_s=5).run()
    assert tally.findings[0].violation.message == "large"
    assert tally.findings[0].operations > 10
    assert tally.finding is tally.findings[-1]
    assert tally.finding.violation.message == "small"
    assert tally.finding.operations <= 2

    class Large(Twofold):
        def execute(self, program: Program, environment: Environment) -> Execution:
            done = super().execute(program, environment)
            done.violations = [v for v in done.violations if v.message == "large"]
            return done

    tally = Campaign(Large(), tmp_path / "b", seed=4, grammar=2, examples=300, shrink_s=2).run()
    assert 1 <= len(tally.findings) <= 3
    assert tally.examples < 100


def test_an_interrupt_ends_every_machine(tmp_path: Path) -> None:
    class Ended(FakeTarget):
        ended = False

        def end(self) -> None:
            self.ended = True

    def note(tally: Tally, text: str) -> None:
        if tally.examples == 5:
            raise KeyboardInterrupt

    targets = [Ended(), Ended()]
    with pytest.raises(KeyboardInterrupt):
        Campaign(targets, tmp_path, grammar=2, examples=300, note=note).run()
    assert all(target.ended for target in targets)


def test_an_error_of_the_machine_is_not_a_violation(tmp_path: Path) -> None:
    class Broken(FakeTarget):
        def execute(self, program: Program, environment: Environment) -> Execution:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        Campaign(Broken(), tmp_path, grammar=2, examples=50).run()


class Shows(FakeTarget):
    """Takes its time and answers nothing, so that there is nothing to judge."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        fake.CLOCK.spend(fake.CLOCK.EXECUTION_S)
        return Execution(program)


@pytest.mark.parametrize("limit_s", [None, 0.2])
def test_the_curve_of_speed_is_that_of_all_portions(
    tmp_path: Path, limit_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a number of points, one after another, also where time bounds a campaign."""
    monkeypatch.setattr("hmmbench.campaign.runner.PACE", 10)
    tally = Tally()
    with fake.own_time():
        for first in (0, 1000):
            Campaign(
                Shows(), tmp_path, seed=3, grammar=2, examples=10**6 if limit_s else 40,
                first=first, tally=tally, limit_s=limit_s,
            ).run()  # fmt: skip
    assert tally.examples >= 80
    times = [seconds for seconds, _, _ in tally.pace]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(tally.run_s, rel=0.1)
    assert 16 <= len(times) <= 20


def test_repeats_cover_rare_failures() -> None:
    assert repeats(1.0) <= 10
    assert (1 - 0.05) ** repeats(0.05) < 0.1


def test_report_as_json_and_junit(tmp_path: Path) -> None:
    violation = {
        "oracle": "values", "message": "a < b\x01", "recipe": "r.json", "details": "",
        "operations": 3, "rate": 1.0,
    }  # fmt: skip
    report = Report(verdict="fail", seed=4, profile="quick", violations=[violation])
    report.write_json(tmp_path / "r.json")
    data = json.loads((tmp_path / "r.json").read_text())
    for key in ("verdict", "seed", "kernel", "qemu", "accel", "examples", "operations",
                "gpu_accesses", "gpu_faults", "replays", "pages_to_device", "pages_to_system",
                "violations", "wall_s", "stages"):  # fmt: skip
        assert key in data
    report.write_junit(tmp_path / "r.xml")
    root = ElementTree.parse(tmp_path / "r.xml").getroot()
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("message") == "a < b?"


class Hanging(FakeTarget):
    """A GPU that never finishes a job of process 1 after process 1 set a policy."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        policy = False
        for i, o in enumerate(program.ops):
            policy |= o.proc == 1 and o.op == Policy.number
            if policy and o.proc == 1 and o.op == GpuAccess.number:
                done.violations.append(Violation("progress", "it hangs", i))
        return done


def test_what_hangs_is_guessed_with_few_executions(tmp_path: Path) -> None:
    word = (int(Acc.ADD), 0, 0, 0, 1, 0)
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW), Op(Spawn.number, arg=1),
        Op(Mmap.number, proc=1, len=PAGE, a=PROT_RW), Op(Policy.number, proc=1, arg=2),
        *(Op(CpuAccess.number, proc=n % 2, acc=[word]) for n in range(40)),
        Op(GpuAccess.number, proc=1, acc=[word]), Op(GpuAccess.number, acc=[word]),
    ]  # fmt: skip
    target = Hanging()
    program = in_turn(ops)
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert small.rate == 1
    assert [(o.op, o.proc) for o in small.program.ops] == [
        (Spawn.number, 0), (Policy.number, 1), (GpuAccess.number, 1),
    ]  # fmt: skip
    assert small.executions < 40


class SlowToFail(FakeTarget):
    """A copy between two pages of a process fails, after what each failure costs: seconds."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        at = next((i for i, o in enumerate(program.ops) if o.op == GpuCopy.number), None)
        if at is not None and done.result is not None and not done.result.ops[at].status:
            fake.CLOCK.spend(6)
            done.violations.append(Violation("progress", "it hangs", at))
        return done


def test_what_fails_slowly_on_memory_that_was_moved_has_a_small_recipe() -> None:
    """Not mapped as it was mapped first; and a minute is ten failures."""
    ops = [
        *(Op(Mmap.number, region=3, off=n * PAGE, len=PAGE, a=PROT_RW) for n in range(30)),
        Op(Mmap.number, len=2 * PAGE, a=PROT_RW),
        Op(Mremap.number, len=2 * PAGE, arg=1, a=8 * PAGE, b=2 * PAGE),
        Op(Mmap.number, len=PAGE, a=PROT_RW),
        *(Op(CpuAccess.number, acc=[(int(Acc.ADD), 0, 0, 0, 1, 0)]) for _ in range(30)),
        Op(GpuCopy.number, region=1, off=9 * PAGE, len=PAGE, arg=0, a=0),
    ]
    target = SlowToFail()
    program = in_turn(ops)
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert small.rate == 1
    assert len(small.program.ops) <= 4


class SlowHost(FakeTarget):
    """Operations take a third of a second each; a query never ends."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        asks = any(o.op == Query.number for o in program.ops)
        if asks or 333 * len(program.ops) > program.timeout_ms:
            done.violations.append(Violation("progress", "the program did not end"))
        return done


class SlowToSettle(FakeTarget):
    """What operations use takes 100 ms each to be given back; what a query uses never is."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        asks = any(o.op == Query.number for o in program.ops)
        if asks or 100 * len(program.ops) > program.settle_ms:
            done.violations.append(Violation("leak", "all processes are gone, but 1 page is left"))
        return done


@pytest.mark.parametrize("target", [SlowHost(), SlowToSettle()])
def test_what_is_only_slow_is_no_recipe_for_what_never_ends(target: FakeTarget) -> None:
    """By the short limit of shrinking, the program fails without its query too."""
    word = (int(Acc.ADD), 0, 0, 0, 1, 0)
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW), Op(Query.number, len=PAGE),
        *(Op(CpuAccess.number, acc=[word]) for _ in range(12)),
    ]  # fmt: skip
    program = in_turn(ops)
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert small.rate == 1
    assert (small.program.timeout_ms, small.program.settle_ms) == (TIMEOUT_MS, program.settle_ms)
    assert Query.number in [o.op for o in small.program.ops]
    # What never was more than slow is not called seen again.
    program.ops = [o for o in ops if o.op != Query.number]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert small.rate == 0


class Spoiled(FakeTarget):
    """Of each program since the last with a query the device complains, until the machine ends."""

    spoiled = False

    def renew(self) -> None:
        super().renew()
        self.spoiled = False

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        self.spoiled |= any(o.op == Query.number for o in program.ops)
        if self.spoiled:
            done.violations.append(Violation("protocol", "vram-free-used: page 0x1000"))
        return done


def test_what_a_candidate_before_spoiled_is_no_recipe() -> None:
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW),
        *(Op(CpuAccess.number, acc=[(int(Acc.ADD), 0, 0, 0, 1, 0)]) for _ in range(30)),
    ]
    ops.insert(20, Op(Query.number, len=PAGE))
    target = Spoiled()
    program = in_turn(ops)
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert small.rate == 1
    assert Query.number in [o.op for o in small.program.ops]
    assert len(small.program.ops) <= 2


class Leaky(FakeTarget):
    """Each program with a GPU access takes an address space and gives none back."""

    used = 0

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        if any(o.op == GpuAccess.number for o in program.ops):
            self.used += 1
            if self.used > 64:
                done.violations.append(Violation("values", "gpu_access failed with ENODEV"))
        return done

    def renew(self) -> None:
        self.used = 0


def test_what_runs_out_has_a_small_recipe() -> None:
    """It cannot be seen at once in a fresh machine, where `replay` begins."""
    word = (int(Acc.ADD), 0, 0, 0, 1, 0)
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW), Op(GpuAccess.number, acc=[word]),
        *(Op(CpuAccess.number, acc=[word]) for _ in range(12)),
    ]  # fmt: skip
    target = Leaky()
    program = in_turn(ops)
    target.used = 64
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert len(small.program.ops) == 1
    assert small.rate == 1 / 65
    assert repeats(small.rate) > 65


class NeverWoken(FakeTarget):
    """Who waits for a job hangs while another runs behind it."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        for i, o in enumerate(program.ops):
            if o.op == WaitGpu.number and o.a:
                assert program.ops[i - 1].a == ENDLESS, "it would end, and wake the one who waits"
                done.violations.append(Violation("progress", "it hangs", i))
        return done


def test_what_hangs_before_a_job_that_does_not_end_is_guessed() -> None:
    word = (int(Acc.ADD), 0, 0, 0, 1, 0)
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW),
        *(Op(CpuAccess.number, acc=[word]) for _ in range(40)),
        Op(GpuAccess.number, flags=F_NOWAIT, acc=[word]),
        Op(GpuSpin.number, flags=F_NOWAIT, a=ENDLESS), Op(WaitGpu.number, a=1),
        Op(CloseGpu.number), Op(CpuAccess.number, acc=[word]),
    ]  # fmt: skip
    target = NeverWoken()
    program = in_turn(ops)
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert small.rate == 1
    assert [o.op for o in small.program.ops] == [GpuSpin.number, WaitGpu.number]
    assert small.executions < 40


def test_what_fails_beside_a_finding_is_another(tmp_path: Path) -> None:
    """All machines have answered when the first answer is judged, and two of them fail."""
    barrier = threading.Barrier(3)

    class Fails(FakeTarget):
        def __init__(self, oracle: str) -> None:
            super().__init__()
            self.oracle, self.kept = oracle, 0

        def execute(self, program: Program, environment: Environment) -> Execution:
            done = Execution(program)
            if not self.programs:
                barrier.wait(60)
            self.programs.append(program.encode())
            if self.oracle:
                done.violations.append(Violation(self.oracle, "wrong"))
            return done

        def keep(self, folder: Path) -> None:
            self.kept = len(self.programs)

    targets = [Fails("mirror"), Fails("kernel"), Fails("")]
    first = set()

    def note(tally: Tally, _doing: str) -> None:
        first.add(tally.found_examples)

    tally = Campaign(targets, tmp_path, grammar=2, examples=60, shrink_s=0, note=note).run()
    assert first - {0} == {tally.found_examples}, "when the first was found"
    assert {f.violation.oracle for f in tally.findings} == {"mirror", "kernel"}
    assert tally.examples >= 3
    # Before the machines were used for making one of them small.
    assert all(target.kept <= 2 for target in targets)
    assert all((f.folder / "original.json").is_file() for f in tally.findings)


@pytest.mark.parametrize("broken", [0, 1])
def test_a_machine_that_fails_beside_a_finding_costs_nothing_of_it(
    broken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have answered when the first answer is taken, whichever that is."""
    monkeypatch.setattr(
        "hmmbench.campaign.runner.wait_for", lambda answers, **how: wait(answers)
    )

    class Meets(FakeTarget):
        broken = False

        def execute(self, program: Program, environment: Environment) -> Execution:
            self.programs.append(program.encode())
            if self.broken:
                raise VmError("it did not stand")
            return Execution(program, violations=[Violation("mirror", "wrong")])

    targets = [Meets(), Meets()]
    targets[broken].broken = True
    campaign = Campaign(targets, tmp_path, grammar=2, examples=60, shrink_s=0)
    (finding,) = campaign.run().findings
    assert finding.violation.oracle == "mirror"
    assert (finding.folder / "original.json").is_file()
    assert campaign.tally.found_examples == 1
    # The error is told beside it.
    (failed,) = campaign.tally.failed
    assert "it did not stand" in failed
    report = Report()
    fill(report, campaign.tally, Totals())
    conclude(report)
    assert (report.verdict, report.machines_failed) == ("fail", [failed])
    said = io.StringIO()
    report.show(Console(file=said, width=200))
    assert "it did not stand" in said.getvalue()


def test_a_machine_that_fails_after_the_end_finds_nothing_more(tmp_path: Path) -> None:
    """There was time for a better recipe, and it is over while two machines run."""
    begun, told = threading.Event(), threading.Event()

    class Fails(FakeTarget):
        def execute(self, program: Program, environment: Environment) -> Execution:
            assert begun.wait(60)
            fake.CLOCK.spend(BETTER_S + 1)
            raise VmError("it did not stand")

        def keep(self, folder: Path) -> None:
            told.set()

    class Finds(FakeTarget):
        def execute(self, program: Program, environment: Environment) -> Execution:
            begun.set()
            # Answers when the other's error has been taken.
            assert told.wait(60)
            return Execution(program, violations=[Violation("mirror", "wrong")])

    large = Finding(Violation("kernel", "BUG"), tmp_path, tmp_path, SMALL + 1, 1.0)
    campaign = Campaign([Fails(), Finds()], tmp_path, grammar=2, tally=Tally(findings=[large]))
    campaign._looks_since = fake.CLOCK.monotonic()
    tally = campaign.run()
    assert tally.findings == [large]
    assert len(tally.failed) == 1


@pytest.mark.parametrize("error", [VmError("the disk is full"), OSError("no such machine")])
def test_a_machine_that_leaves_nothing_costs_nothing_of_the_finding(
    error: Exception, tmp_path: Path
) -> None:
    class Gone(FakeTarget):
        def execute(self, program: Program, environment: Environment) -> Execution:
            return Execution(program, violations=[Violation("mirror", "wrong")])

        def keep(self, folder: Path) -> None:
            raise error

    said: list[str] = []
    campaign = Campaign(
        Gone(), tmp_path, grammar=2, examples=1, shrink_s=0,
        note=lambda tally, text: said.append(text),
    )  # fmt: skip
    (finding,) = campaign.run().findings
    assert Recipe.read(finding.recipe).oracle == "mirror"
    assert f"what its machine leaves could not be kept: {error}" in said


class TwoReports(FakeTarget):
    """The kernel complains after a fork, and of something else after any job."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        kinds = [o.op for o in program.ops]
        if Fork.number in kinds:
            done.violations.append(Violation("kernel", "KASAN: use-after-free in hg_fork"))
        if GpuAccess.number in kinds:
            done.violations.append(Violation("kernel", "WARNING: at hg_job"))
        return done


def test_another_report_is_another_story() -> None:
    word = (int(Acc.ADD), 0, 0, 0, 1, 0)
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW), Op(GpuAccess.number, acc=[word]),
        *(Op(CpuAccess.number, acc=[word]) for _ in range(12)), Op(Fork.number, arg=1),
    ]  # fmt: skip
    target = TwoReports()
    program = in_turn(ops)
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert small.violation.message == violation.message
    assert [o.op for o in small.program.ops] == [Fork.number]


class SeenByTheDevice(FakeTarget):
    """A GPU access after a policy was set; nobody knows which, but perhaps at what page."""

    page = -1

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        policy = False
        for o in program.ops:
            policy |= o.op == Policy.number
            if policy and o.op == GpuAccess.number:
                done.violations.append(Violation("mirror", "stale", page=self.page))
        return done


def test_what_happened_early_is_found_with_few_executions() -> None:
    """Each operation that is not taken away costs executions, and each takes seconds of a hang."""
    word = (int(Acc.ADD), 0, 0, 0, 1, 0)
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW), Op(Policy.number, a=2),
        Op(GpuAccess.number, acc=[word]),
        *(Op(GpuAccess.number, acc=[word]) for _ in range(100)),
    ]  # fmt: skip
    target = SeenByTheDevice()
    program = in_turn(ops)
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert [o.op for o in small.program.ops] == [Policy.number, GpuAccess.number]
    first = [len(Program.decode(p).ops) for p in target.programs]
    assert first.index(3) < 20


def test_what_was_done_to_the_page_is_tried_first() -> None:
    ops = [
        Op(Mmap.number, len=PAGE, a=PROT_RW), Op(Mmap.number, region=1, len=PAGE, a=PROT_RW),
        Op(Policy.number, a=2), Op(GpuAccess.number, acc=[(int(Acc.ADD), 1, 0, 0, 1, 0)]),
        *(Op(CpuAccess.number, acc=[(int(Acc.ADD), 0, 0, 0, 1, 0)]) for _ in range(100)),
    ]  # fmt: skip
    target = SeenByTheDevice()
    target.page = gp_of(1, 0)
    program = in_turn(ops)
    violation = target.execute(program, Environment()).violations[0]
    small = Shrinker(target, program, Environment(), violation, 60.0).run()
    assert [o.op for o in small.program.ops] == [Policy.number, GpuAccess.number]
    counts = [len(Program.decode(p).ops) for p in target.programs]
    assert next(n for n in counts if n < len(ops)) == 3


def test_a_leak_is_not_waited_for_each_time() -> None:
    target = FakeTarget("leak")
    program = in_turn([Op(Mmap.number, len=PAGE, a=PROT_RW) for _ in range(12)])
    small = Shrinker(target, program, Environment(), Violation("leak", "left"), 30.0).run()
    settled = [Program.decode(p).settle_ms for p in target.programs]
    assert settled.count(program.settle_ms) == 1, "the recipe, once"
    assert max(s for s in settled if s != program.settle_ms) < program.settle_ms
    assert small.program.settle_ms == program.settle_ms
    assert small.program.timeout_ms == program.timeout_ms
    assert len(small.program.ops) == 1
