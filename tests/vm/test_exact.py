# SPDX-License-Identifier: GPL-2.0-or-later
"""Exact machines: executions repeat to the last bit, and what is not equal is seen.

A few programs and a chain; `hmmbench exact` runs as many as wanted (docs/exact.md).
"""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from work import mixed

from hmmbench import cli, symbols
from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.campaign import fleet
from hmmbench.campaign.fresh import Fresh
from hmmbench.campaign.repeat import difference, exact_specs, repeat
from hmmbench.campaign.replay import replay
from hmmbench.campaign.runner import Campaign
from hmmbench.example import holds, schedules
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.guest.example import Answer, Example
from hmmbench.guest.program import MIGRATE_DEVICE, PAGE, PROT_RW, Acc, Op, Program
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Migrate
from hmmbench.vm import decisions
from hmmbench.vm.channel import protocol
from hmmbench.vm.errors import AgentTimeout, VmError
from hmmbench.vm.exact import Exact
from hmmbench.vm.machine import Machine
from hmmbench.vm.mailbox import layout
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

CPUS = (2, 4)
HM = layout()

#: A batch of more than one fault is served but not replayed: jobs hang.
HANGS = Path(__file__).parent.parent / "mutants/no-replay.patch"
RACES = HANGS.parent / "no-read-retry.patch"
CROWDED = HANGS.parent / "cpu-fault-does-not-give-way.patch"


@pytest.fixture(scope="module")
def specs(spec: MachineSpec) -> dict[int, MachineSpec]:
    return exact_specs(spec, CPUS)


@pytest.fixture(scope="module")
def points(artifacts: Artifacts, specs: dict[int, MachineSpec]) -> dict[int, schedules.Points]:
    return {n: fleet.exact_points(artifacts, spec) for n, spec in specs.items()}


@pytest.fixture
def exact(specs: dict[int, MachineSpec], snapshots: Snapshots) -> Iterator[Machine]:
    with snapshots.open(specs[4]) as machine:
        yield machine


@pytest.fixture
def target(
    specs: dict[int, MachineSpec], points: dict[int, schedules.Points]
) -> Iterator[ExactTarget]:
    with (
        Opener(specs[4]) as opener,
        ExactTarget(opener, points=points[4].all, take=True, memory=True) as made,
    ):
        yield made


def test_programs_repeat(
    specs: dict[int, MachineSpec], points: dict[int, schedules.Points]
) -> None:
    """Decisions, answer, counters, console, and each page of RAM and VRAM."""
    assert all(points[n].favourites for n in CPUS)
    found = repeat(specs, points, seed=11, examples=20, times=3)
    assert [str(part) for part in found.parted] == []
    assert (found.executions, found.equal) == (60, 60)
    assert found.violations == []
    assert found.operations > 500


def test_a_chain_repeats(
    specs: dict[int, MachineSpec], points: dict[int, schedules.Points]
) -> None:
    found = repeat(specs, points, seed=12, examples=5, times=3, chain=5, jobs=1)
    assert [str(part) for part in found.parted] == []
    assert (found.executions, found.equal) == (15, 15)


def test_what_differs_in_a_chain_is_seen_where_it_does(
    specs: dict[int, MachineSpec], points: dict[int, schedules.Points],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The second example of the second execution gets another seed, which nobody told."""
    numbers = count()
    schedule = Exact.schedule

    def other(self: Exact, words: str) -> None:
        again = next(numbers) == 4
        schedule(self, schedules.reseeded(words, 1) if again else words)

    monkeypatch.setattr(Exact, "schedule", other)
    found = repeat(specs, points, seed=12, examples=3, times=2, chain=3, jobs=1)
    (part,) = found.parted
    assert (part.example, part.execution) == (1, 1)
    assert {"hash", "answer", "state"} <= set(part.differs)
    assert any("pc.ram page" in one for one in part.differs)
    assert part.where.startswith("parted at decision ")
    assert (found.executions, found.equal) == (5, 4)


def test_the_hosts_clock_makes_no_verdict(
    target: ExactTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that gets no time is an error of the environment; it can be looked at."""
    work = mixed(7, pages=8, lanes=16)
    env = Environment(schedule="seed=1 slice=5:14")
    with monkeypatch.context() as patch:
        patch.setattr("hmmbench.example.exact_target.HOST_S", 0.01)
        with pytest.raises(VmError, match=r"within 0\.01 s of this host's time \(it is at"):
            target.execute(work.program, env)
    assert target.left is not None
    target.renew()
    done = target.execute(work.program, env)
    assert done.result is not None
    work.check(done.result)


def test_requests_end_by_the_guests_own_clock(exact: Machine) -> None:
    """Somebody who waits for ever costs no time, and no busy host is taken for him."""
    an_hour = struct.pack("<I", 3_600_000)
    begun = time.monotonic()
    with pytest.raises(AgentTimeout, match=r"within 500 s of its own time"):
        exact.agent._ask(protocol().HB_MSG_EXEC, an_hour + b"sleep 3600", 500)
    assert exact.standing
    assert time.monotonic() - begun < 120


def test_another_seed_is_another_execution(target: ExactTarget, tmp_path: Path) -> None:
    work = mixed(7, pages=8, lanes=16)
    prints = []
    for n, seed in enumerate((1, 2, 1)):
        target.renew()
        schedule = f"seed={seed} slice=5:14 hold=12:14:17 span=4000000"
        env = Environment(audit="access", schedule=schedule)
        done = target.execute(work.program, env)
        assert done.result is not None
        work.check(done.result)
        prints.append(target.print)
        target.write_log(tmp_path / f"log-{n}")
    assert difference(prints[0], prints[2]) == ()
    assert {"hash", "answer"} <= set(difference(prints[0], prints[1]))
    logs = [decisions.read(tmp_path / f"log-{n}") for n in range(3)]
    assert decisions.part(logs[0], logs[2]) is None
    assert decisions.part(logs[0], logs[1]) is not None
    assert len(logs[0]) == prints[0].state["decisions"]
    # Virtual time and instructions only go on.
    assert (logs[0]["icount"][1:] >= logs[0]["icount"][:-1]).all()
    assert (logs[0]["ns"][1:] >= logs[0]["ns"][:-1]).all()
    assert set(logs[0]["what"].tolist()) <= set(decisions.What)
    held = logs[0][logs[0]["what"] == decisions.What.HELD]
    assert len(held) == prints[0].state["holds"] > 0
    assert ((held["arg"] >= 1 << 14) & (held["arg"] < 1 << 18)).all()


def test_cpus_are_held_at_the_points_that_are_named(
    target: ExactTarget, points: dict[int, schedules.Points], tmp_path: Path,
    artifacts: Artifacts, specs: dict[int, MachineSpec],
) -> None:  # fmt: skip
    """Addresses from symbols and relocations are where code comes by, and nowhere else.  (With
    crowd=2 also the only CPU that has something to do is held.)"""
    work = mixed(7, pages=8, lanes=16)
    at = decisions.names(sorted(set(points[4].favourites)))

    def held(addresses: str) -> tuple[int, set[int]]:
        target.renew()
        schedule = f"seed=1 slice=5:14 point=8:14:15 crowd=2 at={addresses}"
        assert target.execute(work.program, Environment(schedule=schedule)).result is not None
        target.write_log(tmp_path / "log")
        log = decisions.read(tmp_path / "log")
        stood = log[log["what"] == decisions.What.AT_POINT]
        assert len(stood) == target.print.state["point-holds"]
        return target.print.state["point-passes"], set(stood["pc"].tolist())

    passes, places = held(at)
    assert passes > len(places) > 0
    assert places <= set(points[4].favourites)
    # In the middle of an instruction nobody comes by.
    calls = symbols.points(artifacts, Snapshots().sections(specs[4])).calls
    beside = [call.address + 2 for call in calls if call.returns in points[4].favourites]
    assert len(beside) > 3
    assert held(decisions.names(beside)) == (0, set())


def test_a_schedule_may_hold_only_while_operations_race(
    target: ExactTarget, points: dict[int, schedules.Points]
) -> None:
    """Neither at a point nor at a time while one is alone, or while too few are under way."""
    at = decisions.names(sorted(set(points[4].favourites)))

    def held(busy: int, together: bool) -> dict[str, int]:
        ops = [Op(Mmap.number, len=64 * PAGE, a=PROT_RW)]
        for n in range(6):
            ops.append(Op(Migrate.number, phase=2 * n + 1, len=64 * PAGE, arg=MIGRATE_DEVICE))
            where = (2 * n + 1, 1) if together else (2 * n + 2, 0)
            ops.append(Op(CpuAccess.number, phase=where[0], actor=where[1],
                          acc=[(Acc.WRITE, 0, 0, PAGE * page, 1, 0) for page in range(64)]))
        target.renew()
        schedule = (
            f"seed=1 slice=5:14 busy={busy} hold=8:12:14 span=1000000 point=8:14:15 at={at}"
        )
        done = target.execute(Program(ops, timeout_ms=60000), Environment(schedule=schedule))
        assert done.result is not None
        assert not done.violations
        return target.print.state

    both = held(2, True)
    assert both["holds"] > both["point-holds"] > 0
    assert held(2, False)["holds"] == held(3, True)["holds"] == 0
    assert held(2, False)["point-passes"] > 0
    assert held(1, False)["holds"] > 0


def test_a_crowd_is_held_together(
    target: ExactTarget, points: dict[int, schedules.Points], tmp_path: Path
) -> None:
    """At the same time, the last who has something to do as well; else one at a time."""
    at = decisions.names(sorted(set(points[4].of("returns"))))
    ops = [Op(Mmap.number, len=64 * PAGE, a=PROT_RW)]
    for n in range(6):
        ops.append(Op(Migrate.number, phase=2 * n + 1, len=64 * PAGE, arg=MIGRATE_DEVICE))
        ops += [Op(CpuAccess.number, phase=2 * n + 2, actor=actor,
                   acc=[(Acc.WRITE, 0, 0, PAGE * page, 1, 0) for page in range(actor, 64, 16)])
                for actor in range(4)]  # fmt: skip

    def most(words: str, seed: int = 1) -> int:
        target.renew()
        schedule = f"seed={seed} slice=5:14 point=200:18:19 at={at} {words}"
        done = target.execute(Program(ops, timeout_ms=60000), Environment(schedule=schedule))
        assert done.result is not None
        assert not done.violations
        target.write_log(tmp_path / "log")
        log = decisions.read(tmp_path / "log")
        held = [(int(e["ns"]), int(e["ns"] + e["arg"])) for e in log
                if e["what"] == decisions.What.HELD]  # fmt: skip
        assert len(held) > 10
        return max(sum(begin <= now < end for begin, end in held) for now, _ in held)

    assert most("") == most("crowd=1") == 1
    # How often they come to such a place together is a matter of luck.
    for crowd in (2, 4):
        found = []
        while len(found) < 8 and crowd not in found:
            found.append(most(f"crowd={crowd}", len(found) + 1))
        assert max(found) == crowd, found


def test_a_livelock_of_concurrent_faults(snapshots: Snapshots) -> None:
    """Each of three CPUs has a reference that keeps the others from moving a page: for as long as
    they come to the same place.  As in campaigns, with the limits that examples have there."""
    touch = [(Acc.WRITE, 0, 0, 0, 1, 0)]
    program = Program([
        Op(Mmap.number, len=PAGE, a=PROT_RW),
        Op(CpuAccess.number, phase=1, acc=touch),
        Op(Migrate.number, phase=2, len=PAGE, arg=MIGRATE_DEVICE),
        *(Op(CpuAccess.number, phase=3, actor=n, acc=touch) for n in range(3)),
    ])  # fmt: skip

    def hang(patches: tuple[Path, ...], seeds: int) -> str | None:
        artifacts = ensure(BuildRequest(driver_patches=patches))
        spec = exact_specs(best_spec(artifacts)[0], (4,))[4]
        at = fleet.exact_points(artifacts, spec, snapshots)
        with Opener(spec, snapshots) as opener, ExactTarget(opener, points=at.all) as target:
            for seed in range(seeds):
                target.renew()
                crowd = Environment(schedule=schedules.draw("crowd", random.Random(seed), at))
                for violation in judge(target.execute(program, crowd)).violations:
                    return violation.oracle
        return None

    # It begins in one of six.
    assert hang((CROWDED,), 60) == "progress"
    assert hang((), 12) is None


def test_standing_where_it_is_told(exact: Machine) -> None:
    """After so many nanoseconds, and at an instruction; then the guest's own stands, as ever."""
    exact.exact.schedule("seed=3 slice=5:14")
    work = mixed(3, pages=8, lanes=16)
    exact.post(protocol().HB_MSG_EXAMPLE, Example(work.program, stand=True).encode())
    for ns in (1_000, 77_777, 1_000_000):
        before = exact.exact.state()["ns"]
        exact.go_for(ns)
        assert exact.standing
        assert 0 <= exact.exact.state()["ns"] - before - ns <= 4
    for more in (1, 100, 12_345, 200_000):
        wanted = exact.exact.state()["icount"] + more
        assert exact.go_to(wanted)
        assert exact.exact.state()["icount"] == wanted
    # Farther than it comes before it stands by itself.
    assert not exact.go_to(exact.exact.state()["icount"] + 10**11)
    assert exact.mailbox.why == HM.HM_STAND_ENDED
    assert exact.go() == HM.HM_STAND_ANSWER
    work.check(Answer.decode(exact.take()[2], work.program).result)


def test_a_stop_in_between_is_not_seen(exact: Machine, specs: dict[int, MachineSpec]) -> None:
    """The guest's answer has all of its times in it."""
    work = mixed(3, pages=8, lanes=16)
    request = Example(work.program, stand=True).encode()

    def answer(machine: Machine, *stops: int) -> bytes:
        machine.exact.schedule("seed=3 slice=5:14")
        machine.post(protocol().HB_MSG_EXAMPLE, request)
        for instructions in stops:
            assert machine.go_to(machine.exact.state()["icount"] + instructions)
        assert machine.go() == HM.HM_STAND_ENDED
        assert machine.go() == HM.HM_STAND_ANSWER
        return machine.take()[2]

    first = answer(exact)
    with Snapshots().open(specs[4]) as other:
        assert answer(other, 1, 1000, 50_000, 333_333) == first


def test_a_schedule_written_wrong_is_refused_with_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recipe that somebody edited."""
    work = mixed(3, pages=8, lanes=16)
    Recipe(work.program, Environment(schedule="seed=1 x=1"), cpus=4, repeat=1).write(
        tmp_path / "recipe.json"
    )
    assert cli.main(["replay", str(tmp_path / "recipe.json")]) in (2, 3)
    assert "schedule: 'x=1' is no word of it" in capsys.readouterr().err


@contextmanager
def broken(patch: Path) -> Iterator[tuple[ExactTarget, schedules.Points]]:
    """A machine with this driver, and where its schedules may hold."""
    artifacts = ensure(BuildRequest(driver_patches=(patch,)))
    spec = exact_specs(best_spec(artifacts)[0], (4,))[4]
    found = fleet.exact_points(artifacts, spec)
    with Opener(spec) as opener, ExactTarget(opener, points=found.all) as target:
        yield target, found


@pytest.mark.timeout(600)
def test_a_hang_is_found_made_small_and_repeats_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Virtual time: minutes of waiting cost the host none."""
    with broken(HANGS) as (target, found):
        tally = Campaign(
            target, tmp_path, seed=1, grammar=2, examples=200, exact=found, cpus=4, audit="access",
            shrink_s=60,
        ).run()  # fmt: skip
        finding = tally.finding
        assert finding is not None
        assert finding.violation.oracle == "progress"
        assert finding.rate == 1
        recipe, lost = holds.here(Recipe.read(finding.recipe), found.table)
        assert not lost
        assert len(recipe.program.ops) + sum(len(one.program.ops) for one in recipe.chain) <= 10
        # In a fresh machine, each time; and without the mistake never.
        again = replay(Fresh(target, recipe.chain), recipe, 3, stop_at_first=False)
        assert (again.executions, again.failures) == (3, 3)
    result = tmp_path / "replay.json"
    words = ["replay", str(finding.recipe), "--json", str(result)]
    assert cli.main([*words, "--driver-patch", str(HANGS)]) == 1
    said = json.loads(result.read_text())
    assert (said["executions"], said["failures"], said["as_recorded"]) == (1, 1, True)
    assert said["accel"] == "exact"
    assert "1 of 1 executions failed" in capsys.readouterr().out
    assert cli.main(words) == 0
    said = json.loads(result.read_text())
    assert (said["failures"], said["as_recorded"]) == (0, False)
    assert "does not fail as recorded" in capsys.readouterr().err


@pytest.mark.timeout(600)
def test_a_narrow_race_is_found_without_delay_points(tmp_path: Path) -> None:
    """In the gap between the look at the CPU's page table and the lock, found from the code.

    In three seeds after 22 to 119 examples; with the mixture that had no gaps after 493, in one.
    """
    with broken(RACES) as (target, found):
        tally = Campaign(
            target, tmp_path, seed=92, grammar=2, examples=300, exact=found, cpus=4, audit="access",
            shrink_s=0,
        ).run()  # fmt: skip
    assert tally.finding is not None
    assert tally.finding.violation.oracle in ("mirror", "values")
