# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs on virtual machines with threads; what exact machines have in common with them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from hmmbench.base.errors import Cancelled, HmmbenchError
from hmmbench.example.delays import Point
from hmmbench.example.delays import parse as parse_points
from hmmbench.example.event import TimedEvent
from hmmbench.example.recipe import Environment
from hmmbench.example.seen import numbers
from hmmbench.example.target import Execution
from hmmbench.example.totals import Totals
from hmmbench.example.tracer import Tracer, page_events
from hmmbench.guest import splat
from hmmbench.guest.program import BUSY_TIMES, PF_COUNTERS, Program, Result
from hmmbench.model.ops.device import reloaded, takes_gpu
from hmmbench.oracle import (
    device,
    growth,
    leaks,
    mirror,
    misuse,
    progress,
    unload,
    unreferenced,
)
from hmmbench.oracle.violation import Violation
from hmmbench.vm.agent import AgentError
from hmmbench.vm.errors import AgentTimeout, VmDied, VmError
from hmmbench.vm.machine import Machine

#: How much longer than the program's own limit the host waits (seconds).
GRACE_S = 20.0

#: A device that counts nothing for so long (seconds) stands still.
STILL_S = 4.0

#: As the driver's limit: no limit.
ALL_VRAM = (1 << 64) - 1

#: Counters of the driver's that are evidence: what a pass says of migrations, and of storms of
#: faults and invalidations (oracle/excess.py), is read there.
EVIDENCE = ("pages_to_device", "pages_to_system", "dev_faults", "dev_invals")

#: How often the driver looks again by itself, in milliseconds.
WATCH = "/sys/module/hmm_gpu/parameters/watch_ms"

#: So many times QEMU may end by itself, or by somebody's signal, before that is an error.
LOST_MACHINES = 2


def _moving(vm: Machine, end: float) -> bool:
    """Whether a guest that has not answered may only be slow: its device works, and it is not yet
    `end`, by time.monotonic()."""
    before = vm.gpu.counters()
    time.sleep(STILL_S)
    return time.monotonic() < end and vm.gpu.counters() != before


def limit_s(program: Program) -> float:
    """Within which its guest answers, if all is well: each time that it runs."""
    runs = 1 + max(program.again, growth.LOOKS) if program.again else 1
    return runs * (program.timeout_ms + program.settle_ms) / 1000


def asked(program: Program, environment: Environment) -> Program:
    """What the guest is sent: with all that oracles want to know of its run."""
    return replace(program, again=environment.again, flags=program.flags | PF_COUNTERS)


def unfit(program: Program, result: Result) -> bool:
    """Whether what is left in the machine would be taken for another example's doing."""
    return any((progress.check(program, result), leaks.check(result), growth.check(result)))


class VmTarget:
    """A virtual machine, replaced by a fresh copy when something in it may be broken.

    opener  -- gives entered machines (restored from a snapshot); close() ends the last one
    lost    -- called with a machine whose QEMU ended, and how, before it is replaced
    leaving -- called with a machine before it is ended, unless an example is in it
    explain -- what a report of the kernel's goes through before people see it
    """

    def __init__(
        self,
        opener: Callable[[], Machine],
        lost: Callable[[Machine, str], None] = lambda vm, summary: None,
        leaving: Callable[[Machine], None] = lambda vm: None,
        explain: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._opener = opener
        self._lost = lost
        self._leaving = leaving
        self._explain = explain
        self._vm: Machine | None = None
        self._over = threading.Event()
        self._set = Environment()
        self._last_tainted = False
        self._busy = False
        self._base: dict[str, int] = {}
        self._tracer: Tracer | None = None
        self._audited = mirror.Audit()
        self.totals = Totals()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the machine, after taking its counters."""
        vm, self._vm = self._vm, None
        if vm is not None:
            # Not in the middle of an example (an interrupt): the agent is not listening.
            if not self._busy:
                with contextlib.suppress(Exception):
                    try:
                        self._count(vm)
                        self._scan(vm)
                    except VmDied as error:
                        self._died_idle(vm, error)
                with contextlib.suppress(VmError):
                    self._leaving(vm)
            vm.close()
        self._set = Environment()
        self._audited = mirror.Audit()
        self._last_tainted = False

    @property
    def vm(self) -> Machine:
        """The machine in use, started if there is none.  Raises Cancelled after end()."""
        if self._last_tainted:
            self.close()
        self._go_on()
        if self._vm is None:
            vm = self._vm = self._opened()
            # end() may have come meanwhile, and found no machine.
            self._go_on()
            self.totals.machines += 1
            self._begin(vm)
        return self._vm

    def _opened(self) -> Machine:
        """A fresh machine.  Raises VmError if it cannot be had; a crash of QEMU is noted, too, and
        what was ended from outside is tried again, as in execute()."""
        while True:
            try:
                return self._opener()
            except VmDied as error:
                self._go_on()
                if not error.signalled or self._crashed(error):
                    raise
                self.totals.lost += 1
                if self.totals.lost > LOST_MACHINES:
                    raise

    def _crashed(self, error: VmDied) -> bool:
        """Whether QEMU broke while its machine was started, which is noted: no example shows it."""
        found = device.check(error)
        if found is not None:
            message = f"{found.message} while a machine was started"
            self.totals.ends.append(replace(found, message=message))
        return found is not None

    def _died_idle(self, vm: Machine, error: VmDied) -> None:
        """Judge the end of a machine in which nothing ran, if no example has told of it."""
        if self._last_tainted:
            return
        if found := device.died(error):
            message = f"{found.message} after an example had ended"
            self.totals.ends.append(replace(found, message=message))
        else:
            self.totals.lost += 1
        self._lost(vm, error.summary)

    def _scan(self, vm: Machine) -> None:
        """What a debug kernel finds that nobody knows any more, once a machine: whichever of its
        examples left it there."""
        if vm.hello.get("kmemleak") and not self._last_tainted and not self._over.is_set():
            try:
                found = unreferenced.check(vm)
            except AgentError:
                # It switches itself off where it has no memory for what it notes.
                self.totals.unscanned += 1
                return
            self.totals.scans += 1
            if found is not None:
                self.totals.ends.append(replace(found, details=self._explain(found.details)))

    def _go_on(self) -> None:
        if self._over.is_set():
            self.close()
            raise Cancelled("the work was stopped")

    def end(self) -> None:
        """End the machine now, and start no other; from any thread."""
        self._over.set()
        self.close()

    @property
    def left(self) -> Machine | None:
        """The machine as the latest execution left it, tainted or not; None if it has ended."""
        return self._vm if self._vm is not None and self._vm.reachable else None

    def renew(self) -> None:
        """Continue in a fresh copy."""
        self.close()

    def has_driver(self) -> bool:
        """Whether the guest has a GPU that somebody drives."""
        return self._driven(self.vm)

    @staticmethod
    def _driven(vm: Machine) -> bool:
        return bool(vm.hello.get("driver", True))

    def delay_points(self) -> list[str]:
        """Names of the driver's delay points."""
        return [point.name for point in self._points(self.vm)]

    def watches(self) -> bool:
        """Whether the driver can be told to look again for what was lost."""
        return bool(self.vm.hello.get("watch"))

    def _points(self, vm: Machine) -> list[Point]:
        return parse_points(vm.agent.read_file(self._debugfs() + "/delays").decode())

    def _debugfs(self) -> str:
        return str(self.vm.hello.get("debugfs", "/sys/kernel/debug/dri/0"))

    def _surround(self, wanted: Environment) -> None:
        if wanted == self._set and not wanted.counted:
            return
        vm = self.vm
        if wanted.delays != self._set.delays or wanted.counted:
            text = "\n".join(["clear", *wanted.delays]) + "\n"
            vm.agent.write_file(self._debugfs() + "/delays", text.encode(), mode=0)
        if wanted.inject != self._set.inject or wanted.counted:
            vm.gpu.inject(wanted.inject)
        if wanted.watch_ms != self._set.watch_ms and self.watches():
            vm.agent.write_file(WATCH, str(wanted.watch_ms).encode(), mode=0)
        if wanted.vram != self._set.vram:
            pages = ALL_VRAM if wanted.vram is None else wanted.vram
            vm.agent.write_file(self._debugfs() + "/vram_limit", str(pages).encode(), mode=0)
        if wanted.audit != self._set.audit:
            vm.gpu.set_audit(wanted.audit)
            self._clear_violations(vm)
        self._set = wanted

    def execute(self, program: Program, environment: Environment) -> Execution:
        """Raises VmError if the machine cannot be had.  Its own death is a violation, and a crash
        of QEMU.

        Of a QEMU that was ended otherwise nothing is known.  The example is run again in a fresh
        machine, up to LOST_MACHINES times in the life of this target.
        """
        while True:
            try:
                return self._execute(program, environment)
            except VmDied as error:
                self._qemu_ended(error)

    def _qemu_ended(self, error: VmDied) -> None:
        """Keep what is left of the machine, that a fresh one may follow.  Raises the error if none
        may."""
        if self._vm is None or self._over.is_set():
            # Not lost: another thread has closed it, and wants no other (an interrupt).
            raise error
        self._lost(self._vm, error.summary)
        self._busy = False
        self._last_tainted = True
        if self._crashed(error):
            raise error
        self.totals.lost += 1
        if self.totals.lost > LOST_MACHINES:
            raise error

    def _execute(self, program: Program, environment: Environment) -> Execution:
        vm = self.vm
        program = asked(program, environment)
        done = Execution(program, inject=environment.inject)
        self._busy = True
        try:
            self._surround(environment)
            limit = limit_s(program)
            moving = partial(_moving, vm, time.monotonic() + BUSY_TIMES * limit + GRACE_S)
            answer = vm.agent.program(program.encode(), limit + GRACE_S, moving)
            result = done.result = Result.decode(answer, program)
            if takes_gpu(program):
                self._find(vm)
            if result.live_nonzero and not result.counters_after:
                result.counters_after = self._driver_counters(vm)
            done.tainted = unfit(program, result)
            done.violations += self._checked(vm, done)
            if environment.delays:
                done.points = self._points(vm)
            if self._unbound(vm, done, environment, program):
                self._find(vm)
            splats = splat.scan(vm.printed())
        except AgentTimeout as error:
            done.violations.append(Violation("progress", f"the guest hangs: {error.message}"))
            done.tainted = True
            splats = splat.scan(vm.console.take())
        except VmDied as error:
            # How much of the console was taken before does not matter: it is over.
            splats = splat.scan(vm.console.text())
            self._dead(done, error, bool(splats))
        finally:
            self._busy = False
        for s in splats:
            done.violations.insert(0, Violation("kernel", s.title, details=self._explain(s.text)))
            done.tainted = True
        self._last_tainted = done.tainted
        return done

    @staticmethod
    def _dead(done: Execution, error: VmDied, said: bool) -> None:
        """What the end of a machine says; `said`: its kernel has reported something.  Raises the
        error if that is nothing."""
        found = device.died(error)
        if found is None and not said:
            raise error
        # What the kernel has said is what it died of.
        if found is not None and not (said and found.oracle == "kernel"):
            done.violations.append(found)
        done.tainted = True

    @staticmethod
    def _find(vm: Machine) -> None:
        """Where the driver's files are by now: the device may have another number."""
        found = vm.agent.execute("ls -d /sys/kernel/debug/dri/*/evict").output.split()
        if found:
            vm.hello["debugfs"] = found[0].removesuffix("/evict")

    def _unbound(
        self, vm: Machine, done: Execution, environment: Environment, program: Program
    ) -> bool:
        """Unbinds the driver and binds it again, if that is asked for, or if the program has taken
        the device away: what is left then may be of a device that is gone, and the device's number
        is another one as long as somebody has that open.  Whether it did."""
        away = takes_gpu(program)
        if not (environment.rebind or away) or done.tainted:
            return False
        self._rebind(vm, done, program.settle_ms / 1000)
        # Its module lies elsewhere than the machine's names and points say.
        done.tainted |= reloaded(program, done.result)
        return True

    def _rebind(self, vm: Machine, done: Execution, settle_s: float) -> None:
        # Driver and device count from zero afterwards.
        self._count(vm)
        left = unload.check(vm, settle_s)
        # The limit is the driver's, and ended with its hold of the device.
        self._set = replace(self._set, vram=None)
        if left is None:
            self._begin(vm)
        else:
            done.violations.append(left)
            done.tainted = True

    def _checked(self, vm: Machine, done: Execution) -> list[Violation]:
        """What the device's checks found since the example before."""
        seen = mirror.read(vm.gpu.violations())
        self.totals.audit_checks += max(0, seen.checks - self._audited.checks)
        self.totals.audit_undecided += max(0, seen.undecided - self._audited.undecided)
        self.totals.unlooked += Counter(seen.unlooked) - Counter(self._audited.unlooked)
        self._audited = seen
        self.totals.unready += self._set.audit != "off" and not seen.ready
        if self._set.audit == "off" or not seen.ready:
            done.unseen |= {"mirror"}
        wrong = mirror.check(seen)
        if seen.total:
            self._clear_violations(vm)
        return ([wrong] if wrong is not None else []) + misuse.check(seen.protocol)

    def _clear_violations(self, vm: Machine) -> None:
        # The number of comparisons goes on.
        vm.gpu.clear_violations()
        self._audited = mirror.Audit(checks=self._audited.checks)

    def keep(self, folder: Path) -> None:
        if self._vm is not None:
            self._vm.keep(folder)

    def watch(self) -> None:
        self._tracer = Tracer(self.vm)
        self._tracer.start()

    def watched(self) -> list[TimedEvent]:
        if self._tracer is None:
            return []
        try:
            return page_events(self._tracer.driver())
        except (VmError, HmmbenchError):
            # The execution has ended the machine; the report does without.
            return []

    @staticmethod
    def _driver_counters(vm: Machine) -> str:
        folder = str(vm.hello.get("debugfs", "/sys/kernel/debug/dri/0"))
        return vm.agent.read_file(folder + "/counters").decode()

    def _driver_text(self, vm: Machine) -> str:
        return self._driver_counters(vm) if self._driven(vm) else ""

    def _counters(self, vm: Machine) -> tuple[dict[str, int], dict[str, int]]:
        """Those that the driver tells, and all."""
        device = vm.gpu.counters()
        own = numbers(self._driver_text(vm))
        return own, own | {f"dev_{n}": v for n, v in device.items()}

    def _begin(self, vm: Machine) -> None:
        """Counts begin at what a driver that was just loaded has."""
        _, self._base = self._counters(vm)

    def _count(self, vm: Machine) -> None:
        own, now = self._counters(vm)
        # Who counts less than before has begun anew: the device was taken away.
        before = {n: b for n, b in self._base.items() if b <= now.get(n, 0)}
        delta = {n: v - before.get(n, 0) for n, v in now.items()}
        # An exact machine has none of the driver's before its first example.
        if own:
            self.totals.missing.update(n for n in EVIDENCE if n not in own)
        self._base = now
        self.totals.counts.update(delta)
        self.totals.faults += delta.get("dev_faults", 0)
        self.totals.replays += delta.get("dev_replays", 0)
        self.totals.to_device += delta.get("pages_to_device", 0)
        self.totals.to_system += delta.get("pages_to_system", 0)

    def sample(self) -> Totals:
        """Totals up to now, for the progress display."""
        if self._vm is not None and not self._last_tainted:
            self._count(self._vm)
        return self.totals
