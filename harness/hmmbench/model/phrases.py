# SPDX-License-Identifier: GPL-2.0-or-later
"""Places, mappings and accesses in plain words, for people who do not know the recipe format."""

from __future__ import annotations

from hmmbench.guest.program import PAGE, Acc, Access, MapKind, Op

#: Accesses of one operation that are told one by one.
TOLD = 6

KINDS: dict[int, str] = {
    MapKind.ANON_PRIVATE: "private",
    MapKind.ANON_SHARED: "shared",
    MapKind.FILE_PRIVATE: "file private",
    MapKind.FILE_SHARED: "file shared",
    MapKind.HUGETLB_PRIVATE: "hugetlb private",
    MapKind.HUGETLB_SHARED: "hugetlb shared",
    MapKind.STACK: "stack",
    MapKind.GLOBAL: "global",
}

PROTECTION = {0: "no access", 1: "read-only", 3: "read and write"}


def place(region: int, off: int) -> str:
    """A page, and the byte in it where that matters."""
    rest = f" + {off % PAGE:#x}" if off % PAGE else ""
    return f"region {region}, page {off // PAGE}{rest}"


def page_name(text: str) -> str:
    """A place as messages write it (r4+0x3000) in words."""
    region, _, off = text.removeprefix("r").partition("+")
    return place(int(region), int(off, 0))


def span(region: int, off: int, length: int) -> str:
    first, last = off // PAGE, (off + max(length, 1) - 1) // PAGE
    if first == last:
        whole = "" if length >= PAGE else f" ({length} bytes at +{off % PAGE:#x})"
        return f"region {region}, page {first}{whole}"
    return f"region {region}, pages {first} to {last}"


def access(a: Access) -> str:
    """One access as a phrase: "writes 0x5 to region 1, page 0"."""
    kind, region, _, off, value, expect = a
    at = place(region, off)
    if kind == Acc.DELAY:
        return f"waits {value} turns"
    if kind == Acc.READ or kind == Acc.READ32:
        return f"reads {'32 bits of ' if kind == Acc.READ32 else ''}{at}"
    if kind == Acc.WRITE or kind == Acc.WRITE32:
        return f"writes {value:#x} to {'32 bits of ' if kind == Acc.WRITE32 else ''}{at}"
    if kind == Acc.ADD:
        return f"atomically adds {value:#x} to {at}"
    if kind == Acc.XCHG:
        return f"atomically exchanges {at} for {value:#x}"
    return f"atomically replaces {expect:#x} by {value:#x} in {at}"


def accesses(o: Op, gpu: bool) -> str:
    """`gpu`: lanes do them, at the same time."""
    lanes = {a[2] for a in o.acc}
    told = [
        (f"lane {a[2]} " if gpu and len(lanes) > 1 else "") + access(a) for a in o.acc[:TOLD]
    ]
    if len(o.acc) > TOLD:
        told.append(f"and {len(o.acc) - TOLD} more accesses")
    return "; then ".join(told) if len(lanes) <= 1 or not gpu else "; ".join(told)
