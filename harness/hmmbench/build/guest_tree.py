# SPDX-License-Identifier: GPL-2.0-or-later
"""The sources that run in the guest, copied to where they may be built.

The checkout stays clean (and may be read-only); what compiles is a copy with the same folders
beside each other, because the driver reads the device's register header by relative path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hmmbench import paths
from hmmbench.build import cache
from hmmbench.build.context import Context
from hmmbench.errors import UsageError


def sources(driver: Path | None) -> dict[Path, Path]:
    """Files by place: guest-driver/ (the user's variant, if given) and the device's headers."""
    folder = driver or paths.driver_sources()
    if not (folder / "Kbuild").is_file():
        raise UsageError(f"{folder} is not a driver source folder: no Kbuild in it")
    return {
        **cache.source_map(folder, "guest-driver"),
        **cache.source_map(paths.device_sources() / "include", "qemu-device/include"),
    }


def only(files: dict[Path, Path], *tops: str, without: Sequence[str] = ()) -> dict[Path, Path]:
    """Those below these folders, for a hash that does not change with unrelated files."""
    return {
        at: file
        for at, file in files.items()
        if at.as_posix().startswith(tops) and not at.as_posix().startswith(tuple(without))
    }


def files_digest(files: dict[Path, Path]) -> str:
    return cache.digest(
        *(part for at, file in sorted(files.items()) for part in (str(at), file.read_bytes()))
    )


def lay_out(ctx: Context, files: dict[Path, Path], tree: Path, patches: Sequence[Path]) -> None:
    """Bring the copy to the state of the sources, then apply the patches to it."""
    cache.sync_files(files, tree)
    for patch in patches:
        log = ctx.log(f"patch-{patch.stem}")
        ctx.runner.run(
            ["patch", "-p1", "--no-backup-if-mismatch", "-i", patch.resolve()],
            what=f"applying {patch.name} to the driver",
            log=log,
            cwd=tree,
        )
