# SPDX-License-Identifier: GPL-2.0-or-later
"""Structs of C headers, read from their text, to hold what Python knows of them against."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path

from hmmbench.base import paths
from hmmbench.device import cheader

DEVICE, USER = paths.device_sources(), paths.user_sources()
PROTOCOL = (
    USER / "kernels/accesses.h", USER / "agent/base/program.h", USER / "agent/protocol.h"
)  # fmt: skip

CODES = {
    "uint8_t": "B", "uint16_t": "H", "uint32_t": "I", "uint64_t": "Q", "int32_t": "i",
}  # fmt: skip


def numbers(*files: Path) -> dict[str, int]:
    """The constants of some headers."""
    return {name: value for file in files for name, value in cheader.load(file).items()}


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


class Layout:
    """A struct of headers whose size is said beside its brace: packs and unpacks it by the names
    of its fields."""

    def __init__(
        self, name: str, *files: Path, known: Mapping[str, int] | None = None
    ) -> None:
        files = files or PROTOCOL
        known = numbers(*files) if known is None else known
        text = "".join(file.read_text() for file in files)
        found = re.search(rf"^struct {name} {{(.*?)^}};", text, re.M | re.S)
        assert found, name
        size = re.match(r"\s*/\* (\d+) bytes", found[1])
        assert size, f"{name} does not say its size"
        self.names: list[str] = []
        codes = ""
        for kind, field, many in fields(found[1]):
            count = int(known.get(many, many)) if many else 0
            self.names += [f"{field}{n}" for n in range(count)] if many else [field]
            codes += CODES[kind] * (count or 1)
        self.form = struct.Struct("<" + codes)
        assert struct.calcsize("@" + codes) == self.form.size, "C puts nothing between its fields"
        assert int(size[1]) == self.form.size, f"{name}: the comment says {size[1]} bytes"

    def unpack(self, data: bytes, at: int = 0) -> dict[str, int]:
        return dict(zip(self.names, self.form.unpack_from(data, at), strict=True))

    def pack(self, **fields: int) -> bytes:
        assert fields.keys() <= set(self.names)
        return self.form.pack(*(fields.get(name, 0) for name in self.names))


def fields(body: str) -> list[tuple[str, str, str]]:
    """(type, name, how many) of each field of a struct's body; "" if it is no array."""
    found = []
    for line in without_comments(body).split(";"):
        words = line.strip()
        if words:
            kind, names = words.split(None, 1)
            for one in names.split(","):
                part = re.fullmatch(r"\s*(\**\w+)(?:\[(\w+)\])?\s*", one)
                assert part, words
                found.append((kind, part[1], part[2] or ""))
    return found
