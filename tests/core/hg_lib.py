# SPDX-License-Identifier: GPL-2.0-or-later
"""The device core (hmmbench.device) for the tests here, broken as HG_CORE_BREAK says (breaks.py).
"""

from __future__ import annotations

import os

from breaks import BREAKS

from hmmbench.base import paths
from hmmbench.device import library as _library
from hmmbench.device.core import (
    FULL,
    HW,
    PAGE,
    RAM_BASE,
    RAM_SIZE,
    SYS,
    VRAM,
    VRAM_SIZE,
    Ctx,
    Device,
    Fault,
    Report,
    Tables,
    counters,
    map_code,
)
from hmmbench.device.library import Edit, ffi, library, sources

__all__ = [
    "DEVICE", "FULL", "HW", "PAGE", "RAM_BASE", "RAM_SIZE", "ROOT", "SYS", "VRAM", "VRAM_SIZE",
    "Ctx", "Device", "Edit", "Fault", "Report", "Tables", "counters", "ffi", "library",
    "map_code", "sources",
]  # fmt: skip

ROOT = paths.project_root()
DEVICE = paths.device_sources()

if name := os.environ.get("HG_CORE_BREAK"):
    # KeyError if there is none of that name
    _library.default_edits = ({b[0]: b[1:4] for b in BREAKS}[name],)
