# SPDX-License-Identifier: GPL-2.0-or-later
"""The device core (hmmbench.device) for the tests here, broken as HG_CORE_BREAK says (breaks.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
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
    "map_code", "records", "said_by", "sources",
]  # fmt: skip

ROOT = paths.project_root()
DEVICE = paths.device_sources()


def said_by(program: str, folder: Path, flags: str, *words: str) -> str:
    """What a program of qemu-device/tests says, built in the folder with these flags in place of
    the sanitizers', which take a minute (`make check` has them); it has to end well."""
    binary = folder / program
    built = ["make", "-C", str(DEVICE / "tests"), f"OUT={folder}", f"ASAN={flags}", str(binary)]
    for argv in (built, [str(binary), *words]):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
