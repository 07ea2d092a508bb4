# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything the oracles have to say of one execution."""

from __future__ import annotations

from dataclasses import dataclass, field

from hmmbench.device import injection
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Execution, Target
from hmmbench.guest.program import PAGE, RES_SKIPPED, Acc, Program, Result
from hmmbench.model.cells import Coverage
from hmmbench.model.ops.accounts import Account
from hmmbench.model.ops.accounts import looked as accounted
from hmmbench.model.ops.jobs import GpuAccess
from hmmbench.model.ops.processes import Nop, Sleep
from hmmbench.model.ops.promises import Promise, ReadBack, tried
from hmmbench.model.ops.stores import Store
from hmmbench.oracle import contents, excess, growth, leaks, progress
from hmmbench.oracle.values import Checker
from hmmbench.oracle.violation import Violation


@dataclass
class Verdict:
    """One execution: what was violated (first the most telling), and what it did."""

    violations: list[Violation] = field(default_factory=list)
    operations: int = 0
    gpu_accesses: int = 0
    undecided: int = 0
    #: promises that were asked for, and those of them that could be tried; pages that were to be
    #: read again, and those that were
    promises: int = 0
    promises_tried: int = 0
    #: files that were to be on a disk or at a server, and were
    stores: int = 0
    stores_there: int = 0
    pages_to_read: int = 0
    pages_read: int = 0
    #: it was to run again for a census of what it leaves, and that was taken
    censuses: int = 0
    censuses_taken: int = 0
    #: looks at the kernel's accounts of a process, and those for which nothing moved
    accounts: int = 0
    accounts_taken: int = 0
    #: the machine may not be used for another example
    tainted: bool = False

    @property
    def failed(self) -> bool:
        return bool(self.violations)


#: What makes no demand on the driver does not count as a checked operation.
_IDLE = frozenset({Nop.number, Sleep.number})


def run(target: Target, program: Program, environment: Environment) -> Verdict:
    """Execute and judge."""
    return judge(target.execute(program, environment))


def judge(execution: Execution, coverage: Coverage | None = None) -> Verdict:
    """Everything the oracles have to say of an execution; `coverage` learns what it did."""
    result = execution.result
    outcome = Verdict()
    if coverage is not None:
        coverage.unseen = execution.unseen
    if result is not None:
        outcome = _judge_result(execution.program, result, coverage, execution.inject)
    outcome.violations[:0] = execution.violations
    outcome.tainted |= execution.tainted
    return outcome


def _judge_result(
    program: Program, result: Result, coverage: Coverage | None, rules: tuple[str, ...]
) -> Verdict:
    outcome = Verdict(
        operations=sum(
            o.op not in _IDLE and r.status != RES_SKIPPED
            for o, r in zip(program.ops, result.ops, strict=True)
        )
    )
    stuck = progress.check(program, result)
    if injection.hurts(rules) and progress.by_sigbus(result):
        # Memory of its own that it could not have.
        stuck = None
    if stuck is not None:
        outcome.violations.append(stuck)
        outcome.tainted = True
    else:
        checker = Checker(program, result, coverage, rules)
        wrong = checker.run()
        outcome.undecided = checker.undecided
        if wrong is not None:
            outcome.violations.append(wrong)
    stray = contents.strays(result)
    if stray is not None:
        outcome.violations.append(stray)
    storm = excess.check(program, result) if injection.keeps_promises(rules) else None
    for much in (storm, excess.blamed(program, result, rules)):
        if much is not None and stuck is None:
            outcome.violations.append(much)
    for leak in (leaks.check(result), leaks.remains(result), growth.check(result)):
        if leak is not None and stuck is None:
            outcome.violations.append(leak)
            outcome.tainted = True
    outcome.gpu_accesses = sum(
        1
        for o, r in zip(program.ops, result.ops, strict=True)
        if o.op == GpuAccess.number
        for a, (_, status, _) in zip(o.acc, r.acc, strict=True)
        if status == 1 and a[0] != Acc.DELAY
    )
    _count_evidence(outcome, program, result, rules)
    return outcome


def _count_evidence(
    outcome: Verdict, program: Program, result: Result, rules: tuple[str, ...]
) -> None:
    kept = injection.keeps_promises(rules)
    outcome.censuses = int(program.again > 0)
    outcome.censuses_taken = int(growth.looked(result) > 1)
    for o, r in zip(program.ops, result.ops, strict=True):
        if r.status == RES_SKIPPED:
            continue
        if o.op == Promise.number:
            outcome.promises += 1
            outcome.promises_tried += kept and tried(o, r)
        elif o.op == Store.number:
            outcome.stores += 1
            outcome.stores_there += r.status == 0
        elif o.op == Account.number:
            outcome.accounts += 1
            outcome.accounts_taken += accounted(o, r)
        elif o.op == ReadBack.number:
            outcome.pages_to_read += o.len // PAGE
            outcome.pages_read += r.aux0
