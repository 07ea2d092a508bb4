# SPDX-License-Identifier: GPL-2.0-or-later
"""Campaigns on exact machines, on the fake one: blocks, chains, shrinking and replay.

The fake machine is exact here: what it does is fixed by all that it ran since it was fresh.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import fake
import numpy as np
import pytest
from exact_fake import Exact, ExactFake, Ran, long_program
from fake import FakeTarget

from hmmbench.campaign import findings
from hmmbench.campaign.exact_schedule import CERTAIN
from hmmbench.campaign.exact_shrink import LIVES, SOUGHT, ExactShrinker, _Candidate
from hmmbench.campaign.fresh import Fresh, held, plain
from hmmbench.campaign.repeat import nth
from hmmbench.campaign.replay import other_schedules, replay
from hmmbench.campaign.runner import CHAIN, Campaign
from hmmbench.campaign.tries import SHORT_HANG_MS, UNDISTURBED_HANG_MS, ExactShrunk
from hmmbench.example import holds, schedules
from hmmbench.example.holds import Hold
from hmmbench.example.recipe import Environment, Link, Recipe
from hmmbench.example.schedules import Points
from hmmbench.example.target import Execution
from hmmbench.guest.program import PAGE, PROT_RW, TIMEOUT_MS, Acc, Op, Program
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Query
from hmmbench.model.ops.processes import Nop
from hmmbench.oracle.violation import Violation
from hmmbench.report.tally import Tally
from hmmbench.symbols import Symbol, SymbolTable
from hmmbench.vm.channel import ProtocolError
from hmmbench.vm.decisions import ENTRY, Record, What

POINTS = Points((0x1000, 0x1010), (0x2000, 0x2010, 0x2020))

#: The limits under which what hangs is made small.
SHORT_MS = (SHORT_HANG_MS, UNDISTURBED_HANG_MS)


@pytest.fixture(autouse=True)
def own_time() -> Iterator[None]:
    with fake.own_time():
        yield


def campaign(
    targets: Sequence[FakeTarget], out: Path, examples: int = 90, first: int = 0,
    shrink_s: float = 20.0, seed: int = 7, spare: Sequence[FakeTarget] = (),
) -> Tally:  # fmt: skip
    return Campaign(
        targets, out, seed=seed, grammar=2, examples=examples, first=first, exact=POINTS, cpus=4,
        audit="access", shrink_s=shrink_s, delays=["a"], spare=spare,
    ).run()  # fmt: skip


class Some(Exact):
    """Now and then something is wrong with the machine, which no oracle counts."""

    def look(self, done: Execution, state: bytes) -> None:
        # By the example alone, so that all runs have it at the same ones.
        done.tainted = hashlib.sha256(self.since[-1][0]).digest()[0] < 20


class Sometimes(Some):
    """Machines whose speed differs."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        time.sleep(0.002 * (len(self.programs) % 3))
        return super().execute(program, environment)


def lives(targets: Sequence[Exact]) -> list[list[Ran]]:
    """What each machine ran from fresh to its end."""
    return [life for target in targets for life in [*target.lives, target.since] if life]


def before_each(found: list[list[Ran]]) -> dict[Ran, tuple[Ran, ...]]:
    """Example -> all that ran in its machine before it."""
    return {one: tuple(life[:n]) for life in found for n, one in enumerate(life)}


def wrong_blocks(
    found: list[list[Ran]], order: list[Ran], first: int, tainted: set[Ran]
) -> list[str]:
    """How these lives differ from blocks of CHAIN that end early where a machine is tainted."""
    number = {one: first + n for n, one in enumerate(order)}
    out = []
    for life in found:
        numbers = [number[one] for one in life]
        if any(b != a + 1 for a, b in pairwise(numbers)):
            out.append(f"{numbers}: not one after another")
        if numbers[0] // CHAIN != numbers[-1] // CHAIN:
            out.append(f"{numbers}: of two blocks")
        begins = numbers[0] % CHAIN == 0 or numbers[0] == first
        if not begins and order[numbers[0] - 1 - first] not in tainted:
            out.append(f"{numbers}: fresh in the middle of a block")
        out += [f"{n}: after a tainted one" for n in numbers[1:] if order[n - 1 - first] in tainted]
    return out


@pytest.mark.parametrize("first", [0, 40, 45])
def test_examples_are_given_in_blocks(tmp_path: Path, first: int) -> None:
    alone = Some()
    assert campaign([alone], tmp_path, first=first).examples == 90
    order = [one for life in lives([alone]) for one in life]
    assert len(set(order)) == 90
    tainted = {one for one in order if hashlib.sha256(one[0]).digest()[0] < 20}
    assert len(tainted) > 2
    several = [Some(), Sometimes(), Sometimes()]
    campaign(several, tmp_path, first=first)
    for targets in ([alone], several):
        assert wrong_blocks(lives(targets), order, first, tainted) == []
    assert sum(bool(target.programs) for target in several) == 3
    # The same before each, whichever machine it was: so the same execution.
    assert before_each(lives(several)) == before_each(lives([alone]))


def test_given_examples_that_are_slow_are_in_no_crowd(tmp_path: Path) -> None:
    crowds = replace(POINTS, kinds={"returns": (0x1000, 0x1010)})
    links = [
        Link(long_program(), Environment(vram=3)),
        Link(long_program(), Environment(vram=4, delays=("a 1",))),
    ]
    target = Exact()
    Campaign(
        target, tmp_path, seed=7, examples=40, exact=crowds, kind="crowd", cpus=4, given=links
    ).run()
    crowded = Counter(e.vram for e in target.environments if e.crowded)
    assert len(target.environments) == 40
    assert crowded == {3: 20}


class NeverFresh(Some):
    """A broken one: it goes on where it should be fresh."""

    def renew(self) -> None:
        self.tainted = False


class AlwaysFresh(Some):
    def execute(self, program: Program, environment: Environment) -> Execution:
        self.renew()
        return super().execute(program, environment)


def test_wrong_blocks_are_seen(tmp_path: Path) -> None:
    alone = Some()
    campaign([alone], tmp_path)
    order = [one for life in lives([alone]) for one in life]
    tainted = {one for one in order if hashlib.sha256(one[0]).digest()[0] < 20}
    said = []
    for broken in ([NeverFresh()], [AlwaysFresh()], [NeverFresh(), NeverFresh(), NeverFresh()]):
        campaign(broken, tmp_path)
        said += wrong_blocks(lives(broken), order, 0, tainted)
        assert before_each(lives(broken)) != before_each(lives([alone]))
    for what in ("of two blocks", "fresh in the middle", "after a tainted"):
        assert [one for one in said if what in one], what


class NowAndThen(Exact):
    """What fails depends on all that ran before, and is not seen again alone."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[bytes, list[Ran]] = {}

    def look(self, done: Execution, state: bytes) -> None:
        if len(self.since) > 3 and state[0] < 12:
            self.failed.setdefault(self.since[-1][0], list(self.since))
            done.violations.append(Violation("values", "wrong"))


class NoAnswer(Exact):
    """An example with short VRAM is answered by nonsense; `kept`: where evidence was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Path] = []

    def look(self, done: Execution, state: bytes) -> None:
        if self.since[-1][1].vram is not None and len(self.since) > 3:
            raise ProtocolError("no frame in the mailbox")

    def keep(self, folder: Path) -> None:
        self.kept.append(folder)
        super().keep(folder)


@pytest.mark.parametrize("machines", [1, 2])
def test_a_machine_that_fails_leaves_evidence(tmp_path: Path, machines: int) -> None:
    """It is no verdict on the driver, and what is needed to see it again is kept."""
    targets = [NoAnswer() for _ in range(machines)]
    with pytest.raises(ProtocolError, match="no frame") as caught:
        campaign(targets, tmp_path, examples=200)
    # Another machine may have come to such an example meanwhile.
    folders = set(tmp_path.iterdir())
    assert len(folders) <= machines
    (folder,) = [one for one in folders if str(one) in caught.value.hint]
    kept = [one for target in targets for one in target.kept]
    assert sorted(kept) == sorted(one / "machine" for one in folders)
    recipe = Recipe.read(folder / "recipe.json")
    assert folder.name == f"machine-failed-{recipe.example}"
    assert (recipe.cpus, recipe.oracle, recipe.message) == (4, "", "no frame in the mailbox")
    # The chain is what ran before it: the same happens again.
    assert len(recipe.chain) == recipe.example % CHAIN >= 3
    with pytest.raises(ProtocolError):
        replay(Fresh(NoAnswer(), recipe.chain), recipe)


def test_a_recipe_holds_all_of_a_program(tmp_path: Path) -> None:
    target = Exact()
    campaign([target], tmp_path, examples=10)
    for payload in target.programs:
        ran = Program.decode(payload)
        Recipe(ran, cpus=4).write(tmp_path / "recipe.json")
        assert Recipe.read(tmp_path / "recipe.json").program.encode() == payload


def links(recipe: Recipe) -> list[Ran]:
    return [(plain(one.program).encode(), one.environment) for one in recipe.chain]


@pytest.mark.parametrize(("machines", "seed"), [(1, 1), (3, 1), (3, 2)])
def test_the_chain_of_a_failure_is_what_ran(tmp_path: Path, machines: int, seed: int) -> None:
    """Also of the second one, when the machines have been used for shrinking in between."""
    targets = [NowAndThen() for _ in range(machines)]
    tally = campaign(targets, tmp_path, examples=300, seed=seed, shrink_s=1)
    assert tally.findings
    for finding in tally.findings:
        original = Recipe.read(finding.folder / "original.json")
        assert (original.cpus, original.repeat) == (4, 1)
        payload = plain(original.program).encode()
        # The others have it, too, if it was shrunk on them.
        ran = [t.failed[payload] for t in targets if payload in t.failed]
        assert [*links(original), (payload, original.environment)] in ran
        # So it repeats, at once, in a machine of its own.
        assert replay(Fresh(NowAndThen(), original.chain), original, times=1).found
    assert any(links(Recipe.read(finding.folder / "original.json")) for finding in tally.findings)


class Late(Exact):
    """An example with short VRAM fails if `needed` others with an injected fault ran before it."""

    needed = 1

    def look(self, done: Execution, state: bytes) -> None:
        before = sum(bool(environment.inject) for _, environment in self.since[:-1])
        if before >= self.needed and done_with_short_vram(self.since[-1]):
            done.violations.append(Violation("protocol", "asid-reuse: of an example before"))


class VeryLate(Late):
    needed = 3


def done_with_short_vram(ran: Ran) -> bool:
    return ran[1].vram is not None


@pytest.mark.parametrize("kind", [Late, VeryLate])
@pytest.mark.parametrize("machines", [1, 2])
def test_what_needs_examples_before_it_has_them_in_its_recipe(
    tmp_path: Path, kind: type[Late], machines: int
) -> None:
    """The chain, shortened to those that it needs; all of its programs small as any."""
    tally = campaign([kind() for _ in range(machines)], tmp_path, examples=200, shrink_s=60)
    finding = tally.findings[0]
    recipe = Recipe.read(finding.recipe)
    original = Recipe.read(finding.folder / "original.json")
    assert finding.rate == 1
    assert len(recipe.chain) == kind.needed
    assert all(link.environment.inject for link in recipe.chain)
    assert len(original.chain) > kind.needed
    assert all(len(one.program.ops) <= 2 for one in (*recipe.chain, recipe))
    assert all(
        link.environment.schedule == holds.base(link.environment.schedule) for link in recipe.chain
    )
    assert recipe.environment.vram is not None
    assert recipe.repeat == 1
    assert replay(Fresh(kind(), recipe.chain), recipe).executions == 1
    assert replay(Fresh(kind(), recipe.chain), recipe).found
    for n in range(len(recipe.chain)):
        fewer = recipe.chain[:n] + recipe.chain[n + 1 :]
        assert not replay(Fresh(kind(), fewer), recipe).found
    # Each execution is in a machine of its own: one does not lead to the next.
    assert replay(Fresh(kind(), recipe.chain[1:]), recipe, times=5).failures == 0


class HangsLate(Late):
    """It does not end then, and perhaps something else is seen first; `usual`: how often it was
    given all the time that there is."""

    def __init__(self, *first: Violation) -> None:
        super().__init__()
        self.first = first
        self.usual = 0

    def look(self, done: Execution, state: bytes) -> None:
        super().look(done, state)
        if done.violations:
            self.usual += done.program.timeout_ms == TIMEOUT_MS
            done.violations = [*self.first, Violation("progress", "the program did not end")]
            done.tainted = True


@pytest.mark.parametrize("first", [(), (Violation("kernel", "splat"),)])
def test_a_hang_behind_a_chain_is_asked_under_a_short_limit(
    tmp_path: Path, first: tuple[Violation, ...]
) -> None:
    """But for the example that found it, the result, and the last look at that.  (No crowd is
    among them, which has its own limits.)"""
    target = HangsLate(*first)
    tally = campaign([target], tmp_path, examples=200, shrink_s=60, seed=1)
    recipe = Recipe.read(tally.findings[0].recipe)
    oracle = "kernel" if first else "progress"
    assert (len(tally.findings), len(recipe.chain), recipe.oracle) == (1, 1, oracle)
    assert target.usual == 3


class DiesLate(Late):
    """By a signal, after half a second; before that it is taken for a hang."""

    def look(self, done: Execution, state: bytes) -> None:
        super().look(done, state)
        if done.violations:
            late = done.program.timeout_ms >= 500
            said = "process 0 died from signal 7" if late else "the program did not end"
            done.violations = [Violation("progress", said)]
            done.tainted = True


def test_who_dies_late_behind_a_chain_is_not_lost(tmp_path: Path) -> None:
    tally = campaign([DiesLate()], tmp_path, examples=200, shrink_s=60)
    assert tally.findings[0].rate == 1
    assert Recipe.read(tally.findings[0].recipe).message == "process 0 died from signal 7"


class WrongLate(Late):
    """It does not end either, and what is wrong shows after half a second."""

    def look(self, done: Execution, state: bytes) -> None:
        super().look(done, state)
        if done.violations:
            late = done.program.timeout_ms >= 500
            hang = Violation("progress", "the program did not end")
            done.violations = [Violation("values", "wrong"), hang] if late else [hang]
            done.tainted = True


def test_what_is_wrong_late_behind_a_chain_is_not_lost(tmp_path: Path) -> None:
    tally = campaign([WrongLate()], tmp_path, examples=200, shrink_s=60)
    assert tally.findings[0].rate == 1
    assert Recipe.read(tally.findings[0].recipe).oracle == "values"


class Needs(Exact):
    """An example fails if others ran before it, which are known by how many operations they had."""

    def __init__(self, needed: set[int]) -> None:
        super().__init__()
        self.needed = needed

    def look(self, done: Execution, state: bytes) -> None:
        lengths = [len(Program.decode(payload).ops) - 1 for payload, _ in self.since]
        assert lengths == sorted(lengths)
        if self.needed <= set(lengths[:-1]):
            done.violations.append(Violation("values", "wrong"))


class OnlyTheChain(ExactShrinker):
    """Nothing else is made smaller."""

    ONE_S = 42 * fake.CLOCK.EXECUTION_S

    def _lives(self) -> None:
        pass

    def _cut(self) -> None:
        before, begun = self.deadline, fake.CLOCK.monotonic()
        super()._cut()
        assert self.deadline == before
        # Half of the time, and what had begun by then.
        assert fake.CLOCK.monotonic() - begun <= (before - begun) / 2 + self.ONE_S
        self.deadline = -1.0


@pytest.mark.parametrize("machines", [1, 2])
@pytest.mark.parametrize("needed", [{0}, {18}, {3, 11}, {0, 7, 8, 18}, set(range(19)), set()])
def test_a_chain_is_shortened_to_what_is_needed(needed: set[int], machines: int) -> None:
    programs = [Program([Op(Nop.number)] * (n + 1), (24, 600, 0, 0)) for n in range(20)]
    chain = tuple(Link(p, Environment()) for p in programs[:19])

    def shortened(violation: Violation, seconds: float) -> ExactShrunk:
        targets = [Fresh(Needs(needed), chain) for _ in range(machines)]
        return OnlyTheChain(targets, programs[19], Environment(), violation, seconds).run()

    wrong = Violation("values", "wrong")
    found = shortened(wrong, 200)
    assert found.rate == 1
    assert [len(link.program.ops) - 1 for link in found.chain] == sorted(needed)
    # Another mistake is another story; and no time is no reason to lose the chain.
    other = shortened(Violation("values", "munmap ended with EINVAL"), 200)
    assert (other.rate, len(other.chain)) == (0, 19)
    hasty = shortened(wrong, 30 * fake.CLOCK.EXECUTION_S)
    assert hasty.rate == 1
    assert needed <= {len(link.program.ops) - 1 for link in hasty.chain}


@pytest.mark.parametrize("exact", [True, False])
def test_a_look_that_fails_costs_no_finding(
    exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the campaign: it is said, and the machine is a fresh one afterwards."""
    renewed: list[FakeTarget] = []
    said: list[str] = []

    def fails(target: FakeTarget, *_: object) -> None:
        monkeypatch.setattr(target, "renew", lambda: renewed.append(target))
        raise IndexError("a table of the driver's ends")

    monkeypatch.setattr(findings, "exact_portrait" if exact else "portrait", fails)
    target = ExactFake("ro_writable") if exact else FakeTarget("ro_writable")
    tally = Campaign(
        target, tmp_path, seed=7, grammar=2, examples=100, shrink_s=20, cpus=4 if exact else 0,
        exact=POINTS if exact else None, note=lambda tally, text: said.append(text),
    ).run()  # fmt: skip
    finding = tally.finding
    assert finding is not None
    assert (finding.rate, finding.portrait) == (1, None)
    assert len(Recipe.read(finding.recipe).program.ops) <= 10
    assert [text for text in said if "no second look at the failure: IndexError(" in text]
    assert target in renewed


@pytest.mark.parametrize("bug", ["stale_tlb", "ro_writable", "lost_update", "silent_fault"])
def test_failures_become_small_recipes_that_fail_at_once(tmp_path: Path, bug: str) -> None:
    tally = campaign([ExactFake(bug)], tmp_path, examples=300, shrink_s=60)
    finding = tally.finding
    assert finding is not None
    recipe = Recipe.read(finding.recipe)
    assert finding.rate == 1
    assert len(recipe.program.ops) <= 10
    assert recipe.program.timeout_ms == TIMEOUT_MS
    again = replay(Fresh(ExactFake(bug), recipe.chain), recipe)
    assert (again.executions, again.failures) == (1, 1)
    assert again.violations[0].oracle == recipe.oracle
    assert replay(Fresh(ExactFake(bug), recipe.chain), recipe, 5, stop_at_first=False).failures == 5
    assert not replay(Fresh(ExactFake(), recipe.chain), recipe).found


def test_spare_machines_find_nothing_and_make_it_small(tmp_path: Path) -> None:
    """What is found, and when, does not depend on how many there are."""
    sought: list[Tally] = []
    helper = ExactFake("stale_tlb")
    for spare in ([], [helper]):
        target = ExactFake("stale_tlb")
        found = campaign(
            [target], tmp_path / str(len(spare)), examples=300, shrink_s=20, spare=spare
        )
        assert found.finding is not None
        sought.append(found)
    assert sought[0].found_examples == sought[1].found_examples
    assert helper.programs
    originals = [
        Recipe.read(found.findings[0].folder / "original.json").program.encode()
        for found in sought
    ]
    assert originals[0] == originals[1]
    # But for the one that failed.
    assert set(helper.programs).isdisjoint(target.programs[: sought[1].found_examples - 1])


def test_recipes_have_places_by_name(tmp_path: Path) -> None:
    """As it ran, as it was made small, and in the chain that it needs."""
    table = SymbolTable([Symbol(f"f{at:x}", at, 0x10) for at in POINTS.all])
    tally = Campaign(
        Late(), tmp_path, seed=7, grammar=2, examples=200, exact=replace(POINTS, table=table),
        cpus=4, audit="access", shrink_s=20.0, delays=["a"],
    ).run()  # fmt: skip
    finding = tally.findings[0]
    recipe = Recipe.read(finding.recipe)
    original = Recipe.read(finding.folder / "original.json")
    assert recipe.chain
    assert [one for one in original.chain if "at=f" in one.environment.schedule]
    for one in (recipe, original):
        assert holds.by_number(one) == set()
        here, lost = holds.here(one, table)
        assert lost == []
        assert replay(Fresh(Late(), here.chain), here).found
    # The words are those that ran.
    ran, payload = holds.here(original, table)[0], plain(original.program).encode()
    assert [*links(ran), (payload, ran.environment)] in lives_with(payload, tmp_path, seed=7)


def lives_with(payload: bytes, out: Path, seed: int) -> list[list[Ran]]:
    """The same campaign without names: what a machine ran until this program."""
    target = Exact()
    campaign([target], out, examples=200, seed=seed)
    return [
        life[: n + 1] for life in lives([target]) for n, one in enumerate(life)
        if one[0] == payload
    ]  # fmt: skip


class AtAPoint(Exact):
    """Fails if a CPU can be held at one address, and something is added there."""

    def look(self, done: Execution, state: bytes) -> None:
        adds = any(o.op == CpuAccess.number for o in done.program.ops)
        if adds and 0x2010 in schedules.addresses(self.since[-1][1].schedule):
            done.violations.append(Violation("values", "wrong"))


class ByChance(Exact):
    """Fails for some seeds of a schedule that holds, and none is the right one for long."""

    def look(self, done: Execution, state: bytes) -> None:
        schedule = self.since[-1][1].schedule
        if "hold=" in schedule and state[1] < 100:
            done.violations.append(Violation("values", "wrong"))


def test_a_schedule_is_left_with_what_it_needs() -> None:
    schedule = "seed=9 step=9:13:0:8 irq=10:17 slice=5:14 point=32:16:22 odds=4 at=1000,2010,2020"
    target = AtAPoint()
    program, env = long_program(), Environment(inject=("irq.message duplicate",), schedule=schedule)
    violation = target.execute(program, env).violations[0]
    small = ExactShrinker(Fresh(target), program, env, violation, 60.0).run()
    assert small.rate == 1
    assert len(small.program.ops) <= 2
    assert small.environment == Environment(
        schedule="seed=9 slice=15:17 point=1:16:22 odds=1 at=2010"
    )
    assert small.executions < 80
    # None is tried twice, but once more in a fresh machine if it failed in one that was kept.
    ran = list(zip(target.programs, target.environments, strict=True))[1:]
    assert len(set(ran)) <= small.executions <= len(ran)
    assert all(times <= 2 for times in Counter(ran).values())
    assert small.program.timeout_ms == TIMEOUT_MS


def test_other_chances_are_tried_when_a_candidate_no_longer_fits() -> None:
    program = long_program()
    for seed in range(50):
        env = Environment(schedule=f"seed={seed} slice=5:14 hold=8:16:20 span=20000000")
        target = ByChance()
        found = target.execute(program, env).violations
        if found:
            break
    small = ExactShrinker(Fresh(target), program, env, found[0], 60.0).run()
    assert small.rate == 1
    assert len(small.program.ops) <= 3
    assert "hold=" in small.environment.schedule
    recipe = Recipe(small.program, small.environment, "values", repeat=1, cpus=4)
    assert replay(Fresh(ByChance()), recipe).found


#: What the seed of the schedule below decides.
BY_CHANCE = tuple(Hold(0, 0x1000 + 16 * n, 1 + n % 5, 40_000 + 1000 * n) for n in range(20))
BY_CHANCE_WORDS = "seed=9 step=9:13:0:8 irq=10:17 slice=5:14 hold=20:14:17 span=20000000"


class Listed(Exact):
    """Fails if CPUs are held at all of `needed`; its log tells passages only where asked to.

    poisoned -- from a failure on it seems to fail at anything until it is fresh
    """

    needed: frozenset[Hold] = frozenset({BY_CHANCE[4], BY_CHANCE[13]})
    poisoned = False
    plain_too = True

    def held(self, schedule: str) -> tuple[Hold, ...]:
        if schedule.startswith(BY_CHANCE_WORDS):
            return BY_CHANCE
        if "at=" in schedule:
            places = set(schedules.addresses(schedule))
            return tuple(one for one in BY_CHANCE if one.place in places)
        return holds.holds(schedule)

    def look(self, done: Execution, state: bytes) -> None:
        schedule = self.since[-1][1].schedule
        held = {(one.phase, one.place, one.passage) for one in self.held(schedule)}
        needed = {(one.phase, one.place, one.passage) for one in self.needed}
        adds = any(o.op == CpuAccess.number for o in done.program.ops)
        fails = adds and needed <= held and (self.plain_too or "slice=5:14" in schedule)
        if fails or (self.poisoned and self.bad):
            done.violations.append(Violation("values", "wrong"))
            self.bad = True

    bad = False

    def renew(self) -> None:
        super().renew()
        self.bad = False

    def record(self) -> Record:
        schedule = self.since[-1][1].schedule
        held = self.held(schedule)
        log = np.zeros(len(held), ENTRY)
        for n, one in enumerate(held):
            passage = one.passage if "count=" in schedule or "do=" in schedule else 0
            log[n] = (n, n, one.place, one.ns, What.HELD, n % 4, one.phase, passage)
        return Record(len(held), log)


class Poisoned(Listed):
    poisoned = True


class ShortSlices(Listed):
    """It takes the slices of its schedule, too."""

    plain_too = False


class WithoutHolds(Listed):
    needed = frozenset()


class Several(Exact):
    """It fails with six accesses; `seeds`: with these."""

    seeds: tuple[int, ...] = ()

    def look(self, done: Execution, state: bytes) -> None:
        seed = int(self.since[-1][1].schedule.split()[0].removeprefix("seed="))
        adds = sum(o.op == CpuAccess.number for o in done.program.ops)
        if adds >= 6 and (not self.seeds or seed in self.seeds):
            done.violations.append(Violation("values", "wrong"))


class SomeSeeds(Several):
    seeds = (9, 1)


class ThenHangs(Several):
    """And does not end then, whatever time it has."""

    def look(self, done: Execution, state: bytes) -> None:
        super().look(done, state)
        if done.violations:
            done.violations.append(Violation("progress", "the program did not end"))


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("kind", [Several, SomeSeeds, ThenHangs])
def test_other_seeds_are_tried_where_they_matter(kind: type[Several], plain: bool) -> None:
    """What fails with each of a few needs no others; it ends with the seed that it had."""
    target = kind()
    env = Environment(schedule=f"seed=9 slice={'15:17' if plain else '5:14'}")
    violation = Violation("values", "wrong")
    small = ExactShrinker(Fresh(target), long_program(), env, violation, 200.0).run()
    assert small.rate == 1
    assert len(small.program.ops) <= 7
    ran = [
        (Program.decode(payload), one.schedule.startswith("seed=9 "))
        for payload, one in zip(target.programs, target.environments, strict=True)
    ]
    whole = len(long_program().ops)
    # Not the result, which is asked whether it takes words at all.
    others = {len(p.ops) for p, own in ran if not own} - {len(small.program.ops)}
    if kind is SomeSeeds:
        assert others > {whole}
    else:
        assert others == {whole}
        seeds = {one.schedule for one in target.environments[: 4 * CERTAIN]}
        others_seeds = {s for s in seeds if not s.startswith("seed=9 ")}
        assert len(others_seeds) == (CERTAIN if plain else CERTAIN - 1)
    limits = [p.timeout_ms for p, _ in ran]
    if kind is ThenHangs:
        # The first, which shows it; and the last, which shows that it needs no short limit.
        usual = [n for n, ms in enumerate(limits) if ms not in SHORT_MS]
        assert usual == [0, len(limits) - 1]
        assert set(SHORT_MS) <= set(limits) or plain, "who is held by chance has longer"
    else:
        assert set(SHORT_MS).isdisjoint(limits)


class Silent(Listed):
    """Its log never tells the passage of one hold."""

    def record(self) -> Record:
        record = super().record()
        record.log["passage"][3] = 0
        return record


@pytest.mark.parametrize(("kind", "known"), [(Listed, BY_CHANCE), (Silent, None)])
def test_a_list_is_whole_or_there_is_none(
    kind: type[Listed], known: tuple[Hold, ...] | None
) -> None:
    target, env = Fresh(kind()), Environment(schedule=BY_CHANCE_WORDS)
    target.execute(long_program(), env)
    assert held(target, long_program(), env, target.record()) == known


@pytest.mark.parametrize("machines", [1, 2, 3])
@pytest.mark.parametrize("kind", [Listed, Poisoned, ShortSlices, WithoutHolds])
def test_what_a_seed_decided_becomes_a_short_list(kind: type[Listed], machines: int) -> None:
    """Of holds with round times; the same with any number of machines."""
    targets = [kind() for _ in range(machines)]
    env = Environment(schedule=BY_CHANCE_WORDS)
    small = ExactShrinker(
        [Fresh(target) for target in targets], long_program(), env, Violation("values", "wrong"),
        60.0,
    ).run()  # fmt: skip
    assert small.rate == 1
    assert len(small.program.ops) <= 2
    schedule = small.environment.schedule
    slices = "5:14" if kind is ShortSlices else "15:17"
    assert holds.told(schedule, ()) == f"seed=9 slice={slices}"
    found = {(one.phase, one.place, one.passage) for one in holds.holds(schedule)}
    assert found == {(one.phase, one.place, one.passage) for one in kind.needed}
    assert all(one.ns == 50_000 for one in holds.holds(schedule))
    assert small.record is not None
    assert small.record.hash == len(found)
    assert small.executions < 150
    again = Recipe(small.program, small.environment, "values", repeat=1, cpus=4)
    assert replay(Fresh(kind()), again).found


class OnePage(Listed):
    """Fails if a CPU is held where something is done to one page of many for the fourth time."""

    def held(self, schedule: str) -> tuple[Hold, ...]:
        if "do=" in schedule:
            return holds.holds(schedule)
        if not schedule.startswith(BY_CHANCE_WORDS) and "at=" not in schedule:
            return ()
        return tuple(Hold(phase, 0x1000, 1, 40_000) for phase in self.phases())

    def phases(self) -> list[int]:
        """Where that is."""
        ops = Program.decode(self.since[-1][0]).ops
        return [o.phase for o in ops if any(a[3] == 50 * PAGE for a in o.acc)][3:4]

    def look(self, done: Execution, state: bytes) -> None:
        held = {one.phase for one in self.held(self.since[-1][1].schedule)}
        if held & set(self.phases()):
            done.violations.append(Violation("mirror", "wrong"))


def test_what_is_done_where_a_cpu_is_held_is_enough() -> None:
    """It is found at once, among a hundred phases on other pages."""
    ops = [
        Op(Mmap.number, len=128 * PAGE, a=PROT_RW),
        *(
            Op(CpuAccess.number, acc=[(int(Acc.ADD), 0, 0, page * PAGE, 1, 0)])
            for page in (50 if n in (13, 36, 60, 88) else n for n in range(100))
        ),
    ]
    for n, o in enumerate(ops):
        o.phase = n
    env = Environment(schedule=BY_CHANCE_WORDS)
    small = ExactShrinker(
        Fresh(OnePage()), Program(ops, (24, 600, 0, 0)), env, Violation("mirror", "wrong"), 60.0
    ).run()  # fmt: skip
    assert small.rate == 1
    assert [o.acc[0][3] for o in small.program.ops] == [50 * PAGE] * 4
    assert places(small.environment.schedule) == [(3, 0x1000)]
    assert small.executions < 60


class AtAGap(Listed):
    """Fails by its short slices, or if a CPU is held at 0x2010."""

    def held(self, schedule: str) -> tuple[Hold, ...]:
        if "do=" in schedule:
            return holds.holds(schedule)
        return tuple(Hold(1, at, 1, 300_000) for at in schedules.addresses(schedule))

    def look(self, done: Execution, state: bytes) -> None:
        schedule = self.since[-1][1].schedule
        if "slice=5:14" in schedule or 0x2010 in {one.place for one in self.held(schedule)}:
            done.violations.append(Violation("values", "wrong"))


def test_what_short_slices_did_is_done_by_holds_at_points() -> None:
    """So there is a list; without points the slices stay."""
    env = Environment(schedule="seed=9 slice=5:14")

    def small(points: Points) -> str:
        found = ExactShrinker(
            Fresh(AtAGap()), long_program(), env, Violation("values", "wrong"), 60.0, points=points
        ).run()  # fmt: skip
        assert found.rate == 1
        return found.environment.schedule

    schedule = small(replace(POINTS, kinds={"gaps": (0x2000, 0x2010)}))
    assert holds.holds(schedule) == (Hold(1, 0x2010, 1, 200_000),)
    assert holds.told(schedule, ()) == holds.base(schedule)
    assert small(Points()) == env.schedule


class Collects(ExactShrinker):
    """Nothing fails; `tried`: the candidates."""

    def __init__(self, program: Program, schedule: str) -> None:
        super().__init__(
            Fresh(Exact()), program, Environment(schedule=schedule), Violation("values", "wrong")
        )
        self.tried: list[tuple[Program, str]] = []

    def _first(self, candidates: Iterator[_Candidate], trusting: bool = False) -> None:
        self.tried += [(one.program, one.environment.schedule) for one in candidates]

    def of(self, ops: list[Op]) -> list[tuple[int, int]]:
        """Phase and place of the holds with which these operations are tried first."""
        self.tried.clear()
        self._fails(ops)
        return places(self.tried[0][1])


def places(schedule: str) -> list[tuple[int, int]]:
    return [(one.phase, one.place) for one in holds.holds(schedule)]


def three_phases() -> Program:
    """The middle one races."""
    return Program(
        [
            Op(Mmap.number, len=4 * PAGE, a=PROT_RW),
            *(
                Op(CpuAccess.number, actor=n, phase=1, acc=[(int(Acc.ADD), 0, 0, n * PAGE, 1, 0)])
                for n in range(2)
            ),
            Op(Query.number, len=2 * PAGE, phase=2),
        ],
        (24, 600, 0, 0),
    )


def test_decisions_go_with_their_phase_whatever_becomes_of_it() -> None:
    """One in the last phase, one behind all operations."""
    schedule = holds.told("seed=1 slice=15:17", [Hold(2, 0x20, 1, 5), Hold(3, 0x30, 1, 5)])
    program = three_phases()
    small = Collects(program, schedule)
    mmap, first, second, last = program.ops
    assert small.of([mmap, first, last]) == [(2, 0x20), (3, 0x30)]
    assert small.of([mmap, last]) == [(1, 0x20), (2, 0x30)]
    # The last is gone, and what was decided in it; not what was decided behind it.
    assert small.of([mmap, first, second]) == [(2, 0x30)]
    assert small.of([mmap]) == [(1, 0x30)]
    # One by one what raced: all behind it are a phase later.
    small.tried.clear()
    assert not small._simplify()
    apart, named = next(
        (one, words) for one, words in small.tried if [o.phase for o in one.ops] == [0, 1, 2, 3]
    )
    assert [o.op for o in apart.ops] == [o.op for o in program.ops]
    assert places(named) == [(3, 0x20), (4, 0x30)]
    # Simpler, and where it was.
    simpler = [words for one, words in small.tried if [o.phase for o in one.ops] == [0, 1, 1, 2]]
    assert places(simpler[0]) == [(2, 0x20), (3, 0x30)]


def test_a_phase_that_becomes_several_keeps_its_decisions() -> None:
    small = Collects(three_phases(), holds.told("seed=1", [Hold(1, 0x10, 1, 5)]))
    small._simplify()
    named = [words for one, words in small.tried if [o.phase for o in one.ops] == [0, 1, 2, 3]]
    assert places(named[0]) == [(1, 0x10)]


def test_a_log_that_is_another_executions_is_not_believed() -> None:
    """Then the schedule stays one of chance, plain as it can be."""

    class Parts(Listed):
        def record(self) -> Record:
            record = super().record()
            if "count=" in self.since[-1][1].schedule:
                record.log["icount"] += 1
            return record

    env = Environment(schedule=BY_CHANCE_WORDS)
    small = ExactShrinker(
        Fresh(Parts()), long_program(), env, Violation("values", "wrong"), 60.0
    ).run()  # fmt: skip
    assert small.rate == 1
    assert small.environment == env
    assert len(small.program.ops) <= 2


def test_what_is_not_seen_again_stays_as_it_is() -> None:
    env = Environment(schedule="seed=9 slice=5:14")
    program = long_program()
    violation = Violation("values", "wrong")
    small = ExactShrinker(Fresh(Exact()), program, env, violation, 60.0).run()
    assert (small.rate, small.executions) == (0.0, SOUGHT)
    assert small.environment == env
    assert len(small.program.ops) == len(program.ops)


def test_other_schedules_of_a_recipe() -> None:
    """Without a list seeds alone differ; it ends with the first that fails, or says none did."""
    recipe = Recipe(
        long_program(3), Environment(schedule="seed=77 slice=5:14 hold=8:16:20 span=20000000"),
        cpus=4,
    )  # fmt: skip
    target = ByChance()
    found = other_schedules(Fresh(target), recipe, 30)
    assert found.found
    assert found.executions < 30
    tried = [one.schedule for one in target.environments]
    assert tried == [f"seed={n} slice=5:14 hold=8:16:20 span=20000000" for n in
                     range(1, found.executions + 1)]  # fmt: skip
    nothing = other_schedules(Fresh(Exact()), recipe, 5)
    assert (nothing.executions, nothing.failures) == (5, 0)


def test_delay_points_are_used_beside_the_schedule(tmp_path: Path) -> None:
    """In a share of the examples; what else surrounds them is what it would be with threads."""
    exact, threads = Exact(), Exact()
    campaign([exact], tmp_path, examples=120)
    Campaign(
        threads, tmp_path, seed=7, grammar=2, examples=120, delays=["a"], audit="access",
        shrink_s=20,
    ).run()
    assert exact.programs == threads.programs
    assert all(one.schedule for one in exact.environments)
    assert not any(one.schedule for one in threads.environments)
    for ours, theirs in zip(exact.environments, threads.environments, strict=True):
        assert (ours.inject, ours.rebind, ours.vram) == (theirs.inject, theirs.rebind, theirs.vram)
        assert ours.delays in ((), theirs.delays)
    used = sum(bool(one.delays) for one in exact.environments)
    assert 0 < used < sum(bool(one.delays) for one in threads.environments)


class Dense(Exact):
    """Each of its accesses may make it fail, one time of 20: with many of them, it does."""

    def look(self, done: Execution, state: bytes) -> None:
        ran = repr(self.since[-1]).encode()
        adds = sum(o.op == CpuAccess.number for o in done.program.ops)
        if any(hashlib.sha256(ran + bytes([n])).digest()[0] < 12 for n in range(adds)):
            done.violations.append(Violation("values", "wrong"))


def test_what_fails_because_it_is_large_has_a_chance_when_it_is_small() -> None:
    sizes = [
        len(ExactShrinker(
            Fresh(Dense()), long_program(120), Environment(schedule=f"seed={n} slice=5:14"),
            Violation("values", "wrong"), 60.0,
        ).run().program.ops)
        for n in range(100, 112)
    ]  # fmt: skip
    assert sum(sizes) / len(sizes) <= 3, sizes


@pytest.mark.parametrize("seed", [1, 2, 3, 9])
def test_the_seeds_that_are_asked_may_be_its_own(seed: int) -> None:
    environment = Environment(schedule=f"seed={seed} slice=5:14")
    wrong = Violation("values", "wrong")
    one = ExactShrinker(Fresh(Several()), long_program(), environment, wrong, 60.0)
    assert one.run().rate == 1
    assert one._certain


class FirstHangs(Exact):
    """A report of the kernel and no end, as the first program of its machine alone."""

    def look(self, done: Execution, state: bytes) -> None:
        adds = sum(o.op == CpuAccess.number for o in done.program.ops)
        if len(self.since) == 1 and adds >= 2:
            done.violations.append(Violation("kernel", "splat"))
            done.violations.append(Violation("progress", "the program did not end"))
            done.tainted = True


@pytest.mark.parametrize("words", [
    "step=9:13:0:8 slice=5:14", "slice=5:14 point=16:16:20 odds=1 at=1000,1010", "slice=15:17",
])  # fmt: skip
def test_a_hang_that_needs_a_fresh_machine_is_not_lost(words: str) -> None:
    """The last look, under the usual limit, is in a fresh one."""
    environment = Environment(schedule=f"seed=9 {words}")
    splat = Violation("kernel", "splat")
    small = ExactShrinker(Fresh(FirstHangs()), long_program(), environment, splat, 60.0).run()
    assert small.rate == 1
    assert len(small.program.ops) <= 6


class HangsInTime(Several):
    """Under the usual limit alone."""

    def look(self, done: Execution, state: bytes) -> None:
        if done.program.timeout_ms == TIMEOUT_MS:
            super().look(done, state)
            if done.violations:
                done.violations.append(Violation("progress", "the program did not end"))


def test_a_short_limit_that_shows_nothing_is_left() -> None:
    target = HangsInTime()
    environment = Environment(schedule="seed=9 slice=5:14")
    wrong = Violation("values", "wrong")
    small = ExactShrinker(Fresh(target), long_program(), environment, wrong, 600.0).run()
    assert small.rate == 1
    assert len(small.program.ops) <= 7
    limits = [Program.decode(payload).timeout_ms for payload in target.programs]
    short = [n for n, ms in enumerate(limits) if ms in SHORT_MS]
    assert short == list(range(1, len(short) + 1)), "one after the other, behind the first"
    assert len(short) <= 2


class Hangs(Exact):
    """With so many accesses of the GPU; one alone only takes longer than a short limit."""

    def __init__(self, needed: int) -> None:
        super().__init__()
        self.needed = needed
        self.limits: list[int] = []

    def look(self, done: Execution, state: bytes) -> None:
        limit = done.program.timeout_ms
        self.limits.append(limit)
        accesses = sum(o.op is GpuAccess.number for o in done.program.ops)
        if accesses >= (self.needed if limit == TIMEOUT_MS else 1):
            done.violations.append(Violation("progress", f"over after {limit} ms"))


@pytest.mark.parametrize("needed", [1, 3])
def test_a_hang_is_made_small_under_a_short_limit(needed: int) -> None:
    """And is one under the usual limit; what is slow is not taken for it."""
    target = Hangs(needed)
    env = Environment(schedule="seed=1 slice=5:14")
    violation = Violation("progress", "it hangs")
    small = ExactShrinker(Fresh(target), nth(3, 0), env, violation, 600.0).run()
    kinds = [o.op for o in small.program.ops]
    assert kinds.count(GpuAccess.number) == needed
    assert len(kinds) <= needed + 2
    assert small.rate == 1
    assert small.violation.message == f"over after {TIMEOUT_MS} ms"
    assert small.program.timeout_ms == target.limits[-1] == TIMEOUT_MS
    # A kept machine is looked at, then a fresh one.
    patient = target.limits.count(TIMEOUT_MS)
    assert patient <= 2 if needed == 1 else 2 < patient < len(target.limits)


class Worn(Exact):
    """After so many accesses of the GPU, by whichever examples; `kinds`: what its lives did."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[set[int]] = [set()]
        self.accesses = 0

    def renew(self) -> None:
        super().renew()
        self.kinds.append(set())
        self.accesses = 0

    def look(self, done: Execution, state: bytes) -> None:
        self.kinds[-1] |= {o.op for o in done.program.ops}
        self.accesses += sum(o.op is GpuAccess.number for o in done.program.ops)
        if self.accesses >= 30:
            done.violations.append(Violation("values", "there is none left"))


def test_what_wears_out_is_cut_to_lives_first() -> None:
    """Of all examples of the chain at once."""
    target = Worn()
    env = Environment(schedule="seed=1 slice=5:14")
    chain = [Link(nth(3, n), env) for n in range(3)]
    violation = Violation("values", "there is none left")
    small = ExactShrinker(Fresh(target, chain), nth(3, 3), env, violation, 900.0).run()
    assert small.rate == 1
    first, second = [kinds for kinds in target.kinds if kinds][:2]
    assert not first <= LIVES
    assert second <= LIVES
    assert replay(Fresh(Worn(), small.chain), Recipe(small.program, small.environment)).found
