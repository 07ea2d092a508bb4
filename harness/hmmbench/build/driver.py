# SPDX-License-Identifier: GPL-2.0-or-later
"""hmm_gpu.ko for one kernel build."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from hmmbench.base import paths
from hmmbench.build import cache, guest_tree
from hmmbench.build.context import Context
from hmmbench.build.kernel import Kernel, enabled

MODULE = "hmm_gpu.ko"

_DEBUGINFO = "debuginfo-driver"

#: Where in the copy the module is.
_MODULE = "guest-driver/module"

#: What the module is made of.
PARTS = (f"{_MODULE}/", "guest-driver/include/", "qemu-device/include/")


def build(
    ctx: Context, kernel: Kernel, source: Path | None, patches: Sequence[Path],
    debuginfo: bool = False,
) -> Path:  # fmt: skip
    """The folder with the module.

    `patches` (-p1 from the root of the checkout) go onto the copy: this is how the tests make
    drivers with one bug each.  `debuginfo`: the same module once more, for debuggers.
    """
    kind = _DEBUGINFO if debuginfo else "driver"
    files, patched, key = _inputs(kernel, source, patches)
    found = cache.find(kind, key)
    if found is not None:
        return found
    # One work folder for each kernel and variant, so that make compiles what changed and no more.
    name = f"driver-{cache.digest(kernel.key, str(source), patched)}"
    work = cache.used(paths.cache_dir("work") / (f"{name}-debuginfo" if debuginfo else name))
    with ctx.lock(work.name, "the driver"):
        log = ctx.log(f"{kind}-build")
        with ctx.ui.stage(f"driver for {kernel.release}: compiling", log):
            guest_tree.lay_out(ctx, files, work, patches)
            clang = enabled(kernel, "CONFIG_CC_IS_CLANG")
            ctx.programs.run(
                [
                    "make",
                    f"-j{ctx.jobs}",
                    "-C",
                    kernel.build_dir,
                    f"M={work / _MODULE}",
                    *(["LLVM=1"] if clang else []),
                    # Names in it begin with guest-driver/, wherever it was built.
                    *([f"KCFLAGS=-g -fdebug-prefix-map={work}/="] if debuginfo else []),
                    *(["GCOV_PROFILE=y"] if enabled(kernel, "CONFIG_GCOV_KERNEL") else []),
                    "modules",
                ],
                what="building the driver",
                log=log,
            )
        module = work / _MODULE / MODULE
        fill = _fill_debuginfo if debuginfo else _fill
        return cache.publish(kind, key, lambda folder: fill(module, folder))


def find_debuginfo(
    kernel: Kernel, source: Path | None, patches: Sequence[Path]
) -> Path | None:
    """The module with debug information, if it was built."""
    return cache.find(_DEBUGINFO, _inputs(kernel, source, patches)[2])


def _inputs(
    kernel: Kernel, source: Path | None, patches: Sequence[Path]
) -> tuple[cache.Sources, str, str]:
    """Sources, name of the variant, key."""
    files = guest_tree.only(guest_tree.read(source), *PARTS)
    patched = cache.digest(*(patch.read_bytes() for patch in patches)) if patches else "plain"
    return files, patched, cache.digest(kernel.key, cache.sources_digest(files), patched)


def _fill(module: Path, folder: Path) -> None:
    """The module, and where lines are counted the compiler's notes on them."""
    shutil.copy2(module, folder / module.name)
    for path in module.parent.rglob("*.gcno"):
        _copy(path, module.parent, folder)


def _fill_debuginfo(module: Path, folder: Path) -> None:
    """The module and the sources that its debug information names, for a debugger to show."""
    _fill(module, folder)
    tree = module.parents[2]
    for path in module.parent.rglob("*.[ch]"):
        if not path.name.endswith(".mod.c"):
            _copy(path, tree, folder)


def _copy(path: Path, root: Path, folder: Path) -> None:
    """Into the folder, where it is below root."""
    at = folder / path.relative_to(root)
    at.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, at)
