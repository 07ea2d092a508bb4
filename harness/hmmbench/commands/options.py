# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several commands have: said once, so that they mean the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Audit(StrEnum):
    """Which translations the devices compare with the CPU's: docs/audit.md."""

    off = "off"
    sampled = "sampled"
    fill = "fill"
    access = "access"


Kernel = Annotated[
    str, typer.Option(help="lts, latest, or a folder with a kernel's source or build.")
]
KernelBuild = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Your own built kernel tree.")
]
KernelSource = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Your own clean kernel source tree.")
]
KernelDebug = Annotated[
    bool, typer.Option(help="The kernel with lockdep, KASAN and kmemleak (slow).")
]
QemuSource = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Your own QEMU source tree (10.0).")
]
DriverDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The driver to test, instead of guest-driver/."),
]
DriverPatch = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Patch the tested driver (-p1; may be repeated)."),
]
KernelPatch = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", help="Patch C sources of the kernel (-p1; may be repeated); a minute."
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the result to FILE.")
]
KeepIn = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Keep the console and logs in DIR.")
]
