# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of the places where a kernel reports something is that of the violation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.moment import reported, stand_at
from hmmbench.example.recipe import Environment
from hmmbench.guest import splat
from hmmbench.guest.program import Op, Program
from hmmbench.model.ops.processes import Nop
from hmmbench.oracle.violation import Violation
from hmmbench.vm.errors import VmDied

SPLATS = Path(__file__).parent.parent / "splats"

EXCUSED = (SPLATS / "good" / "dma-overlap.txt").read_text()


def bad(name: str) -> str:
    lines = (SPLATS / "bad" / f"{name}.txt").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


WARNING, CORRUPTION = bad("warning-6"), bad("list-corruption")
HEAD = WARNING.index("[    9.120110] WARNING")


def title(text: str) -> str:
    return splat.scan(text)[0].title


def test_excused_reports_are_counted() -> None:
    assert splat.excused(EXCUSED + WARNING + EXCUSED) == 2
    assert splat.excused(WARNING) == 0


@pytest.mark.parametrize(
    ("text", "stood", "first"),
    [
        (WARNING, [0], 0),
        # It came twice to such a place before the first line of the report.
        (WARNING, [0, HEAD, HEAD + 100], 0),
        (EXCUSED + WARNING, [0, 40, 120, len(EXCUSED), len(EXCUSED) + HEAD], 3),
        (EXCUSED + "and more\n" + WARNING, [0, 40, len(EXCUSED), len(EXCUSED) + 9 + HEAD], 2),
        (EXCUSED + EXCUSED + WARNING, [0, len(EXCUSED), 2 * len(EXCUSED)], 2),
        # Behind the violation nothing counts.
        (WARNING + EXCUSED, [0, len(WARNING)], 0),
        (bad("kernel-bug") + WARNING, [0, len(bad("kernel-bug"))], 1),
        # Said before it comes to such a place.
        (EXCUSED + CORRUPTION, [0, 40, len(EXCUSED) + 90], 2),
        (EXCUSED, [0], 0),
    ],
)  # fmt: skip
def test_the_first_of_its_report(text: str, stood: list[int], first: int) -> None:
    name = CORRUPTION if text.endswith(CORRUPTION) else WARNING
    assert reported(text, title(name), stood) == first


class Kernel:
    """Comes to a report's functions with so much on its console each; ends, or dies."""

    def __init__(self, text: str, stood: list[int], dies: bool) -> None:
        self.text, self.stood, self.dies = text, stood, dies
        self.at = -1
        self.console, self.exact = self, self

    def run(self, here: Callable[[Any], bool]) -> Any:
        for at in range(len(self.stood)):
            self.at = at
            if here(self):
                return self
        self.at = len(self.stood)
        if self.dies:
            raise VmDied("panic")
        return None

    @property
    def console_text(self) -> str:
        if self.at < 0:
            return ""
        return (self.text + "\n")[: [*self.stood, len(self.text)][self.at]]

    def state(self) -> dict[str, int]:
        return {"icount": self.at, "ns": 0}


@pytest.mark.parametrize("dies", [False, True])
def test_it_stands_at_the_violation(dies: bool) -> None:
    """Behind what is excused; at the first if nothing is, without another execution."""

    class Target(ExactTarget):
        points = ()
        executions = 0

        def __init__(self, kernel: Kernel) -> None:
            self.kernel = kernel

        @property
        def vm(self) -> Any:
            return self

        @property
        def console(self) -> Any:
            return self

        def text(self) -> str:
            return self.kernel.console_text

        def stop_where(self, *words: Any, here: Callable[[Any], bool], **more: Any) -> Any:
            self.executions += 1
            return self.kernel.run(here)

    def moment(text: str, stood: list[int], again: bool) -> tuple[int, int]:
        target = Target(Kernel(text, stood, dies))
        found = stand_at(
            cast(ExactTarget, target), Program([Op(Nop.number)]), Environment(),
            Violation("kernel", title(WARNING)), result=None, clock=None, reports=(1,),
            again=(lambda: None) if again else None,
        )  # fmt: skip
        assert found is not None
        return found.instruction, target.executions

    both = EXCUSED + WARNING
    assert moment(both, [0, 40, len(EXCUSED), len(EXCUSED) + HEAD], again=True) == (2, 2)
    assert moment(WARNING, [0, HEAD], again=False) == (0, 1)
