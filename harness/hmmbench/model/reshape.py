# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that change while others access them: which of their pages, and what then is certain.

Truncation, hole punching and writes by descriptor may stand beside accesses through mappings.
Of the pages that they change, meanwhile: an access is done or refused (SIGBUS, the job's fault) if
the page was behind the end at any time; what it finds is not judged.  Afterwards it is certain
that what lies behind the end is gone, private copies included (the kernel takes those twice, for
who made one in between), and that what nobody wrote is zeroes or what the descriptor wrote; of
a word that somebody wrote through a mapping nothing is known.  So that no copy of an unknown
moment is left behind, pages that stay are not accessed through private mappings meanwhile.
One thread of a phase changes files, so that their size is known when it is over.
"""

from __future__ import annotations

from collections.abc import Iterable

from hmmbench.guest.program import Op
from hmmbench.model.ops import of as operation
from hmmbench.model.space import Process, SharedObject, Space, Vma


class Reshaped:
    """Pages of files that operations of one phase change.

    `pages`: (identity of the file, page of it) -> may it be behind the end meanwhile?
    """

    def __init__(self, space: Space, ops: Iterable[Op] = ()) -> None:
        self.pages: dict[tuple[int, int], bool] = {}
        self._sizes: dict[int, int] = {}
        # words written through mappings
        self._written: dict[tuple[int, int], tuple[SharedObject, set[int]]] = {}
        for o in ops:
            kind = operation(o)
            if not kind.reshapes:
                continue
            obj = space.files[o.b]
            before = self._sizes.get(id(obj), obj.npages)
            pages, after = kind.reshaped(o, before)
            self._sizes[id(obj)] = after
            for index in pages:
                self.pages.setdefault((id(obj), index), False)
            for index in range(min(before, after), max(before, after)):
                self.pages[id(obj), index] = True

    def missing(self, vma: Vma | None, gp: int) -> bool | None:
        """Of a page that they change: may it be behind the end meanwhile?  None: of another."""
        if not self.pages or vma is None:
            return None
        return self.pages.get((id(vma.obj), gp + vma.delta))

    def touches(self, vma: Vma, start: int, end: int) -> bool:
        """Is any of the pages of the area changed?"""
        return bool(self.pages) and any(
            self.missing(vma, gp) is not None
            for gp in range(max(vma.start, start), min(vma.end, end))
        )

    def kept(self) -> list[tuple[int, int]]:
        """Those that are there when it is over."""
        return [(obj, index) for obj, index in self.pages if index < self._sizes[obj]]

    def trim(self, p: Process) -> None:
        """Of a process that came to be meanwhile: private copies of what was behind the end are
        gone.  (The kernel finds a child's area behind its parent's, and so what it inherits.)"""
        for v in p.vmas:
            for gp in range(v.start, v.end) if self.pages and v.obj is not None else ():
                if self.missing(v, gp):
                    p.drop_pages(gp, gp + 1)

    def written(self, vma: Vma, gp: int, word: int) -> None:
        """Somebody writes, or tries to, a word of such a page."""
        assert vma.obj is not None
        index = gp + vma.delta
        self._written.setdefault((id(vma.obj), index), (vma.obj, set()))[1].add(word)

    def blur(self) -> None:
        """Behind the phase, when its operations are applied."""
        for (_, index), (obj, words) in self._written.items():
            if index < obj.npages:
                obj.page(index).forget(words)
