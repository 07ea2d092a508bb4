# SPDX-License-Identifier: GPL-2.0-or-later
"""The moment of a violation in an exact machine: where it is seen first, and standing there."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.recipe import Environment
from hmmbench.guest import splat
from hmmbench.guest.program import Program, Result
from hmmbench.model import oracles
from hmmbench.oracle.violation import Violation
from hmmbench.vm.errors import VmDied
from hmmbench.vm.machine import Machine

#: Functions of the kernel that it comes to when it reports a mistake, and else never.
REPORTS = (
    "report_bug", "warn_slowpath_fmt", "__warn_printk", "__warn", "oops_begin", "die", "die_addr",
    "__die", "panic", "vpanic", "kasan_report", "kasan_report_invalid_free", "ubsan_prologue",
    "__schedule_bug", "bad_page", "print_bad_pte", "dump_stack_lvl",
)  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """Instruction and virtual time, as in the log of decisions; `what` it is, in words."""

    instruction: int
    ns: int
    what: str

    def __str__(self) -> str:
        return f"at the violation, instruction {self.instruction}: {self.what}"


@dataclass(frozen=True)
class Clock:
    """Two clocks of one machine.  `zero_ns`: the guest's CLOCK_MONOTONIC less its virtual time."""

    zero_ns: int

    @classmethod
    def at_stand(cls, machine: Machine) -> Clock:
        """Of a machine that stands by the guest's own word, and was not let go since."""
        return cls(machine.mailbox.time_ns - machine.exact.state()["ns"])

    def virtual(self, guest_ns: int) -> int:
        return guest_ns - self.zero_ns


def stand_at(
    target: ExactTarget, program: Program, environment: Environment, violation: Violation,
    *, result: Result | None, clock: Clock | None, reports: Sequence[int] = (),
    again: Callable[[], object] | None = None,
) -> Moment | None:  # fmt: skip
    """Execute again and stand where the violation is seen first.

    None: it has no such moment (a leak, a hang), or it is not known; the machine has executed the
    whole example then.

    target  -- fresh, and its chain has run; of no use for another example afterwards
    result, clock -- of an execution like this one, for values: the end of the operation that read
    reports -- addresses of REPORTS
    again -- makes the target so once more; None: that execution printed no report but violations
    """
    if violation.oracle in oracles.DEVICE:
        vm = target.stop_where(
            program, environment, lambda vm: vm.gpu.stand_at_violation(True), _found_at_rest
        )
        return _moment(vm, "the device's check reports it")
    if violation.oracle == "kernel" and reports:
        points = (*target.points, *reports)

        def tell(vm: Machine) -> None:
            vm.exact.points(points)
            vm.exact.stand_at_pc(reports)

        passed = 0
        if again is not None:
            passed = _passed(target, program, environment, violation, tell)
            again()
        stands = itertools.count()
        vm = target.stop_where(
            program, environment, tell, here=lambda vm: next(stands) >= passed
        )  # fmt: skip
        return _moment(vm, "the kernel reports it")
    if result is None or clock is None or not 0 <= violation.op < len(result.ops):
        return None
    op = result.ops[violation.op]
    if violation.oracle != "values" or not op.start_ns:
        return None
    end = clock.virtual(op.start_ns + op.time_ns)
    vm = target.stop_where(
        program, environment,
        lambda vm: vm.exact.stand_after(max(0, end - vm.exact.state()["ns"])), timed=True,
    )  # fmt: skip
    return _moment(vm, f"operation {violation.op + 1} has ended")


def _passed(
    target: ExactTarget, program: Program, environment: Environment, violation: Violation,
    tell: Callable[[Machine], None],
) -> int:  # fmt: skip
    """How often it comes to REPORTS before it comes there to report the violation."""
    console = target.vm.console
    begun = len(console.text())
    stood: list[int] = []

    def here(vm: Machine) -> bool:
        stood.append(len(console.text()) - begun)
        return False

    with suppress(VmDied):
        target.stop_where(program, environment, tell, here=here)
    return reported(console.text()[begun:], violation.message, stood)


def reported(text: str, title: str, stood: Sequence[int]) -> int:
    """Which of these stands is the first of the report with this title.

    stood -- how much of the console's text there was at each
    """
    report = next((one for one in splat.scan(text) if one.title == title), None)
    if report is None:
        return 0
    begin = sum(len(line) for line in text.splitlines(keepends=True)[: report.line - 1])
    # What says the first line before it reports comes after that.
    before = (n for n, at in enumerate(stood) if at <= begin and not splat.any_in(text[at:begin]))
    within = (n for n, at in enumerate(stood) if at > begin)
    return next(before, next(within, 0))


def _found_at_rest(vm: Machine) -> bool:
    """The look at everything, when all operations have ended, has found it."""
    return bool(json.loads(vm.gpu.violations())["total"])


def _moment(vm: Machine | None, what: str) -> Moment | None:
    if vm is None:
        return None
    state = vm.exact.state()
    return Moment(state["icount"], state["ns"], what)
