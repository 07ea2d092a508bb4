# SPDX-License-Identifier: GPL-2.0-or-later
"""What a driver promises beside safety, and what everything comes to at the end of a program.

A promise is tried by the guest on memory that the operation itself maps, so no program knows it:
anonymous, of small pages, unshared, unpinned, with nothing beside it and with room in VRAM.  Such
pages migrate, and what is asked for three times and did not happen was not bad luck.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from hmmbench.guest.program import PAGE, POLICY_MIGRATE, Op, OpResult
from hmmbench.model.belief import SYSTEM, UNKNOWN, VRAM, Belief, touched
from hmmbench.model.drawing import Draw
from hmmbench.model.ops.base import OK, RANGE, Field, Operation, aligned, pages, shorter
from hmmbench.model.ops.moving import POLICIES, Policy
from hmmbench.model.ops.trials import TRIED, records
from hmmbench.model.space import HUGETLB, Process, Space


class Word(IntEnum):
    """What is promised.

    The driver answers the query that most of them are judged by; that pages are gone from where
    the CPU has memory says the kernel itself.  EVICTS writes a file of our driver's, ALONE reads
    its counters.
    """

    MIGRATES = 0
    COMES_HOME = 1
    PREFETCHES = 2
    EVICTS = 3
    POLICY = 4
    STAYS = 5
    ALONE = 6
    HUGE = 7
    USAGE = 8
    NODE = 9


_WORDS: Final = {word.value: word.name.lower().replace("_", "-") for word in Word}

#: How many pages a promise may be about.
MAX_PAGES = 64

NOT_SEEN: Final = 0xFFFFFFFF

#: Faults for one page, and beside them, that are still no storm: a replay for one page makes each
#: other that waits fault again.  TLB invalidations for changes of memory that the GPU never had: a
#: driver may do without, or with one for each that it is told of.
FAULTS_A_PAGE, FAULTS, FLUSHES = 16, 64, 16

#: Words with which a version came; of those before it knows no others.
LATER: Final = {5: (Word.USAGE, Word.NODE)}

_SEEN = struct.Struct("<14I")


@dataclass(frozen=True)
class Seen:
    """One look at the memory of a promise: struct seen of agent/ops/promises.c."""

    step: int
    tries: int
    pages: int
    device: int
    system: int
    mapped: int
    mapped_vram: int
    mapped_huge: int
    gone: int
    wrong: int
    faults: int
    flushes: int
    used: int = 0
    home: int = 0

    def there(self, coherent: bool) -> str:
        """What is wrong if all of it is to be in VRAM."""
        if self.device < self.pages:
            return (
                f"not in VRAM: {self.device} of {self.pages} pages are there after {self.tries}"
                " tries"
            )
        if not coherent and self.gone not in (self.pages, NOT_SEEN):
            return (
                f"not where it is said to be: of {self.pages} pages in VRAM the CPU's page table"
                f" has {self.pages - self.gone} in system memory"
            )
        return ""

    def at_home(self) -> str:
        """And if none is."""
        if self.system == self.pages:
            return ""
        return (
            f"not in system memory: {self.system} of {self.pages} pages are there after"
            f" {self.tries} tries"
        )

    def reached(self, vram: bool) -> str:
        """And if the GPU is to have all of it, in VRAM or anywhere."""
        got = self.mapped_vram if vram else self.mapped
        if got == self.pages:
            return ""
        return f"not mapped: the GPU has {got} of {self.pages} pages after {self.tries} tries"


def seen(r: OpResult) -> list[Seen]:
    """Raises ValueError if the answer is not made of looks."""
    return [Seen(*words) for words in records(_SEEN, r)]


def tried(o: Op, r: OpResult) -> bool:
    """Whether it came to a judgement: there was room, and what it needs."""
    return o.op == Promise.number and r.status == 0 and r.aux0 == TRIED


def _kept(word: int, looks: list[Seen], coherent: bool) -> str:
    """Which promise was not kept; "": each was."""
    first = looks[0]
    if word in (Word.MIGRATES, Word.COMES_HOME, Word.EVICTS) and (bad := first.there(coherent)):
        return bad
    if word == Word.MIGRATES and not coherent:
        return looks[1].at_home()
    if word in (Word.COMES_HOME, Word.EVICTS):
        return looks[1].at_home()
    if word == Word.PREFETCHES:
        return (
            first.there(coherent) or first.reached(True) or looks[1].at_home()
            or looks[1].reached(False)
        )  # fmt: skip
    if word == Word.POLICY:
        # Without atomics that keep the CPU away, and with them.
        return next((bad for n in range(0, len(looks), 2) if (bad := (
            looks[n].there(coherent) or looks[n + 1].at_home() or looks[n + 1].reached(False)
        ))), "")  # fmt: skip
    if word == Word.STAYS:
        return looks[1].there(coherent) or looks[1].reached(True)
    if word == Word.ALONE:
        return _alone(looks)
    if word == Word.HUGE:
        return first.there(True) or _whole(first) or _whole_again(looks[1:])
    if word == Word.USAGE:
        return _counted(looks)
    if word == Word.NODE:
        return first.there(coherent) or looks[1].at_home() or _bound(looks[1])
    return ""


def _alone(looks: list[Seen]) -> str:
    filled, changed, again = looks
    most = FAULTS_A_PAGE * filled.pages + FAULTS
    if filled.faults > most:
        return f"fault storm: {filled.faults} faults for {filled.pages} pages, at most {most}"
    if bad := changed.reached(False):
        return f"taken without need: other memory changed, and what did not is {bad}"
    if again.faults:
        return f"faults without need: {again.faults} for pages that the GPU has"
    if changed.flushes > FLUSHES:
        return f"flushes without need: {changed.flushes} for memory that the GPU never had"
    return ""


def _counted(looks: list[Seen]) -> str:
    before, there, gone = looks
    if there.used - gone.used != there.mapped:
        return (
            f"counted wrongly: the GPU is said to have {there.used} pages of the process, and"
            f" {gone.used} without {there.mapped} that it had"
        )
    if gone.used != before.used - before.mapped:
        return (
            f"counted wrongly: the GPU is said to have {gone.used} pages of the process, and had"
            f" {before.used - before.mapped} before memory came and went"
        )
    return ""


def _bound(look: Seen) -> str:
    if look.home in (look.pages, NOT_SEEN):
        return ""
    return (
        f"on another node: {look.home} of {look.pages} pages came home to the node that they are"
        " bound to"
    )


def _whole_again(looks: list[Seen]) -> str:
    if all(look.home == look.pages for look in looks):
        return ""
    return "not huge: a 2 MiB page that was whole in VRAM came home in pieces"


def _whole(look: Seen) -> str:
    if look.mapped_huge == look.pages:
        return ""
    return (
        f"not huge: of a 2 MiB page that went to VRAM {look.mapped_huge} of {look.pages} pieces are"
        " mapped as one"
    )


class Promise(Operation):
    number, name = 70, "promise"
    weight = 4
    since = 4
    changed = tuple(LATER)
    oracle = "promise"
    fields = (
        Field("word", "arg", _WORDS), Field("len", "len", hex=True),
        Field("policy", "a", Policy.fields[0].words),
    )  # fmt: skip
    uses_gpu = True
    # What it is compared with is not the result of a call.
    wanted = False
    trial = True

    def ranges(self, o: Op) -> list[tuple[int, int, int]]:
        return []

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        # (What is balanced is taken from the GPU now and then.)
        return (
            not space.balanced
            and o.arg in _WORDS and o.len % PAGE == 0 and 0 < o.len <= MAX_PAGES * PAGE
            and o.a in (Policy.fields[0].words or {})
        )  # fmt: skip

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def walks(self, o: Op) -> int:
        return 3 * 512 if o.arg in (Word.USAGE, Word.HUGE) else 0

    def judge(self, o: Op, r: OpResult, racing: bool) -> str:
        if not tried(o, r):
            return ""
        looks = seen(r)
        if not looks:
            return "nothing seen: the guest says that it tried"
        wrong = [look for look in looks if look.wrong not in (0, NOT_SEEN)]
        if wrong:
            return f"wrong contents: {wrong[0].wrong} of {wrong[0].pages} pages"
        return _kept(o.arg, looks, bool(r.aux1))

    def apply(self, space: Space, p: Process, o: Op) -> None:
        if o.arg == Word.POLICY:
            Policy().apply(space, p, Op(Policy.number, o.proc, arg=o.a))

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        if o.arg == Word.EVICTS:
            for theirs in b.all_pages.values():
                there = [gp for gp, at in theirs.items() if at == VRAM]
                theirs.update(dict.fromkeys(there, UNKNOWN))
        elif o.arg == Word.POLICY and r.status == 0:
            (b.migrate.add if o.a & POLICY_MIGRATE else b.migrate.discard)(o.proc)

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        what = {
            Word.MIGRATES: "migrates to VRAM, and comes home when the CPU touches it",
            Word.COMES_HOME: "comes home from VRAM when that is asked for",
            Word.PREFETCHES: "is mapped where it was prefetched to",
            Word.EVICTS: "leaves VRAM when all is evicted",
            Word.POLICY: "goes where the policy for GPU faults says",
            Word.STAYS: "stays in VRAM while the GPU uses it",
            Word.ALONE: "is left alone when other memory changes",
            Word.HUGE: "stays huge in VRAM, and on its way home",
            Word.USAGE: "is counted while the GPU has it, and not after that",
            Word.NODE: "comes home to the node that it is bound to",
        }[Word(o.arg)]
        size = "a 2 MiB page" if o.arg == Word.HUGE else f"{o.len // PAGE} pages"
        return f"tries whether fresh memory ({size}) {what}"

    def draw(self, g: Draw, proc: Process) -> list[Op]:
        rng = g.rng
        later = {word for since, words in LATER.items() if since > g.grammar for word in words}
        word = rng.choice([word.value for word in Word if word not in later])
        policy = rng.choice(POLICIES) if word == Word.POLICY else 0
        size = rng.choice((1, 2, 3, 8, 16, 33, MAX_PAGES))
        return [g.op("promise", proc, arg=word, len=size * PAGE, a=policy)]


#: Pages that one READ_BACK reads, at most; the guest has room for so many.
READ_PAGES = 1024


class ReadBack(Operation):
    """Drawn by the generator alone, at a program's end (`Generator.finish`)."""

    number, name = 71, "read_back"
    since = 4
    oracle = "contents"
    fields = (*RANGE, Field("sparse", "arg"))
    wanted = False

    def admit(self, space: Space, p: Process, o: Op) -> bool:
        if not aligned(o) or o.len > READ_PAGES * PAGE:
            return False
        start, end = pages(o)
        there = p.overlapping(start, end)
        # What is not there is zero only where nothing is behind it and no page is a large one.
        o.arg = int(all(
            v.obj is None and not v.large and not v.fill and v.kind not in HUGETLB for v in there
        ))  # fmt: skip
        return p.covered(start, end) and all(v.allows(min(v.end, end) - 1, 1) for v in there)

    def statuses(self, space: Space, o: Op, racing: bool) -> frozenset[int] | None:
        return OK

    def meet(self, b: Belief, o: Op, r: OpResult, racing: bool) -> None:
        start, end = touched(o)
        there = [gp for gp, at in b.pages.items() if start <= gp < end and at in (VRAM, UNKNOWN)]
        b.put(there, SYSTEM)

    def simpler(self, o: Op) -> Iterator[Op]:
        return shorter(o, PAGE)

    def sentence(self, o: Op, at: str) -> str:
        return f"reads all of {at} again"


OPERATIONS = (Promise(), ReadBack())
