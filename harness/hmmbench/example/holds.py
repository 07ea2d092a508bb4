# SPDX-License-Identifier: GPL-2.0-or-later
"""Schedules as lists of decisions: who comes to this place as the n-th in this phase of the program
is held so long.

Phases, not CPUs and not the whole execution: what was taken away before a phase, and where its
threads happen to run, leaves its passages as they were.

What a seed decided is in the log of its execution.  Told one by one, with the other words as they
were, it is the same execution, but where a CPU was held twice without going on in between: a list
says that in one hold, and the log has an entry less.  So whoever takes a list tries whether it
fails.  Here such lists are taken from logs and put into schedules; by name they stand in recipes,
as all places do, so that they can be read and fit another build.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hmmbench.example.recipe import Anchor, Environment, Recipe
from hmmbench.example.schedules import LONG_SLICES
from hmmbench.symbols import SymbolTable
from hmmbench.vm.decisions import What, names
from hmmbench.vm.mailbox import layout

#: Words by which a schedule holds CPUs by chance, and those that count for a log.
_BY_CHANCE = ("hold", "span", "busy", "point", "at", "odds", "fair", "crowd")
_LISTS = ("do", "count")

#: Words that are lists of places, and how those are written that have no name.
_PLACED = ("at", "count")
_NUMBER = re.compile("[0-9a-fA-F]{1,16}")

#: Passages at which a CPU is held if it is at each of a place; so many times the share of each.
EACH, MORE = 32, 4

#: The largest share that a schedule may name.
MOST = 65535


@dataclass(frozen=True)
class Hold:
    """`passage`: from 1, of anybody at `place` since `phase` began."""

    phase: int
    place: int
    passage: int
    ns: int

    def __str__(self) -> str:
        return f"{self.phase}:{self.place:x}:{self.passage}:{self.ns}"


def holds(schedule: str) -> tuple[Hold, ...]:
    """Those that it lists."""
    found = []
    for word in schedule.split():
        if word.startswith("do="):
            for one in word[3:].split(","):
                phase, place, passage, ns = one.split(":")
                found.append(Hold(int(phase), int(place, 16), int(passage), int(ns)))
    return tuple(found)


def without(schedule: str, *words: str) -> str:
    return " ".join(w for w in schedule.split() if w.partition("=")[0] not in words)


def told(schedule: str, wanted: Iterable[Hold], by_chance: bool = False) -> str:
    """The schedule with this list, and nobody held by chance unless that is to stay.

    Of several at one passage the first counts.
    """
    words = [without(schedule, *(() if by_chance else _BY_CHANCE), *_LISTS)]
    one_each: dict[tuple[int, int, int], Hold] = {}
    for one in wanted:
        one_each.setdefault((one.phase, one.place, one.passage), one)
    text = ",".join(map(str, one_each.values()))
    return " ".join([*words, *([f"do={text}"] if text else [])])


def base(schedule: str) -> str:
    """What is left of it where all that matters is in a list: who goes on of those who wait."""
    kept = [word for word in schedule.split() if word.startswith("seed=")]
    return " ".join([*kept, f"slice={LONG_SLICES}"])


def robust(schedule: str) -> bool:
    """Nobody is held by chance, nor at a certain passage: what ran before matters little."""
    words = schedule.split()
    by_chance = ("hold=", "do=", "odds=", "fair=")
    return all(not w.startswith(by_chance) or w == "odds=1" for w in words)


def each(schedule: str) -> str:
    """Held at each passage of the places of its list, whichever CPU comes by."""
    listed = holds(schedule)
    if not listed:
        return schedule
    log2 = int(math.log2(max(one.ns for one in listed)))
    places = sorted({one.place for one in listed})
    return at_each(told(schedule, ()), places, f"{log2}:{log2}")


def at_each(schedule: str, places: Iterable[int], ns: str) -> str:
    """Held at each passage of these places, so long (log2)."""
    return f"{schedule} point={EACH}:{ns} odds=1 at={names(sorted(places))}"


def often(schedule: str) -> str:
    """Where it holds at a few passages of its places, at each of them; at more, where each place
    has its share; else as it is."""
    if "crowd=" in schedule:
        return schedule
    if "fair=" in schedule:
        words = schedule.split()
        return " ".join(
            f"fair={min(MORE * int(word[5:]), MOST)}" if word.startswith("fair=") else word
            for word in words
        )
    words = []
    for word in schedule.split():
        name, _, value = word.partition("=")
        if name == "point":
            word = f"point={EACH}:{value.partition(':')[2]} odds=1"
        if name != "odds" or "point=" not in schedule:
            words.append(word)
    return " ".join(words)


def earlier(schedule: str) -> str:
    """Each a passage earlier: something that passed there is gone."""
    return told(
        schedule, (replace(one, passage=max(1, one.passage - 1)) for one in holds(schedule))
    )


def moved(schedule: str, phases: Mapping[int, int]) -> str:
    """With the numbers that phases have now; what was held in one that is gone is not."""
    listed = holds(schedule)
    if not listed or not phases:
        return schedule
    surrounds = (layout().HM_NO_PHASE, layout().HM_AFTER_PHASE)
    phases = {**phases, **{phase: phase for phase in surrounds}}
    kept = [replace(one, phase=phases[one.phase]) for one in listed if one.phase in phases]
    return schedule if kept == list(listed) else told(schedule, kept, by_chance=True)


def uncounted(log: np.ndarray) -> list[int]:
    """Places where CPUs were held whose passages the log does not tell."""
    held = log[log["what"] == int(What.HELD)]
    return sorted({int(place) for place in held["pc"][held["passage"] == 0]})


def counting(schedule: str, places: Sequence[int]) -> str:
    return f"{without(schedule, 'count')} count={names(places)}"


def recorded(log: np.ndarray) -> tuple[Hold, ...]:
    """The holds of an execution, but for those whose passage it does not tell.

    Who was held again without going on in between is held once, to the end of the last.
    """
    found: dict[tuple[int, int, int], tuple[int, int]] = {}
    for one in log[(log["what"] == int(What.HELD)) & (log["passage"] > 0)]:
        key = (int(one["phase"]), int(one["pc"]), int(one["passage"]))
        begin, end = found.get(key, (int(one["ns"]), 0))
        found[key] = begin, max(end, int(one["ns"]) + int(one["arg"]))
    return tuple(Hold(*key, end - begin) for key, (begin, end) in found.items())


def round_ns(ns: int) -> list[int]:
    """The round numbers (1, 2, 5 x 10^n) below and above, nearest first; none of a round one."""
    power = 10 ** int(math.log10(ns))
    steps = [power * n for n in (1, 2, 5, 10)]
    if ns in steps:
        return []
    around = [max(s for s in steps if s < ns), min(s for s in steps if s > ns)]
    return sorted(around, key=lambda s: abs(math.log(s / ns)))


# -- by name, so that they mean the same in another build


def kept(recipe: Recipe, table: SymbolTable | None) -> Recipe:
    """As it is written: decisions as a list beside the schedule, and all places by names, also
    those of its chain.  What has no name (in a process, or without `table`) stays a number."""
    environment, anchors = anchored(recipe.environment, table)
    chain = tuple(
        replace(link, environment=_named(link.environment, table)) for link in recipe.chain
    )
    return replace(recipe, environment=environment, decisions=anchors, chain=chain)


def here(recipe: Recipe, table: SymbolTable | None) -> tuple[Recipe, list[str]]:
    """The way back, by the symbols of this guest; and the names that it lacks, which are left
    out."""
    environment, lost = resolved(recipe.environment, recipe.decisions, table)
    chain = []
    for link in recipe.chain:
        schedule, gone = addressed(link.environment.schedule, table)
        chain.append(replace(link, environment=replace(link.environment, schedule=schedule)))
        lost += gone
    found = replace(recipe, environment=environment, decisions=(), chain=tuple(chain))
    return found, list(dict.fromkeys(lost))


def by_number(recipe: Recipe) -> set[int]:
    """Places that a recipe has as addresses: they mean something in its own build alone."""
    found = {int(one.at, 16) for one in recipe.decisions if one.at.startswith("0x")}

    def place(text: str) -> str:
        if _NUMBER.fullmatch(text):
            found.add(int(text, 16))
        return text

    for environment in (recipe.environment, *(link.environment for link in recipe.chain)):
        _placed(environment.schedule, place)
        found.update(one.place for one in holds(environment.schedule))
    return found


def anchored(
    environment: Environment, table: SymbolTable | None
) -> tuple[Environment, tuple[Anchor, ...]]:
    """As a recipe keeps it: the list by names, beside the other words."""
    name: Callable[[int], str] = hex if table is None else table.name
    schedule = environment.schedule
    return (
        _named(replace(environment, schedule=without(schedule, "do")), table),
        tuple(
            Anchor(one.phase, name(one.place), one.passage, one.ns) for one in holds(schedule)
        ),
    )  # fmt: skip


def resolved(
    environment: Environment, anchors: Iterable[Anchor], table: SymbolTable | None
) -> tuple[Environment, list[str]]:
    """The way back, by the symbols of this guest; and what it lacks, which is left out."""
    schedule, lost = addressed(environment.schedule, table)
    found = []
    for one in anchors:
        try:
            if one.at.startswith("0x"):
                place = int(one.at, 16)
            elif table is None:
                raise KeyError(one.at)
            else:
                place = table.address(one.at)
        except (KeyError, ValueError):
            lost.append(str(one))
        else:
            found.append(Hold(one.phase, place, one.passage, one.hold_ns))
    if found:
        schedule = told(schedule, found)
    return replace(environment, schedule=schedule), lost


def named(schedule: str, table: SymbolTable) -> str:
    """Its places as "function+0x12" or "function+0x12[module]".  With the offset, also of 0:
    "add" is a number, too."""

    def name(text: str) -> str:
        if not _NUMBER.fullmatch(text):
            return text
        address = int(text, 16)
        found = table.lookup(address)
        if found is None:
            return text
        symbol, offset = found
        module = f" [{symbol.module}]" if symbol.module else ""
        place = f"{symbol.name}+{offset:#x}{module}"
        try:
            return place.replace(" ", "") if table.address(place) == address else text
        except KeyError:
            return text

    return _placed(schedule, name)


def addressed(schedule: str, table: SymbolTable | None) -> tuple[str, list[str]]:
    """The way back, and the names that this guest lacks, which are left out."""
    lost: list[str] = []

    def address(text: str) -> str | None:
        if _NUMBER.fullmatch(text):
            return text
        try:
            if table is None:
                raise KeyError(text)
            return f"{table.address(text.replace('[', ' [')):x}"
        except (KeyError, ValueError):
            lost.append(text)
            return None

    return _placed(schedule, address), lost


def _named(environment: Environment, table: SymbolTable | None) -> Environment:
    if table is None:
        return environment
    return replace(environment, schedule=named(environment.schedule, table))


def _placed(schedule: str, place: Callable[[str], str | None]) -> str:
    """The schedule with these places in at= and count=; where that is None, without it."""
    words = []
    for word in schedule.split():
        key, _, value = word.partition("=")
        if key in _PLACED:
            found = [place(text) for text in value.split(",") if text]
            word = f"{key}={','.join(filter(None, found))}" if any(found) else ""
        if word:
            words.append(word)
    return " ".join(words)
