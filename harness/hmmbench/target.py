# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs are run on, and everything the oracles saw of one execution.

`Target` is the whole interface between the campaign (or replay, or shrinking) and the machine:
tests put a machine written in Python there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hmmbench.guest.protocol import Acc, OpKind, Program, Result
from hmmbench.oracle import leaks, progress, splat
from hmmbench.oracle.values import Checker
from hmmbench.oracle.violation import Violation
from hmmbench.recipe import Environment
from hmmbench.vm.errors import AgentTimeout, VmDied
from hmmbench.vm.machine import Machine

#: How much longer than the program's own limit the host waits (seconds).
GRACE_S = 20.0


@dataclass
class Outcome:
    """One execution: what was violated (first the most telling), and what it did."""

    violations: list[Violation] = field(default_factory=list)
    operations: int = 0
    gpu_accesses: int = 0
    undecided: int = 0
    #: the machine may not be used for another example
    tainted: bool = False

    @property
    def failed(self) -> bool:
        return bool(self.violations)


class Target(Protocol):
    """Runs one program in one environment."""

    def run(self, program: Program, environment: Environment) -> Outcome: ...

    def renew(self) -> None:
        """Continue in a fresh copy of the machine."""

    def keep(self, folder: Path) -> None:
        """Save the evidence of the latest execution."""


def judge(program: Program, result: Result) -> Outcome:
    """Ask the oracles that need only the agent's answer."""
    outcome = Outcome(operations=len(program.ops))
    stuck = progress.check(program, result)
    if stuck is not None:
        outcome.violations.append(stuck)
        outcome.tainted = True
    else:
        checker = Checker(program, result)
        wrong = checker.run()
        outcome.undecided = checker.undecided
        if wrong is not None:
            outcome.violations.append(wrong)
    leak = leaks.check(result)
    if leak is not None and stuck is None:
        outcome.violations.append(leak)
        outcome.tainted = True
    outcome.gpu_accesses = sum(
        1
        for o, r in zip(program.ops, result.ops, strict=True)
        if o.op == OpKind.GPU_ACCESS
        for a, (_, status, _) in zip(o.acc, r.acc, strict=True)
        if status == 1 and a[0] != Acc.DELAY
    )
    return outcome


@dataclass
class Totals:
    """Counters over all machines of a target."""

    faults: int = 0
    replays: int = 0
    to_device: int = 0
    to_system: int = 0
    machines: int = 0


class VmTarget:
    """A virtual machine, replaced by a fresh copy when something in it may be broken.

    `opener` gives entered machines (restored from a snapshot); close() ends the last one.
    """

    def __init__(self, opener: Callable[[], Machine]) -> None:
        self._opener = opener
        self._vm: Machine | None = None
        self._set = Environment()
        self._last_tainted = False
        self._base: dict[str, int] = {}
        self.totals = Totals()

    def __enter__(self) -> VmTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the machine, after taking its counters."""
        vm, self._vm = self._vm, None
        if vm is not None:
            with contextlib.suppress(Exception):
                self._count(vm)
            vm.close()
        self._set = Environment()
        self._last_tainted = False

    @property
    def vm(self) -> Machine:
        """The machine in use, started if there is none."""
        if self._last_tainted:
            self.close()
        if self._vm is None:
            self._vm = self._opener()
            self.totals.machines += 1
            self._base = self._counters(self._vm)
        return self._vm

    def renew(self) -> None:
        """Continue in a fresh copy."""
        self.close()

    def delay_points(self) -> list[str]:
        """Names of the driver's delay points."""
        text = self.vm.agent.read_file(self._debugfs() + "/delays").decode()
        return [line.split()[0] for line in text.splitlines() if line.strip()]

    def _debugfs(self) -> str:
        return str(self.vm.hello.get("debugfs", "/sys/kernel/debug/dri/0"))

    def _surround(self, wanted: Environment) -> None:
        if wanted == self._set:
            return
        vm = self.vm
        if wanted.delays != self._set.delays:
            text = "\n".join(["clear", *wanted.delays]) + "\n"
            vm.agent.write_file(self._debugfs() + "/delays", text.encode(), mode=0)
        if wanted.inject != self._set.inject:
            vm.inject(wanted.inject)
        self._set = wanted

    def run(self, program: Program, environment: Environment) -> Outcome:
        """Raises VmError only if the machine cannot be had at all; its death is a violation."""
        vm = self.vm
        try:
            self._surround(environment)
            limit = program.timeout_ms / 1000 + program.settle_ms / 1000 + GRACE_S
            answer = vm.agent.program(program.encode(), limit)
            result = Result.decode(answer, program)
            if result.live_nonzero and not result.counters_after:
                result.counters_after = self._driver_counters(vm)
            outcome = judge(program, result)
            splats = splat.scan(vm.console.take())
        except AgentTimeout as error:
            outcome = Outcome(
                [Violation("progress", f"the guest hangs: {error.message}")], tainted=True
            )
            splats = splat.scan(vm.console.take())
        except VmDied as error:
            # How much of the console was taken before does not matter: it is over.
            splats = splat.scan(vm.console.text())
            outcome = Outcome(
                [] if splats else [Violation("kernel", error.summary, details=error.message)],
                tainted=True,
            )
        for s in splats:
            outcome.violations.insert(0, Violation("kernel", s.title, details=s.text))
            outcome.tainted = True
        self._last_tainted = outcome.tainted
        return outcome

    def keep(self, folder: Path) -> None:
        if self._vm is not None:
            self._vm.keep(folder)

    @staticmethod
    def _driver_counters(vm: Machine) -> str:
        folder = str(vm.hello.get("debugfs", "/sys/kernel/debug/dri/0"))
        return vm.agent.read_file(folder + "/counters").decode()

    def _counters(self, vm: Machine) -> dict[str, int]:
        device = vm.counters()
        text = self._driver_counters(vm)
        out = {f"dev_{n}": v for n, v in device.items()}
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if value.strip().lstrip("-").isdigit():
                out.setdefault(name, int(value))
        return out

    def _count(self, vm: Machine) -> None:
        now = self._counters(vm)
        delta = {n: v - self._base.get(n, 0) for n, v in now.items()}
        self._base = now
        self.totals.faults += delta.get("dev_faults", 0)
        self.totals.replays += delta.get("dev_replays", 0)
        self.totals.to_device += delta.get("pages_to_device", 0)
        self.totals.to_system += delta.get("pages_to_system", 0)

    def sample(self) -> Totals:
        """Totals up to now, for the progress display."""
        if self._vm is not None and not self._last_tainted:
            self._count(self._vm)
        return self.totals
