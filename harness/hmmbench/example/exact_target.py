# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs on exact machines: snapshot, chain, program and schedule make one execution.

A machine is kept from example to example; what ran in it since it was restored is the chain that
the next execution depends on.  `renew` begins a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from hmmbench.device.injection import waits_ms
from hmmbench.example.delays import parse as parse_points
from hmmbench.example.recipe import Environment
from hmmbench.example.seen import Looker
from hmmbench.example.target import Execution
from hmmbench.example.vm_target import ALL_VRAM, STILL_S, VmTarget, asked, limit_s, unfit
from hmmbench.guest import example, splat
from hmmbench.guest.program import BUSY_TIMES, Program
from hmmbench.model.ops import takes_ms
from hmmbench.oracle.violation import Violation
from hmmbench.symbols.named import Names
from hmmbench.vm import decisions
from hmmbench.vm.agent import answered
from hmmbench.vm.channel import protocol
from hmmbench.vm.decisions import Pages, Record, pages
from hmmbench.vm.errors import AgentTimeout, QmpFailure, VmDied, VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.mailbox import layout
from hmmbench.vm.standing import HOST_S

T = TypeVar("T")

#: Virtual milliseconds that a program has beside what its operations, and rules, let it wait; one
#: that has to do with a device that misbehaves; and one that waits at delay points, or in which all
#: are held again and again.  What repeats a fault for ever executes all of that.  Of 1,800 examples
#: of a sound driver, no crowds among them, none took more than 300, 520 and 8,600 (docs/exact.md),
#: and what works at the end of its time has six times that.
TIMEOUT_MS, INJECTED_TIMEOUT_MS, DELAYED_TIMEOUT_MS = 1000, 2000, 5000

#: Virtual seconds beyond the program's own limits, at most.
GRACE_S = 6.0


@dataclass
class Print:
    """What identifies an execution, to the last bit.

    hash     -- of the decisions and of where the CPUs were at each
    answer   -- the guest's answer, byte for byte, with its times
    counters -- the device's
    console  -- what the kernel printed
    memory   -- a hash of each page, if it was asked for
    state    -- of the scheduler: virtual time, instructions, holds
    wrong    -- what the machine itself said: hangs, reports, death
    """

    hash: int = 0
    answer: bytes = b""
    counters: dict[str, int] = field(default_factory=dict)
    console: str = ""
    memory: Pages | None = None
    state: dict[str, int] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()


class ExactTarget(VmTarget):
    """As VmTarget, for machines whose MachineSpec.exact is set.

    points -- addresses at which schedules may hold a CPU
    take   -- take a Print of each execution, with hashes of all pages if memory is set
    names  -- of places in this guest, for people
    looker -- tells of each execution what it has Seen (None: nobody does)
    """

    def __init__(
        self,
        opener: Callable[[], Machine],
        lost: Callable[[Machine, str], None] = lambda vm, summary: None,
        leaving: Callable[[Machine], None] = lambda vm: None,
        explain: Callable[[str], str] = lambda text: text,
        points: tuple[int, ...] = (),
        take: bool = False,
        memory: bool = False,
        names: Names | None = None,
        looker: Looker | None = None,
    ) -> None:
        super().__init__(opener, lost, leaving, explain)
        self.points = points
        self.names = names
        self._looker = looker
        self._take = take
        self._memory = memory
        self._delayed = False
        #: what this machine ran since it was fresh
        self._ran: list[tuple[Program, Environment]] = []
        #: the driver's counters, as the latest example answered them
        self._driver = ""
        #: what the kernel printed in the latest execution
        self._printed = ""
        #: of the latest execution, if `take`
        self.print = Print()
        #: called when the operations of an example have ended and its processes still live
        self.ended: Callable[[Machine], None] = lambda vm: None

    @property
    def vm(self) -> Machine:
        before = self._vm
        vm = super().vm
        if vm is not before:
            self._ran = []
            self._delayed = bool(vm.hello.get("delays", True))
            if self.points:
                vm.exact.points(self.points)
        return vm

    def close(self) -> None:
        # Who does not stand (given up, or ended) cannot be asked for anything.
        self._busy |= self._vm is not None and not self._vm.standing
        super().close()

    @property
    def excused(self) -> bool:
        """Whether the latest execution printed reports that are none."""
        return splat.excused(self._printed) > 0

    def execute(self, program: Program, environment: Environment) -> Execution:
        """As VmTarget.execute(); in a fresh machine after a lost one, its chain runs first."""
        chain = [] if self._vm is None or self._last_tainted else list(self._ran)
        wanted = [(program, environment)]
        while True:
            try:
                for one in wanted:
                    done = self._execute(*one)
                    self._ran.append(one)
                return done
            except VmDied as error:
                self._qemu_ended(error)
                wanted = [*chain, (program, environment)]

    def _surround_device(self, vm: Machine, wanted: Environment) -> None:
        # For each execution anew: rules that count have counted, and random ones have moved on.
        vm.gpu.inject(wanted.inject)
        if wanted.audit != self._set.audit:
            vm.gpu.set_audit(wanted.audit)
        self._clear_violations(vm)
        self._set = wanted
        vm.exact.schedule(wanted.schedule)

    def _execute(self, program: Program, environment: Environment) -> Execution:
        vm = self.vm
        program = limited(program, environment)
        done = Execution(program, inject=environment.inject)
        self._busy = True
        # Not that of the example before, if no answer comes.
        self.print = Print()
        splats, text = [], ""
        try:
            self._surround_device(vm, environment)
            if self._looker is not None:
                self._looker.begin(vm, self._driver)
            self._post(vm, program, environment)
            answer = self.answer(vm, program, environment)
            result = done.result = answer.result
            self._driver = answer.counters
            if self._looker is not None:
                record = self.record()
                log = None if record is None else record.log
                done.seen = self._looker.end(vm, self._driver, log)
            if result.live_nonzero and not result.counters_after:
                result.counters_after = answer.counters
            done.tainted = unfit(program, result)
            done.violations += self._checked(vm, done)
            if environment.delays:
                done.points = parse_points(answer.points)
            if "count=" in environment.schedule:
                done.met = frozenset(vm.exact.met())
            text = vm.printed_to(answer.mark)
            splats = splat.scan(text)
            if self._take:
                self._taken(vm, text)
            if self._unbound(vm, done, environment, program):
                splats += splat.scan(vm.printed())
        except AgentTimeout as error:
            if not vm.standing:
                raise _no_progress(vm) from error
            done.violations.append(Violation("progress", f"the guest hangs: {error.message}"))
            done.tainted = True
            text = vm.console.take()
            splats = splat.scan(text)
            if self._take and vm.standing:
                # At a limit of virtual time, which repeats as an answer does.
                self._taken(vm, text)
        except VmDied as error:
            text = vm.console.text()
            splats = splat.scan(text)
            self._dead(done, error, bool(splats))
        finally:
            self._busy = False
        self._printed = text
        for s in splats:
            done.violations.insert(0, Violation("kernel", s.title, details=self._explain(s.text)))
            done.tainted = True
        self.print.wrong = tuple(v.message for v in done.violations)
        self._last_tainted = done.tainted
        return done

    def answer(self, vm: Machine, program: Program, environment: Environment) -> example.Answer:
        """From where the machine stands in the example to its end; the device's own look at
        everything when its operations have ended.

        Also of one that was saved within the example and restored (Machine.save).
        """
        program = limited(program, environment)
        if self._go(vm, program) == layout().HM_STAND_ENDED:
            self._at_end(vm, environment)
            self.ended(vm)
            self._go(vm, program)
        answer, _, body = vm.take()
        body = answered(protocol().HB_MSG_EXAMPLE, answer, body)
        self.print.answer = body
        return example.Answer.decode(body, program)

    @classmethod
    def _go(cls, vm: Machine, program: Program) -> int:
        """To the next stand: why."""
        return cls._within(vm, program, lambda step: vm.go(HOST_S, step))

    @staticmethod
    def _within(vm: Machine, program: Program, go: Callable[[float], T]) -> T:
        """What `go` answers within the program's limits and a grace, short where they are; while
        the device works, which it does not where something hangs, within as many times that as
        the agent gives it."""
        limit, kill = limit_s(program), program.kill_ms / 1000
        grace, still = min(GRACE_S, max(limit, kill)), min(STILL_S, limit)
        spent, step, before = 0.0, limit + grace, {"": 0}
        while True:
            try:
                return go(step)
            except AgentTimeout:
                spent += step
                if not vm.standing or spent > BUSY_TIMES * limit + grace:
                    raise
                now = vm.gpu.counters()
                if now == before:
                    raise
                step, before = still, now

    def _post(self, vm: Machine, program: Program, environment: Environment) -> None:
        """Ask for it; the machine stands before it.  `program`: limited()."""
        delays = "\n".join(["clear", *environment.delays]) + "\n" if self._delayed else None
        vram = ALL_VRAM if environment.vram is None else environment.vram
        vm.post(
            protocol().HB_MSG_EXAMPLE,
            example.Example(
                program, delays, vram, points=bool(environment.delays), stand=True,
                watch_ms=environment.watch_ms if self.watches() else None,
            ).encode(),
        )

    @staticmethod
    def _at_end(vm: Machine, environment: Environment) -> None:
        if environment.audit != "off":
            vm.gpu.audit_full()

    def stop_at(
        self, program: Program, environment: Environment, instructions: Iterable[int]
    ) -> Iterator[Machine]:
        """Execute again, standing at each of these instructions (rising, of this example).

        Fewer than asked for if the example ends before.  The machine is of no use for another
        example afterwards: renew() is due.
        """
        vm = self.vm
        # It is ended without being asked anything.
        self._busy = True
        self._surround_device(vm, environment)
        self._post(vm, limited(program, environment), environment)
        for instruction in instructions:
            while not vm.go_to(instruction, HOST_S):
                if vm.mailbox.why != layout().HM_STAND_ENDED:
                    return
                self._at_end(vm, environment)
            yield vm

    def stop_where(
        self, program: Program, environment: Environment, tell: Callable[[Machine], None],
        at_rest: Callable[[Machine], bool] = lambda vm: False,
        here: Callable[[Machine], bool] = lambda vm: True, timed: bool = False,
    ) -> Machine | None:  # fmt: skip
        """Execute again until it stands where `tell` tells the machine to, or where `at_rest`
        says so of one whose operations have ended; None if it never does, within the limits of
        virtual time that a program has.  As stop_at().

        here  -- whether it is that place, or goes on to where `tell` tells it to again
        timed -- the place is a time
        """
        vm = self.vm
        self._busy = True
        self._surround_device(vm, environment)
        program = limited(program, environment)
        self._post(vm, program, environment)
        tell(vm)
        while True:
            try:
                by_us = (
                    vm.go_until(HOST_S) if timed
                    else self._within(vm, program, lambda step: vm.go_until(HOST_S, step))
                )  # fmt: skip
            except AgentTimeout as error:
                if not vm.standing:
                    raise _no_progress(vm) from error
                return None
            if by_us:
                if here(vm):
                    return vm
                tell(vm)
                continue
            if vm.mailbox.why != layout().HM_STAND_ENDED:
                return None
            self._at_end(vm, environment)
            if at_rest(vm):
                return vm

    def _taken(self, vm: Machine, console: str) -> None:
        out = self.print
        out.state = vm.exact.state()
        out.hash = out.state["hash"]
        out.counters = vm.gpu.counters()
        out.console = console
        if self._memory:
            path = vm.folder / "memory"
            vm.exact.write_memory(path)
            out.memory = pages(path)
            path.unlink()

    def _driver_text(self, vm: Machine) -> str:
        # Asking the guest would be one more request of the chain, at a time of the host's.
        return self._driver

    def _begin(self, vm: Machine) -> None:
        # Nothing has answered yet: what is here is of the driver before.
        self._driver = ""
        super()._begin(vm)

    def record(self) -> Record | None:
        """Of the latest execution; None if its machine did not survive it."""
        vm = self.left
        if vm is None:
            return None
        path = vm.folder / "decisions"
        try:
            vm.exact.write_log(path)
            return Record(vm.exact.state()["hash"], decisions.read(path))
        except (VmError, QmpFailure):
            return None
        finally:
            path.unlink(missing_ok=True)

    def write_log(self, path: Path) -> None:
        """The decisions of the latest execution, for decisions.read()."""
        if self._vm is not None:
            self._vm.exact.write_log(path)


def limited(program: Program, environment: Environment) -> Program:
    """As asked(), with the time that it has in an exact machine, if its own is longer."""
    program = asked(program, environment)
    limit = (
        DELAYED_TIMEOUT_MS if environment.delays or environment.crowded
        else INJECTED_TIMEOUT_MS if environment.inject
        else TIMEOUT_MS
    )  # fmt: skip
    limit += takes_ms(program) + waits_ms(environment.inject)
    return replace(program, timeout_ms=min(program.timeout_ms, limit))


def _no_progress(vm: Machine) -> VmError:
    """The error for a machine that the host's clock gave up; it stands then, if QEMU still can."""
    where = ""
    with suppress(VmError):
        vm.pause()
        state = vm.exact.state()
        where = f" (it is at {state['ns'] / 1e9:.6f} s and {state['icount']} instructions)"
    return VmError(
        f"an exact machine did not stand within {HOST_S:g} s of this host's time{where}",
        "This says nothing about the driver, whose hangs end at a limit of virtual time: hmmbench"
        " or QEMU stands still, or this host gives the machine no time.",
    )
