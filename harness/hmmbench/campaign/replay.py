# SPDX-License-Identifier: GPL-2.0-or-later
"""Repeating a recipe: how often it fails, and with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hmmbench.example import holds, schedules
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.example.target import Execution, Target
from hmmbench.guest.program import Program
from hmmbench.model.admit import normalise
from hmmbench.oracle.violation import Violation
from hmmbench.vm import decisions
from hmmbench.vm.decisions import Record


@dataclass
class Replayed:
    """`executions` made, `failures` of them violated something."""

    executions: int = 0
    failures: int = 0
    violations: list[Violation] = field(default_factory=list)
    #: in which it failed, where that is not the recipe's
    environment: Environment | None = None

    @property
    def found(self) -> bool:
        return self.failures > 0


def replay(
    target: Target,
    recipe: Recipe,
    times: int | None = None,
    stop_at_first: bool = True,
    note: Callable[[int, int], None] = lambda done, total: None,
    before: Callable[[], None] = lambda: None,
    after: Callable[[Execution], None] = lambda execution: None,
) -> Replayed:
    """Execute the recipe up to `times` (default: its own number) times.

    `before` is called before each execution, `after` with the first that fails, while the machine
    is as it left it.  A recipe edited by hand may hold what the model cannot judge: that part is
    left out.
    """
    program = sound(recipe.program)
    total = times if times is not None else recipe.repeat
    out = Replayed()
    for n in range(total):
        before()
        execution = target.execute(program, recipe.environment)
        outcome = judge(execution)
        out.executions += 1
        if outcome.failed:
            if not out.failures:
                after(execution)
            out.failures += 1
            out.violations += outcome.violations
            if stop_at_first:
                break
        note(n + 1, total)
    return out


def other_schedules(
    target: Target, recipe: Recipe, seeds: int,
    note: Callable[[int, int], None] = lambda done, total: None,
) -> Replayed:  # fmt: skip
    """Execute an exact machine's recipe with schedules near its own until it fails.

    Where it lists decisions, CPUs are held at each passage of their places, too, since another
    build passes there more or less often; then other seeds.
    """
    program, environment = sound(recipe.program), recipe.environment
    out = Replayed()
    each = holds.each(environment.schedule)
    tried = [each] if each != environment.schedule else []
    for seed in range(1, seeds + 1):
        # By turns, if there are two.
        of = each if seed % 2 else environment.schedule
        tried.append(schedules.reseeded(of, seed))
    for n, schedule in enumerate(tried):
        env = replace(environment, schedule=schedule)
        outcome = judge(target.execute(program, env))
        out.executions += 1
        if outcome.failed:
            out.failures += 1
            out.violations += outcome.violations
            out.environment = env
            break
        note(n + 1, len(tried))
    return out


def built_differs(recipe: Recipe, built: Mapping[str, str]) -> list[str]:
    """Names of what is another now than when the recipe was made, as far as it says."""
    return [name for name, was in recipe.built.items() if name in built and built[name] != was]


def elsewhere(recipe: Recipe, others: Sequence[str]) -> list[str]:
    """What is to be said of a recipe in another build, where `others` differ."""
    if not others:
        return []
    said = [f"another build than the recipe's: {', '.join(others)} differ"]
    places = holds.by_number(recipe)
    if places:
        said.append(
            f"{len(places)} of the recipe's places are numbers without a name, of the build that"
            " it was made with: here they may be anywhere"
        )
    return said


def parting(recipe: Recipe, record: Record | None, kept: Path) -> str:
    """How the execution that just ended differs from the recorded one; "" if it does not.

    kept -- the log beside the recipe
    """
    if not recipe.hash:
        return ""
    if record is None:
        return "its machine did not survive it: what it decided is not known"
    if record.hash == recipe.hash:
        return ""
    try:
        before = decisions.read(kept)
    except (OSError, ValueError) as error:
        return f"another execution than the recorded one; where they part is not known: {error}"
    where = decisions.part(before, record.log)
    if where is None:
        return f"another execution than the recorded one, but {kept} is no log of that"
    return f"parted from the recorded execution at {where} (recorded / now)"


def sound(program: Program) -> Program:
    """The program with what cannot be judged taken out."""
    return Program(
        normalise(program.ops, program.file_pages), program.file_pages, program.timeout_ms,
        program.settle_ms, program.flags, program.seed,
    )  # fmt: skip
