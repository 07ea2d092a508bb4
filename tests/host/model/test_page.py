# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages with several possible contents."""

from __future__ import annotations

from hmmbench.guest.program import Acc
from hmmbench.model.page import ANY, Page


def write(p: Page, word: int, value: int) -> None:
    assert p.access(word, Acc.WRITE, value, 0, 0)


def reads(p: Page, word: int, value: int) -> bool:
    return p.access(word, Acc.READ, 0, 0, value)


def test_lazily_freed_page_is_old_or_zero_as_a_whole() -> None:
    p = Page()
    write(p, 0, 5)
    write(p, 1, 6)
    p.free()
    assert reads(p, 0, 5)
    assert reads(p, 1, 0), "dropped between the two reads"
    assert not reads(p, 0, 5), "what is dropped does not come back"
    assert reads(p, 0, 0)


def test_a_write_ends_the_lazy_state() -> None:
    p = Page()
    write(p, 0, 5)
    p.free()
    write(p, 1, 7)
    q = p.copy()
    assert reads(p, 0, 5)
    assert not reads(p, 0, 0)
    assert reads(q, 0, 0)
    assert not reads(q, 0, 5)
    assert reads(q, 1, 7)


def test_a_private_file_page_follows_the_file_until_written() -> None:
    file = Page()
    private = Page.following(file)
    write(file, 3, 9)
    assert reads(private, 3, 9)
    write(private, 4, 1)
    write(file, 3, 10)
    assert reads(private, 3, 9)
    assert not reads(private, 3, 10)


def test_a_set_of_values_is_narrowed_by_reading() -> None:
    p = Page()
    p.put(0, frozenset({1, 2, 3}))
    assert p.access(0, Acc.ADD, 10, 0, 2)
    assert reads(p, 0, 12)
    assert not reads(p, 0, 13)
    p.put(0, ANY)
    assert reads(p, 0, 77)
    assert not reads(p, 0, 78)


def test_half_words() -> None:
    p = Page()
    write(p, 0, 0x1111111122222222)
    assert p.access(0, Acc.WRITE32, 0x33333333, 0, 0, True)
    assert reads(p, 0, 0x3333333322222222)
    assert p.access(0, Acc.READ32, 0, 0, 0x33333333, True)
    assert not p.access(0, Acc.READ32, 0, 0, 0x33333333, False)


def test_an_access_that_perhaps_happened() -> None:
    p = Page()
    p.maybe(0, Acc.ADD, 4, 0)
    q = p.copy()
    assert reads(p, 0, 0)
    assert reads(q, 0, 4)
