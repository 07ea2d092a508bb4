# SPDX-License-Identifier: GPL-2.0-or-later
"""Each protocol check of the device has its words in the bench and a section in the docs."""

from __future__ import annotations

import re

from hmmbench.base import paths
from hmmbench.oracle import misuse


def names() -> list[str]:
    source = (paths.device_sources() / "core/observe/violation.c").read_text()
    found = re.findall(r'\[HG_CHECK_\w+\] = "([a-z-]+)"', source)
    return found[found.index("fence-backwards") :]  # after those of the mirror audit


def test_docs_and_words_are_complete() -> None:
    text = (paths.project_root() / "docs" / "checks.md").read_text()
    assert len(names()) >= 12
    assert sorted(re.findall(r"^## (\S+)$", text, re.MULTILINE)) == sorted(names())
    assert sorted(misuse.WORDS) == sorted(names())


def test_words_fit_the_records() -> None:
    record = {"check": "", "count": 1, "time": 5, "asid": 7, "address": 4096, "a": 1, "b": 2}
    for name in names():
        (violation,) = misuse.check([record | {"check": name}, record | {"check": name}])
        assert violation.oracle == "protocol"
        assert violation.message.startswith(f"{name}: ")
    assert misuse.check([]) == []
    (unknown,) = misuse.check([record | {"check": "of-a-newer-device"}])
    assert "of-a-newer-device" in unknown.message
