# SPDX-License-Identifier: GPL-2.0-or-later
"""Repeating a recipe: how often it fails, and with what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hmmbench import exact_schedule
from hmmbench.guest.protocol import Program
from hmmbench.model.admit import normalise
from hmmbench.oracle.violation import Violation
from hmmbench.recipe import Environment, Recipe
from hmmbench.target import Execution, Target, judge


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
    is as it left it.  A recipe edited by hand may hold what the model cannot judge: that part
    is left out.
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
    """Execute an exact machine's recipe with other chances of the same schedule until it fails."""
    program = sound(recipe.program)
    out = Replayed()
    for seed in range(1, seeds + 1):
        env = replace(
            recipe.environment,
            schedule=exact_schedule.reseeded(recipe.environment.schedule, seed),
        )
        outcome = judge(target.execute(program, env))
        out.executions += 1
        if outcome.failed:
            out.failures += 1
            out.violations += outcome.violations
            out.environment = env
            break
        note(seed, seeds)
    return out


def sound(program: Program) -> Program:
    """The program with what cannot be judged taken out."""
    return Program(
        normalise(program.ops, program.file_pages), program.file_pages, program.timeout_ms,
        program.settle_ms, program.flags, program.seed,
    )  # fmt: skip
