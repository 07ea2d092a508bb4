# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what the bench needs of an ELF file: sections, symbols and relocations of x86-64."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hmmbench.base.errors import EnvironmentFailure

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

_X86_64 = 62
SHT_SYMTAB = 2
SHT_RELA = 4
SHT_NOBITS = 8
SHF_WRITE = 1
SHF_ALLOC = 2
SHF_EXECINSTR = 4
STT_NOTYPE = 0
STT_OBJECT = 1
STT_FUNC = 2
SHN_UNDEF = 0
#: Above are no sections: absolute and common symbols.
SHN_LORESERVE = 0xFF00
R_X86_64_PC32 = 2
R_X86_64_PLT32 = 4


class ElfError(EnvironmentFailure):
    """The file is no ELF file for x86-64, or it is cut short."""


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


@dataclass(frozen=True)
class ElfSymbol:
    """`section`: index, SHN_UNDEF for what another file defines.  `value`: in a relocatable file
    the place in that section."""

    name: str
    kind: int
    section: int
    value: int
    size: int
    local: bool


@dataclass(frozen=True)
class Relocation:
    """At `offset` of the section that is relocated."""

    offset: int
    kind: int
    symbol: int
    addend: int


class Elf:
    """One file.  What is asked for is read: debug information alone takes hundreds of MB."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ElfError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise ElfError(f"{path} is empty") from error
        try:
            self.sections = self._sections()
        except (struct.error, IndexError, ValueError) as error:
            raise ElfError(f"{path} is no whole ELF file for x86-64") from error

    def _sections(self) -> list[Section]:
        header = _HEADER.unpack_from(self._data)
        ident, machine = header[0], header[2]
        if ident[:6] != b"\x7fELF\2\1" or machine != _X86_64:
            raise ValueError
        at, entry, count, names = header[6], *header[11:14]
        raw = [_SECTION.unpack_from(self._data, at + i * entry) for i in range(count)]
        strings = raw[names][4] if raw else 0
        return [
            Section(
                self._string(strings + name), kind, flags, address, offset, size, link, info,
                entry_size,
            )
            for name, kind, flags, address, offset, size, link, info, _, entry_size in raw
        ]  # fmt: skip

    def _string(self, at: int) -> str:
        end = self._data.find(b"\0", at)
        if end < 0:
            raise ElfError(f"{self.path} is cut short")
        return self._data[at:end].decode("utf-8", "replace")

    def content(self, section: Section) -> bytes:
        """The bytes in the file; none of a section that has only a size."""
        if section.kind == SHT_NOBITS:
            return b""
        data = self._data[section.offset : section.offset + section.size]
        if len(data) != section.size:
            raise ElfError(f"{self.path} is cut short")
        return data

    def section(self, name: str) -> Section | None:
        """The first of this name."""
        return next((s for s in self.sections if s.name == name), None)

    def symbols(self) -> list[ElfSymbol]:
        """All of the symbol table, in the order that relocations refer to; empty if stripped."""
        table = next((s for s in self.sections if s.kind == SHT_SYMTAB), None)
        if table is None:
            return []
        strings = self.sections[table.link].offset
        return [
            ElfSymbol(self._string(strings + name), info & 15, section, value, size, not info >> 4)
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(self.content(table))
        ]

    def relocations(self) -> Iterator[tuple[Section, list[Relocation]]]:
        """Of each section that has any."""
        for rela in self.sections:
            if rela.kind == SHT_RELA and 0 < rela.info < len(self.sections):
                yield (
                    self.sections[rela.info],
                    [
                        Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)
                        for offset, info, addend in _RELA.iter_unpack(self.content(rela))
                    ],
                )
