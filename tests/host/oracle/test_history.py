# SPDX-License-Identifier: GPL-2.0-or-later
"""The history checker against brute force over all orders."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmmbench.guest.program import Acc
from hmmbench.model.page import ANY, new_value
from hmmbench.oracle import history
from hmmbench.oracle.history import (
    FAILED_READ,
    FAILED_WRITE,
    PERM_BEGIN,
    PERM_END,
    ZERO_BEGIN,
    ZERO_END,
    HistoryEvent,
    Undecided,
    final_values,
    precedes,
)


def brute(initial: set[int], events: list[HistoryEvent], perms: tuple[int, ...]) -> frozenset[int]:
    """Every order of every choice of optional events."""
    finals = set()
    optional = [i for i, e in enumerate(events) if e.optional]
    for mask in range(1 << len(optional)):
        skipped = {i for k, i in enumerate(optional) if mask >> k & 1}
        chosen = [e for i, e in enumerate(events) if i not in skipped]
        for order in permutations(chosen):
            if any(
                precedes(b, a) for i, a in enumerate(order) for b in order[i + 1 :]
            ):
                continue
            for start in initial:
                finals |= follow(start, order, perms)
    return frozenset(finals)


def follow(value: int, order: tuple[HistoryEvent, ...], perms: tuple[int, ...]) -> set[int]:
    """The values at the end; a CPU's access may meet the old page while there is one."""
    changing: dict[int, int] = {}
    prot = list(perms)
    memories: set[tuple[int, int | None]] = {(value, None)}
    for e in order:
        if e.kind == PERM_BEGIN:
            changing[e.view] = e.value
        elif e.kind == PERM_END:
            prot[e.view] = changing.pop(e.view)
        elif e.kind == ZERO_BEGIN:
            memories = {(e.value, v) for v, _ in memories}
        elif e.kind == ZERO_END:
            memories = {(v, None) for v, _ in memories}
        else:
            need = 1 if e.kind in (Acc.READ, FAILED_READ) else 2
            ways = {bool(p & need) for p in (prot[0], changing.get(0, prot[0]))} if prot else set()
            failed = e.kind in (FAILED_READ, FAILED_WRITE)
            if e.view >= 0 and (not failed) not in ways:
                return set()
            if not failed:
                memories = {new for m in memories for new in accessed(e, *m)}
    return {v for v, _ in memories}


def accessed(e: HistoryEvent, value: int, old: int | None) -> set[tuple[int, int | None]]:
    """The memories that an access leaves; none if what it reported cannot be."""
    out: set[tuple[int, int | None]] = set()
    if e.kind == Acc.WRITE or e.result in (None, value):
        out.add((new_value(e.kind, value, e.value, e.expect, False), old))
    if e.cpu and old is not None and (e.kind == Acc.WRITE or e.result in (None, old)):
        out.add((value, new_value(e.kind, old, e.value, e.expect, False)))
    return out


@st.composite
def histories(draw: st.DrawFn) -> tuple[set[int], list[HistoryEvent], tuple[int, ...]]:
    small = st.integers(0, 3)
    with_perms = draw(st.booleans())
    kinds = [Acc.READ, Acc.WRITE, Acc.ADD, Acc.XCHG, Acc.CAS]
    events = []
    for step in range(draw(st.integers(1, 4))):
        actor = draw(st.integers(0, 2))
        kind = draw(st.sampled_from(kinds))
        view = 0 if with_perms and draw(st.booleans()) else -1
        if with_perms and draw(st.integers(0, 4)) == 0:
            kind_ = draw(st.sampled_from([FAILED_READ, FAILED_WRITE]))
            events.append(HistoryEvent(kind_, 0, 0, None, actor, step, 0, step, False, 0))
            continue
        result = None if kind == Acc.WRITE else draw(st.one_of(st.none(), small))
        optional = draw(st.integers(0, 4)) == 0
        events.append(
            HistoryEvent(
                kind, draw(st.integers(1, 3)), draw(small), result, actor,
                draw(st.integers(0, 1)), draw(st.integers(0, 1)), step,
                optional and kind != Acc.READ, view, draw(st.booleans()),
            )
        )  # fmt: skip
    # The mover: one after the other, as one thread's operations are.
    for op in range(draw(st.integers(0, 1 if len(events) > 3 else 2))):
        prot = draw(st.sampled_from([0, 1, 3]))
        pair = (PERM_BEGIN, PERM_END)
        if not with_perms or draw(st.booleans()):
            pair = (ZERO_BEGIN, ZERO_END)
        for half, kind_ in enumerate(pair):
            events.append(HistoryEvent(kind_, prot, 0, None, 9, op, 0, half, False, 0))
    initial = draw(st.sets(small, min_size=1, max_size=2))
    return initial, events, (3,) if with_perms else ()


@settings(max_examples=600, deadline=None)
@given(histories())
def test_agrees_with_brute_force(h: tuple[set[int], list[HistoryEvent], tuple[int, ...]]) -> None:
    initial, events, perms = h
    assert final_values(frozenset(initial), events, perms) == brute(initial, events, perms)


def rmw(kind: int, value: int, old: int, lane: int, step: int = 0) -> HistoryEvent:
    return HistoryEvent(kind, value, 0, old, 0, 0, lane, step)


def test_a_chain_of_many_atomics_needs_no_search() -> None:
    events = [rmw(Acc.ADD, 1, k, 99 - k) for k in range(100)]
    assert final_values(0, events) == {100}
    assert final_values(1, events) == frozenset()


def test_a_lost_update_is_seen() -> None:
    assert final_values(0, [rmw(Acc.ADD, 1, 0, 0), rmw(Acc.ADD, 2, 0, 1)]) == frozenset()


def test_a_chain_against_program_order_is_seen() -> None:
    late_first = [rmw(Acc.ADD, 1, 5, 0, 0), rmw(Acc.ADD, 5, 0, 0, 1)]
    assert final_values(0, late_first) == frozenset()


def test_reading_an_unknown_value_fixes_it() -> None:
    first = HistoryEvent(Acc.READ, 0, 0, 7, 0, 0, 0, 0)
    again = HistoryEvent(Acc.READ, 0, 0, 8, 1, 0, 0, 0)
    assert final_values(ANY, [first]) == {7}
    assert final_values(ANY, [first, again]) == frozenset()


def test_hopeless_histories_are_given_up() -> None:
    many = [HistoryEvent(Acc.WRITE, k + 1, 0, None, k, 0, 0, 0) for k in range(40)]
    with pytest.raises(Undecided):
        final_values(0, many)
    unsure = [
        HistoryEvent(Acc.ADD, 1, 0, None, k, 0, 0, 0, True) for k in range(history.MAX_OPTIONAL + 1)
    ]
    with pytest.raises(Undecided):
        final_values(0, unsure)


def test_munmap_is_no_single_step() -> None:
    """Refused at one time and through a translation that is still there at the next."""
    change = [
        HistoryEvent(PERM_BEGIN, 0, 0, None, 2, 0, 0, 0, False, 0),
        HistoryEvent(PERM_END, 0, 0, None, 2, 0, 0, 1, False, 0),
    ]
    both = [
        HistoryEvent(FAILED_READ, 0, 0, None, 3, 0, 0, 0, False, 0),
        HistoryEvent(Acc.ADD, 1, 0, 5, 3, 1, 0, 0, False, 0),
    ]
    assert final_values(5, [*change, *both], (3,)) == {6}
    # But not once it is over, which a later operation of the same thread shows ...
    after = [
        HistoryEvent(Acc.WRITE, 7, 0, None, 2, 1, 0, 0),
        HistoryEvent(Acc.ADD, 1, 0, 7, 3, 1, 0, 0, False, 0),
    ]
    assert final_values(5, [*change, *after], (3,)) == frozenset()
    # ... and not before it has begun.
    before = [
        HistoryEvent(FAILED_READ, 0, 0, None, 3, 0, 0, 0, False, 0),
        HistoryEvent(Acc.WRITE, 7, 0, None, 3, 1, 0, 0),
        HistoryEvent(Acc.READ, 0, 0, 7, 2, -1, 0, 0),
    ]
    assert final_values(5, [*change, *before], (3,)) == frozenset()


def test_a_cpu_may_see_the_replaced_page_until_dontneed_returns() -> None:
    zero = [
        HistoryEvent(ZERO_BEGIN, 0, 0, None, 2, 0, 0, 0),
        HistoryEvent(ZERO_END, 0, 0, None, 2, 0, 0, 1),
    ]
    gpu = HistoryEvent(Acc.READ, 0, 0, 0, 3, 0, 0, 0)
    late = HistoryEvent(Acc.READ, 0, 0, 5, 3, 1, 0, 0)
    assert final_values(5, [*zero, gpu, late]) == frozenset()
    late.cpu = True
    assert final_values(5, [*zero, gpu, late]) == {0}
    over = HistoryEvent(Acc.READ, 0, 0, 5, 2, 1, 0, 0, cpu=True)
    assert final_values(5, [*zero, gpu, over]) == frozenset()
