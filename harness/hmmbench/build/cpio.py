# SPDX-License-Identifier: GPL-2.0-or-later
"""The "newc" archive the kernel unpacks as its first root file system.

Written here and not by cpio(1), because device nodes in it would otherwise need root, and so
that the same input gives the same bytes: no times, no user ids, inode numbers in order.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath


@dataclass
class CpioArchive:
    """Files by path; parent folders are made as needed."""

    _entries: dict[str, tuple[int, int, int, bytes]] = field(default_factory=dict)

    def folder(self, path: str, mode: int = 0o755) -> None:
        self._parents(path)
        self._entries.setdefault(_clean(path), (stat.S_IFDIR | mode, 0, 0, b""))

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._add(path, stat.S_IFREG | mode, data)

    def copy(self, path: str, source: Path, mode: int = 0o644) -> None:
        self.file(path, source.read_bytes(), mode)

    def link(self, path: str, target: str) -> None:
        self._add(path, stat.S_IFLNK | 0o777, target.encode())

    def device(self, path: str, major: int, minor: int, mode: int = 0o600) -> None:
        self._add(path, stat.S_IFCHR | mode, b"", major, minor)

    def _add(self, path: str, mode: int, data: bytes, major: int = 0, minor: int = 0) -> None:
        self._parents(path)
        self._entries[_clean(path)] = (mode, major, minor, data)

    def _parents(self, path: str) -> None:
        for parent in reversed(PurePosixPath(_clean(path)).parents):
            if str(parent) != ".":
                self._entries.setdefault(str(parent), (stat.S_IFDIR | 0o755, 0, 0, b""))

    def to_bytes(self) -> bytes:
        out = bytearray()
        for inode, (path, (mode, major, minor, data)) in enumerate(self._entries.items(), start=1):
            _write(out, path, inode, mode, major, minor, data)
        _write(out, "TRAILER!!!", 0, 0, 0, 0, b"")
        return bytes(out)


def _clean(path: str) -> str:
    return path.strip("/")


def _write(
    out: bytearray, path: str, inode: int, mode: int, major: int, minor: int, data: bytes
) -> None:
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (inode, mode, 0, 0, links, 0, len(data), 0, 0, major, minor, len(name), 0)
    out += b"070701" + b"".join(b"%08X" % value for value in fields) + name
    out += bytes(-len(out) % 4)
    out += data
    out += bytes(-len(out) % 4)
