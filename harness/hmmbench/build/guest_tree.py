# SPDX-License-Identifier: GPL-2.0-or-later
"""The sources that run in the guest, copied to where they may be built.

The checkout stays clean (and may be read-only); what compiles is a copy with the same folders
beside each other, because the driver reads the device's register header by relative path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.build import cache
from hmmbench.build.cache import Sources
from hmmbench.build.context import Context


def read(driver: Path | None) -> Sources:
    """guest-driver/ (or the variant the user gave: a folder laid out as that one is), and the
    device's headers beside it."""
    folder = driver or paths.driver_sources()
    if not (folder / "module/Kbuild").is_file():
        raise UsageError(f"{folder} is not a driver source folder: no module/Kbuild in it")
    return {
        **cache.read_sources(folder, "guest-driver"),
        **cache.read_sources(paths.device_sources() / "include", "qemu-device/include"),
    }


def only(files: Sources, *tops: str) -> Sources:
    """Those below these folders, for a hash that does not change with unrelated files."""
    return {at: file for at, file in files.items() if at.as_posix().startswith(tops)}


def lay_out(ctx: Context, files: Sources, tree: Path, patches: Sequence[Path]) -> None:
    """Bring the copy to the state of the sources, then apply the patches to it."""
    cache.sync_sources(files, tree)
    for patch in patches:
        log = ctx.log(f"patch-{patch.stem}")
        ctx.programs.run(
            ["patch", "-p1", "--no-backup-if-mismatch", "-i", patch.resolve()],
            what=f"applying {patch.name} to the driver",
            log=log,
            cwd=tree,
        )
