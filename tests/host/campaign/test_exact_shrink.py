# SPDX-License-Identifier: GPL-2.0-or-later
"""What makes a failure of an exact machine small in few executions, on the fake one."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import fake
import numpy as np
import pytest
from exact_fake import Exact, Ran, long_program

from hmmbench.campaign.exact_shrink import EVENTS, FOR_PROGRAM, ExactShrinker
from hmmbench.campaign.fresh import Fresh, plain
from hmmbench.campaign.pieces import once
from hmmbench.campaign.replay import replay
from hmmbench.campaign.tries import SHORT_HANG_MS, UNDISTURBED_HANG_MS, ExactShrunk
from hmmbench.device import injection
from hmmbench.example import holds
from hmmbench.example.recipe import Environment, Link, Recipe
from hmmbench.example.schedules import Points
from hmmbench.example.target import Execution
from hmmbench.guest.program import (
    MAX_REGIONS,
    PAGE,
    REGION_BASE,
    REGION_SIZE,
    TIMEOUT_MS,
    Op,
    Program,
)
from hmmbench.model.ops.advice import Ksm
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.moving import Query
from hmmbench.model.ops.processes import Sleep
from hmmbench.oracle.violation import Violation
from hmmbench.vm.decisions import ENTRY, Record, What

PLAIN = "seed=9 slice=15:17"
WRONG = Violation("values", "wrong")

#: A rule of the device that draws, and what it is without that.
DRAWS, ALWAYS = "mmu.invalidate prob=0.3 delay=40000000", "mmu.invalidate delay=40000000"


@pytest.fixture(autouse=True)
def own_time() -> Iterator[None]:
    with fake.own_time():
        yield


def accesses(program: Program) -> int:
    return sum(o.op == CpuAccess.number for o in program.ops)


def shrunk(
    targets: Exact | Sequence[Exact], env: Environment, violation: Violation = WRONG,
    chain: Sequence[Link] = (), seconds: float = 200.0, program: Program | None = None,
    hung: bool = False,
) -> ExactShrunk:  # fmt: skip
    several = [targets] if isinstance(targets, Exact) else targets
    return ExactShrinker(
        [Fresh(one, chain) for one in several], program or long_program(), env, violation,
        seconds, hung=hung,
    ).run()  # fmt: skip


def fails_at_once(kind: Callable[[], Exact], small: ExactShrunk) -> bool:
    recipe = Recipe(small.program, small.environment, repeat=1)
    found = replay(Fresh(kind(), small.chain), recipe).violations
    return any(v.key == small.violation.key for v in found)


class Drawn(Exact):
    """Fails with the rule, where the device draws by chance: by all that ran before."""

    often = 26

    def look(self, done: Execution, state: bytes) -> None:
        rules = self.since[-1][1].inject
        hit = "prob=" not in " ".join(rules) or state[0] < self.often
        if rules and hit and accesses(done.program) >= 2:
            done.violations.append(WRONG)


class AlwaysDrawn(Drawn):
    often = 256


class NeverAlone(Drawn):
    often = 0


@pytest.mark.parametrize("schedule", [PLAIN, "seed=9 slice=5:14 hold=8:16:20 span=20000000"])
@pytest.mark.parametrize("kind", [Drawn, AlwaysDrawn, NeverAlone])
def test_what_the_device_draws_is_left_out(kind: type[Drawn], schedule: str) -> None:
    small = shrunk(kind(), Environment(inject=(DRAWS,), schedule=schedule))
    assert small.rate == 1
    assert small.environment.inject == (ALWAYS,)
    assert len(small.program.ops) <= 3
    assert fails_at_once(kind, small)


class Counts(Exact):
    """What the rule does to the first access is seen in the third."""

    def look(self, done: Execution, state: bytes) -> None:
        for rule in self.since[-1][1].inject:
            times = {"nth=3": {2}, "nth=1": {0}, "count=1": {0}}
            came_true = times.get(rule.split()[1], range(40))
            adds = [o for o in done.program.ops if o.op == CpuAccess.number]
            hit = [o for n, o in enumerate(adds) if n in came_true]
            if any(one.acc[0][4] == 7 for one in hit):
                done.violations.append(WRONG)


@pytest.mark.parametrize(("words", "at"), [("nth=3", 3), ("count=1", 1)])
def test_rules_that_count_come_true_each_time(words: str, at: int) -> None:
    """Whatever was taken away before."""
    program = long_program()
    program.ops[at].acc = [(*program.ops[at].acc[0][:4], 7, 0)]
    env = Environment(inject=(f"ce.copy {words} delay=9us",), schedule=PLAIN)
    small = shrunk(Counts(), env, program=program)
    assert small.environment.inject == ("ce.copy delay=9us",)
    assert accesses(small.program) == 1


@pytest.mark.parametrize(
    "words", ["count=1 error", "nth=1 lost", "prob=0.1 drop", "nth=1 partial=8"]
)
def test_what_is_lost_is_not_lost_more_often(words: str) -> None:
    """A sound driver survives one copy home that fails, and not that all do."""
    target = Counts()
    program = long_program()
    program.ops[1].acc = [(*program.ops[1].acc[0][:4], 7, 0)]
    rule = f"ce.copy {words}"
    small = shrunk(target, Environment(inject=(rule,), schedule=PLAIN), program=program)
    assert small.rate == 1
    assert small.environment.inject == (rule,)
    assert {env.inject for env in target.environments} <= {(rule,), ()}


class ByOthers(Exact):
    """The whole fails as it is found; what matters of it does so under another schedule, if the
    device does as here at the `event`."""

    def __init__(self, event: str, schedule: Callable[[str], bool], always: bool) -> None:
        super().__init__()
        self.event, self.schedule, self.always = event, schedule, always

    def look(self, done: Execution, state: bytes) -> None:
        (_, env), n = self.since[-1], len(done.program.ops)
        rules = " ".join(env.inject)
        whole = n > 30 and (self.always or "hold=" in env.schedule)
        if whole or (n <= 3 and self.schedule(env.schedule) and self.event in rules):
            done.violations.append(replace(WRONG, op=n - 1))


def nobody_held(schedule: str) -> bool:
    return schedule == holds.base(schedule)


def held_at_each(schedule: str) -> bool:
    return "point=" in schedule and schedule.endswith("odds=1 at=1234")


ONE_PAGE = "ce.copy match=20000000/ffffff0020000000 count=1 error"
OTHER_PAGE = "ce.copy match=8000000/ffffff0008000000 count=1 error"


@pytest.mark.parametrize(
    ("rule", "event", "schedule", "always"),
    [
        ("", "", nobody_held, False),
        ("", "", held_at_each, False),
        ("ce.copy prob=0.1 count=1 error", "ce.copy nth=3 error", nobody_held, False),
        (DRAWS, ALWAYS, nobody_held, False),
        (DRAWS, ALWAYS, held_at_each, False),
        (ONE_PAGE, OTHER_PAGE, nobody_held, False),
        (ONE_PAGE, OTHER_PAGE, nobody_held, True),
    ],
)
def test_a_guess_is_tried_under_other_schedules(
    rule: str, event: str, schedule: Callable[[str], bool], always: bool
) -> None:
    """What has chance in the whole, or goes by what else there is in it, may need none."""
    kind = partial(ByOthers, event, schedule, always)
    program = long_program()
    env = Environment(
        inject=(rule,) if rule else (), schedule="seed=9 slice=5:14 hold=8:16:20 span=20000000"
    )
    small = ExactShrinker(
        [Fresh(kind())], program, env, replace(WRONG, op=len(program.ops) - 1), 200.0,
        points=Points(favourites=(0x1234,)),
    ).run()  # fmt: skip
    assert small.rate == 1
    assert len(small.program.ops) <= 3
    assert small.environment.inject == ((event,) if event else ())
    assert schedule(small.environment.schedule)
    assert fails_at_once(kind, small)


#: What a program copies to by its own addresses: its globals (an agent is linked at 4 MiB), what it
#: maps.  A copy of its own that fails is its error, and no driver's.
OWN = (0x400000, 0x509C88, 0x7FFFFF, REGION_BASE, REGION_BASE + MAX_REGIONS * REGION_SIZE - 1)


@pytest.mark.parametrize("rule", [r for r in dict.fromkeys(injection.RULES) if "/" in r])
def test_another_page_is_no_address_of_a_program(rule: str) -> None:
    for event in EVENTS:
        (other,) = once((rule,), event)
        assert other != rule
        match = next(word[6:] for word in other.split() if word.startswith("match="))
        value, mask = (int(number, 16) for number in match.split("/"))
        assert value & mask == value != 0
        assert all(address & mask != value for address in OWN)


def slowly(schedule: str) -> bool:
    fake.CLOCK.spend(1.0)
    return False


def test_guesses_leave_time_for_the_rest() -> None:
    target = ByOthers("", slowly, False)
    env = Environment(schedule="seed=9 slice=5:14 hold=8:16:20 span=20000000")
    ExactShrinker(
        [Fresh(target)], long_program(), env, replace(WRONG, op=40), 20.0,
        points=Points(favourites=(0x1234,)),
    ).run()  # fmt: skip
    anew = [
        program for program, env in zip(target.programs, target.environments, strict=True)
        if accesses(Program.decode(program)) == 1 and "odds=1" in env.schedule
    ]  # fmt: skip
    assert len(anew) <= 1


class NeedsTheDraw(Exact):
    def look(self, done: Execution, state: bytes) -> None:
        if self.since[-1][1].inject == (DRAWS,) and accesses(done.program) >= 2:
            done.violations.append(WRONG)


def test_what_needs_the_draw_keeps_it() -> None:
    """And is looked at in fresh machines, for a kept one has drawn."""
    target = NeedsTheDraw()
    small = shrunk(target, Environment(inject=(DRAWS,), schedule=PLAIN))
    assert small.environment.inject == (DRAWS,)
    assert len(small.program.ops) <= 3
    for life in [*target.lives, target.since]:
        assert sum(env.inject == (DRAWS,) for _, env in life) <= 1


class Compared(Exact):
    """What is said of it depends on how large it is."""

    said: tuple[tuple[str, str], ...] = (
        ("mirror", "mirror-system-in-vram: read"), ("mirror", "mirror-vram-unmapped: read"),
    )  # fmt: skip

    def look(self, done: Execution, state: bytes) -> None:
        if accesses(done.program) >= 2:
            done.violations.append(Violation(*self.said[accesses(done.program) < 10]))


class Protocol(Compared):
    said = (("protocol", "asid-reuse: again"), ("protocol", "table-freed-used: so"))


class Oracles(Compared):
    said = (("mirror", "mirror-system-in-vram: read"), ("protocol", "asid-reuse: again"))


class TwoOwners(Compared):
    """Of the same oracle, and no comparison."""

    said = (("mirror", "vram-two-owners: page 3"), ("mirror", "mirror-system-unmapped: read"))


@pytest.mark.parametrize("kind", [Compared, Protocol, Oracles, TwoOwners])
def test_what_the_mirror_says_is_one_mistake(kind: type[Compared]) -> None:
    """Another of the device's checks, or another oracle, is not."""
    small = shrunk(kind(), Environment(schedule=PLAIN), Violation(*kind.said[0]))
    assert small.rate == 1
    assert small.violation.message in [message for _, message in kind.said]
    if kind is Compared:
        assert accesses(small.program) == 2
    assert small.violation.oracle == kind.said[0][0]
    if kind is not Compared:
        assert small.violation.message == kind.said[0][1]
        assert accesses(small.program) == 10


class Breaks(Exact):
    """And leaves a machine that is replaced."""

    def look(self, done: Execution, state: bytes) -> None:
        if accesses(done.program) >= 3:
            done.violations.append(WRONG)
            done.tainted = True


class Raises(Exact):
    """As a program for which its machine cannot be had."""

    def look(self, done: Execution, state: bytes) -> None:
        done.tainted = len(self.since) == 1
        if len(self.lives) == 1:
            raise RuntimeError


def test_no_machine_is_taken_for_a_fresh_one() -> None:
    target = Fresh(Raises(), [Link(long_program(), Environment())])
    assert not target.clean
    target.look(long_program(), Environment())
    assert target.clean
    with pytest.raises(RuntimeError):
        target.look(long_program(), Environment())
    assert not target.clean
    target = Fresh(Exact(), [Link(long_program(), Environment())])
    target.clean = True
    target.prepare()
    assert not target.clean, "its chain ran"


def test_what_failed_in_a_fresh_machine_is_not_asked_again() -> None:
    """Also where it became fresh by itself."""
    target = Breaks()
    small = shrunk(target, Environment(schedule=PLAIN))
    assert accesses(small.program) == 3
    firsts: set[Ran] = set()
    for life in [*target.lives, target.since]:
        for n, ran in enumerate(life):
            assert ran not in firsts
            if not n and accesses(Program.decode(ran[0])) >= 3:
                firsts.add(ran)
    # And some became fresh so, for each that failed before took its machine.
    assert len(firsts) > 3
    assert small.executions <= 40


class Nowhere(Exact):
    """With the operation that is a query; nobody knows which one it was."""

    def look(self, done: Execution, state: bytes) -> None:
        if any(o.op == Query.number for o in done.program.ops):
            done.violations.append(WRONG)


class OnlyTheFirstPhases(ExactShrinker):
    tries = 0

    def _steps(self, patient: bool = False) -> ExactShrunk:
        assert self._once()
        before = self.executions
        self._first_phases()
        self.tries = self.executions - before
        return self._result(1.0)


def with_query(at: int, operations: int = 40) -> Program:
    """A query is the operation number `at`."""
    program = long_program(operations)
    program.ops[at] = Op(Query.number, len=PAGE, phase=at)
    return program


@pytest.mark.parametrize("machines", [1, 2, 3])
@pytest.mark.parametrize("at", [1, 2, 19, 20, 21, 39, 40])
def test_what_comes_behind_it_is_found_in_parts(machines: int, at: int) -> None:
    shrinker = OnlyTheFirstPhases(
        [Fresh(Nowhere()) for _ in range(machines)], with_query(at),
        Environment(schedule=PLAIN), WRONG, 200.0,
    )  # fmt: skip
    shrinker._certain = True
    small = shrinker.run()
    assert [o.op == Query.number for o in small.program.ops] == [False] * at + [True]
    rounds = math.ceil(math.log(41, machines + 1)) + 1
    assert shrinker.tries <= rounds * machines


class TimeForOperations(ExactShrinker):
    """`given`: the share of all time that is left when operations are taken away."""

    given = -1.0

    def run(self) -> ExactShrunk:
        self.end = self.deadline
        return super().run()

    def _program(self) -> None:
        if self.given < 0:
            now = fake.CLOCK.monotonic()
            self.given = (self.deadline - now) / (self.end - now)
        super()._program()


class ByItsSeed(Nowhere):
    """And by chance: with its own slices alone."""

    def look(self, done: Execution, state: bytes) -> None:
        if "slice=5:14" in self.since[-1][1].schedule:
            super().look(done, state)


@pytest.mark.parametrize(("kind", "share"), [(Nowhere, 1.0), (ByItsSeed, FOR_PROGRAM)])
def test_time_is_kept_for_a_list_where_one_may_come(kind: type[Exact], share: float) -> None:
    env = Environment(schedule="seed=9 slice=5:14")
    one = TimeForOperations(Fresh(kind()), with_query(17), env, WRONG, 200.0)
    assert one.run().rate == 1
    assert one.given == pytest.approx(share)


class Scattered(Exact):
    """An access fails behind two examples that have a query."""

    def look(self, done: Execution, state: bytes) -> None:
        queries = sum(
            any(o.op == Query.number for o in Program.decode(payload).ops)
            for payload, _ in self.since[:-1]
        )
        if queries >= 2 and accesses(done.program):
            done.violations.append(WRONG)


class NotEverywhere(ExactShrinker):
    def _everywhere(self) -> None:
        pass


@pytest.mark.parametrize("at", [(0, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("place", [1, 70, 160])
@pytest.mark.parametrize("machines", [1, 2])
def test_all_of_a_chain_is_made_small_at_once(
    at: tuple[int, int], place: int, machines: int
) -> None:
    """Where each try takes as long as all that ran, in fewer of them than one after another."""
    env = Environment(schedule=PLAIN)
    programs = [with_query(place, 160) if n in at else long_program(160) for n in range(4)]
    chain = [Link(program, env) for program in programs]

    def runs(kind: type[ExactShrinker]) -> tuple[ExactShrunk, int]:
        targets = [Scattered() for _ in range(machines)]
        small = kind(
            [Fresh(one, chain) for one in targets], long_program(), env, WRONG, 900.0
        ).run()
        operations = sum(
            len(Program.decode(payload).ops) for one in targets for payload in one.programs
        )
        return small, operations

    small, operations = runs(ExactShrinker)
    sizes = [len(link.program.ops) for link in small.chain]
    assert small.rate == 1
    assert len(sizes) == 2
    assert sum(sizes) + len(small.program.ops) <= 6
    assert fails_at_once(Scattered, small)
    other, more = runs(NotEverywhere)
    assert other.rate == 1
    assert operations < 0.9 * more


def numbered(first: int, operations: int) -> Link:
    """Accesses with these values."""
    program = long_program(operations)
    del program.ops[0]
    for n, o in enumerate(program.ops, first):
        o.acc = [(*o.acc[0][:4], n, 0)]
    return Link(program, Environment(schedule=PLAIN))


def test_a_piece_of_all_that_runs_is_that_piece() -> None:
    """Wherever one example ends and the next begins; the last keeps an operation."""
    sizes = (3, 5, 4)
    *chain, last = [numbered(sum(sizes[:n]), size) for n, size in enumerate(sizes)]
    one = ExactShrinker(Fresh(Exact(), chain), last.program, last.environment, WRONG)
    for start in range(-2, 12):
        for end in range(max(start, 0) + 1, 13):
            candidate = one._less(start, end, 7)
            if start <= 8 and end == 12:
                assert candidate is None
                continue
            assert candidate is not None
            assert candidate.at == 7
            assert all(link.program.ops for link in candidate.whole)
            left = [o.acc[0][4] for link in candidate.whole for o in link.program.ops]
            assert left == [n for n in range(12) if not start <= n < end]


class Lucky(Exact):
    """As Scattered, but examples whose schedule holds have their part in it by chance."""

    def look(self, done: Execution, state: bytes) -> None:
        queries = 0
        for payload, env in self.since[:-1]:
            luck = hashlib.sha256(payload + repr(env).encode()).digest()[0] < 64
            if env.schedule == holds.base(env.schedule) or luck:
                queries += any(o.op == Query.number for o in Program.decode(payload).ops)
        if queries >= 2 and accesses(done.program):
            done.violations.append(WRONG)


class ByChanceFirst(ExactShrinker):
    def _plain_links(self) -> None:
        pass


def test_a_chain_is_made_small_without_chance() -> None:
    def lucky(n: int) -> Link:
        """By its seed, which says what its chance is."""
        for seed in range(1000):
            env = Environment(schedule=f"seed={seed} slice=5:14 hold=8:16:20 span=20000000")
            target = Lucky()
            target.execute(with_query(n), env)
            target.execute(with_query(n + 1), Environment(schedule=PLAIN))
            if target.execute(long_program(), Environment(schedule=PLAIN)).violations:
                return Link(with_query(n), env)
        raise AssertionError

    chain = [lucky(9), lucky(30)]

    def operations(kind: type[ExactShrinker]) -> int:
        target = Lucky()
        env = Environment(schedule=PLAIN)
        small = kind(Fresh(target, chain), long_program(), env, WRONG, 900.0).run()
        assert small.rate == 1
        assert sum(len(link.program.ops) for link in small.chain) <= 4
        assert all(
            link.environment.schedule == holds.base(link.environment.schedule)
            for link in small.chain
        )
        return sum(len(Program.decode(payload).ops) for payload in target.programs)

    assert operations(ExactShrinker) < 0.7 * operations(ByChanceFirst)


class NeedsRules(Exact):
    """An access fails behind an example in which a rule of the device came true."""

    needed = (ALWAYS,)

    def look(self, done: Execution, state: bytes) -> None:
        if any(env.inject == self.needed for _, env in self.since[:-1]) and accesses(done.program):
            done.violations.append(WRONG)


class NeedsThatItMayDraw(NeedsRules):
    needed = (DRAWS,)


@pytest.mark.parametrize("kind", [NeedsRules, NeedsThatItMayDraw])
def test_what_runs_before_it_has_no_chance_of_its_own(kind: type[NeedsRules]) -> None:
    by_chance = "seed=4 slice=5:14 hold=8:16:20 span=20000000"
    rules = Environment(inject=(DRAWS,), schedule=by_chance, vram=3)
    chain = [Link(long_program(), rules), Link(long_program(), rules)]
    if kind is NeedsRules:
        # As it is found: the device drew so.
        chain[0] = Link(long_program(), Environment(inject=(ALWAYS,), schedule=by_chance, vram=3))
    small = shrunk(kind(), Environment(schedule=PLAIN), chain=chain, seconds=900.0)
    assert small.rate == 1
    (link,) = small.chain
    assert link.environment.inject == kind.needed
    assert link.environment.schedule == holds.base(by_chance)
    assert link.environment.vram is None
    assert len(link.program.ops) == 1
    assert fails_at_once(kind, small)


class Hangs(Exact):
    """While it is disturbed as in `needed`."""

    def __init__(self, needed: Environment) -> None:
        super().__init__()
        self.needed = needed
        self.ran_ms: list[tuple[Environment, int, int]] = []

    def look(self, done: Execution, state: bytes) -> None:
        env, program = self.since[-1][1], done.program
        self.ran_ms.append((env, program.timeout_ms, program.settle_ms))
        if replace(env, schedule="", audit="off") == self.needed:
            done.violations.append(Violation("progress", "the program did not end"))
            done.tainted = True


@pytest.mark.parametrize("needed", [
    Environment(), Environment(inject=(ALWAYS,)), Environment(delays=("a 3000 1000",)),
    Environment(vram=3),
])  # fmt: skip
def test_who_is_disturbed_has_more_time_to_hang(needed: Environment) -> None:
    env = replace(needed, schedule=PLAIN)
    target = Hangs(needed)
    small = shrunk(target, env, Violation("progress", "it hangs"))
    assert small.rate == 1
    assert len(small.program.ops) == 1
    assert small.program.timeout_ms == TIMEOUT_MS
    assert plain(small.program).settle_ms == small.program.settle_ms
    *short, usual = target.ran_ms
    assert usual[1:] == (TIMEOUT_MS, plain(small.program).settle_ms)
    for env, limit, settle in short:
        disturbed = bool(env.inject or env.delays or env.vram)
        assert limit == (SHORT_HANG_MS if disturbed else UNDISTURBED_HANG_MS)
        assert settle <= limit


KILL_MS = Program([]).kill_ms


class Deaf(Exact):
    """Hangs with an access; what waits by itself is not at its end before that time.  `ran`: each
    program, with its limit and what the agent has to kill it."""

    def __init__(self, beside: Violation | None = None) -> None:
        super().__init__()
        self.beside = beside
        self.ran: list[tuple[Program, int, int]] = []

    def look(self, done: Execution, state: bytes) -> None:
        program = done.program
        self.ran.append((program, program.timeout_ms, program.kill_ms))
        waits = sum(o.a // 1000 for o in program.ops if o.op == Sleep.number)
        waits += 250 * sum(o.op == Ksm.number for o in program.ops)
        if accesses(program) or waits > program.timeout_ms:
            if self.beside and accesses(program):
                done.violations.append(self.beside)
            done.violations.append(Violation("progress", "the program did not end"))
            done.tainted = True


@pytest.mark.parametrize("waiting", [Op(Sleep.number, a=200_000), Op(Ksm.number, a=1)])
def test_who_waits_by_itself_does_not_hang(waiting: Op) -> None:
    p = long_program()
    p.ops.insert(1, waiting)
    for n, o in enumerate(p.ops):
        o.phase = n
    target = Deaf()
    small = shrunk(target, Environment(schedule=PLAIN), Violation("progress", "hangs"), program=p)
    assert [o.op for o in small.program.ops] == [CpuAccess.number]
    assert sum(limit == TIMEOUT_MS for _, limit, _ in target.ran) == 1


@pytest.mark.parametrize(("beside", "needs_an_answer"), [
    (None, False), (Violation("kernel", "splat"), False), (WRONG, True),
])  # fmt: skip
def test_who_hangs_is_given_time_only_where_an_answer_is_needed(
    beside: Violation | None, needs_an_answer: bool
) -> None:
    target = Deaf(beside)
    wanted = beside or Violation("progress", "hangs")
    small = shrunk(target, Environment(schedule=PLAIN), wanted, hung=True)
    assert len(small.program.ops) == 1
    assert fails_at_once(partial(Deaf, beside), small)
    short = [(limit, kill) for _, limit, kill in target.ran if limit != TIMEOUT_MS]
    assert len(short) == len(target.ran) - 1  # at the end alone it takes all of its time
    for limit, kill in short:
        assert kill == (KILL_MS if needs_an_answer else limit)
    assert target.ran[-1][2] == KILL_MS


class Livelock(Deaf):
    """For as long as others are held, by chance or as a list says."""

    def look(self, done: Execution, state: bytes) -> None:
        words = self.since[-1][1].schedule
        if "crowd=" in words or "do=" in words:
            super().look(done, state)

    def record(self) -> Record:
        log = np.zeros(1, ENTRY)
        log[0] = (0, 0, 0x10, 1 << 20, What.HELD, 0, 1, 1)
        return Record(1, log)


def test_the_hang_of_a_crowd_is_no_list() -> None:
    """Which would be thousands of holds, and as a list has less time than a crowd."""
    target = Livelock()
    env = Environment(schedule="seed=9 slice=5:14 point=10000:20:21 crowd=4 at=10")
    small = shrunk(target, env, Violation("progress", "hangs"), hung=True)
    assert small.rate == 1
    assert [o.op for o in small.program.ops] == [CpuAccess.number]
    assert small.environment.crowded
    assert not any("do=" in one.schedule for one in target.environments)
    # It takes its time: a short look would say nothing.
    assert {limit for _, limit, _ in target.ran} == {TIMEOUT_MS}


class OnlySlow(Exact):
    """Hangs while the device draws; where it does so each time it only is slow."""

    alone = True

    def look(self, done: Execution, state: bytes) -> None:
        short = done.program.timeout_ms != TIMEOUT_MS
        rules = self.since[-1][1].inject
        if accesses(done.program) and (
            (rules == (DRAWS,) and self.alone) or (rules == (ALWAYS,) and short)
        ):
            done.violations.append(Violation("progress", "the program did not end"))
            done.tainted = True


class NotAlone(OnlySlow):
    alone = False


@pytest.mark.parametrize("kind", [OnlySlow, NotAlone])
def test_slow_rules_are_no_hang(kind: type[OnlySlow]) -> None:
    target = kind()
    env = Environment(inject=(DRAWS,), schedule=PLAIN)
    small = shrunk(target, env, Violation("progress", "it hangs"))
    assert small.rate == (kind is OnlySlow)
    assert all(one.inject != (ALWAYS,) for one in target.environments)
    if small.rate:
        assert accesses(small.program) == 1


SPLAT = Violation("kernel", "splat")


class KilledEarly(Exact):
    """It hangs, which takes long under the usual limit; something else is wrong with whom is killed
    early, or is large, behind as many examples with a query."""

    def look(self, done: Execution, state: bytes) -> None:
        usual = done.program.timeout_ms == TIMEOUT_MS
        queries = sum(
            any(o.op == Query.number for o in Program.decode(payload).ops)
            for payload, _ in self.since[:-1]
        )
        if accesses(done.program) >= 2:
            if usual:
                fake.CLOCK.spend(25.0)
            if (accesses(done.program) >= 20 and queries >= 2) or not usual:
                done.violations.append(WRONG if usual else Violation("values", "wrong so soon"))
            done.violations.append(Violation("progress", "the program did not end"))
            done.tainted = True


def test_what_a_short_limit_misleads_keeps_its_chain() -> None:
    env = Environment(schedule=PLAIN)
    chain = [Link(with_query(1, operations), env) for operations in (1, 2)]
    small = shrunk(KilledEarly(), env, WRONG, chain, seconds=27.0)
    assert small.rate == 1
    assert small.chain == tuple(chain)
    assert small.violation == WRONG
    assert accesses(small.program) >= 20
    assert fails_at_once(KilledEarly, small)


class WithOneSeed(Exact):
    """The kernel complains with a seed that is not its own, and of large ones alone, under the
    usual limit."""

    def look(self, done: Execution, state: bytes) -> None:
        usual = done.program.timeout_ms == TIMEOUT_MS
        seed = int(self.since[-1][1].schedule.split()[0].removeprefix("seed="))
        if accesses(done.program) >= (20 if usual else 2):
            if usual:
                fake.CLOCK.spend(3.0)
            if seed == 7:
                done.violations.append(SPLAT)
            done.violations.append(Violation("progress", "the program did not end"))
            done.tainted = True


def test_what_a_short_limit_misleads_is_not_lost() -> None:
    """What failed under the usual one before that is what it comes back to."""
    env = Environment(schedule="seed=99 slice=5:14")
    small = shrunk(WithOneSeed(), env, SPLAT, seconds=27.0)
    assert small.rate == 1
    assert accesses(small.program) >= 20
    assert small.violation == SPLAT
    assert fails_at_once(WithOneSeed, small)


class SlowToHang(Exact):
    """Large ones hang, which takes long to see; others only take longer than a short limit."""

    def look(self, done: Execution, state: bytes) -> None:
        usual = done.program.timeout_ms == TIMEOUT_MS
        if accesses(done.program) >= 2:
            if usual:
                fake.CLOCK.spend(25.0)
            if accesses(done.program) >= 20 or not usual:
                done.violations.append(Violation("progress", "the program did not end"))
                done.tainted = True


def test_there_is_time_for_the_usual_limit() -> None:
    """However long it took to see that a short one misleads."""
    env = Environment(schedule=PLAIN)
    small = shrunk(SlowToHang(), env, Violation("progress", "it hangs"), seconds=5.0)
    assert small.rate == 1
    assert accesses(small.program) >= 20


def test_what_was_reached_in_time_is_looked_at_when_it_is_over() -> None:
    env = Environment(schedule=PLAIN)
    seconds = 4 * fake.CLOCK.EXECUTION_S
    small = shrunk(Hangs(Environment()), env, Violation("progress", "it hangs"), seconds=seconds)
    assert small.rate == 1
    assert len(small.program.ops) < len(long_program().ops)
    assert small.program.timeout_ms == TIMEOUT_MS


class Threaded(Nowhere):
    """`threads`: who used it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def look(self, done: Execution, state: bytes) -> None:
        super().look(done, state)
        self.threads.add(threading.current_thread().name.partition("_")[0])


def test_each_machine_is_used_by_its_own_thread() -> None:
    targets = [Threaded() for _ in range(3)]
    env = Environment(schedule="seed=9 slice=5:14")
    assert shrunk(targets, env, program=with_query(17)).rate == 1
    for n, target in enumerate(targets):
        # The first is asked between steps, too.
        assert target.threads - {"MainThread"} == {f"shrink-{n}"}
