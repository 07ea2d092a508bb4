# SPDX-License-Identifier: GPL-2.0-or-later
"""The device core (hmmbench.device) for the tests here, broken as HG_CORE_BREAK says (breaks.py).
"""

from __future__ import annotations

import json
import os
from typing import Any

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
    "map_code", "records", "sources",
]  # fmt: skip

ROOT = paths.project_root()
DEVICE = paths.device_sources()


def records(dev: Device) -> dict[str, Any]:
    """What checks and audit have found, as QEMU's property `violations`."""
    n = dev.lib.hg_violations_json(dev.dev, ffi.NULL, 0)
    buf = ffi.new("char[]", n + 1)
    assert dev.lib.hg_violations_json(dev.dev, buf, n + 1) == n
    found: dict[str, Any] = json.loads(ffi.string(buf))
    return found


if name := os.environ.get("HG_CORE_BREAK"):
    # KeyError if there is none of that name
    _library.default_edits = ({b[0]: b[1:4] for b in BREAKS}[name],)
