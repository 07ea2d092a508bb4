# SPDX-License-Identifier: GPL-2.0-or-later
"""Do executions of exact machines repeat?  Programs of the campaign, several times each, compared.

Each execution is compared with the first of its program: decisions and where the CPUs were at
each, the guest's answer byte for byte, the device's counters, the console, and a hash of each page
of RAM and VRAM.  A chain is several programs in one machine, compared at each.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from hmmbench.base.processes import Children
from hmmbench.campaign.generate import lengths, program, size_of, version
from hmmbench.campaign.surroundings import INJECTED, VRAM_PAGES, VRAM_SHORT, scheduled
from hmmbench.device import injection
from hmmbench.example import schedules
from hmmbench.example.exact_target import ExactTarget, Print
from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.guest.program import Program
from hmmbench.oracle.violation import Violation
from hmmbench.vm import decisions
from hmmbench.vm.errors import VmError
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import exact_spec

#: CPUs of a machine, drawn by the first program of its chain.
CPUS = (1, 2, 4)


def nth(seed: int, index: int, grammar: int | None = None) -> Program:
    """A program from our own random bytes, which no library's version changes."""
    rng = random.Random(seed << 32 | index)
    steps = rng.randint(*lengths(version(grammar)))
    return program(rng.randbytes(size_of(steps)), seed, grammar)


def surroundings(
    seed: int, index: int, points: schedules.Points, kind: str = "mixed"
) -> Environment:
    """What a campaign on exact machines would put around it, but for unbinding the driver."""
    rng = random.Random(f"{seed} {index} surroundings")
    inject = (rng.choice(injection.RULES),) if rng.random() < INJECTED else ()
    vram = rng.choice(VRAM_PAGES) if rng.random() < VRAM_SHORT else None
    return scheduled(
        Environment((), inject, "access", False, vram), schedules.draw(kind, rng, points)
    )


@dataclass(frozen=True)
class Part:
    """Two executions that differ: what differs, and where they parted."""

    example: int
    execution: int
    differs: tuple[str, ...]
    where: str

    def __str__(self) -> str:
        return (
            f"example {self.example}, execution {self.execution}: {', '.join(self.differs)}"
            f" differ; {self.where}"
        )


@dataclass(frozen=True)
class Digest:
    """The first execution of a program by hashes, for comparing two checkouts.

    program, surroundings     -- what was asked for
    answer, decisions, counters, console, memory -- what came of it (memory: "" if it was not read)
    verdict                   -- the oracles that were violated, or "none"
    """

    example: int
    program: str
    surroundings: str
    answer: str
    decisions: str
    counters: str
    console: str
    memory: str
    verdict: str

    @staticmethod
    def of(
        example: int, p: Program, env: Environment, found: Print, violations: Sequence[Violation]
    ) -> Digest:
        inject = (injection.as_before(rule) for rule in env.inject)
        around = (env.schedule, env.audit, env.rebind, env.vram, *env.delays, *inject)
        memory = [pages.tobytes() for _, pages in sorted((found.memory or {}).items())]
        return Digest(
            example, _hash(p.encode()), _hash(repr(around).encode()), _hash(found.answer),
            f"{found.hash:#x}", _hash(repr(sorted(found.counters.items())).encode()),
            _hash(found.console.encode()), _hash(*memory) if memory else "",
            " ".join(sorted({v.oracle for v in violations})) or "none",
        )  # fmt: skip


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:32]


@dataclass
class Repeated:
    """`executions` made and compared (the first of each program is one of them)."""

    executions: int = 0
    equal: int = 0
    parted: list[Part] = field(default_factory=list)
    operations: int = 0
    virtual_s: float = 0.0
    violations: list[str] = field(default_factory=list)
    #: of each program, in order
    digests: list[Digest] = field(default_factory=list)


def difference(first: Print, second: Print) -> tuple[str, ...]:
    """Names of what differs."""
    out = [
        name
        for name in ("hash", "answer", "counters", "console", "state", "wrong")
        if getattr(first, name) != getattr(second, name)
    ]
    if first.memory is not None and second.memory is not None:
        out += decisions.differing(first.memory, second.memory)[:20]
    return tuple(out)


class Repeater:
    """One worker: its machines, one a number of CPUs."""

    def __init__(
        self, specs: dict[int, MachineSpec], points: dict[int, schedules.Points], folder: Path,
        memory: bool,
    ) -> None:  # fmt: skip
        self._stack = ExitStack()
        self._targets = {
            cpus: self._stack.enter_context(
                ExactTarget(
                    self._stack.enter_context(Opener(spec)), points=points[cpus].all, take=True,
                    memory=memory,
                )
            )
            for cpus, spec in specs.items()
        }  # fmt: skip
        self._points = points
        self._folder = folder

    def close(self) -> None:
        self._stack.close()

    def chain(
        self, seed: int, first: int, length: int, times: int,
        done: Callable[[int], None] = lambda equal: None, grammar: int | None = None,
    ) -> Repeated:  # fmt: skip
        """Examples `first` to `first + length - 1` one after another in one machine, so often."""
        out = Repeated()
        rng = random.Random(f"{seed} {first} cpus")
        cpus = rng.choice([n for n in CPUS if n in self._targets])
        target = self._targets[cpus]
        examples = []
        for index in range(first, first + length):
            p = nth(seed, index, grammar)
            examples.append((p, surroundings(seed, index, self._points[cpus])))
        before: list[Print] = []
        logs = [self._folder / f"log-{first}-{n}" for n in range(length)]
        other = self._folder / f"log-{first}-other"
        for execution in range(times):
            target.renew()
            for n, (p, env) in enumerate(examples):
                found = target.execute(p, env)
                out.executions += 1
                if not execution:
                    before.append(target.print)
                    self._log(target, logs[n])
                    out.operations += len(p.ops)
                    out.virtual_s += target.print.state.get("ns", 0) / 1e9
                    wrong = judge(found).violations
                    out.violations += [f"{first + n}: {v.message}" for v in wrong]
                    out.digests.append(Digest.of(first + n, p, env, target.print, wrong))
                    done(1)
                    continue
                differs = difference(before[n], target.print)
                if not differs:
                    out.equal += 1
                    done(1)
                    continue
                other.unlink(missing_ok=True)
                self._log(target, other)
                where = self._where(logs[n], other)
                out.parted.append(Part(first + n, execution, differs, where))
                done(0)
                # What follows in this machine differs for that reason.
                break
            if not execution:
                out.equal += len(examples)
        for path in [*logs, other]:
            path.unlink(missing_ok=True)
        return out

    @staticmethod
    def _log(target: ExactTarget, path: Path) -> None:
        """Without one if the machine has ended."""
        with suppress(VmError):
            target.write_log(path)

    @staticmethod
    def _where(first: Path, second: Path) -> str:
        if not first.exists() or not second.exists():
            return "the machine did not survive it"
        parting = decisions.part(decisions.read(first), decisions.read(second))
        return f"parted at {parting}" if parting else "no decision differs"


_WRITER = """
import os, sys
while True:
    with open(sys.argv[1], "wb") as f:
        for _ in range(64):
            f.write(os.urandom(1 << 20))
            f.flush()
            os.fsync(f.fileno())
"""


@contextmanager
def load(on: bool = True) -> Iterator[None]:
    """Both cores busy and the disk written meanwhile."""
    if not on:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="hmmbench-load-") as folder, ExitStack() as stack:
        commands = [[sys.executable, "-c", "while True: pass"]] * (os.cpu_count() or 2)
        commands.append([sys.executable, "-c", _WRITER, str(Path(folder, "waste"))])
        children = Children()
        for command in commands:
            stack.enter_context(children.start(command))
        yield


def repeat(
    specs: dict[int, MachineSpec], points: dict[int, schedules.Points], *, seed: int,
    examples: int, times: int, chain: int = 1, jobs: int = 2, memory: bool = True,
    done: Callable[[int], None] = lambda equal: None, grammar: int | None = None,
) -> Repeated:  # fmt: skip
    """`examples` programs in chains of `chain`, each `times` times; the sum.

    specs, points -- by number of CPUs
    grammar       -- of the programs (generate.py)
    """
    total = Repeated()
    with tempfile.TemporaryDirectory(prefix="hmmbench-exact-") as folder, ExitStack() as stack:
        free = []
        for _ in range(jobs):
            worker = Repeater(specs, points, Path(folder), memory)
            stack.callback(worker.close)
            free.append(worker)

        def one(first: int) -> Repeated:
            worker = free.pop()
            try:
                return worker.chain(
                    seed, first, min(chain, examples - first), times, done, grammar
                )
            finally:
                free.append(worker)

        with ThreadPoolExecutor(jobs, "exact") as pool:
            for part in pool.map(one, range(0, examples, chain)):
                total.executions += part.executions
                total.equal += part.equal
                total.parted += part.parted
                total.operations += part.operations
                total.virtual_s += part.virtual_s
                total.violations += part.violations
                total.digests += part.digests
    return total


def exact_specs(spec: MachineSpec, cpus: tuple[int, ...] = CPUS) -> dict[int, MachineSpec]:
    """The same machine, exact, by number of CPUs."""
    return {n: exact_spec(spec, n) for n in cpus}
