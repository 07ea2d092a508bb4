# SPDX-License-Identifier: GPL-2.0-or-later
"""GPU programs for tests of the VM layer: small, and with results that can be computed here.

And what such tests share: operations in few words, what they answered, what must not be seen.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmmbench.base import paths
from hmmbench.example import delays
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.guest.program import (
    MIGRATE_DEVICE,
    MIGRATE_SYSTEM,
    PAGE,
    PROT_RW,
    Acc,
    Access,
    Ast,
    MapKind,
    Op,
    Program,
    Result,
)
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Migrate, Query
from hmmbench.oracle import mirror
from hmmbench.vm.machine import Machine

#: For the guest's C programs, which must be clean.
WARNINGS = ("-Wall", "-Wextra", "-Werror")

#: The driver's file of delay points.
DELAYS = "/sys/kernel/debug/dri/0/delays"


@dataclass
class Work:
    """A program and what its accesses must return, in the order of all its accesses."""

    program: Program
    expected: list[int]

    def check(self, result: Result) -> None:
        assert not result.timeout
        assert not result.live_nonzero
        assert result.died == 0
        assert [op.status for op in result.ops] == [0] * len(result.ops)
        seen = [access for op in result.ops for access in op.acc]
        assert [status for _, status, _ in seen] == [Ast.DONE] * len(seen)
        assert [value for value, _, _ in seen] == self.expected


def run(machine: Machine, program: Program, timeout: float = 120.0) -> Result:
    return Result.decode(machine.agent.program(program.encode(), timeout), program)


def run_ops(machine: Machine, ops: list[Op], **fields: Any) -> Result:
    """Run operations; `fields` are the program's.

    Whatever they do, the driver holds nothing when their processes are gone.
    """
    program = Program(ops, **({"settle_ms": 3000, "timeout_ms": 20000} | fields))
    result = run(machine, program, timeout=60)
    assert not result.live_nonzero
    return result


def mmap(pages: int, kind: MapKind = MapKind.ANON_PRIVATE, prot: int = PROT_RW, **k: Any) -> Op:
    return Op(Mmap.number, len=pages * PAGE, arg=kind, a=prot, **k)


def acc(
    kind: Acc, page: int, value: int = 0, expect: int = 0, region: int = 0, byte: int = 0,
    lane: int = 0,
) -> Access:  # fmt: skip
    return (int(kind), region, lane, page * PAGE + byte, value, expect)


def cpu(*accesses: Access, **k: Any) -> Op:
    return Op(CpuAccess.number, acc=list(accesses), **k)


def gpu(*accesses: Access, block: int = 0, **k: Any) -> Op:
    return Op(GpuAccess.number, acc=list(accesses), arg=block, **k)


def migrate(pages: int, to: int, **k: Any) -> Op:
    return Op(Migrate.number, len=pages * PAGE, arg=to, **k)


def query(pages: int = 1, **k: Any) -> Op:
    return Op(Query.number, len=pages * PAGE, **k)


def statuses(result: Result) -> list[int]:
    return [op.status for op in result.ops]


def values(result: Result, op: int) -> list[int]:
    """What accesses returned that were all done."""
    assert [status for _, status, _ in result.ops[op].acc] == [Ast.DONE] * len(result.ops[op].acc)
    return [value for value, _, _ in result.ops[op].acc]


def flags(result: Result, op: int) -> list[int]:
    """What a query answered, by page."""
    data = result.ops[op].data
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def counts(text: str) -> dict[str, int]:
    """The driver's counters, as its debugfs file has them."""
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def driver_counters(machine: Machine) -> dict[str, int]:
    return counts(machine.agent.check("cat /sys/kernel/debug/dri/0/counters"))


def live(machine: Machine) -> dict[str, int]:
    """The driver's counts of what it holds now."""
    all_counts = driver_counters(machine)
    found = {name: value for name, value in all_counts.items() if name.startswith("live_")}
    assert len(found) > 5, all_counts
    return found


def set_delays(machine: Machine, *lines: str) -> None:
    """These settings of the driver's delay points and no others, counted afresh."""
    machine.agent.write_file(DELAYS, "\n".join(["clear", *lines, ""]).encode(), mode=0)


def wait_for(machine: Machine, path: str, text: str) -> None:
    """Until a file of the guest has a text; 20 s."""
    machine.agent.check(
        f"for i in $(seq 200); do grep -q '{text}' {path} && exit; sleep 0.1; done; false"
    )


def delay_points(machine: Machine) -> list[delays.Point]:
    return delays.parse(machine.agent.read_file(DELAYS).decode())


def broken_library(folder: Path, file: str, old: str, new: str) -> None:
    """libhmmgpu.a in `folder`, of sources that have `new` where `old` stands once."""
    copy = folder / "src"
    shutil.copytree(paths.user_sources() / "lib", copy)
    text = (copy / file).read_text()
    assert text.count(old) == 1
    (copy / file).write_text(text.replace(old, new))
    subprocess.run(
        ["make", "-s", "-C", str(paths.user_sources()), f"OUT={folder}",
         f"LIB={copy}", "WARN=-w", str(folder / "libhmmgpu.a")],
        check=True,
    )  # fmt: skip


def no_violation(machine: Machine) -> mirror.Audit:
    """The device saw none; what else it saw."""
    seen = mirror.read(machine.gpu.violations())
    assert (seen.total, seen.found) == (0, [])
    return seen


def mixed(seed: int, pages: int = 64, lanes: int = 128, each: int = 8, rounds: int = 1) -> Work:
    """CPU writes; then, `rounds` times, pages move to the device and the GPU adds; CPU reads.

    Each lane adds to words of its own, so what it sees and leaves is known.
    """
    rng = random.Random(seed)
    words = PAGE // 8
    assert lanes < words, "two lanes would share a word"
    memory = {page * PAGE: rng.getrandbits(64) for page in range(pages)}
    write: list[Access] = [(Acc.WRITE, 0, 0, offset, v, 0) for offset, v in memory.items()]
    size, half = pages * PAGE, pages // 2 * PAGE
    ops = [
        Op(Mmap.number, len=size, arg=MapKind.ANON_PRIVATE, a=PROT_RW),
        Op(CpuAccess.number, acc=write),
    ]
    expected = [0] * len(write)  # what a write returns
    for number in range(rounds):
        adds: list[Access] = []
        for lane in range(lanes):
            for _ in range(each):
                offset = rng.randrange(pages) * PAGE + 8 * (1 + lane)
                amount = rng.getrandbits(32)
                adds.append((Acc.ADD, 0, lane, offset, amount, 0))
                expected.append(memory.get(offset, 0))
                memory[offset] = memory.get(offset, 0) + amount
        # The other half each time; the first comes home by system migration.
        ops.append(Op(Migrate.number, off=(number % 2) * half, len=half, arg=MIGRATE_DEVICE))
        ops.append(Op(GpuAccess.number, acc=adds))
        ops.append(Op(Migrate.number, off=(number % 2) * half, len=half, arg=MIGRATE_SYSTEM))
    if rounds == 1:
        ops.pop()  # the CPU's reads bring the pages home
    offsets = sorted(memory)
    ops.append(Op(CpuAccess.number, acc=[(Acc.READ, 0, 0, o, 0, 0) for o in offsets]))
    expected += [memory[offset] for offset in offsets]
    for phase, op in enumerate(ops):
        op.phase = phase
    return Work(Program(ops, timeout_ms=60000, seed=seed), expected)


def plain() -> Recipe:
    """Write by the CPU, read by the GPU."""
    ops = [
        Op(Mmap.number, region=1, len=PAGE, a=PROT_RW),
        Op(CpuAccess.number, phase=1, acc=[(int(Acc.WRITE), 1, 0, 0, 5, 0)]),
        Op(GpuAccess.number, phase=2, acc=[(int(Acc.READ), 1, 0, 0, 0, 0)]),
    ]
    return Recipe(Program(ops, FILE_PAGES), Environment(), repeat=3)
