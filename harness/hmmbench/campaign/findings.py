# SPDX-License-Identifier: GPL-2.0-or-later
"""What is done with an example that failed: its recipe, made small, and a last look at it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hmmbench.campaign.evidence import exact_portrait, portrait
from hmmbench.campaign.exact_shrink import ExactShrinker
from hmmbench.campaign.fresh import Fresh, held, plain
from hmmbench.campaign.shrink import Shrinker, Shrunk
from hmmbench.campaign.tries import SHORT_HANG_MS, ExactShrunk
from hmmbench.example import holds, schedules
from hmmbench.example.delays import FAVOURITES
from hmmbench.example.judge import run
from hmmbench.example.portrait import Portrait
from hmmbench.example.recipe import Environment, Link, Recipe
from hmmbench.example.target import Execution, Target
from hmmbench.guest.program import Program
from hmmbench.oracle.violation import Violation
from hmmbench.report.tally import EXACT, THREADS, Finding
from hmmbench.vm import decisions
from hmmbench.vm.errors import VmError

#: Executions at most to see the small failure once more, for the report.
LOOKS = 40

#: Seconds for making a failure small that takes what ran before it in its machine.
CHAIN_S = 60.0


@dataclass
class Assignment:
    """An example given to a machine."""

    index: int
    program: Program
    env: Environment
    target: Target
    answer: Future[Execution]
    #: what this machine ran before it
    before: Assignment | None
    #: on an exact machine: all that it ran since it was fresh
    chain: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Findings:
    """What a campaign knows of its failing examples.  Nobody else uses the machines meanwhile.

    note     -- told what is going on
    shrink_s -- time for making one failure small
    delays   -- names of the driver's delay points
    machine  -- of the targets, if it is another than the usual one (vm/kinds.py)
    exact    -- the targets are exact machines: where their schedules may hold CPUs
    The others are of Campaign.
    """

    targets: tuple[Target, ...]
    out: Path
    seed: int
    kernel: str
    delays: tuple[str, ...]
    note: Callable[[str], None]
    shrink_s: float
    device: str
    exact: schedules.Points | None
    cpus: int
    built: Mapping[str, str]
    machine: str = ""

    def write(self, example: Assignment, violations: Sequence[Violation], number: int) -> Finding:
        """Its folder, with all that is known before it is made small."""
        first = violations[0]
        folder = self.out / f"violation-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        recipe = self.recipe(example, first.oracle, first.message)
        # Before anything else: what follows may be interrupted.
        recipe.write(folder / "recipe.json")
        recipe.write(folder / "original.json")
        (folder / "violations.json").write_text(
            json.dumps(
                [{"oracle": v.oracle, "message": v.message, "details": v.details}
                 for v in violations], indent=1,
            ) + "\n"
        )  # fmt: skip
        try:
            example.target.keep(folder / "machine")
        except (OSError, VmError) as error:
            # The finding is true without it.
            self.note(f"what its machine leaves could not be kept: {error}")
        kind = THREADS if self.exact is None else EXACT
        return Finding(
            first, folder / "recipe.json", folder, len(example.program.ops), 0.0, shown_by=(kind,)
        )

    def shrink(self, example: Assignment, finding: Finding, hung: bool) -> Callable[[], None]:
        """Make it small, and its recipe; the result takes the last look at it.

        hung -- it did not end, whatever else was seen
        """
        p, env, index, target = example.program, example.env, example.index, example.target
        first = finding.violation
        chain: tuple[Link, ...] = ()
        small: Shrunk
        if self.exact is not None:
            small, chain = self._shrink_exact(target, example, first, hung)
        else:
            small = self._shrink(target, p, env, first)
        if self.exact is None and not small.rate and example.before is not None:
            # Some mistakes show when the next program starts (an ASID that is used again), or
            # when the driver is unbound after it.
            self.note("not seen again: the example before is tried")
            p, index = example.before.program, example.before.index
            env = replace(example.before.env, rebind=example.before.env.rebind or env.rebind)
            small = self._shrink(target, p, env, replace(first, op=-1))
        finding.rate = small.rate
        if not small.rate:
            return lambda: None
        recipe = replace(
            self.recipe(example, first.oracle, first.message),
            program=small.program, environment=small.environment,
            oracle=small.violation.oracle, message=small.violation.message, example=index,
            repeat=repeats(small.rate) if self.exact is None else 1, chain=chain,
        )  # fmt: skip
        if isinstance(small, ExactShrunk):
            recipe = self._anchored(recipe, small, finding.folder)
        recipe.write(finding.recipe)
        finding.violation = small.violation
        finding.operations = len(small.program.ops)

        def look() -> None:
            self.note("one more look at the failure")
            finding.portrait = self._portrait(target, small, chain)

        return look

    def recipe(self, example: Assignment, oracle: str, message: str) -> Recipe:
        """The whole example, as it ran."""
        recipe = Recipe(
            example.program, example.env, oracle, message, self.kernel, self.seed, example.index,
            repeat=200 if self.exact is None else 1, device=self.device, cpus=self.cpus,
            chain=example.chain, built=self.built, machine=self.machine,
        )  # fmt: skip
        return recipe if self.exact is None else holds.kept(recipe, self.exact.table)

    def _portrait(
        self, target: Target, small: Shrunk, chain: tuple[Link, ...]
    ) -> Portrait | None:
        """One more look at the failure, which must cost neither the finding nor the campaign."""
        failing = small.program, small.environment, small.violation
        try:
            if self.exact is not None:
                return exact_portrait(target, chain, *failing)
            return portrait(target, *failing, min(LOOKS, repeats(small.rate)))
        except Exception as error:
            self.note(f"no second look at the failure: {error!r}")
            with suppress(VmError):
                target.renew()
            return None

    def _anchored(self, recipe: Recipe, small: ExactShrunk, folder: Path) -> Recipe:
        """With its places by name, and what was decided beside it."""
        table = None if self.exact is None else self.exact.table
        if small.record is not None:
            decisions.write(folder / decisions.KEPT, small.record.log)
            recipe = replace(recipe, hash=small.record.hash)
        return holds.kept(recipe, table)

    def _shrink_exact(
        self, target: Target, example: Assignment, first: Violation, hung: bool
    ) -> tuple[ExactShrunk, tuple[Link, ...]]:
        """Alone if it fails alone, else with what ran before it in its machine."""
        deadline = time.monotonic() + self.shrink_s
        p = plain(example.program)

        # The other machines stand idle.
        others = [one for one in self.targets if one is not target]

        def small(
            chain: tuple[Link, ...], violation: Violation, env: Environment = example.env
        ) -> ExactShrunk:
            return ExactShrinker(
                [Fresh(one, chain) for one in (target, *others)], p, env, violation,
                max(0.0, deadline - time.monotonic()),
                lambda text: self.note(f"shrinking: {text}"), self.exact, hung,
            ).run()  # fmt: skip

        found = small((), first)
        if found.rate or not example.chain:
            return found, ()
        self.note("not seen alone: with the examples before it")
        chain = tuple(Link(plain(link.program), link.environment) for link in example.chain)
        fresh = Fresh(target, chain)
        # What hangs is asked under a short limit, as it is made small; who dies of a wait, or shows
        # only then what is wrong, under the usual one.
        crowded = example.env.crowded
        for limit in (SHORT_HANG_MS, p.timeout_ms) if hung and not crowded else (p.timeout_ms,):
            asked = replace(p, timeout_ms=limit)
            outcome = run(fresh, asked, example.env)
            if any(v.key == first.key for v in outcome.violations):
                break
        else:
            return found, ()
        # What ran before it had a part in what was decided by chance: told one by one it may do
        # without.
        listed = None if crowded else held(fresh, asked, example.env, fresh.record())
        if listed:
            told = replace(example.env, schedule=holds.told(example.env.schedule, listed))
            alone = small((), first, told)
            if alone.rate:
                return alone, ()
        # Each execution is as many as the chain has examples: another finding is worth more.
        deadline = min(deadline, time.monotonic() + CHAIN_S)
        found = small(chain, first)
        return found, found.chain

    def _shrink(self, target: Target, p: Program, env: Environment, first: Violation) -> Shrunk:
        return Shrinker(
            target, p, env, first, self.shrink_s,
            lambda text: self.note(f"shrinking: {text}"),
            [n for n in FAVOURITES if n in self.delays]
            + [n for n in self.delays if n not in FAVOURITES],
        ).run()  # fmt: skip


def repeats(rate: float) -> int:
    """Executions after which a failure of this rate has shown with great certainty.

    The measured rate is an estimate from a few dozen executions, so it is taken at half.
    """
    if rate >= 0.95:
        return 8
    n = 8
    while (1 - rate / 2) ** n > 0.01 and n < 1500:
        n += 4
    return n
