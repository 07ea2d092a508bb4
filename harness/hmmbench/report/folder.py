# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder that a run's report and evidence go to."""

from __future__ import annotations

import shutil
from pathlib import Path

#: What a run writes there.
OURS = ("report.html", "violation-*", "machine-lost-*", "machine-failed-*")

#: Where that of the run before goes; what was there from earlier ones is removed.
BEFORE = "before"


def make_room(out: Path) -> Path | None:
    """Put away what an earlier run has left, so that no recipe or picture of it is taken for this
    run's; where it is now."""
    found = [path for pattern in OURS for path in sorted(out.glob(pattern))]
    if not found:
        return None
    before = out / BEFORE
    shutil.rmtree(before, ignore_errors=True)
    before.mkdir()
    for path in found:
        path.rename(before / path.name)
    return before
