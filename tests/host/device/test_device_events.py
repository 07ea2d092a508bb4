# SPDX-License-Identifier: GPL-2.0-or-later
"""Events that an exact machine's device kept: read, refused if cut short, told in words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hmmbench.base import paths
from hmmbench.device.events import ENTRY, Kind, read

DEVICE = paths.project_root() / "qemu-device"
ENGINES = ["SM 0", "SM 1", "copy engine 0", "front end"]


def enum(file: Path, name: str) -> list[str]:
    """The values of a C enumeration."""
    body = re.search(r"typedef enum \{([^{}]*)\} " + name + ";", file.read_text(), re.S)
    assert body is not None
    return re.findall(r"\w+", re.sub(r"/\*.*?\*/", "", body[1], flags=re.S))


def test_an_entry_is_what_the_device_writes() -> None:
    """By the text of its headers: fields, sizes, and kinds with their numbers."""
    names = enum(DEVICE / "core/hmm_gpu_core.h", "HgTraceEvent")
    assert names == [f"HG_EV_{kind.name}" for kind in Kind] + ["HG_EV_COUNT"]
    text = (DEVICE / "qemu/hmm-gpu.h").read_text()
    body = re.search(r"typedef struct HmmGpuKept \{(.*?)\} HmmGpuKept;", text, re.S)
    assert body is not None
    fields = []
    for bits, listed in re.findall(r"uint(\d+)_t ([^;]+);", body[1]):
        for one in listed.split(","):
            word, _, count = one.strip().rstrip("]").partition("[")
            fields.append((word, int(bits) // 8 * int(count or 1)))
    assert fields == [(name, ENTRY[name].itemsize) for name in ENTRY.names or ()]
    assert ENTRY.itemsize == 48


def entries(*rows: tuple[int, Kind, tuple[int, int, int, int]]) -> bytes:
    out = np.zeros(len(rows), ENTRY)
    for n, (ns, kind, args) in enumerate(rows):
        out[n] = (ns, args, kind, 0)
    return out.tobytes()


def test_events_are_told_with_who_did_them(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(
        entries(
            (5, Kind.FAULT, (0x10003 << 32 | 1 << 8, 0x7000, 0, 0)),
            (6, Kind.TLB_FILL, (3 << 32 | 1, 0x8000, 0x11, 0)),
            (7, Kind.INVAL_START, (3 << 32 | 3, 0x7000, 0x1000, 9)),
            (8, Kind.IRQ, (2, 0, 0, 0)),
            (9, Kind.TLB_FILL, (3 << 32 | 7 << 8, 0x8000, 0x11, 0)),
        )
    )
    fault, fill, inval, irq, unknown = read(path, ENGINES)
    # The generation above the number of the address space is left out.
    assert (fault.ns, fault.engine, fault.text) == (
        5, "SM 1", "fault at 0x7000, address space 3"
    )  # fmt: skip
    assert fill.engine == "copy engine 0"
    assert inval.engine == "front end"
    assert inval.text == "invalidation 9 begins: 0x1000 bytes from 0x7000, address space 3"
    assert (irq.engine, irq.text) == ("interrupts", "interrupt 2 is raised")
    assert unknown.engine == "front end"


def test_every_kind_has_words(tmp_path: Path) -> None:
    path = tmp_path / "events"
    kept = [kind for kind in Kind if kind not in (Kind.MMIO_READ, Kind.MMIO_WRITE)]
    path.write_bytes(entries(*((1, kind, (1, 2, 3, 4)) for kind in kept)))
    assert not [e.text for e in read(path, ENGINES) if e.text.startswith("event ")]


@pytest.mark.parametrize("cut", [1, 47])
def test_a_file_that_is_cut_short(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "events"
    path.write_bytes(entries((5, Kind.IRQ, (0, 0, 0, 0)))[:cut])
    with pytest.raises(ValueError, match="holds no events"):
        read(path, ENGINES)
