# SPDX-License-Identifier: GPL-2.0-or-later
"""What the device can be made to do wrong (docs/device.md), and how a sound driver survives it.

TABLE has a line for each action of each event of qemu-device/core/observe/inject.c, and is all
there is to say: what campaigns draw, what is still fair when it comes true each time, how jobs
then may end, whether the driver has to look again by itself (`watch_ms`, docs/driver.md), and the
words of documentation and report.

Rules of before had a word alone for their event.  The device reads those, too; what is kept
(recipes) is translated on reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hmmbench.base.errors import UsageError

#: Which jobs of programs may end by it, each as often as the rule says that it comes true: copies
#: alone, or any.
COPIES, JOBS = "copies", "jobs"

#: How often a driver that looks again by itself does so, in milliseconds.
WATCH_MS: Final = 50


@dataclass(frozen=True)
class Line:
    """One action of one event.

    survived -- how a sound driver survives it; "": it does not
    because  -- and then why not
    drawn    -- what campaigns draw, each as often as it stands here: selectors, the action, and
                its argument, without the event
    always   -- survived however often it comes true.  What is lost or fails it may survive once
                and not each time
    watch    -- the driver has to look again by itself: nothing tells it
    ends     -- jobs of programs that may end by it: COPIES, JOBS; "": none
    promises -- what a driver promises (model/ops/promises.py) still holds beside it, if no job ends
    waits_ms -- how long a sound driver may do nothing, each time it comes true
    """

    event: str
    action: str
    survived: str
    drawn: tuple[str, ...] = ()
    because: str = ""
    always: bool = False
    watch: bool = False
    ends: str = ""
    promises: bool = True
    waits_ms: int = 0

    @property
    def words(self) -> str:
        """For people."""
        return self.survived or f"not survived: {self.because}"

    def rules(self) -> tuple[str, ...]:
        return tuple(f"{self.event} {rule}" for rule in self.drawn) if self.survived else ()


_LATE: Final = "nothing is to be done: it comes later"

#: One copy home fails: driver copies go to bus addresses, those of programs to virtual ones, and
#: VRAM is below 8 MiB.  It is not every page that is looked at afterwards: those of the upper half
#: of the usual machine's memory (others: campaign/surroundings.py).
HOME: Final = "match=20000000/ffffff0020000000"
_HOME_FAILS: Final = f"{HOME} count=1 error"

#: One that fails once more when it is tried again: the page stays where it is, and who needs it
#: elsewhere is told (`hurts`).  Others that were to come with it lose nothing.
_HOME_FAILS_AGAIN: Final = (f"{HOME} count=2 error", f"{HOME} count=4 error")

#: The same on the way to VRAM, where half of its first 4 MiB is: nobody is told, it does not move.
#: (Globals of the agent, which programs copy to, begin at 4 MiB.)
_NEVER_THERE: Final = "match=100000/ffffffffffd00000 count=6 error"

TABLE: Final = (
    # An invalidation that takes its time is where a driver that does not wait goes wrong: hence
    # more than once, and long against the operations that follow it.
    Line(
        "mmu.invalidate", "delay", "waits for its number",
        ("delay=8000000", "delay=8000000", "prob=0.3 delay=40000000", "prob=0.3 delay=3000000") * 2,
        always=True,
    ),
    Line("mmu.walk", "delay", _LATE, ("prob=0.1 delay=1000000",), always=True),
    Line(
        "fault.entry", "delay_valid", "waits for VALID",
        ("prob=0.3 delay_valid=500000",), always=True,
    ),
    Line(
        "fault.entry", "duplicate", "serves the page once, or twice",
        ("prob=0.2 duplicate",), always=True,
    ),
    Line(
        "fault.entry", "repeat", "as a duplicate",
        ("prob=0.3 repeat=200000", "prob=0.3 repeat=2000000", "prob=0.3 repeat=20000"),
        always=True, promises=False,
    ),
    # Each time, nobody would ever be told of anything.
    Line(
        "fault.entry", "drop", "answers OVERFLOW with a replay: the access faults again",
        ("prob=0.2 count=10 drop", "nth=1 drop"),
    ),
    Line("fault.replay", "delay", _LATE, ("prob=0.3 delay=200000",), always=True),
    Line(
        "fault.replay", "lost", "sends another where jobs do not get on",
        ("prob=0.3 count=3 lost", "nth=2 lost"), watch=True, waits_ms=2 * WATCH_MS,
    ),
    Line("irq.message", "delay", _LATE, ("prob=0.3 delay=200000",), always=True),
    Line(
        "irq.message", "duplicate", "finds nothing new the second time",
        ("prob=0.3 duplicate",), always=True,
    ),
    # Vector 0 tells of faults, 1 of fences, 2 of errors.
    Line(
        "irq.message", "lost", "looks at fences, ring and errors where jobs do not get on",
        ("prob=0.2 count=4 lost", "match=0 count=2 lost", "match=1 count=2 lost"),
        watch=True, waits_ms=2 * WATCH_MS,
    ),
    Line("ce.copy", "delay", _LATE, ("prob=0.3 delay=200000",), always=True),
    Line(
        "ce.copy", "error", "copies once more what is its own; a program's copy ends with POISON",
        (*(_HOME_FAILS,) * 3, "nth=1 error",
         "prob=0.2 count=1 error", *_HOME_FAILS_AGAIN * 2, _NEVER_THERE),
        ends=COPIES,
    ),
    # Without an argument it is a half, and so may be half of a word.
    Line(
        "ce.copy", "partial", "as an error",
        ("nth=1 partial=8", "prob=0.2 count=1 partial=2048"),
        ends=COPIES,
    ),
    Line(
        "bus.read", "error", "the job ends with POISON, or its context halts: its jobs end with"
        " BUS, and it starts again",
        ("nth=40 error", "prob=0.02 count=1 error"), ends=JOBS, waits_ms=200,
    ),
    Line(
        "bus.write", "error", "as reading; a fault's entry that never gets VALID is given up, and"
        " replayed",
        ("nth=20 error", "prob=0.05 count=1 error"), ends=JOBS, waits_ms=1100,
    ),
    Line("ring.doorbell", "delay", _LATE, ("prob=0.3 delay=300000",), always=True),
    Line(
        "ring.doorbell", "lost", "rings again where jobs do not get on",
        ("prob=0.3 count=3 lost", "nth=2 lost"), watch=True, waits_ms=2 * WATCH_MS,
    ),
    Line("ring.fence", "delay", _LATE, ("prob=0.3 delay=200000",), always=True),
    Line("ring.launch", "delay", _LATE, ("prob=0.3 delay=100000",), always=True),
)  # fmt: skip

_LINES: Final = {(line.event, line.action): line for line in TABLE}

#: What is drawn, and how often beside one another.
RULES: Final = tuple(rule for line in TABLE for rule in line.rules())


def of(rule: str) -> Line | None:
    """The line that a rule is of; None: the device knows it, perhaps, and the table does not."""
    words = translated(rule).split("#")[0].split()
    return _LINES.get((words[0], words[-1].split("=")[0])) if words else None


def lines(rules: Iterable[str]) -> list[Line]:
    return [line for rule in rules if (line := of(rule)) is not None]


def chosen(words: str | None, watched: bool = True) -> tuple[str, ...]:
    """What is drawn of some events: words `EVENT` or `EVENT:ACTION`, with commas between them; "":
    of all; None: nothing.  Without what a driver has to look again for that does not (`watched`).

    Raises UsageError for a word that names nothing.
    """
    if words is None:
        return ()
    wanted = [tuple(word.strip().split(":")) for word in words.split(",") if word.strip()]
    for word in wanted:
        if not any((line.event, line.action)[: len(word)] == word for line in TABLE):
            raise UsageError(f"the device has no {':'.join(word)} to be injected")
    return tuple(
        rule for line in TABLE for rule in line.rules()
        if (watched or not line.watch)
        and (not wanted or any((line.event, line.action)[: len(w)] == w for w in wanted))
    )  # fmt: skip


def watch_ms(rules: Iterable[str]) -> int:
    """How often the driver is to look again by itself (docs/driver.md); 0: not at all, since that
    brings back what it lost itself, too."""
    return WATCH_MS if any(line.watch for line in lines(rules)) else 0


def waits_ms(rules: Iterable[str]) -> int:
    """How long a sound driver may do nothing because of them, about."""
    return sum(
        min(_times(rule), 10) * line.waits_ms for rule in rules if (line := of(rule)) is not None
    )


def _times(rule: str) -> int:
    """How often it comes true; one without a count as often as it likes."""
    count = re.search(r"\bcount=(\d+)", rule)
    return int(count[1]) if count else 1 if "nth=" in rule else 1 << 30


def copies_fail(rules: Iterable[str]) -> int:
    """How often a copy, of whomever, is refused by the rules at most."""
    return sum(
        _times(rule) for rule in rules
        if (line := of(rule)) is not None and line.event == "ce.copy" and line.ends
    )  # fmt: skip


def fails_again(rules: Iterable[str]) -> bool:
    """Whether a copy of the driver's own may fail each time that it is tried."""
    return any(_of_driver(rule) and copies_fail((rule,)) > 1 for rule in rules)


def hurts(rules: Iterable[str]) -> bool:
    """And whether it is one on the way home: then who needs the page is told, and nothing is said
    any more of what that did."""
    return any(
        fails_again((rule,)) and int(match[1], 16) >= _VRAM
        for rule in rules if (match := re.search(r"\bmatch=([0-9a-f]+)/", rule))
    )  # fmt: skip


def ends_jobs(rules: Iterable[str]) -> bool:
    """Whether jobs that did nothing wrong may end, or what the driver copies for itself fail."""
    rules = tuple(rules)
    return fails_again(rules) or any(ends(rules, jobs) for jobs in (COPIES, JOBS))


def keeps_promises(rules: Iterable[str]) -> bool:
    """Whether what a driver promises can be judged beside them."""
    rules = tuple(rules)
    return all(line.promises for line in lines(rules)) and not ends_jobs(rules)


#: Where no program has anything: its regions lie higher.
_OWN: Final = 1 << 40

#: All of VRAM is below; a rule for copies home goes by a bit that is not.
_VRAM: Final = 1 << 24


def ends(rules: Iterable[str], jobs: str) -> int:
    """How often jobs of these (COPIES, JOBS) may end by the rules."""
    return sum(
        _times(rule) for rule in rules
        if (line := of(rule)) is not None and line.ends == jobs and not _of_driver(rule)
    )  # fmt: skip


def _of_driver(rule: str) -> bool:
    """Whether it goes by an address that only copies of the driver's own have."""
    match = re.match(r"ce\.copy\b.*\bmatch=([0-9a-f]+)/([0-9a-f]+)", translated(rule))
    if match is None:
        return False
    value, mask = (int(number, 16) for number in match.groups())
    return mask >= _OWN and value & mask < _OWN


#: Name of before, and the one that it has now.
EVENTS = {
    "tlb_invalidate": "mmu.invalidate",
    "walk": "mmu.walk",
    "fault": "fault.entry",
    "replay": "fault.replay",
    "irq": "irq.message",
    "copy": "ce.copy",
    "dma_read": "bus.read",
    "dma_write": "bus.write",
    "doorbell": "ring.doorbell",
    "fence": "ring.fence",
    "launch": "ring.launch",
}
_BEFORE = {now: before for before, now in EVENTS.items()}

#: The event of each rule of a list.
_EVENT = re.compile(r"(?:^|(?<=[;\n]))(\s*)([\w.]+)")


def translated(rules: str) -> str:
    """The rules by the names of now."""
    return _EVENT.sub(lambda m: m[1] + EVENTS.get(m[2], m[2]), rules)


def as_before(rules: str) -> str:
    """The rules by the names of before: what is to be equal for checkouts of both times."""
    return _EVENT.sub(lambda m: m[1] + _BEFORE.get(m[2], m[2]), rules)
