# SPDX-License-Identifier: GPL-2.0-or-later
"""Targets of exact machines whose QEMU ends, or never stands: what is run again, what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from fake import device_says

from hmmbench.base.errors import Cancelled
from hmmbench.example.exact_target import (
    DELAYED_TIMEOUT_MS,
    INJECTED_TIMEOUT_MS,
    TIMEOUT_MS,
    ExactTarget,
    limited,
)
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Execution
from hmmbench.example.vm_target import LOST_MACHINES, VmTarget
from hmmbench.guest.program import Op, OpResult, Program, Result
from hmmbench.model.ops.device import Away, TakeGpu
from hmmbench.model.ops.processes import Nop, Sleep
from hmmbench.oracle import unload
from hmmbench.report.filling import conclude, fill
from hmmbench.report.result import Report
from hmmbench.report.tally import Tally
from hmmbench.vm.agent import AgentError
from hmmbench.vm.errors import AgentTimeout, VmDied, VmError
from hmmbench.vm.machine import Machine


class Box:
    """As much of a machine as a target asks for when nothing runs in it."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.hello: dict[str, object] = {}
        self.standing = True
        self.paused = False
        self.exact = self

    gpu = property(lambda self: self)

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        """Nothing to end."""

    def state(self) -> dict[str, int]:
        assert self.standing, "it runs"
        return {"ns": 1_500_000, "icount": 77}

    def pause(self) -> None:
        self.standing = self.paused = True

    def go(self, timeout: float, limit_s: float) -> int:
        self.standing = False
        raise AgentTimeout("the guest did not come to a stand within 600 s")

    def __getattr__(self, name: str) -> Any:
        return lambda *words: None


class Says(Box):
    """Its device says these things, one after another."""

    agent = property(lambda self: self)

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.said = said

    def read_file(self, path: str) -> bytes:
        return b""

    def violations(self) -> str:
        return self.said.pop(0)


def numbered(n: int) -> Program:
    return Program([Op(Nop.number)] * n, (24, 600, 0, 0))


class Dies(ExactTarget):
    """Each program's number goes to its machine; QEMU ends at some, so often."""

    def __init__(self, times: dict[int, int]) -> None:
        self.boxes: list[Box] = []
        self.told: list[str] = []
        self.times = dict(times)
        super().__init__(self._open, lambda vm, summary: self.told.append(summary))

    def _open(self) -> Machine:
        self.boxes.append(Box())
        return cast(Machine, self.boxes[-1])

    def _execute(self, program: Program, environment: Environment) -> Execution:
        box, n = cast(Box, self.vm), len(program.ops)
        box.ran.append(n)
        if self.times.get(n, 0):
            self.times[n] -= 1
            raise VmDied("QEMU was ended by signal 9", exit_status=-9)
        done = Execution(program, tainted=n == 9)
        self._last_tainted = done.tainted
        return done


class Counts(Dies):
    """Its driver has moved five pages when an example has ended, in each fresh machine."""

    def _execute(self, program: Program, environment: Environment) -> Execution:
        done = super()._execute(program, environment)
        self._driver = "pages_to_device 5\n"
        return done


def test_what_the_drivers_of_fresh_machines_counted_adds_up() -> None:
    target = Counts({})
    for _ in range(3):
        target.execute(numbered(1), Environment())
        target.close()
    assert len(target.boxes) == 3
    assert target.totals.to_device == 15


def test_what_drivers_of_one_machine_counted_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded again between two examples, and counts from zero."""
    monkeypatch.setattr(unload, "check", lambda vm, settle_s: None)
    target = Counts({})
    done = target.execute(numbered(1), Environment())
    target._rebind(target.vm, done, 0.0)
    target.execute(numbered(1), Environment())
    target.close()
    assert len(target.boxes) == 1
    assert target.totals.to_device == 10


def test_what_ran_before_runs_first_when_qemu_has_died() -> None:
    """Else the example would be another execution than its chain says."""
    target = Dies({4: 1})
    for n in (1, 2, 3):
        target.execute(numbered(n), Environment())
    target.renew()
    for n in (1, 2, 4, 5):
        target.execute(numbered(n), Environment())
    assert [box.ran for box in target.boxes] == [[1, 2, 3], [1, 2, 4], [1, 2, 4, 5]]
    assert target.told == ["QEMU was ended by signal 9"]


def test_it_may_die_again_within_the_chain() -> None:
    target = Dies({3: 1, 2: 0})
    target.execute(numbered(1), Environment())
    target.execute(numbered(2), Environment())
    target.times[2] = 1
    target.execute(numbered(3), Environment())
    assert [box.ran for box in target.boxes] == [[1, 2, 3], [1, 2], [1, 2, 3]]


def test_a_machine_that_was_given_up_has_no_chain() -> None:
    """After what taints a machine the next example begins a fresh one."""
    target = Dies({2: 1})
    for n in (1, 9, 2):
        target.execute(numbered(n), Environment())
    assert [box.ran for box in target.boxes] == [[1, 9], [2], [2]]


def test_what_dies_each_time_is_an_error() -> None:
    target = Dies({3: 99})
    target.execute(numbered(1), Environment())
    with pytest.raises(VmDied):
        target.execute(numbered(3), Environment())
    assert [box.ran for box in target.boxes] == [[1, 3]] * (LOST_MACHINES + 1)


class Faults(Says):
    """Its device has counted so many faults, each time it is asked."""

    def __init__(self, seen: list[int]) -> None:
        super().__init__([])
        self.seen = seen

    def counters(self) -> dict[str, int]:
        return {"faults": self.seen.pop(0)}


class Unscanned(Says):
    """Its kernel has kmemleak, which has switched itself off."""

    def __init__(self) -> None:
        super().__init__([])
        self.hello = {"kmemleak": True}
        self.asked = 0

    def check(self, script: str, seconds: float) -> str:
        self.asked += 1
        raise AgentError("echo: write error: Operation not permitted")


def test_a_scan_that_cannot_be_made_is_told_of() -> None:
    target = VmTarget(lambda: cast(Machine, Unscanned()))
    assert target.vm
    target.close()
    assert (target.totals.scans, target.totals.unscanned) == (0, 1)
    # Nor is one made when somebody has interrupted the run.
    box = cast(Unscanned, target.vm)
    target.end()
    assert not box.asked


def test_who_counts_less_than_before_has_begun_anew() -> None:
    """As a device does that was taken away within a program."""
    target = VmTarget(lambda: cast(Machine, Faults([5, 9, 3, 4])))
    assert target.vm
    assert [target.sample().faults for _ in range(3)] == [4, 7, 8]


def test_a_device_that_was_taken_away_is_unbound_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that its number is what it was; and a module that lies elsewhere is of no use."""
    unbound: list[int] = []
    monkeypatch.setattr(VmTarget, "_rebind", lambda *all_: unbound.append(1))
    target = VmTarget(lambda: cast(Machine, Says([])))

    def after(op: Op, went: int = 0, rebind: bool = False, tainted: bool = False) -> Execution:
        program = Program([op])
        done = Execution(program, Result([OpResult(aux0=went)]), tainted=tainted)
        target._unbound(target.vm, done, Environment(rebind=rebind), program)
        return done

    assert not after(Op(Nop.number)).tainted
    assert not unbound
    after(Op(Nop.number), rebind=True)
    assert len(unbound) == 1
    assert not after(Op(TakeGpu.number, arg=int(Away.UNBIND))).tainted
    assert not after(Op(TakeGpu.number, arg=int(Away.RELOAD))).tainted
    assert after(Op(TakeGpu.number, arg=int(Away.RELOAD)), went=1).tainted
    assert len(unbound) == 4
    after(Op(TakeGpu.number), tainted=True)
    assert len(unbound) == 4


def test_what_a_check_did_not_look_at_is_counted_once() -> None:
    """The device counts until its violations are cleared, which is when there are any."""
    wrong: dict[str, object] = {"check": "ring-misuse", "address": 0, "asid": 1, "a": 2, "b": 3}
    said = [
        device_says(unlooked={"copy-overlap": 2}), device_says(unlooked={"copy-overlap": 2}),
        device_says(wrong, unlooked={"copy-overlap": 3, "table-freed-used": 1}),
        device_says(unlooked={"copy-overlap": 4}),
    ]  # fmt: skip

    target = VmTarget(lambda: cast(Machine, Says(said)))
    for _ in range(4):
        target._checked(target.vm, Execution(numbered(1)))
    assert target.totals.unlooked == {"copy-overlap": 7, "table-freed-used": 1}
    report = Report()
    fill(report, Tally(), target.totals)
    assert report.unlooked == dict(target.totals.unlooked)


@pytest.mark.parametrize("kind", [ExactTarget, VmTarget])
def test_what_was_compared_is_counted_once(kind: type[VmTarget]) -> None:
    """The device's number goes on when its violations are cleared."""
    said = [
        device_says(checks=100, undecided=3), device_says(checks=150, undecided=2),
        device_says(checks=150),
    ]  # fmt: skip

    target = kind(lambda: cast(Machine, Says(said)))
    for audit in ("access", "fill", "access"):
        if isinstance(target, ExactTarget):
            target._surround_device(target.vm, Environment(audit=audit))
        else:
            target._surround(Environment(audit=audit))
        target._checked(target.vm, Execution(numbered(1)))
    assert (target.totals.audit_checks, target.totals.audit_undecided) == (150, 5)


@pytest.mark.parametrize("kind", [ExactTarget, VmTarget])
@pytest.mark.parametrize(
    ("status", "crash"), [(-11, "SIGSEGV"), (-6, "SIGABRT"), (-9, ""), (1, "")]
)
def test_a_crash_of_qemu_is_a_finding(kind: type[VmTarget], status: int, crash: str) -> None:
    """What ends it from outside is none: the example is run again, and the loss is counted."""

    class Broken(Box):
        console = agent = property(lambda self: self)

        def text(self) -> str:
            return ""

        def read_file(self, path: str) -> bytes:
            return b""

        def violations(self) -> str:
            return device_says()

        def program(self, *words: object) -> bytes:
            raise VmDied("QEMU ended", exit_status=status)

        go = program  # type: ignore[assignment]

    target = kind(lambda: cast(Machine, Broken()))
    if not crash:
        with pytest.raises(VmDied):
            target.execute(numbered(1), Environment())
        assert target.totals.lost == LOST_MACHINES + 1
        return
    done = target.execute(numbered(1), Environment())
    assert [(v.oracle, v.message) for v in done.violations] == [
        ("device", f"QEMU crashed ({crash})")
    ]
    assert done.tainted
    assert target.totals.lost == 0


#: Status of a QEMU that ended, and what that is.
ENDS = [(-11, "QEMU crashed (SIGSEGV)"), (-6, "QEMU crashed (SIGABRT)"), (-9, "")]


@pytest.mark.parametrize("kind", [ExactTarget, VmTarget])
@pytest.mark.parametrize(("status", "crash"), ENDS)
def test_a_crash_while_a_machine_is_restored_is_told(
    kind: type[VmTarget], status: int, crash: str
) -> None:
    """It ends the campaign; what ended QEMU from outside is tried again, and counted."""
    opened: list[int] = []

    def opens() -> Machine:
        opened.append(1)
        raise VmDied("QEMU ended", exit_status=status)

    target = kind(opens)
    with pytest.raises(VmDied):
        target.execute(numbered(1), Environment())
    report = Report()
    fill(report, Tally(), target.totals)
    if crash:
        assert [v["message"] for v in report.violations] == [f"{crash} while a machine was started"]
        assert (len(opened), report.machines_lost) == (1, 0)
    else:
        assert report.violations == []
        assert len(opened) == report.machines_lost == LOST_MACHINES + 1
    conclude(report)
    assert report.verdict == ("fail" if crash else "pass")


def test_a_machine_that_is_lost_while_it_is_restored_is_followed_by_another() -> None:
    boxes: list[Box | VmDied] = [VmDied("QEMU ended", exit_status=-9), Box()]

    def opens() -> Machine:
        box = boxes.pop(0)
        if isinstance(box, VmDied):
            raise box
        return cast(Machine, box)

    target = ExactTarget(opens)
    assert isinstance(target.vm, Box)
    assert (target.totals.lost, target.totals.machines, boxes) == (1, 1, [])


@pytest.mark.parametrize("kind", [ExactTarget, VmTarget])
@pytest.mark.parametrize(("status", "crash"), ENDS)
@pytest.mark.parametrize("tainted", [False, True])
def test_a_crash_after_the_last_answer_is_told(
    kind: type[VmTarget], status: int, crash: str, tainted: bool
) -> None:
    """But not once more if it is what an example has told of."""

    class Ends(Box):
        over = False
        agent = property(lambda self: self)

        def read_file(self, path: str) -> bytes:
            return b""

        def counters(self) -> dict[str, int]:
            if self.over:
                raise VmDied("QEMU ended", exit_status=status)
            return {}

    box, told = Ends(), list[str]()
    target = kind(lambda: cast(Machine, box), lambda vm, summary: told.append(summary))
    assert target.vm
    box.over, target._last_tainted = True, tainted
    target.close()
    told_of = [] if tainted or not crash else [f"{crash} after an example had ended"]
    assert [v.message for v in target.totals.ends] == told_of
    assert target.totals.lost == int(not tainted and not crash)
    assert told == ([] if tainted else ["QEMU ended"])


def test_a_crash_before_the_first_example_is_told_once() -> None:
    """The machine is there, and has not answered what its counters are."""

    class Ends(Box):
        def counters(self) -> dict[str, int]:
            raise VmDied("QEMU ended", exit_status=-11)

    told = list[str]()
    target = VmTarget(lambda: cast(Machine, Ends()), lambda vm, summary: told.append(summary))
    with pytest.raises(VmDied):
        target.execute(numbered(1), Environment())
    target.close()
    assert (len(target.totals.ends), target.totals.lost, len(told)) == (1, 0, 1)


def test_what_was_ended_opens_no_machine() -> None:
    """A worker may just be opening one, or be about to, when the campaign is interrupted."""
    closed: list[int] = []

    class Shut(Box):
        def close(self) -> None:
            closed.append(1)

    def opened() -> Machine:
        # The interrupt comes meanwhile.
        target.end()
        return cast(Machine, Shut())

    target = VmTarget(opened)
    for number in range(2):
        with pytest.raises(Cancelled):
            target.execute(numbered(1), Environment())
        assert closed == [1], f"attempt {number}"


def test_an_interrupt_asks_for_no_other_machine() -> None:
    class Closed(Dies):
        def _execute(self, program: Program, environment: Environment) -> Execution:
            assert self.vm is self._vm
            self.close()
            raise VmDied("QEMU ended", exit_status=-9)

    target = Closed({})
    with pytest.raises(VmDied):
        target.execute(numbered(1), Environment())
    assert (len(target.boxes), target.totals.lost, target.told) == (1, 0, [])


def test_the_hosts_clock_is_no_verdict_on_the_driver() -> None:
    box = Box()
    target = ExactTarget(lambda: cast(Machine, box))
    with pytest.raises(VmError, match=r"did not stand within 600 s of this host's time") as caught:
        target.execute(numbered(1), Environment())
    assert not isinstance(caught.value, (AgentTimeout, VmDied))
    assert "it is at 0.001500 s and 77 instructions" in caught.value.message
    assert box.paused


class Slow(Box):
    """Comes to no stand of its own within `needed` virtual seconds; its device counts so long."""

    def __init__(self, needed: float, works: float) -> None:
        super().__init__()
        self.needed, self.works, self.now = needed, works, 0.0

    gpu = property(lambda self: self)

    def counters(self) -> dict[str, int]:
        return {"accesses": int(min(self.now, self.works))}

    def go(self, timeout: float, limit_s: float) -> int:
        self.now += limit_s
        if self.now < self.needed:
            raise AgentTimeout(f"the guest did not answer within {limit_s:g} s of its own time")
        return 1


class Stopped(Box):
    """Comes to a place at these virtual seconds; counts nothing."""

    def __init__(self, *places: float) -> None:
        super().__init__()
        self.places, self.now, self.told = list(places), 0.0, 0

    @property
    def vm(self) -> Machine:
        return cast(Machine, self)

    def go_until(self, timeout: float, limit_s: float | None = None) -> bool:
        place = self.places[0] if self.places else 10**9
        if limit_s is None or self.now + limit_s > place:
            self.now = self.places.pop(0)
            return True
        self.now += limit_s
        raise AgentTimeout(f"it came to no such place within {limit_s:g} s of its own time")


def stop(box: Stopped, **words: Any) -> Machine | None:
    def tell(vm: Machine) -> None:
        box.told += 1

    return ExactTarget(lambda: box.vm).stop_where(numbered(1), Environment(), tell, **words)


def test_a_place_that_it_never_comes_to() -> None:
    """Ends with the limits of virtual time, not with the host's."""
    box = Stopped()
    assert stop(box) is None
    assert 5 < box.now < 60
    assert stop(Stopped(3.0)) is not None
    # A time is a limit itself.
    assert stop(Stopped(300.0), timed=True) is not None


def test_a_place_that_it_passes() -> None:
    box = Stopped(1.0, 2.0, 3.0)
    assert stop(box, here=lambda vm: box.now > 1.5) is not None
    assert (box.now, box.told) == (2.0, 2)
    box = Stopped(1.0, 2.0)
    assert stop(box, here=lambda vm: False) is None
    assert box.told == 3


def test_a_place_is_no_verdict_of_the_hosts_clock() -> None:
    class Runs(Stopped):
        def go_until(self, timeout: float, limit_s: float | None = None) -> bool:
            self.standing = False
            raise AgentTimeout("the guest did not come to a stand within 600 s")

    with pytest.raises(VmError, match=r"did not stand within 600 s of this host's time"):
        stop(Runs())


@pytest.mark.parametrize(
    ("needed", "works", "ends"),
    [
        (17, 0, True),  # within the limit
        (50, 60, True),  # slow, as a sanitised kernel is
        (50, 20, False),  # it worked, and stands still
        (50, 0, False),
        (10**6, 10**6, False),  # a livelock
    ],
)
def test_slow_is_no_hang(needed: float, works: float, ends: bool) -> None:
    box = Slow(needed, works)
    program = Program([], timeout_ms=10_000, settle_ms=2000)
    if ends:
        assert ExactTarget._go(cast(Machine, box), program) == 1
    else:
        with pytest.raises(AgentTimeout):
            ExactTarget._go(cast(Machine, box), program)
    assert box.now < 6 * 12 + 20


@pytest.mark.parametrize("works", [0.0, 0.2, 10**6])
@pytest.mark.parametrize("kill_ms", [1500, 60])
def test_who_has_little_time_is_not_waited_for_long(works: float, kill_ms: int) -> None:
    """A failure that hangs is made small under a limit of milliseconds; where an answer is not
    needed, the agent has no more time to kill it."""
    box = Slow(10**6, works)
    program = Program([], timeout_ms=60, settle_ms=60, kill_ms=kill_ms)
    with pytest.raises(AgentTimeout):
        ExactTarget._go(cast(Machine, box), program)
    assert box.now < kill_ms / 1000 + (6 + 3) * 0.12


def test_the_agent_has_time_to_kill_what_hangs() -> None:
    """It waits a second for it, and then says so; if nobody needs that, it has none."""
    short = Program([], timeout_ms=60, settle_ms=60)
    assert ExactTarget._go(cast(Machine, Slow(1.2, 0.0)), short) == 1
    with pytest.raises(AgentTimeout):
        ExactTarget._go(cast(Machine, Slow(1.2, 0.0)), replace(short, kill_ms=60))


@pytest.mark.parametrize(("environment", "limit"), [
    (Environment(schedule="seed=1", audit="fill", rebind=True, vram=0), TIMEOUT_MS),
    (Environment(inject=("mmu.walk delay=1000000",), vram=1), INJECTED_TIMEOUT_MS),
    (Environment(schedule="seed=1 point=4000:20:21 crowd=4 at=10"), DELAYED_TIMEOUT_MS),
    (Environment(delays=("fault_before_replay 3000 1000 25203",)), DELAYED_TIMEOUT_MS),
    (Environment(delays=("fault_before_replay 3000",), inject=("mmu.walk delay=1",)),
     DELAYED_TIMEOUT_MS),
])  # fmt: skip
def test_who_is_kept_from_outside_has_more_time(environment: Environment, limit: int) -> None:
    """A sound driver was accused: two delay points of 3 and 8 ms and 1 ms for each walk kept it
    for longer than the limit of an example that nothing keeps, and the device worked meanwhile."""
    assert limited(Program([Op(Nop.number)]), environment).timeout_ms == limit
    waits = [Op(Sleep.number, a=200_000), Op(Sleep.number, phase=1, a=50_000)]
    assert limited(Program(waits), environment).timeout_ms == limit + 250
    assert limited(Program(waits, timeout_ms=300), environment).timeout_ms == 300
