# SPDX-License-Identifier: GPL-2.0-or-later
"""Names and source lines for places where CPUs of one guest stood."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hmmbench.base.errors import HmmbenchError
from hmmbench.symbols.guest import Sections, of_guest
from hmmbench.symbols.source import SourceLines
from hmmbench.symbols.table import SymbolTable, plain

if TYPE_CHECKING:
    from hmmbench.build import Artifacts

#: From here on addresses are the kernel's.
_KERNEL = 1 << 63


@dataclass(frozen=True)
class Place:
    """`name` as the kernel prints it; `source`: "file:line", "" where it is not known."""

    name: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.source})" if self.source else self.name


@dataclass
class Names:
    """Looked up when first asked; a guest whose symbols are not known has numbers for names."""

    artifacts: Artifacts
    sections: Callable[[], Sections]
    _table: SymbolTable | None = field(default=None, repr=False)

    def table(self) -> SymbolTable:
        """Raises EnvironmentFailure if the kernel has none."""
        if self._table is None:
            self._table = of_guest(self.artifacts, self.sections())
        return self._table

    def addresses(self, functions: Iterable[str]) -> list[int]:
        """Of those of these functions that the kernel has; none without symbols."""
        try:
            found = [self.table().find(name, "") for name in functions]
        except HmmbenchError:
            return []
        return [symbol.address for symbol in found if symbol is not None]

    def __call__(self, addresses: Iterable[int], source: bool = True) -> Mapping[int, Place]:
        """Never fails: what cannot be found stays a number.  `source`: with source lines, which
        takes a second or two."""
        wanted = sorted(set(addresses))
        try:
            table = self.table()
        except HmmbenchError:
            return {at: _unnamed(at) for at in wanted}
        texts = []
        for at in wanted:
            found = table.lookup(at)
            if found is None:
                texts.append("")
                continue
            symbol, offset = found
            module = f" [{symbol.module}]" if symbol.module else ""
            # As in a report of the kernel's, at the instruction itself.
            texts.append(f"at {plain(symbol.name)}+{offset:#x}/{symbol.size:#x}{module}")
        sources = self._sources(texts) if source else [""] * len(texts)
        return {
            at: Place(table.name(at), source) if text else _unnamed(at)
            for at, text, source in zip(wanted, texts, sources, strict=True)
        }

    def _sources(self, texts: list[str]) -> list[str]:
        lines = SourceLines.of(self.artifacts)
        if lines is None or not texts:
            return [""] * len(texts)
        try:
            told = lines.annotate("\n".join(texts)).split("\n")
        except (OSError, subprocess.SubprocessError, HmmbenchError):
            return [""] * len(texts)
        return [said[len(text) :].strip() for text, said in zip(texts, told, strict=True)]


def _unnamed(address: int) -> Place:
    return Place(f"{address:#x}") if address >= _KERNEL else Place("the program")
