# SPDX-License-Identifier: GPL-2.0-or-later
"""A built kernel with a few lines changed, without building it again.

The kernel's build tree is copied once.  A patched source file is put into the copy at its own
path: for make it stands before the one of the source tree (VPATH), so that neither the source
nor the kernel's own build is touched, and make compiles that file and links, a minute's work.
Modules of the unpatched kernel are used with the result, because the symbols they link against
are compared.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import EnvironmentFailure, UsageError
from hmmbench.build import cache
from hmmbench.build.context import Context
from hmmbench.build.kernel import Kernel, enabled, environment

#: In the copy: what it was copied from, and the patched files that are in it.
_STAMP = ".hmmbench-patched.json"

#: What is kept of a patched kernel: the image, and where the image's symbols are.
_RESULTS = ("arch/x86/boot/bzImage", "System.map")

_FILE = re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE)


def files(patch: Path) -> list[str]:
    """The files that a patch changes.  Only C sources: a header is looked for in the source
    tree first, so that a changed one beside it would not be seen."""
    try:
        found = _FILE.findall(patch.read_text())
    except OSError as error:
        raise UsageError(f"cannot read the patch {patch}: {error.strerror}") from error
    wrong = [name for name in found if not name.endswith(".c") or ".." in Path(name).parts]
    if wrong or not found:
        raise UsageError(
            f"{patch} is no patch for a built kernel: {', '.join(wrong) or 'no file in it'}",
            "It has to be -p1 and to change C sources only; for more use --kernel-source.",
        )
    return found


def build(ctx: Context, base: Kernel, patches: Sequence[Path]) -> Kernel:
    """`base` with the patches.  Its build folder stays that of `base`, for modules."""
    key = cache.digest(base.key, *_RESULTS, *(patch.read_bytes() for patch in patches))
    names = ", ".join(patch.stem for patch in patches)
    image = cache.find("kernel", key)
    if image is None:
        touched = sorted({name for patch in patches for name in files(patch)})
        if base.source_dir is None:
            raise UsageError(
                f"the source of the kernel in {base.build_dir} is not known",
                "--kernel-patch needs a kernel that is built from a source tree.",
            )
        work = cache.used(paths.cache_dir("work") / f"{base.build_dir.name}-patched")
        with ctx.lock(work.name, f"a patched {base.release}"):
            # another process may have made it meanwhile
            image = cache.find("kernel", key) or _make(
                ctx, base, base.source_dir, work, touched, patches, key, names
            )
    return replace(
        base, key=key, image=image / "bzImage", system_map=image / "System.map",
        origin=f"{base.origin} with {names}", patched=True,
    )  # fmt: skip


def _make(
    ctx: Context, base: Kernel, source: Path, work: Path, touched: Sequence[str],
    patches: Sequence[Path], key: str, names: str,
) -> Path:  # fmt: skip
    """Caller holds the lock of `work`."""
    in_place = source == base.build_dir  # a user's tree
    stamp = work / _STAMP
    state = cache.stamp_read(stamp)
    log = ctx.log(f"kernel-patched-{patches[0].stem}")
    clang = enabled(base, "CONFIG_CC_IS_CLANG")
    with ctx.ui.stage(f"kernel {base.release} with {names}", log):
        if state.get("base") != base.key:
            shutil.rmtree(work, ignore_errors=True)
            # Not while another process builds in it.
            with ctx.lock(base.build_dir.name, f"the kernel {base.release}"):
                ctx.programs.run(
                    ["cp", "-a", "--reflink=auto", base.build_dir, work],
                    what="copying the kernel's build folder", log=log,
                )  # fmt: skip
            move(base.build_dir, work)
            state = {"files": []}
        # Before anything is changed: an interrupted build is cleared up by the next.
        old = set(state["files"])
        cache.stamp_write(stamp, {"base": base.key, "files": sorted(old | set(touched))})
        for name in old - set(touched):
            if in_place:
                shutil.copyfile(source / name, work / name)
            else:
                (work / name).unlink(missing_ok=True)
        for name in touched:
            if not (source / name).is_file():
                raise UsageError(f"{names}: this kernel has no {name}")
            (work / name).unlink(missing_ok=True)
            shutil.copyfile(source / name, work / name)
        for patch in patches:
            ctx.programs.run(
                ["patch", "-p1", "--no-backup-if-mismatch", "-i", patch.resolve()],
                what=f"applying {patch.name} to the kernel", log=log, cwd=work,
            )  # fmt: skip
        # The folder by name: the Makefile in a copy may lead back to what it was copied from.
        where: list[str | Path] = ["-C", work] if in_place else ["-C", source, f"O={work}"]
        ctx.programs.run(
            ["make", f"-j{ctx.jobs}", *where, *(["LLVM=1"] if clang else []),
             "bzImage", "modules"],
            what="building the patched kernel", log=log, env=environment(),
        )  # fmt: skip
        symbols = [(tree / "Module.symvers").read_bytes() for tree in (work, base.build_dir)]
        if symbols[0] != symbols[1]:
            raise EnvironmentFailure(
                f"{names} changes what modules link against",
                "Such a change needs a kernel of its own: --kernel-source.",
            )
        image = work / "arch/x86/boot/bzImage"
        if image.read_bytes() == base.image.read_bytes():
            raise EnvironmentFailure(
                f"{names} changes nothing in the kernel's image", f"The whole log: {log}"
            )
        return cache.publish("kernel", key, lambda folder: _fill(work, folder))


def move(old: Path, new: Path) -> None:
    """Let make's notes in a copied build folder name the copy.

    The kernel's own have relative paths; those of its tools have not, and a tool that is compiled
    anew (objtool) makes make compile every file that went through it.
    """
    was, now = f"{old}/".encode(), f"{new}/".encode()
    for note in (new / "tools").rglob(".*"):
        if note.is_file() and not note.is_symlink():
            data = note.read_bytes()
            if was in data:
                note.write_bytes(data.replace(was, now))


def _fill(work: Path, folder: Path) -> None:
    for name in _RESULTS:
        shutil.copyfile(work / name, folder / Path(name).name)
