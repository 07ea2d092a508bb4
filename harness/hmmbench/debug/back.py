# SPDX-License-Identifier: GPL-2.0-or-later
"""Going back on an exact machine: the snapshot once more, and the same chain up to an instruction.

An instruction is a number: of all CPUs together, as in the log of decisions.  What is looked at is
the last example of a chain, from where it was handed over to where it was answered.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hmmbench.base.errors import UsageError
from hmmbench.example import moment as exact_moment
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.moment import Clock, Moment
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import Program
from hmmbench.oracle.violation import Violation
from hmmbench.vm import decisions
from hmmbench.vm.errors import VmError
from hmmbench.vm.machine import Machine

Example = tuple[Program, Environment]

#: Places at which one run looks at memory: each of them costs a stop of a few milliseconds, each
#: run a restore and the example.
LOOKS = 48

#: Decisions that put another CPU on, or hold one.
_SLICES = (
    decisions.What.OVER, decisions.What.HALTED, decisions.What.PAUSED, decisions.What.AT_POINT,
)  # fmt: skip
_STANDS = decisions.What.STANDS
_SWITCHES = (*_SLICES, decisions.What.HELD)


@dataclass(frozen=True)
class Write:
    """The last change of a value: `before` up to instruction `after - 1`, then `value`."""

    after: int
    before: int
    value: int


class Back:
    """One chain, executed once here so that its length and its log are known.

    target    -- has the machine; nobody else uses it from here on
    violation -- what is wrong in the last example, for at_violation()
    """

    def __init__(
        self, target: ExactTarget, chain: Sequence[Example], violation: Violation | None = None
    ) -> None:
        self._violation = violation
        self._target = target
        self._chain = tuple(chain)
        self.begin = self._restart().exact.state()["icount"]
        self._clock: Clock | None = None
        target.ended = self._ended
        self._result = target.execute(*self._chain[-1]).result
        target.ended = lambda vm: None
        self._excused = target.excused
        vm = target.left
        if vm is None:
            raise VmError("the machine has ended with the execution: nothing can be looked at")
        self.end = vm.exact.state()["icount"]
        self._log = self._read_log(vm)

    def _ended(self, vm: Machine) -> None:
        self._clock = Clock.at_stand(vm)

    @staticmethod
    def _read_log(vm: Machine) -> np.ndarray[Any, Any]:
        with TemporaryDirectory(prefix="hmmbench-log-") as folder:
            path = Path(folder) / "log"
            vm.exact.write_log(path)
            return decisions.read(path)

    def _restart(self) -> Machine:
        """A fresh machine with all of the chain but its last example behind it."""
        self._target.renew()
        for program, environment in self._chain[:-1]:
            self._target.execute(program, environment)
        return self._target.vm

    @property
    def machine(self) -> Machine:
        """Where it stands; another one after each goto()."""
        vm = self._target.left
        if vm is None:
            raise VmError("the machine has ended")
        return vm

    @property
    def now(self) -> int:
        """The instruction at which it stands; gdb may have let it go on."""
        return self.machine.exact.state()["icount"]

    def goto(self, instruction: int) -> Machine:
        """Stand at this instruction, in a new machine.

        Raises UsageError out of the example, VmError if the machine executed something else.
        """
        if not self.begin <= instruction <= self.end:
            raise UsageError(
                f"instruction {instruction} is not of the example: {self.begin} to {self.end}"
            )
        self._restart()
        # At the very end it stands by its own word, with the answer.
        for _ in self._target.stop_at(*self._chain[-1], [instruction]):
            break
        self._check()
        return self.machine

    def at_violation(self) -> Moment | None:
        """Stand where the violation is seen first, in a new machine; at the end of the example,
        and None, if it has no such moment.  Raises VmError as goto()."""
        if self._violation is None:
            raise UsageError("no violation is known here")
        self._restart()
        names = self._target.names
        moment = exact_moment.stand_at(
            self._target, *self._chain[-1], self._violation, result=self._result,
            clock=self._clock, reports=names.addresses(exact_moment.REPORTS) if names else (),
            again=self._restart if self._excused else None,
        )  # fmt: skip
        if moment is None:
            self.goto(self.end)
        else:
            self._check()
        return moment

    def _check(self) -> None:
        parted = decisions.part(*self._both(self.machine))
        if parted is not None:
            raise VmError(f"the machine did not execute the same again: {parted}")

    def _both(self, vm: Machine) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """What was decided at first and what again, up to where the machine stands now."""
        logs, now = [], self.now
        for log in (self._log, self._read_log(vm)):
            # That it stands here is our doing.
            logs.append(log[(log["icount"] < now) & (log["what"] != int(_STANDS))])
        return logs[0], logs[1]

    # -- switches

    def switches(self, before: int, count: int) -> list[decisions.Decision]:
        """The last `count` switches before an instruction, the latest first."""
        log = self._log
        wanted = np.isin(log["what"], [int(what) for what in _SWITCHES]) & (log["icount"] < before)
        return [decisions.decision(log[n]) for n in np.flatnonzero(wanted)[::-1][:count]]

    def runs(self, instruction: int) -> int | None:
        """The CPU that executes up to this instruction; None if no slice of one ends after it."""
        slices = [int(what) for what in _SLICES]
        after = np.isin(self._log["what"], slices) & (self._log["icount"] >= instruction)
        found = np.flatnonzero(after)
        return int(self._log[found[0]]["who"]) if len(found) else None

    # -- the last write

    def last_write(self, read: Callable[[Machine], int]) -> Write | None:
        """The last change, before now, of what `read` finds; None if it was so from the start.

        By looking at ever closer places: a value that was changed and changed back between two
        of them is not seen.  The machine stands afterwards where the new value is there.
        """
        low, high = self.begin, self.now
        value = before = -1
        while True:
            places = sorted({low + (high - low) * n // LOOKS for n in range(LOOKS + 1)})
            self._restart()
            seen = []
            for place, vm in zip(
                places, self._target.stop_at(*self._chain[-1], places), strict=False
            ):
                seen.append((place, read(vm)))
            if len(seen) < 2:
                return None
            if value < 0:
                value = seen[-1][1]
            # The last pair of neighbours that differ: what follows has the value of now.
            pairs = [(a, b) for a, b in pairwise(seen) if a[1] != b[1]]
            if not pairs:
                return None
            (low, before), (high, _) = pairs[-1]
            if high - low <= 1:
                self.goto(high)
                return Write(high, before, value)


def entry_at(address: int, read: Callable[[Machine, int, int], bytes]) -> Callable[[Machine], int]:
    """The eight bytes at a physical address, for last_write()."""

    def value(vm: Machine) -> int:
        return int(struct.unpack("<Q", read(vm, address, 8))[0])

    return value
