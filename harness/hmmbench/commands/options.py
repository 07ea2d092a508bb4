# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several commands have: said once, so that they mean the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hmmbench.build import BuildRequest
from hmmbench.vm import kinds


class Audit(StrEnum):
    """Which translations the devices compare with the CPU's: docs/audit.md."""

    off = "off"
    sampled = "sampled"
    fill = "fill"
    access = "access"


class Accel(StrEnum):
    """How virtual machines are run: docs/exact.md."""

    exact = "exact"
    threads = "threads"
    kvm = "kvm"


class Device(StrEnum):
    """Which GPU: DEVICES of vm/spec.py."""

    coherent = "coherent"
    caches = "caches"
    copy_faults = "copy-faults"
    big_pages = "big-pages"


Kernel = Annotated[
    str, typer.Option(help="lts, latest, or a folder with a kernel's source or build.")
]
KernelBuild = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Your own built kernel tree.")
]
KernelSource = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Your own clean kernel source tree.")
]

class Variant(StrEnum):
    """Kernels that look for mistakes themselves: build/kernel.py, SANITISED."""

    debug = "debug"
    kasan = "kasan"
    lockdep = "lockdep"
    debug_vm = "debug-vm"
    kcsan = "kcsan"


KernelDebug = Annotated[
    bool, typer.Option(help="The same as --kernel-variant debug.")
]
KernelVariant = Annotated[
    list[Variant] | None,
    typer.Option(
        help="A kernel that looks for mistakes itself (slow; may be repeated): lockdep, KASAN, "
        "kmemleak, page_table_check and DEBUG_VM (debug), one of them, or KCSAN."
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full",
        help="The full configuration of kernel and QEMU: FUSE, IOMMUs, debug information "
        "(built the first time, a quarter of an hour).",
    ),
]
DebugInfo = Annotated[
    bool,
    typer.Option(
        "--debug-info",
        help="Debug information of kernel and driver too, for file and line in the kernel's "
        "reports and for gdb (the first time for a kernel as long as building it).",
    ),
]
Machine = Annotated[
    str,
    typer.Option(
        "--machine", metavar="KIND[+KIND]", show_default="the usual one",
        help=f"Another machine: {', '.join(kinds.KINDS)}.",
    ),
]
QemuSource = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Your own QEMU source tree (10.0).")
]
DriverDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The driver to test: a folder laid out as guest-driver/."),
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
Grammar = Annotated[
    int | None,
    typer.Option(
        metavar="N", show_default="newest",
        help="What a seed makes: the version of the programs' grammar, 1 is the oldest.",
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the result to FILE.")
]
KeepIn = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Keep the console and logs in DIR.")
]


def variants(debug: bool, names: Sequence[Variant] | None) -> tuple[str, ...]:
    """What --kernel-debug and --kernel-variant ask for, each once, in the order of `Variant`."""
    wanted = {*(names or ()), *((Variant.debug,) if debug else ())}
    return tuple(one.value for one in Variant if one in wanted)


def same(request: BuildRequest) -> list[str]:
    """The options with which another command uses the same kernel and driver."""
    words = [] if request.kernel == "lts" else ["--kernel", request.kernel]
    if request.kernel_build is not None:
        words += ["--kernel-build", str(request.kernel_build)]
    for variant in request.kernel_variants:
        words += ["--kernel-variant", variant]
    if request.full:
        words.append("--full")
    if request.driver_source is not None:
        words += ["--driver-dir", str(request.driver_source)]
    for patch in request.driver_patches:
        words += ["--driver-patch", str(patch)]
    for patch in request.kernel_patches:
        words += ["--kernel-patch", str(patch)]
    return words
