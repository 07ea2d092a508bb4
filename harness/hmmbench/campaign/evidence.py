# SPDX-License-Identifier: GPL-2.0-or-later
"""One more failing execution of a small recipe, for people to look at.

Machines with threads: after the operation that shows the failure a QUERY of each page it touched
is added: both page tables as driver and kernel see them, as near to the moment as the guest can
ask.  It comes after everything else, so it does not disturb what fails.

Exact machines are asked nothing, since that would be another execution.  The recipe's own program
is executed once more, as it is, while the machine keeps what it and its device do; and once more
up to the moment of the violation, where both page tables are read from outside.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hmmbench.campaign.fresh import Fresh
from hmmbench.campaign.pieces import ranges
from hmmbench.device import events as device_events
from hmmbench.example import moment as exact_moment
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.judge import judge
from hmmbench.example.moment import Clock
from hmmbench.example.portrait import Decided, PageEntry, Portrait
from hmmbench.example.recipe import Environment, Link
from hmmbench.example.target import Target
from hmmbench.guest.program import PAGE, REGION_BASE, RES_SKIPPED, Acc, Op, Program, Result
from hmmbench.model import ops, phrases
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Query
from hmmbench.model.space import REGION_SHIFT, Space, gp_of, place
from hmmbench.oracle.violation import Violation
from hmmbench.report import words
from hmmbench.symbols.named import Place
from hmmbench.vm import decisions
from hmmbench.vm.errors import VmError
from hmmbench.vm.gdb.server import gpu_of
from hmmbench.vm.machine import Machine

#: Pages that are asked for, at most.
PAGES = 24

#: What a machine says that cannot tell any more, or whose tables and logs are spoiled: a driver
#: that is wrong may have written them.  It must not cost what is known.
_UNSEEN = (VmError, ValueError, LookupError, AssertionError)


def portrait(
    target: Target, program: Program, environment: Environment, violation: Violation, looks: int
) -> Portrait | None:
    """Execute until it fails in the same oracle, at most `looks` times; None if it never does."""
    asked = with_queries(program, violation.op)
    for _ in range(looks):
        target.watch()
        execution = target.execute(asked, environment)
        same = [v for v in judge(execution).violations if v.key == violation.key]
        if same:
            result = execution.result
            pages = _entries(asked, result, len(program.ops))
            if result is not None:
                result = replace(result, ops=result.ops[: len(program.ops)])
            details = [d for v in same for d in v.details.splitlines()]
            return Portrait(
                program, result, same[0], environment, pages, details, target.watched()
            )
        if execution.tainted:
            target.renew()
    return None


def with_queries(program: Program, op: int) -> Program:
    """The program with a QUERY of each page that operation `op` touches, at its end.

    Only of a process that is still alive then, and of mapped pages.
    """
    if not 0 <= op < len(program.ops):
        return program
    space = Space(program.file_pages)
    for o in program.ops:
        ops.apply(space, o)
    o = program.ops[op]
    proc = space.procs.get(o.proc)
    if proc is None or not proc.alive:
        return program
    phase = max(x.phase for x in program.ops)
    extra = []
    for gp in touched(o)[:PAGES]:
        if proc.find(gp) is not None:
            phase += 1
            extra.append(
                Op(Query.number, o.proc, 0, phase, gp >> REGION_SHIFT, off=_offset(gp), len=PAGE)
            )
    return replace(program, ops=[*program.ops, *extra])


def touched(o: Op) -> list[int]:
    """The pages an operation names, in order."""
    if o.acc:
        return sorted({r << REGION_SHIFT | off >> 12 for k, r, _, off, _, _ in o.acc
                       if k != Acc.DELAY})  # fmt: skip
    if o.op == Mmap.number:
        return []
    named = list(ranges(o))
    return [page for first, end in named for page in range(first, end)[: PAGES // len(named)]]


def _offset(gp: int) -> int:
    return (gp & ((1 << REGION_SHIFT) - 1)) * PAGE


def _entries(program: Program, result: Result | None, first: int) -> list[PageEntry]:
    out = []
    for i, o in enumerate(program.ops[first:], first):
        r = None if result is None else result.ops[i]
        bits = None
        if r is not None and r.status != RES_SKIPPED and len(r.data) == 4:
            bits = struct.unpack("<I", r.data)[0]
        out.append(
            PageEntry(
                _where(f"process {o.proc}", gp_of(o.region, o.off)), words.cpu_entry(bits),
                words.gpu_entry(bits),
            )
        )  # fmt: skip
    return out


def _where(whose: str, page: int) -> str:
    return f"{whose}, {phrases.page_name(place(page))}"


# -- exact machines


def exact_portrait(
    target: Target, chain: Sequence[Link], program: Program, environment: Environment,
    violation: Violation,
) -> Portrait | None:  # fmt: skip
    """The failing execution as it is; None if it does not fail in the same oracle.

    The machine is a fresh one, and of no use for another example afterwards.
    """
    fresh = Fresh(target, chain)
    if not isinstance(target, ExactTarget):
        execution = fresh.execute(program, environment)
        found = next((v for v in judge(execution).violations if v.key == violation.key), None)
        return None if found is None else Portrait(program, execution.result, found, environment)
    fresh.prepare()
    watch = _Watch(target, program, violation)
    try:
        execution = target.execute(program, environment)
        same = [v for v in judge(execution).violations if v.key == violation.key]
        if not same:
            return None
        details = [d for v in same for d in v.details.splitlines()]
        out = Portrait(program, execution.result, same[0], environment, details=details)
        with contextlib.suppress(*_UNSEEN):
            # Kept before the moment is looked for, which may fail where this did not.
            seen = out.decided = watch.seen()
            out.pages, out.when = watch.pages, "when all operations had ended"
            watch.end()
            again = fresh.prepare if target.excused else None
            fresh.prepare()
            moment = exact_moment.stand_at(
                target, program, environment, same[0], result=execution.result,
                clock=watch.clock,
                reports=target.names.addresses(exact_moment.REPORTS) if target.names else (),
                again=again,
            )  # fmt: skip
            out.decided = replace(seen, moment=moment)
            if moment is not None and target.left is not None:
                pages = _walked(target.left, program, same[0])
                out.pages, out.when = pages, f"at the violation: {moment.what}"
        return out
    finally:
        # Whatever it ended with: nobody else's executions are looked at.
        watch.end()
        target.renew()


class _Watch:
    """Keeps what a machine does in its next execution, which does not notice."""

    def __init__(self, target: ExactTarget, program: Program, violation: Violation) -> None:
        self._target, self._program, self._violation = target, program, violation
        self.clock: Clock | None = None
        #: both page tables when all operations had ended
        self.pages: list[PageEntry] = []
        target.vm.gpu.keep_events()
        target.ended = self._ended

    def end(self) -> None:
        self._target.ended = lambda vm: None

    def _ended(self, vm: Machine) -> None:
        with contextlib.suppress(*_UNSEEN):
            self.clock = Clock.at_stand(vm)
            self.pages = _walked(vm, self._program, self._violation)

    def seen(self) -> Decided:
        """Raises VmError if the machine has ended."""
        vm = self._target.left
        if vm is None:
            raise VmError("the machine has ended with the execution")
        engines = vm.gpu.engines()
        with TemporaryDirectory(prefix="hmmbench-watch-") as folder:
            log, events = Path(folder, "log"), Path(folder, "events")
            vm.exact.write_log(log)
            vm.gpu.write_events(events)
            return Decided(
                decisions.read(log), device_events.read(events, engines), engines, self.clock,
                None, self._target.names or _numbers,
            )  # fmt: skip


def _numbers(addresses: Iterable[int], source: bool = True) -> Mapping[int, Place]:
    return {at: Place(f"{at:#x}") for at in addresses}


def concerned(program: Program, violation: Violation) -> list[int]:
    """The pages that a violation is about."""
    if 0 <= violation.op < len(program.ops):
        return touched(program.ops[violation.op])[:PAGES]
    return [violation.page] if violation.page >= 0 else []


def _walked(vm: Machine, program: Program, violation: Violation) -> list[PageEntry]:
    """Both page tables of these pages in each address space, read from outside."""
    pages = concerned(program, violation)
    if not pages:
        return []
    gpu = gpu_of(vm)
    spaces = list(gpu.address_spaces())
    out = []
    for asid, root in spaces:
        process = gpu.cpu_root(asid)
        for page in pages:
            address = REGION_BASE + page * PAGE
            cpu = "not known" if process is None else gpu.walk_cpu(process, address).meaning
            whose = f"address space {asid}" if len(spaces) > 1 else "the process"
            out.append(PageEntry(_where(whose, page), cpu, gpu.walk(root, address).meaning))
    return out
