# SPDX-License-Identifier: GPL-2.0-or-later
"""Unpacking source archives into the cache, without the parts no build here reads."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import cache
from hmmbench.build.programs import Programs, disk_full, guard_disk

#: Half of the kernel's bytes are drivers and architectures that the guest never compiles. Their
#: Kconfig files and makefiles stay, because the configuration reads all of them.
KERNEL_EXCLUDES = (
    "*/Documentation/*/*",
    "*/tools/perf/*",
    "*/arch/[a-tv-wyz]*/*.[chS]",
    "*/arch/um/*.[ch]",
    "*.dts",
    "*.dtsi",
    "*/drivers/gpu/drm/amd/*.[ch]",
    "*/drivers/net/ethernet/*.[ch]",
    "*/drivers/net/wireless/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/drivers/staging/*.[ch]",
    "*/sound/*.[ch]",
)


def into_cache(name: str, fill: Callable[[Path], None]) -> Path:
    """A source tree under src/, made by `fill` in a temporary folder and then renamed."""
    parent = paths.cache_dir("src")
    final = parent / name
    cache.used(final)
    if final.is_dir():
        return final
    with guard_disk(final):
        staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
        try:
            fill(staging)
            staging.chmod(0o755)
            staging.rename(final)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return final


def pipeline(programs: Programs, commands: Sequence[Sequence[str | Path]], what: str) -> bytes:
    """Run commands connected by pipes; the last one's output. Every one must succeed."""
    with contextlib.ExitStack() as stack:
        children: list[subprocess.Popen[bytes]] = []
        # Messages go to one pipe that is read after the end: tar and dpkg say little.
        read_end, write_end = os.pipe()
        stack.callback(os.close, read_end)
        try:
            for command in commands:
                source = children[-1].stdout if children else None
                stdin = source.fileno() if source else subprocess.DEVNULL
                children.append(
                    stack.enter_context(programs.start(
                            command, stdin=stdin, stdout=subprocess.PIPE, stderr=write_end
                        ))
                )
                if source:
                    source.close()  # so that the writer sees a reader that went away
        finally:
            os.close(write_end)
        assert children[-1].stdout is not None
        out = children[-1].stdout.read()
        codes = [child.wait() for child in children]
        programs.check()
        if any(codes):
            said = os.read(read_end, 65536).decode(errors="replace").strip()
            if "No space left" in said:
                raise disk_full(paths.cache_root())
            raise EnvironmentFailure(f"{what} failed: {said[-800:]}")
        return out


def deb_tree(programs: Programs, deb: Path, target: Path) -> None:
    """The files of a binary package."""
    target.mkdir(parents=True, exist_ok=True)
    pipeline(
        programs,
        [["dpkg-deb", "--fsys-tarfile", deb], ["tar", "-x", "--no-same-owner", "-C", target]],
        f"unpacking {deb.name}",
    )


def kernel_source(programs: Programs, deb: Path, target: Path) -> None:
    """The tree of a linux-source package: a tarball within the package, never stored on disk."""
    member = f"./usr/src/{deb.name.partition('_')[0]}.tar.xz"
    excludes = [f"--exclude={pattern}" for pattern in KERNEL_EXCLUDES]
    pipeline(
        programs,
        [
            ["dpkg-deb", "--fsys-tarfile", deb],
            ["tar", "-xO", member],
            ["xz", "-dc", "-T0"],
            ["tar", "-x", "--no-same-owner", "--strip-components=1", "-C", target, *excludes],
        ],
        f"unpacking {deb.name}",
    )


def tarball(programs: Programs, archive: Path, target: Path, strip: int) -> None:
    pipeline(
        programs,
        [
            ["xz", "-dc", "-T0", archive],
            ["tar", "-x", "--no-same-owner", f"--strip-components={strip}", "-C", target],
        ],
        f"unpacking {archive.name}",
    )
