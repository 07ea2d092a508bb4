# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs out of bytes.

One block of bytes is drawn an example: four a step, a kind and a 24-bit seed that fixes everything
else about the step.  (One draw an operation or more would cost more time than the VM needs to run
it.)  A step proposes operations from what memory looks like at that point, `admit` has the last
word.

What bytes mean is the grammar's, and that has versions: an operation that came later than
another changes what is drawn, so it is drawn from its version on (`Operation.since`).  Bytes and
the version give the program; seed and version give the bytes (`blocks`).

1  the first
2  mlock, MADV_WILLNEED
3  the page merger; blocks are random throughout.  Hypothesis, which drew those of before, likes
   what is simple: one in sixteen was all zero bytes.
4  promises; all of memory is read again at the end of most programs.  Files that become shorter,
   get holes, are read and written by descriptor; msync.  mmap over what is there, MADV_DONTNEED of
   shared memory; areas change beside GPU, CPU and copies: fork, mremap, mmap over private memory,
   munmap of shared; a process has the GPU's file twice, or as another user, gives it away, keeps
   it over exec; threads that end leave their jobs; MADV_COLLAPSE, khugepaged, compaction, folios
   of other sizes; files also on a disk (ext4) or at a server (FUSE), and their write-back;
   buffers of io_uring; userfaultfd, soft-dirty, guards, mseal, move_pages, mbind, NUMA balancing,
   process_madvise, memcg, memory that goes, breaks or is about to; the device is taken away beside
   all that races: unbound, reset, removed, with its module; the kernel's accounts of a process are
   compared
5  buffers in VRAM; queues of jobs that wait for one another, or end; both beside what races; a
   reaper takes memory of who was killed; resets more often; pages that a pipe holds; accesses that
   nobody can serve
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as fix_seed
from hypothesis import strategies as st

from hmmbench.base.errors import UsageError
from hmmbench.guest.program import MapKind, Op, Program
from hmmbench.model import ops, scenes, upheaval
from hmmbench.model.admit import Admission, end_nowait
from hmmbench.model.drawing import FILE_PAGES, SEEN, Draw
from hmmbench.model.ops.accounts import account
from hmmbench.model.ops.promises import READ_PAGES
from hmmbench.model.ops.stores import Store, where
from hmmbench.model.space import Process, Space

#: Share of programs whose memory is read again at their end.  Not of all: what is read comes home,
#: and processes also have to die with pages in VRAM.
READ_BACK, READ_BACK_SINCE = 0.75, 4

#: Share of programs at whose end the kernel's accounts of each area are looked at, before what is
#: in VRAM comes home to be read.
ACCOUNTS, ACCOUNTS_SINCE = 0.25, 4

#: Steps of an example: a step makes one operation, a race several.  There are fewer where steps
#: make more operations each, so that a run stays as long as it was.
MIN_STEPS, MAX_STEPS = 40, 100
FEWER_STEPS, FEWER_SINCE = (26, 66), 4
BYTES_A_STEP = 4


#: Of a program: the kind of each step (0 to 255) and the seed that fixes the rest of it.
Steps = tuple[tuple[int, int], ...]

#: Bits of such a seed: 24, and the step's place in the bytes, so that no two are the same.
SEED_BITS = 40


@dataclass(frozen=True)
class Step:
    """What a step may be: an operation or a scene, how often, and what draws it."""

    name: str
    weight: int
    draw: Callable[[Draw, Process], list[Op]]
    #: the version of the grammar with which it came
    since: int = 1


#: Scenes that are steps of their own; others are forms that an operation's `draw` takes.
SCENES = (
    Step("race", 18, scenes.race),
    Step("lazyfree", 3, scenes.lazyfree),
    Step("revoke", 3, scenes.revoke),
    Step("end", 1, scenes.end),
    Step("merge", 1, scenes.merge, since=3),
    Step("upheaval", 8, upheaval.upheaval, since=4),
    Step("reaped", 3, upheaval.reaped, since=5),
)

#: From this version of the grammar on the blocks are ours, and not Hypothesis's.
OWN_BLOCKS = 3

#: The steps of grammar 1 in its order, in which kind bytes count them.  Kind 0 is the simplest.
#: What came later stands behind them by itself.
FIRST = (
    "cpu_access", "gpu_access", "migrate", "mmap", "madvise", "race", "mprotect", "query",
    "gpu_copy", "mremap", "munmap", "fork", "policy", "evict", "wait_gpu", "end", "close_gpu",
    "spawn", "lazyfree", "revoke",
)  # fmt: skip


def newest() -> int:
    """The version of the grammar that has all operations and scenes."""
    versions = [step.since for step in _steps().values()]
    changed = [n for o in ops.OPERATIONS.values() for n in o.changed]
    return max(OWN_BLOCKS, *versions, *changed)


@cache
def _steps() -> dict[str, Step]:
    """By name; FIRST in its order, then what came later."""
    found = {
        o.name: Step(o.name, o.weight, o.draw, o.since)
        for o in ops.OPERATIONS.values() if o.weight
    } | {scene.name: scene for scene in SCENES}  # fmt: skip
    return {name: found[name] for name in dict.fromkeys((*FIRST, *found))}


@cache
def table(grammar: int) -> tuple[Step, ...]:
    """Each step as often as its weight says."""
    steps = _steps().values()
    return tuple(s for s in steps if s.since <= grammar for _ in range(s.weight))


def meaning(grammar: int) -> str:
    """A digest of what kinds of steps stand for in a version, operations from outside included."""
    names = " ".join(step.name for step in table(grammar))
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def version(asked: int | None) -> int:
    """The version that is meant (None: the newest).

    Raises UsageError for one that there is not.
    """
    if asked is not None and not 1 <= asked <= newest():
        raise UsageError(f"--grammar {asked}: there are 1 to {newest()}")
    return newest() if asked is None else asked


def size_of(steps: int) -> int:
    """Bytes that `program` reads for so many steps."""
    return steps * BYTES_A_STEP


def lengths(grammar: int) -> tuple[int, int]:
    """The fewest and the most steps that are drawn for a program."""
    return FEWER_STEPS if grammar >= FEWER_SINCE else (MIN_STEPS, MAX_STEPS)


def blocks(seed: int, number: int, count: int, grammar: int) -> list[bytes]:
    """The `number`-th batch of blocks of a seed, for `count` programs."""
    if grammar < OWN_BLOCKS:
        return _hypothesis(seed << 32 | number, count)
    rng = Random(f"{seed} {number}")
    return [rng.randbytes(size_of(rng.randint(*lengths(grammar)))) for _ in range(count)]


def _hypothesis(seed: int, count: int) -> list[bytes]:
    drawn = st.integers(MIN_STEPS, MAX_STEPS).flatmap(
        lambda n: st.binary(min_size=size_of(n), max_size=size_of(n))
    )
    found: list[bytes] = []

    @fix_seed(seed)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    @given(drawn)
    def examples(data: bytes) -> None:
        found.append(data)

    examples()
    return found


def program(data: bytes, seed: int = 0, grammar: int | None = None) -> Program:
    """The program that the bytes stand for in a version of the grammar (None: the newest).

    The same bytes give the same program.
    """
    return grown(steps_of(data), seed, grammar)


def steps_of(data: bytes) -> Steps:
    """The steps that the bytes stand for."""
    return tuple(
        (data[k], int.from_bytes(data[k + 1 : k + 4], "little") | (k + 1) << 24)
        for k in range(0, len(data) - BYTES_A_STEP + 1, BYTES_A_STEP)
    )


def grown(steps: Steps, seed: int = 0, grammar: int | None = None) -> Program:
    """The program of these steps; one that is moved draws what it drew where it was."""
    g = Generator(version(grammar))
    g.begin(steps)
    for kind, own in steps:
        g.step(kind, own)
    return Program(g.finish(), FILE_PAGES, seed=seed)


class Generator(Draw):
    """Grows one program, step by step."""

    def __init__(self, grammar: int) -> None:
        super().__init__(Space(FILE_PAGES), grammar)
        self.admission = Admission(self.space)
        self.table = table(grammar)
        self.ops: list[Op] = []
        self.phase = 0
        # operations before the first step
        self.begun = 0

    def begin(self, steps: Steps) -> None:
        """Before its first step, and by its bytes."""
        if self.grammar >= Store.since:
            self.rng.seed(b"".join(
                bytes([kind]) + (own & 0xFFFFFF).to_bytes(BYTES_A_STEP - 1, "little")
                for kind, own in steps[:1]
            ))  # fmt: skip
            self.first(where(self, self.space.procs[0]))
            self.begun = len(self.ops)

    def step(self, kind: int, seed: int) -> None:
        self.rng.seed(seed)
        alive = self.space.alive()
        if not alive:
            return
        proc = alive[0] if len(alive) == 1 else self.rng.choice(alive)
        # (With 256 entries it is the kind that counts, whatever the seed is.)
        step = self.table[(kind << 8 | seed & 255) * len(self.table) >> 16]
        name = step.name
        if not proc.vmas or (len(self.ops) - self.begun < 3 and name != "mmap"):
            name, step = "mmap", _steps()["mmap"]
        made = step.draw(self, proc)
        if not made:
            return
        kept = self._admit(made)
        if not kept and name != "cpu_access" and proc.vmas:
            self._admit(self.draw("cpu_access", proc))
        after, self.after = self.after, []
        for o in after:
            # (A fork that was to bear it may not have been admitted.)
            if o.proc in self.space.procs and self.space.procs[o.proc].alive:
                self._admit([o])

    def _admit(self, made: list[Op]) -> bool:
        """One phase more; whether any of it was admitted."""
        for o in made:
            o.phase = self.phase
        kept = self.admission.phase(made)
        self.ops += kept
        self.phase += bool(kept)
        return bool(kept)

    def first(self, ops: list[Op]) -> bool:
        return bool(ops) and self._admit(ops)

    def number(self, name: str) -> int:
        return ops.NAMED[name].number

    def word(self, name: str, field: str, word: str) -> int:
        return ops.NAMED[name].word(field, word)

    def draw(self, name: str, proc: Process) -> list[Op]:
        return ops.NAMED[name].draw(self, proc)

    def finish(self) -> list[Op]:
        for proc in self.space.alive():
            # Atomics that the GPU kept although a CPU had its page back: only a look shows them.
            if proc.exclusive:
                self.first([
                    self.ranged("query", proc, v.start, min(v.end, v.start + SEEN))
                    for v in proc.vmas if v.kind == MapKind.ANON_PRIVATE
                ])  # fmt: skip
        if self.grammar >= ACCOUNTS_SINCE and self.rng.random() < ACCOUNTS:
            for proc in self.space.alive():
                self.first([account(self, proc, v, i == 0) for i, v in enumerate(proc.vmas)])
        if self.grammar >= READ_BACK_SINCE and self.rng.random() < READ_BACK:
            self._read_back()
        return end_nowait(self.ops)

    def _read_back(self) -> None:
        """All that may be read: by each process what it has."""
        for proc in self.space.alive():
            self.first([
                self.ranged("read_back", proc, start, min(v.reach(), start + READ_PAGES))
                for v in proc.vmas if v.prot & 1
                for start in range(v.start, v.reach(), READ_PAGES)
            ])  # fmt: skip
