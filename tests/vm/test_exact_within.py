# SPDX-License-Identifier: GPL-2.0-or-later
"""Exact machines that are saved within an example: restored they go on as if they had not been."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hmmbench.build import Artifacts
from hmmbench.campaign import fleet
from hmmbench.campaign.repeat import difference, exact_specs, nth, surroundings
from hmmbench.example.exact_target import ExactTarget, Print
from hmmbench.example.recipe import Environment
from hmmbench.example.schedules import Points
from hmmbench.guest.program import Program
from hmmbench.vm import decisions
from hmmbench.vm.decisions import What
from hmmbench.vm.errors import VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec

PROGRAMS = 5

#: So many places of a kind are tried until one is found where engines are between slices.
TRIES = 12

#: In the stream's own description, if the state of a schedule is in it.
PART = b"hmm-exact/arrived"

_SLICES = (What.OVER, What.HALTED, What.PAUSED)


@pytest.fixture(scope="module")
def target(artifacts: Artifacts, spec: MachineSpec) -> Iterator[ExactTarget]:
    spec4 = exact_specs(spec, (4,))[4]
    points = fleet.exact_points(artifacts, spec4)
    with (
        Opener(spec4) as opener,
        ExactTarget(opener, points=points.all, take=True, memory=True) as made,
    ):
        yield made


class Example:
    """A program that was executed without being saved: what came of it, and its log."""

    def __init__(self, target: ExactTarget, index: int, folder: Path) -> None:
        self.target, self.folder = target, folder
        self.program: Program = nth(5, index)
        self.env: Environment = replace(
            surroundings(5, index, Points()),
            schedule=f"seed={index} step=9:15:0:8 irq=10:17 slice=5:14 hold=60:15:18 span=4000000",
        )
        target.renew()
        done = target.execute(self.program, self.env)
        assert done.result is not None
        self.expected = target.print
        target.write_log(folder / "log")
        self.log = decisions.read(folder / "log")

    def stand(self, instruction: int) -> Machine:
        """A fresh machine that stands there."""
        self.target.renew()
        for machine in self.target.stop_at(self.program, self.env, [instruction]):
            return machine
        raise AssertionError(f"it ends before instruction {instruction}")

    def finish(self, machine: Machine, printed: str) -> Print:
        """What came of the machine that goes on from where it stands."""
        self.target.print = Print()
        answer = self.target.answer(machine, self.program, self.env)
        self.target._taken(machine, printed + machine.printed_to(answer.mark))
        return self.target.print

    def saved(self, machine: Machine) -> Path | None:
        """A file with its state; None: its engines are in slices."""
        state = self.folder / "state"
        try:
            machine.save(state)
        except VmError as error:
            if "within an example, and engine" not in error.message:
                raise
            return None
        return state

    def restored(self, machine: Machine) -> Print | None:
        """What comes of a copy in another process; None: its engines are in slices."""
        state = self.saved(machine)
        if state is None:
            return None
        printed, before = machine.console.text(), machine.exact.state()
        with Machine(machine.spec, state=state, greet=False) as copy:
            assert copy.exact.state() | {"stands": 1} == before | {"why": 0, "stands": 1}
            found = self.finish(copy, printed)
            copy.exact.write_log(self.folder / "again")
            assert decisions.part(self.log, decisions.read(self.folder / "again")) is None
        return found

    # -- places

    def in_holds(self) -> list[int]:
        """Where a CPU runs while another is held."""
        log, found = self.log, []
        ran = np.isin(log["what"], [int(what) for what in _SLICES])
        for held in log[log["what"] == int(What.HELD)]:
            end = int(held["ns"]) + int(held["arg"])
            for one in log[ran & (log["ns"] > held["ns"]) & (log["ns"] < end)]:
                if one["arg"] > 100 and one["icount"] - one["arg"] >= held["icount"]:
                    found.append(int(one["icount"]) - int(one["arg"]) // 2)
        return found

    def in_slices(self) -> list[int]:
        log = self.log[np.isin(self.log["what"], [int(what) for what in _SLICES])]
        longest = log[np.argsort(-log["arg"].astype(np.int64), kind="stable")][:40]
        return [int(one["icount"]) - int(one["arg"]) // 2 for one in longest]

    def before_engines(self) -> list[int]:
        """Where the device's engines are due in a moment."""
        log = self.log
        at = np.flatnonzero(log["what"] == int(What.ENGINE))
        return [
            int(log["icount"][n]) - 1 for n in at[at > 0]
            if log["icount"][n] - log["icount"][n - 1] > 20
        ]  # fmt: skip

    def behind_engines(self) -> list[int]:
        """Where they have just stepped, and are to do so again soon."""
        log = self.log
        engines = log[log["what"] == int(What.ENGINE)]
        gaps = np.diff(engines["icount"].astype(np.int64))
        return [int(engines["icount"][n]) + 1 for n in np.flatnonzero((gaps > 20) & (gaps < 4000))]


def some(places: list[int]) -> list[int]:
    """Spread over all of them."""
    return [places[len(places) * n // TRIES] for n in range(min(TRIES, len(places)))]


@pytest.mark.timeout(900)
def test_saved_within_an_example_it_goes_on_as_if_it_had_not(
    target: ExactTarget, tmp_path: Path
) -> None:
    """In a hold, in a slice, with an engine about to step; to the hash of each page."""
    for index in range(PROGRAMS):
        example = Example(target, index, tmp_path)
        kinds = (example.in_holds(), example.in_slices(), example.before_engines())
        for kind, places in enumerate(kinds):
            for place in some(places):
                found = example.restored(example.stand(place))
                if found is not None:
                    assert difference(example.expected, found) == (), (index, kind, place)
                    break
            else:
                raise AssertionError(f"program {index} cannot be saved at any of {places}")


def test_where_an_engine_works_it_is_refused_and_nothing_is_changed(
    target: ExactTarget, tmp_path: Path
) -> None:
    example = Example(target, 1, tmp_path)
    for place in some(example.behind_engines()):
        machine = example.stand(place)
        refused = example.restored(machine) is None
        # Saving changes nothing either.
        assert difference(example.expected, example.finish(machine, "")) == ()
        if refused:
            return
    raise AssertionError("engines never stand in a slice")


def test_a_schedule_that_is_none_is_refused(target: ExactTarget, tmp_path: Path) -> None:
    example = Example(target, 0, tmp_path)
    for place in some(example.in_slices()):
        machine = example.stand(place)
        state = example.saved(machine)
        if state is not None:
            break
    else:
        raise AssertionError("it cannot be saved")
    data = state.read_bytes()
    words = b"seed=0 slice="
    assert data.count(words) == 1
    assert PART in data
    state.write_bytes(data.replace(words, b"seat=0 slice="))
    with (
        pytest.raises(VmError, match="'seat=0' is no word of it"),
        Machine(machine.spec, state=state, greet=False),
    ):
        pass


def test_at_rest_nothing_of_a_schedule_is_saved(target: ExactTarget, tmp_path: Path) -> None:
    target.renew()
    machine = target.vm
    assert machine.exact.state()["decisions"] > 0
    machine.save(tmp_path / "state")
    assert PART not in (tmp_path / "state").read_bytes()
    with Machine(machine.spec, state=tmp_path / "state") as copy:
        assert copy.hello
