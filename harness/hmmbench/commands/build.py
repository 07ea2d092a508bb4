# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench build`: make everything the other commands need, or show that it is there."""

from __future__ import annotations

from typing import Annotated

import typer

from hmmbench.base.ui import Ui
from hmmbench.build import BuildRequest, ensure
from hmmbench.commands import options
from hmmbench.report.result import check_writable, write_json


def main(
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    kernel_source: options.KernelSource = None,
    kernel_debug: options.KernelDebug = False,
    kernel_variant: options.KernelVariant = None,
    full: options.Full = False,
    qemu_source: options.QemuSource = None,
    debug_info: options.DebugInfo = False,
    driver_dir: options.DriverDir = None,
    driver_patch: options.DriverPatch = None,
    update: Annotated[
        bool, typer.Option(help="Ask the archive for newer versions, and build those.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Compile this many files at once (default: cores).")
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """Build QEMU with the GPU, the guest kernel, the driver, the agent and the initramfs.

    All of it is kept in the cache by content: a second run does nothing, a changed driver
    rebuilds the driver in seconds. `run` and `test` do this by themselves.

    Example:  ./hmmbench build --kernel latest --json built.json
    """
    check_writable(json_file, "--json")
    request = BuildRequest(
        kernel=kernel,
        kernel_build=kernel_build,
        kernel_source=kernel_source,
        kernel_variants=options.variants(kernel_debug, kernel_variant),
        full=full,
        qemu_source=qemu_source,
        debuginfo=debug_info,
        driver_source=driver_dir,
        driver_patches=tuple(driver_patch or ()),
        update=update,
        jobs=jobs,
    )
    artifacts = ensure(request, Ui())
    write_json(json_file, artifacts.as_json())
    for name, value in artifacts.versions.items():
        typer.echo(f"{name:<10} {value}")
    typer.echo(f"{'binary':<10} {artifacts.qemu}")
    typer.echo(f"{'image':<10} {artifacts.kernel_image}")
    typer.echo(f"{'initramfs':<10} {artifacts.initramfs}")
    if debug_info:
        typer.echo(f"{'debug info':<10} {artifacts.debug_vmlinux}")
