# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/architecture.md says where things go: the files that it names are there."""

from __future__ import annotations

import re

from hmmbench.base import paths

ROOT = paths.project_root()

#: Where the page's paths begin, as its head says.
BEGIN = ("", "harness/hmmbench", "qemu-device", "guest-driver")
#: For a new thing's own name.
HOLDER = re.compile(r"NAME|FAMILY|UNIT")


def missing(text: str) -> list[str]:
    """Of the paths with a folder in `code`, those that are nowhere."""
    named = re.findall(r"`([a-z][\w.-]*/[\w./-]*)`", text)
    return [
        path for path in dict.fromkeys(named)
        if not HOLDER.search(path) and not any((ROOT / begin / path).exists() for begin in BEGIN)
    ]  # fmt: skip


def test_each_file_that_is_named_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    assert missing(text) == []
    moved = text.replace("`core/regs/regs.c`", "`core/regs/registers.c`")
    assert missing(moved) == ["core/regs/registers.c"]
