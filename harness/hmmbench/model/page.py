# SPDX-License-Identifier: GPL-2.0-or-later
"""What one page may contain.

Most words of memory have exactly one legal value.  Three things make it more:

* A race leaves a *set* of values for one word (`frozenset`), later reads narrow it.
  A word about which nothing can be said is `ANY`.
* MADV_FREE lets the kernel drop the page at any moment until it is written: old content
  or zeros, but for the whole page at once.  These are *worlds*: each is one consistent
  content of the page.  A read drops the worlds that cannot explain it.
* A private file page follows the file until its first write copies it.  After a write fault of
  the GPU that nobody waits for it is not known whether, and of which moment, it is a copy.

A page with no world left has been read in a way that nothing explains.
"""

from __future__ import annotations

from typing import Final

from hmmbench.guest.program import Acc

#: Of a page.
WORDS: Final = 512
M64: Final = (1 << 64) - 1
M32: Final = (1 << 32) - 1


class AnyValue:
    """Type of `ANY`, the value of a word about which nothing is known."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = AnyValue()
Val = int | frozenset[int] | AnyValue


def join(values: set[int] | frozenset[int]) -> Val:
    """A set of possible values in its smallest form."""
    return next(iter(values)) if len(values) == 1 else frozenset(values)


def show(v: Val) -> str:
    """A value for a message."""
    if isinstance(v, int):
        return hex(v)
    if isinstance(v, AnyValue):
        return "anything"
    some = sorted(v)
    return "one of " + ", ".join(map(hex, some[:6])) + (", ..." if len(some) > 6 else "")


def new_value(kind: int, old: int, value: int, expect: int, high: bool) -> int:
    """What a word holds after an access found `old` in it."""
    if kind == Acc.WRITE or kind == Acc.XCHG:
        return value
    if kind == Acc.ADD:
        return (old + value) & M64
    if kind == Acc.CAS:
        return value if old == expect else old
    if kind == Acc.WRITE32:
        if high:
            return (old & M32) | (value & M32) << 32
        return (old & ~M32) | (value & M32)
    return old


def observed(kind: int, old: int, high: bool) -> int:
    """What an access reports that found `old` in the word (reads and atomics)."""
    if kind == Acc.READ32:
        return (old >> 32) if high else (old & M32)
    return old


class World:
    """One consistent content of a page.  `lazy`: may turn to zeros until written.

    Words not in `vals` hold `base`.  `follow`: no copy yet, the content is that page's
    (`vals` and `base` are unused); such a page always has one world.
    """

    __slots__ = ("base", "follow", "lazy", "vals")

    def __init__(
        self,
        vals: dict[int, Val] | None = None,
        lazy: bool = False,
        follow: Page | None = None,
        base: Val = 0,
    ) -> None:
        self.vals: dict[int, Val] = {} if vals is None else vals
        self.lazy = lazy
        self.follow = follow
        self.base = base

    def copy(self) -> World:
        return World(dict(self.vals), self.lazy, self.follow, self.base)

    def get(self, word: int) -> Val:
        w = self if self.follow is None else self.follow.worlds[0]
        return w.vals.get(word, w.base)

    def owned(self) -> list[World]:
        """What the page may be after something is about to write it."""
        if self.follow is not None:
            w = self.follow.worlds[0]
            return [World(dict(w.vals), base=w.base)]
        if self.lazy:
            return [World(dict(self.vals), base=self.base), World()]
        return [self]

    def step(
        self, word: int, kind: int, value: int, expect: int, result: int, high: bool
    ) -> list[World]:
        """The worlds this one becomes when an access is seen to end with `result`."""
        if kind == Acc.READ or kind == Acc.READ32:
            narrowed = _narrow(self.get(word), kind, result, high)
            if narrowed is not None:
                if self.follow is None:
                    self.vals[word] = narrowed
                return [self]
            if self.lazy and result == 0:
                return [World()]
            return []
        out = []
        if kind == Acc.CAS and result != expect and (self.lazy or self.follow is not None):
            # A compare that fails may or may not have counted as a write.
            out += self.copy().step(word, Acc.READ, 0, 0, result, high)
        for w in self.owned():
            cur = w.vals.get(word, w.base)
            if kind == Acc.WRITE:
                w.vals[word] = value
            elif kind == Acc.WRITE32:
                if isinstance(cur, int):
                    w.vals[word] = new_value(kind, cur, value, 0, high)
                elif not isinstance(cur, AnyValue):
                    w.vals[word] = join({new_value(kind, c, value, 0, high) for c in cur})
            else:
                if _narrow(cur, kind, result, high) is None:
                    continue
                w.vals[word] = new_value(kind, result, value, expect, high)
            out.append(w)
        return out


def _narrow(cur: Val, kind: int, result: int, high: bool) -> Val | None:
    """What remains of `cur` when it was read as `result`; None if that cannot be."""
    if isinstance(cur, int):
        return cur if observed(kind, cur, high) == result else None
    if isinstance(cur, AnyValue):
        return ANY if kind == Acc.READ32 else result
    left = frozenset(c for c in cur if observed(kind, c, high) == result)
    return join(left) if left else None


class Page:
    """The alternatives of one page; empty = contradiction."""

    __slots__ = ("worlds",)

    def __init__(self, worlds: list[World] | None = None) -> None:
        self.worlds = [World()] if worlds is None else worlds

    @staticmethod
    def following(page: Page) -> Page:
        """A private page of a file that nobody wrote yet."""
        return Page([World(follow=page)])

    def copy(self) -> Page:
        return Page([w.copy() for w in self.worlds])

    @property
    def plain(self) -> bool:
        """One certain world: words are independent of each other."""
        ws = self.worlds
        return len(ws) == 1 and not ws[0].lazy and ws[0].follow is None

    def access(
        self, word: int, kind: int, value: int, expect: int, result: int, high: bool = False
    ) -> bool:
        """Account for one access; False if no world explains its result (nothing changes)."""
        ws = self.worlds
        if len(ws) == 1:
            w = ws[0]
            if not w.lazy and w.follow is None:
                cur = w.vals.get(word, w.base)
                if kind == Acc.READ:
                    if cur == result:
                        return True
                elif kind == Acc.WRITE:
                    w.vals[word] = value
                    return True
        out: list[World] = []
        for w in ws:
            out += w.step(word, kind, value, expect, result, high)
        if not out:
            return False
        self.worlds = _distinct(out) if len(out) > 2 else out
        return True

    def maybe(self, word: int, kind: int, value: int, expect: int, high: bool = False) -> None:
        """Account for one access that may or may not have happened, result unknown."""
        if kind in (Acc.READ, Acc.READ32, Acc.DELAY):
            return
        out: list[World] = []
        for w in self.worlds:
            if w.lazy or w.follow is not None:
                out.append(w.copy())
            for o in w.owned():
                cur = o.vals.get(word, o.base)
                if not isinstance(cur, AnyValue):
                    olds = {cur} if isinstance(cur, int) else set(cur)
                    news = {new_value(kind, c, value, expect, high) for c in olds}
                    o.vals[word] = join(olds | news)
                out.append(o)
        self.worlds = _distinct(out)

    def put(self, word: int, value: Val) -> None:
        """The word now holds `value`, in every world (of a page that is owned)."""
        for w in self.worlds:
            w.vals[word] = value

    def forget(self, words: set[int]) -> None:
        """Of these nothing is known any more (of a page that is owned)."""
        for w in self.worlds:
            w.vals.update(dict.fromkeys(words, ANY))

    def fill(self, value: Val) -> None:
        """Every word now holds `value`."""
        self.worlds = [World(base=value)]

    def possible(self, word: int) -> str:
        """What a read of the word may return, for messages."""
        texts = []
        for w in self.worlds:
            texts.append(show(w.get(word)))
            if w.lazy:
                texts.append("0x0")
        return " or ".join(dict.fromkeys(texts))

    def surely_changed(self, before: Page) -> bool:
        """Whether some word certainly holds another value than it did, so that it was written."""
        if not (self.plain and before.plain):
            return False
        now, then = self.worlds[0], before.worlds[0]
        words = now.vals.keys() | then.vals.keys()
        return (len(words) < WORDS and _apart(now.base, then.base)) or any(
            _apart(now.get(word), then.get(word)) for word in words
        )

    def own(self) -> None:
        """A write is certain to come first: drop the states before it."""
        out: list[World] = []
        for w in self.worlds:
            out += w.owned()
        self.worlds = _distinct(out)

    @property
    def follows(self) -> bool:
        """Perhaps no copy yet?"""
        return any(w.follow is not None for w in self.worlds)

    def loosen(self) -> None:
        """If it follows a file: it may have been copied at any moment, and may be copied later."""
        if self.follows:
            self.worlds = [World(follow=UNKNOWN)]

    def blur(self) -> None:
        """Nothing is known of it, nor whether it will follow a file, or be dropped: until somebody
        writes it for certain."""
        self.worlds = [World(follow=UNKNOWN)]

    def free(self) -> None:
        """MADV_FREE."""
        for w in self.worlds:
            if w.follow is None and (w.vals or w.base != 0):
                w.lazy = True


#: What a page follows that may follow its file or be a copy of any moment; nobody writes it.
UNKNOWN: Final = Page([World(base=ANY)])


def _apart(a: Val, b: Val) -> bool:
    """Whether no value is one of both."""
    if isinstance(a, AnyValue) or isinstance(b, AnyValue):
        return False
    first = frozenset({a}) if isinstance(a, int) else a
    return first.isdisjoint({b} if isinstance(b, int) else b)


def _distinct(worlds: list[World]) -> list[World]:
    out: list[World] = []
    for w in worlds:
        for o in out:
            if o.lazy == w.lazy and o.follow is w.follow and o.vals == w.vals and o.base == w.base:
                break
        else:
            out.append(w)
    return out
