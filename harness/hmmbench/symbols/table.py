# SPDX-License-Identifier: GPL-2.0-or-later
"""The table: names to addresses and back."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.symbols import elf

_PLACE = re.compile(r"(?P<name>[^+\s\[\]]+)(?:\+(?P<offset>0x[0-9a-fA-F]+|\d+))?"
                    r"(?:/0x[0-9a-fA-F]+)?(?: \[(?P<module>\w+)\])?")  # fmt: skip
_ORDINAL = re.compile(r"(.+)#(\d+)")


@dataclass(frozen=True)
class Symbol:
    """`module`: "" for the kernel.  `size` in bytes: where the file gives none, up to the next.

    Several static functions may have one name: from the second on, in order of address,
    `name` ends with "#2" and so on, so that a name means one place.
    """

    name: str
    address: int
    size: int
    module: str = ""
    function: bool = True


class SymbolTable:
    """All symbols of one guest.

    A name stands for the symbol of the kernel, if there are several; "name [module]" asks for a
    module's.
    """

    def __init__(self, symbols: Iterable[Symbol]) -> None:
        # Stable: of several at one address the first stays the first.
        self._symbols = list(_numbered(sorted(symbols, key=lambda s: s.address)))
        self._sized = [symbol for symbol in self._symbols if symbol.size]
        self._addresses = [symbol.address for symbol in self._sized]
        self._names: dict[str, list[Symbol]] = defaultdict(list)
        for symbol in self._symbols:
            self._names[symbol.name].append(symbol)

    def __iter__(self) -> Iterator[Symbol]:
        """In order of address."""
        return iter(self._symbols)

    def __len__(self) -> int:
        return len(self._symbols)

    def find(self, name: str, module: str | None = None) -> Symbol | None:
        """The symbol of this name, of `module` ("" is the kernel) or whose it is."""
        found = self._names.get(name, [])
        if module is not None:
            found = [s for s in found if s.module == module]
        return min(found, key=lambda s: s.module, default=None)

    def address(self, place: str) -> int:
        """Of "name", "name+0x12", "name+0x12/0x34 [module]".  Raises KeyError."""
        match = _PLACE.fullmatch(place)
        symbol = match and self.find(match["name"], match["module"])
        if not match or not symbol:
            raise KeyError(place)
        return symbol.address + int(match["offset"] or "0", 0)

    def lookup(self, address: int) -> tuple[Symbol, int] | None:
        """The symbol that an address lies in, and how far; None where there is none.

        Of several at one address the one that the kernel's own reports name.
        """
        last = bisect.bisect_right(self._addresses, address) - 1
        if last < 0:
            return None
        symbol = self._sized[bisect.bisect_left(self._addresses, self._addresses[last])]
        offset = address - symbol.address
        return (symbol, offset) if offset < symbol.size else None

    def name(self, address: int) -> str:
        """As "name+0x12" or "name+0x12 [module]"; the number alone where nothing is known."""
        found = self.lookup(address)
        if found is None:
            return f"{address:#x}"
        symbol, offset = found
        place = symbol.name + (f"+{offset:#x}" if offset else "")
        return f"{place} [{symbol.module}]" if symbol.module else place


def _numbered(symbols: Iterable[Symbol]) -> Iterator[Symbol]:
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for symbol in symbols:
        seen[symbol.module, symbol.name] += 1
        number = seen[symbol.module, symbol.name]
        yield replace(symbol, name=f"{symbol.name}#{number}") if number > 1 else symbol


def plain(name: str) -> str:
    """The name as the compiler gave it."""
    match = _ORDINAL.fullmatch(name)
    return match[1] if match else name


#: Of System.map: what is no place in the running kernel (absolute numbers and per-CPU offsets)
#: has no high bit.
_KERNEL = 1 << 63

#: What marks places without being something: the padding and type words before a function.
_MARKS = ("__pfx_", "__cfi_", "__UNIQUE_ID_", "__ksym_marker_")


def kernel_symbols(system_map: Path) -> list[Symbol]:
    """Of a kernel's System.map, without what is freed when it has booted."""
    try:
        lines = system_map.read_text().splitlines()
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot read {system_map}: {error.strerror}",
            "A built kernel has it beside its vmlinux.",
        ) from error
    rows = []
    for line in lines:
        at, kind, name = line.split(maxsplit=2)
        address = int(at, 16)
        if address >= _KERNEL:
            rows.append((address, kind, name))
    # As scripts/kallsyms.c orders them: of several at one address its first is the one named.
    rows.sort(key=lambda row: (row[0], row[1] in "wWvV", len(row[2]) - len(row[2].lstrip("_"))))
    edges = {name: address for address, _, name in rows if name in ("__init_begin", "__init_end")}
    init = range(edges.get("__init_begin", 0), edges.get("__init_end", 0))
    symbols: list[Symbol] = []
    end = following = rows[-1][0] if rows else 0
    # From the last to the first: a symbol ends where the next other address begins.
    for address, kind, name in reversed(rows):
        if address < following:
            end, following = following, address
        if address not in init and not name.startswith(_MARKS):
            symbols.append(Symbol(name, address, end - address, "", kind in "tTwW"))
    return symbols[::-1]


def module_symbols(name: str, file: elf.Elf, sections: Mapping[str, int]) -> Iterator[Symbol]:
    """Of a module, at the addresses where the guest has its sections (those kept after init)."""
    for symbol in file.symbols():
        if symbol.section == elf.SHN_UNDEF or symbol.section >= elf.SHN_LORESERVE:
            continue
        if symbol.kind not in (elf.STT_NOTYPE, elf.STT_OBJECT, elf.STT_FUNC):
            continue
        section = file.sections[symbol.section].name
        base = sections.get(section)
        if base is None or is_init(section) or not symbol.name:
            continue
        if symbol.name.startswith(_MARKS):
            continue
        yield Symbol(
            symbol.name, base + symbol.value, symbol.size, name, symbol.kind == elf.STT_FUNC
        )


def is_init(section: str) -> bool:
    """Freed when the module is loaded; the guest still names its old place."""
    return section.startswith(".init")
