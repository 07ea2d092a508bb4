# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of bugs the glue's tests must catch still fits the sources (no QEMU needed)."""

from __future__ import annotations

import pytest
from glue_mutants import MUTANTS

from hmmbench.base.paths import device_sources


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_fits(name: str) -> None:
    mutant = MUTANTS[name]
    text = (device_sources() / "qemu" / mutant.file).read_text()
    assert text.count(mutant.old) >= 1
    assert text.replace(mutant.old, mutant.new, 1) != text
