# SPDX-License-Identifier: GPL-2.0-or-later
"""One more look at a failure of an exact machine that cannot tell all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hmmbench.campaign import evidence
from hmmbench.campaign.evidence import exact_portrait
from hmmbench.example import moment
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.moment import Moment
from hmmbench.example.portrait import PageEntry, Portrait
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Execution
from hmmbench.guest.program import Op, Program
from hmmbench.model.ops.processes import Nop
from hmmbench.oracle.violation import Violation
from hmmbench.vm.decisions import ENTRY, What
from hmmbench.vm.errors import QmpFailure, VmError
from hmmbench.vm.machine import Machine

PROGRAM = Program([Op(Nop.number)], (24, 600, 0, 0))
FOUND = Violation("mirror", "stale", page=3)
AT_END = PageEntry("the process, region 0, page 3", "nothing", "frame 0x1000")
MOMENT = Moment(77, 150, "the device's check reports it")

#: What machines raise that are not what they should be.
LOST = (
    VmError("gone"), QmpFailure("qom-get", "GenericError", "no"), ValueError("cut short"),
    LookupError("beyond the part that the CPU reaches"), AssertionError(),
)  # fmt: skip


class Box:
    """As much of a machine as a look at it asks for."""

    reachable = standing = True

    def __init__(self) -> None:
        self.watched = False
        self.exact = self
        self.mailbox = SimpleNamespace(time_ns=1100)

    gpu = property(lambda self: self)

    def keep_events(self) -> None:
        self.watched = True

    def state(self) -> dict[str, int]:
        return {"ns": 100, "icount": 50}

    def engines(self) -> list[str]:
        return ["front end"]

    def write_log(self, path: Path) -> None:
        log = np.zeros(1, ENTRY)
        log[0] = (50, 100, 0x1000, 5, What.OVER, 0, 0, 0)
        path.write_bytes(log.tobytes())

    def write_events(self, path: Path) -> None:
        path.touch()

    def close(self) -> None:
        """Nothing to end."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody asks for {name} here")


class Fails(ExactTarget):
    """Each execution fails; `told`: those whose end somebody looked at."""

    def __init__(self) -> None:
        self.boxes: list[Box] = []
        self.found = [FOUND]
        self.error: Exception | None = None
        super().__init__(self._open)

    @property
    def vm(self) -> Machine:
        if self._vm is None:
            self._vm = self._open()
        return self._vm

    def _open(self) -> Machine:
        self.boxes.append(Box())
        return cast(Machine, self.boxes[-1])

    def execute(self, program: Program, environment: Environment) -> Execution:
        self.ended(self.vm)
        if self.error is not None:
            raise self.error
        return Execution(program, violations=list(self.found))


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[Exception | None]:
    """What the walks of the page tables raise, one after another; then they all do well."""
    raised: list[Exception | None] = []

    def walked(vm: Machine, program: Program, violation: Violation) -> list[PageEntry]:
        if raised and (error := raised.pop(0)):
            raise error
        return [AT_END]

    monkeypatch.setattr(evidence, "_walked", walked)
    return raised


@pytest.fixture
def stands(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """How the look for the moment ends."""
    said: dict[str, Any] = {"moment": MOMENT}

    def stand_at(target: Fails, *_: object, **__: object) -> Moment | None:
        target.ended(target.vm)
        if "error" in said:
            raise said["error"]
        return cast(Moment, said["moment"])

    monkeypatch.setattr(moment, "stand_at", stand_at)
    return said


def look(target: Fails) -> Portrait | None:
    return exact_portrait(target, (), PROGRAM, Environment(), FOUND)


def nobody_watches(target: Fails, walks: list[Exception | None]) -> bool:
    """The next execution is looked at by nobody: a walk would raise this."""
    walks[:] = [KeyError("looked at"), KeyError("looked at")]
    target.ended(cast(Machine, Box()))
    return target._vm is None and len(walks) == 2


def test_all_of_it(walks: list[Exception | None], stands: dict[str, Any]) -> None:
    target = Fails()
    found = look(target)
    assert found is not None
    assert found.decided is not None
    assert (found.decided.moment, found.pages) == (MOMENT, [AT_END])
    assert found.when == f"at the violation: {MOMENT.what}"
    assert found.decided.clock is not None
    assert found.decided.clock.virtual(1200) == 200
    assert nobody_watches(target, walks)
    # The machine of the first look alone was watched.
    assert [box.watched for box in target.boxes] == [True, False]


@pytest.mark.parametrize("error", LOST, ids=lambda one: type(one).__name__)
def test_the_second_look_fails_and_the_first_is_kept(
    error: Exception, walks: list[Exception | None], stands: dict[str, Any]
) -> None:
    stands["error"] = error
    target = Fails()
    found = look(target)
    assert found is not None
    assert found.decided is not None
    assert (len(found.decided.log), found.decided.moment) == (1, None)
    assert (found.pages, found.when) == ([AT_END], "when all operations had ended")
    assert nobody_watches(target, walks)


@pytest.mark.parametrize("error", LOST, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("at", [0, 1])
def test_tables_that_cannot_be_walked_cost_only_themselves(
    error: Exception, at: int, walks: list[Exception | None], stands: dict[str, Any]
) -> None:
    """When all operations have ended, or at the moment."""
    walks[:] = [None] * at + [error]
    found = look(Fails())
    assert found is not None
    assert found.decided is not None
    assert (found.decided.moment, found.decided.clock is not None) == (MOMENT, True)
    assert found.pages == [AT_END]
    assert found.when.startswith("at the violation" if at == 0 else "when all operations")


def test_without_a_moment_the_end_is_shown(
    walks: list[Exception | None], stands: dict[str, Any]
) -> None:
    stands["moment"] = None
    found = look(Fails())
    assert found is not None
    assert (found.pages, found.when) == ([AT_END], "when all operations had ended")


def test_a_watch_ends_with_its_execution(
    walks: list[Exception | None], stands: dict[str, Any]
) -> None:
    """Also with one that does not fail, or whose machine does."""
    sound = Fails()
    sound.found = [Violation("values", "another")]
    assert look(sound) is None
    assert nobody_watches(sound, walks)
    walks.clear()
    broken = Fails()
    broken.error = VmError("did not stand")
    with pytest.raises(VmError, match="did not stand"):
        look(broken)
    assert nobody_watches(broken, walks)
