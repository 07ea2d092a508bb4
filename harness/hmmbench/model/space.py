# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes and their address spaces, and what each operation does to them.

Addresses are global page numbers: ``gp = region << 14 | page of the region``.  A VMA here
is never larger than the kernel's (the kernel may merge neighbours, the model does not), so
whatever is inside one VMA of the model is inside one VMA of the kernel.

The same class serves the generator (which tracks structure only, contents stay empty) and
the checker (which also fills the pages).
"""

from __future__ import annotations

from bisect import bisect_right

from hmmbench.guest.program import (
    HUGE,
    MAX_FILES,
    PAGE,
    REGION_SIZE,
    MapKind,
    Op,
)
from hmmbench.model.mishaps import Mishaps
from hmmbench.model.page import Page, World

REGION_SHIFT = 14
REGION_PAGES = REGION_SIZE // PAGE
assert REGION_PAGES == 1 << REGION_SHIFT
HUGE_PAGES = HUGE // PAGE

SHARED = frozenset({MapKind.ANON_SHARED, MapKind.FILE_SHARED, MapKind.HUGETLB_SHARED})
HUGETLB = frozenset({MapKind.HUGETLB_PRIVATE, MapKind.HUGETLB_SHARED})
ANON = frozenset({MapKind.ANON_PRIVATE, MapKind.STACK, MapKind.GLOBAL})
FIXED = frozenset({MapKind.STACK, MapKind.GLOBAL})
FILE = frozenset({MapKind.FILE_PRIVATE, MapKind.FILE_SHARED})

#: Of Vma.flags, and of several families: nobody may access it; its areas stay as they are; its
#: pages are broken; the page merger may take its pages; somebody else serves its faults.
GUARDED, SEALED, POISONED, MERGEABLE = "guarded", "sealed", "poisoned", "mergeable"
MISSING, MINOR, PROTECTED = "uffd missing", "uffd minor", "uffd protected"
SERVED = frozenset({MISSING, MINOR, PROTECTED})

#: What a child of fork has, too.
INHERITED = frozenset({GUARDED, SEALED, POISONED, MERGEABLE})


def gp_of(region: int, off: int) -> int:
    """Global page number of an offset (bytes) in a region."""
    return region << REGION_SHIFT | off // PAGE


def place(gp: int) -> str:
    """A page for a message: r3+0x2000."""
    return f"r{gp >> REGION_SHIFT}+{(gp & (REGION_PAGES - 1)) * PAGE:#x}"


class SharedObject:
    """What several mappings may share: a file, or the memory behind a shared mapping.

    `npages`: where it ends now, which for a file may change (ops/files.py); `capacity`: its size
    when the program began, beyond which no file grows.
    """

    __slots__ = ("capacity", "name", "npages", "pages")

    def __init__(self, name: str, npages: int) -> None:
        self.name = name
        self.npages = self.capacity = npages
        self.pages: dict[int, Page] = {}

    def page(self, index: int) -> Page:
        p = self.pages.get(index)
        if p is None:
            p = self.pages[index] = Page()
        return p

    def put(self, off: int, length: int, value: int) -> None:
        """The bytes from `off` on hold a word over and over, up to the object's end."""
        end = min(off + length, self.npages * PAGE)
        while off < end:
            stop = min(end, off - off % PAGE + PAGE)
            page = self.page(off // PAGE)
            if stop - off == PAGE:
                page.fill(value)
            else:
                for word in range(off // 8, stop // 8):
                    page.put(word % 512, value)
            off = stop


class Vma:
    """A range of pages [start, end) with one kind and one protection.

    Page gp of it is page gp + delta of `obj`, if there is one.  `large`: the kernel may have had
    room for a 2 MiB page there, so its pages may be pieces of one.  `flags`: what operations said
    of it and other operations ask for; they go with memory that moves, a child of fork has those
    of INHERITED.  `behind`: its protection when nobody guards it any more.  `fill`: what is in
    each word of a private page that comes to be.
    """

    __slots__ = (
        "behind", "delta", "end", "fill", "flags", "kind", "large", "obj", "prot", "start",
    )  # fmt: skip

    def __init__(
        self, start: int, end: int, kind: MapKind, prot: int, obj: SharedObject | None, delta: int,
        large: bool = False, flags: frozenset[str] = frozenset(), fill: int = 0,
    ) -> None:  # fmt: skip
        self.start = start
        self.end = end
        self.kind = kind
        self.prot = prot
        self.obj = obj
        self.delta = delta
        self.large = large
        self.flags = flags
        self.fill = fill
        self.behind = prot

    def beyond(self, gp: int) -> bool:
        """Does the page lie behind the end of its file, or is it broken?  A CPU that touches it
        gets SIGBUS."""
        return POISONED in self.flags or (
            self.obj is not None and gp + self.delta >= self.obj.npages
        )

    def reach(self) -> int:
        """Where it ends, or the file behind it, whichever comes first."""
        return self.end if self.obj is None else min(self.end, self.obj.npages - self.delta)

    def allows(self, gp: int, need: int) -> bool:
        """May a page of it be accessed in a way that needs the protection `need`?"""
        return bool(self.prot & need) and not self.beyond(gp)

    def sub(self, start: int, end: int) -> Vma:
        cut = Vma(
            start, end, self.kind, self.prot, self.obj, self.delta, self.large, self.flags,
            self.fill,
        )  # fmt: skip
        cut.behind = self.behind
        return cut


class Process:
    """One address space.

    `private` holds the contents of private pages (absent: zeros, or the file).
    `unsettled` holds private pages whose content depends on more than one word's history
    (MADV_FREE, a copy that may or may not have happened): only one thread a phase may touch
    such a page.
    `late` holds pages for which the fault buffer may still have a write fault of the GPU: it is
    served after its job has ended, too, and then makes a private copy of a file's page that
    nobody asks for any more.
    `pinned` has pages that are pinned (ops/pins.py), and where each is in the pin.
    `watched` and `clean` have pages that a write will be seen of, and what was in them: protected
    against writes (ops/uffd.py), and not dirty in the kernel's book (ops/dirty.py).
    `paged`: ranges that the kernel was told to page out, at any time before.
    `held`: whose memory the GPU's files mirror that were passed on to it, by number.
    `exclusive`: whether its GPU has to have a page for itself for atomics (None: not known).
    `stale`: the file of the GPU that it has, if any, may be of a device that was taken away: how,
    from 1 (ops/device.py); 0: it is not.
    """

    __slots__ = (
        "alive", "clean", "exclusive", "held", "late", "number", "paged", "pinned", "private",
        "stale", "starts", "unsettled", "vmas", "watched",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.alive = True
        self.exclusive: bool | None = False
        self.vmas: list[Vma] = []
        self.starts: list[int] = []
        self.private: dict[int, Page] = {}
        self.unsettled: set[int] = set()
        self.late: set[int] = set()
        self.pinned: dict[int, int] = {}
        self.watched: dict[int, Page] = {}
        self.clean: dict[int, Page] = {}
        self.paged: list[tuple[int, int]] = []
        self.held: list[int] = []
        self.stale = 0

    def fork(self, number: int) -> Process:
        child = Process(number)
        child.vmas = [v.sub(v.start, v.end) for v in self.vmas]
        for v in child.vmas:
            v.flags &= INHERITED
        child.starts = list(self.starts)
        child.private = {gp: p.copy() for gp, p in self.private.items()}
        child.unsettled = set(self.unsettled)
        # What was copied before the fork, at whatever moment, is the child's as well.
        child.late = set(self.late)
        child.held = list(self.held)
        child.paged = list(self.paged)
        return child

    def find(self, gp: int) -> Vma | None:
        i = bisect_right(self.starts, gp) - 1
        if i >= 0:
            v = self.vmas[i]
            if gp < v.end:
                return v
        return None

    def overlapping(self, start: int, end: int) -> list[Vma]:
        i = max(bisect_right(self.starts, start) - 1, 0)
        out = []
        for v in self.vmas[i:]:
            if v.start >= end:
                break
            if v.end > start:
                out.append(v)
        return out

    def covered(self, start: int, end: int) -> bool:
        """No hole in [start, end)?"""
        return sum(
            min(v.end, end) - max(v.start, start) for v in self.overlapping(start, end)
        ) == (end - start)

    def _set(self, vmas: list[Vma]) -> None:
        vmas.sort(key=lambda v: v.start)
        self.vmas = vmas
        self.starts = [v.start for v in vmas]

    def split(self, start: int, end: int) -> list[Vma]:
        """Cut VMAs at both borders; the VMAs inside."""
        out: list[Vma] = []
        inside: list[Vma] = []
        for v in self.vmas:
            if v.end <= start or v.start >= end:
                out.append(v)
                continue
            if v.start < start:
                out.append(v.sub(v.start, start))
            if v.end > end:
                out.append(v.sub(end, v.end))
            mid = v.sub(max(v.start, start), min(v.end, end))
            out.append(mid)
            inside.append(mid)
        self._set(out)
        return inside

    def drop_pages(self, start: int, end: int) -> None:
        """Private pages of the range lose their content, and are others when touched again."""
        self.let_go(start, end)
        if self.private:
            for gp in [g for g in self.private if start <= g < end]:
                del self.private[gp]
        if self.unsettled:
            self.unsettled = {g for g in self.unsettled if not start <= g < end}

    def let_go(self, start: int, end: int) -> None:
        """The pages that were pinned in the range, or watched, are not the process's any more."""
        if self.pinned:
            self.pinned = {gp: k for gp, k in self.pinned.items() if not start <= gp < end}
        self.unwatch(start, end)

    def was_paged(self, start: int, end: int) -> bool:
        """Was some of the range to be paged out?"""
        return any(lo < end and start < hi for lo, hi in self.paged)

    def forget_clean(self, start: int, end: int) -> None:
        """Whether the kernel's book has the pages is not known from now on."""
        for gp in [gp for gp in self.clean if start <= gp < end]:
            del self.clean[gp]

    def unwatch(self, start: int, end: int) -> None:
        """Whether the pages of the range are written is not known from now on."""
        self.forget_clean(start, end)
        for gp in [gp for gp in self.watched if start <= gp < end]:
            del self.watched[gp]

    def unmap(self, start: int, end: int) -> None:
        gone = {id(v) for v in self.split(start, end)}
        if gone:
            self._set([v for v in self.vmas if id(v) not in gone])
        self.drop_pages(start, end)

    def add(self, vma: Vma) -> None:
        self._set([*self.vmas, vma])
        # The kernel may merge neighbours: 2 MiB pages need what they cover together.
        first = last = self.vmas.index(vma)
        while first and self.vmas[first - 1].end == self.vmas[first].start:
            first -= 1
        while last + 1 < len(self.vmas) and self.vmas[last].end == self.vmas[last + 1].start:
            last += 1
        if self.vmas[last].end - self.vmas[first].start >= HUGE_PAGES:
            for v in self.vmas[first : last + 1]:
                v.large = True

    def page(self, gp: int, vma: Vma) -> Page:
        """The page behind gp, which lies in `vma`."""
        if vma.kind in SHARED:
            assert vma.obj is not None
            return vma.obj.page(gp + vma.delta)
        p = self.private.get(gp)
        if p is None:
            if vma.kind == MapKind.FILE_PRIVATE:
                assert vma.obj is not None
                p = Page.following(vma.obj.page(gp + vma.delta))
                if gp in self.late:
                    p.loosen()
            else:
                p = Page([World(base=vma.fill)])
            self.private[gp] = p
        return p

    def write_faulted(self, pages: set[int], failed: bool) -> None:
        """A GPU job that was to write the pages has ended; `failed`: perhaps without doing so."""
        self.late |= pages
        if failed:
            for gp in pages & self.private.keys():
                self.private[gp].loosen()


class Space:
    """All processes and files of one program.

    `pinner`: the process that pinned pages.
    `mail`: whose memory the GPU's files mirror that were sent and not taken, the oldest first.
    `folios`: any page may be of a large folio, also where there is no room for 2 MiB.
    `balanced`: NUMA balancing ran, which takes entries away at any time.
    `answered`: the operation whose answer told which pages it was about, and these.
    `mishaps`: what may end jobs that did nothing wrong.
    """

    def __init__(self, file_pages: tuple[int, int, int, int]) -> None:
        self.files = [SharedObject(f"file{i}", file_pages[i]) for i in range(MAX_FILES)]
        self.procs: dict[int, Process] = {0: Process(0)}
        self.pinner: int | None = None
        self.mail: list[int] = []
        self.folios = False
        self.balanced = False
        self.answered: tuple[Op, frozenset[int]] | None = None
        self.mishaps = Mishaps()

    def told(self, o: Op) -> frozenset[int] | None:
        """Which pages the operation was about; None: nobody looked."""
        return self.answered[1] if self.answered and self.answered[0] is o else None

    def resize(self, obj: SharedObject, npages: int) -> None:
        """A file gets so many pages: behind its end nothing is left, private copies included."""
        obj.npages = npages
        for index, page in obj.pages.items():
            if index >= npages:
                page.fill(0)
        for p in self.alive():
            for v in p.vmas:
                if v.obj is obj and v.end + v.delta > npages:
                    p.drop_pages(max(v.start, npages - v.delta), v.end)

    def alive(self) -> list[Process]:
        return [p for p in self.procs.values() if p.alive]

    def resolve(self, proc: int, region: int, off: int) -> tuple[Process, int, Vma | None]:
        p = self.procs[proc]
        gp = region << REGION_SHIFT | off // PAGE
        return p, gp, p.find(gp)
