# SPDX-License-Identifier: GPL-2.0-or-later
"""Is there a legal total order of everything that happened to one word?

The contract of coherent memory, per location: all accesses to one word can be put in one
order in which each read returns the latest value written before it, each atomic is one step,
and every thread's own accesses keep their program order.  A thread is a CPU actor or one GPU
lane; the lanes of one launch are unordered among each other, and everything a launch does
comes before the next operation of the actor that waited for it.

Permissions are part of the state: an access that worked must have a place where it was allowed,
one that failed a place where it was not.  mprotect and munmap are no single step: the kernel
changes the mapping first and takes the page-table entries away later, so in between a CPU that
faults is refused, while the GPU, or a CPU that has the translation, still gets through.  Each is
therefore two events, and between them both is legal.  Likewise MADV_DONTNEED: the page is gone
from the table before the last CPU's TLB is flushed, so until it returns a CPU may still use the
old page, whatever others find in the new one.

`final_values` searches all legal orders at once: a state is (which events are done, value,
permissions), visited once.  Events that change nothing are taken as soon as they fit, which
loses no order, because whatever was possible before them is possible after them.  Chains of
atomics that report distinct old values have at most one order and need no search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hmmbench.guest.program import Acc
from hmmbench.model.page import ANY, AnyValue, Val, join, new_value

#: States visited before the search gives up and says "undecided".
BUDGET = 3000
#: Events that may or may not have happened, beyond which searching is hopeless.
MAX_OPTIONAL = 7

#: Kinds of events besides Acc.READ..CAS
PERM_BEGIN = 100  # value: the protection that `view` is getting
FAILED_READ = 101  # refused: `view` did not allow reading
FAILED_WRITE = 102
PERM_END = 103  # `view` has it everywhere
ZERO_BEGIN = 104  # the page is replaced by a new one: of zeroes, or `value` in each word
ZERO_END = 105  # and no CPU sees the old one any more


@dataclass(slots=True)
class HistoryEvent:
    """One thing that happened to the word.

    `thread` and `step` give the order: (actor, operation number) is the thread's place; see
    `precedes`.  `result`: what it reported (reads and atomics), None if unknown.  `optional`:
    it may not have happened.  `view`: index of the permission it needs, -1 if it cannot change.
    `cpu`: an access of a CPU, which has a TLB that software flushes late.
    """

    kind: int
    value: int
    expect: int
    result: int | None
    actor: int
    op: int
    lane: int
    step: int
    optional: bool = False
    view: int = -1
    cpu: bool = False
    #: where it comes from, for messages: (index of the operation, process, page)
    source: tuple[int, int, int] = (-1, -1, -1)


def precedes(a: HistoryEvent, b: HistoryEvent) -> bool:
    """Program order: same actor, earlier operation, or same lane of the same one."""
    if a.actor != b.actor:
        return False
    if a.op != b.op:
        return a.op < b.op
    return a.lane == b.lane and a.step < b.step


class Undecided(Exception):
    """The search was given up; nothing can be said about the word."""


def final_values(
    initial: Val, events: Sequence[HistoryEvent], perms: tuple[int, ...] = ()
) -> frozenset[int] | AnyValue:
    """All values the word may hold after `events`; an empty set if no order explains them.

    `perms`: the protection of each view before; at most one change of a view, and one
    replacement of the page, may be under way at a time.

    Raises Undecided when the history is too entangled to search.
    """
    if not perms and not isinstance(initial, AnyValue):
        quick = _chain(initial, events)
        if quick is not None:
            return quick
    return _search(initial, events, perms)


def _chain(initial: Val, events: Sequence[HistoryEvent]) -> frozenset[int] | None:
    """Only atomics that report and change the value, all old values distinct: follow them.

    None if the history is of another kind (the search decides).
    """
    by_old: dict[int, HistoryEvent] = {}
    for e in events:
        if e.result is None or e.optional or e.kind not in (Acc.ADD, Acc.XCHG, Acc.CAS):
            return None
        if new_value(e.kind, e.result, e.value, e.expect, False) == e.result:
            return None
        if e.result in by_old:
            # Two atomics found the same value: legal only if it came back, which the
            # search has to find out.
            return None
        by_old[e.result] = e
    starts = {initial} if isinstance(initial, int) else set(initial)  # type: ignore[arg-type]
    finals = set()
    for value in starts:
        order: list[HistoryEvent] = []
        seen: set[int] = set()
        while value in by_old and value not in seen:
            seen.add(value)
            e = by_old[value]
            order.append(e)
            value = new_value(e.kind, value, e.value, e.expect, False)
        if len(order) == len(events) and _in_program_order(order):
            finals.add(value)
    return frozenset(finals)


def _in_program_order(order: Sequence[HistoryEvent]) -> bool:
    """Does no event come after one that it precedes?"""
    last_op: dict[int, int] = {}
    last_step: dict[tuple[int, int, int], int] = {}
    for e in order:
        if last_op.get(e.actor, -1) > e.op:
            return False
        last_op[e.actor] = e.op
        key = (e.actor, e.op, e.lane)
        if last_step.get(key, -1) > e.step:
            return False
        last_step[key] = e.step
    return True


#: A view's state: what may be allowed, and _MUST times what is allowed for sure.
_MUST = 16


def _allowed(perm: int, kind: int) -> bool:
    return bool(perm & (1 if kind == Acc.READ else 2))


def _refused(perm: int, kind: int) -> bool:
    return not perm // _MUST & (1 if kind == FAILED_READ else 2)


def _changed(perm: int, e: HistoryEvent) -> int:
    if e.kind == PERM_END:
        return e.value * (1 + _MUST)
    return (perm % _MUST | e.value) + (perm // _MUST & e.value) * _MUST


#: Value, permissions, and the old value while CPUs may still see the replaced page.
_Memory = tuple["int | AnyValue", tuple[int, ...], "int | AnyValue | None"]
_State = tuple[int, "int | AnyValue", tuple[int, ...], "int | AnyValue | None"]


def _search(
    initial: Val, events: Sequence[HistoryEvent], perms: tuple[int, ...]
) -> frozenset[int] | AnyValue:
    n = len(events)
    if sum(e.optional for e in events) > MAX_OPTIONAL:
        raise Undecided
    full = (1 << n) - 1
    before = [0] * n
    for i, e in enumerate(events):
        for j, o in enumerate(events):
            if i != j and precedes(o, e):
                before[i] |= 1 << j
    start: list[int | AnyValue]
    start = [initial] if isinstance(initial, (int, AnyValue)) else list(initial)
    views = tuple(p * (1 + _MUST) for p in perms)
    todo: list[_State] = [(0, v, views, None) for v in start]
    seen: set[_State] = set(todo)
    finals: set[int] = set()
    unknown = False
    visited = 0
    while todo:
        state = todo.pop()
        visited += 1
        if visited > BUDGET:
            raise Undecided
        done, value, perm, old = state
        done = _take_passive(events, before, done, value, perm, old)
        if done == full:
            if isinstance(value, AnyValue):
                unknown = True
            else:
                finals.add(value)
            continue
        for i in range(n):
            bit = 1 << i
            if done & bit or before[i] & ~done:
                continue
            for nxt in _successors(events[i], value, perm, old):
                new: _State = (done | bit, *nxt)
                if new not in seen:
                    seen.add(new)
                    todo.append(new)
    return ANY if unknown else frozenset(finals)


def _take_passive(
    events: Sequence[HistoryEvent],
    before: Sequence[int],
    done: int,
    value: int | AnyValue,
    perm: tuple[int, ...],
    old: int | AnyValue | None,
) -> int:
    """Take every event that fits here and changes nothing."""
    again = True
    while again:
        again = False
        for i, e in enumerate(events):
            bit = 1 << i
            if done & bit or before[i] & ~done:
                continue
            if e.kind == Acc.READ:
                # Reading an unknown value makes it known: that is a change.
                fits = e.result is None or (
                    value == e.result and not isinstance(value, AnyValue)
                ) or (e.cpu and old == e.result and not isinstance(old, AnyValue))
                if fits and e.view >= 0:
                    fits = e.optional or _allowed(perm[e.view], e.kind)
            elif e.kind in (FAILED_READ, FAILED_WRITE):
                fits = _refused(perm[e.view], e.kind)
            else:
                continue
            if fits:
                done |= bit
                again = True
    return done


def _successors(
    e: HistoryEvent, value: int | AnyValue, perm: tuple[int, ...], old: int | AnyValue | None
) -> list[_Memory]:
    """The states after `e` happens (or, if optional, is skipped)."""
    out: list[_Memory] = []
    if e.kind in (PERM_BEGIN, PERM_END):
        new = _changed(perm[e.view], e)
        return [(value, (*perm[: e.view], new, *perm[e.view + 1 :]), old)]
    if e.kind == ZERO_BEGIN:
        return [(e.value, perm, value)]
    if e.kind == ZERO_END:
        return [(value, perm, None)]
    if e.kind in (FAILED_READ, FAILED_WRITE):
        return []
    if e.optional:
        out.append((value, perm, old))
    if e.view >= 0 and not _allowed(perm[e.view], e.kind):
        return out
    out += [(new, perm, old) for new in _access(e, value)]
    if e.cpu and old is not None:
        out += [(value, perm, new) for new in _access(e, old)]
    return out


def _access(e: HistoryEvent, value: int | AnyValue) -> list[int | AnyValue]:
    """What the word holds after `e` met `value`; nothing if it cannot have."""
    if e.kind == Acc.WRITE:
        return [e.value]
    if e.result is None:
        if isinstance(value, AnyValue):
            return [value]
        return [new_value(e.kind, value, e.value, e.expect, False)]
    if isinstance(value, AnyValue) or value == e.result:
        return [new_value(e.kind, e.result, e.value, e.expect, False)]
    return []


def settle(values: frozenset[int] | AnyValue) -> Val:
    """The outcome in the form a page keeps."""
    return values if isinstance(values, AnyValue) else join(values)
