# SPDX-License-Identifier: GPL-2.0-or-later
"""Debug information of the kernel and the driver that run, beside the same code bytes.

Built when asked for: what runs stays as it is, small and quick to compile.  The same sources are
compiled once more with -g on make's command line and not by configuration, because the kernel
carries its configuration in its read-only data: another option there would move everything behind
it.  A compiler makes the same code with and without -g; that it did is compared, section by
section, before anything relies on it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import EnvironmentFailure, UsageError
from hmmbench.build import cache, driver, kernel_patch
from hmmbench.build.context import Context
from hmmbench.build.kernel import Kernel, enabled, environment, gcov_words
from hmmbench.symbols import elf

#: For C and for assembly.
FLAGS = ("KCFLAGS=-g", "KAFLAGS=-g")

#: Lines make prints for the base configuration; only for the progress bar.
_EXPECTED_LINES = 1600

#: Sections that name the build and not what was built: the linker's hash of the whole file.
_IDENTITY = re.compile(r"\.notes?(\..*)?")
#: The same hash where it lies within data: of the vDSO, whose image the kernel holds.  It covers
#: debug information that is not in that image.
_BUILD_ID = re.compile(rb"(\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0).{20}", re.DOTALL)


@dataclass(frozen=True)
class DebugInfo:
    """vmlinux -- the kernel with debug information; modules -- folder with the driver's.

    None: not built.
    """

    vmlinux: Path | None
    modules: Path | None


def find(kernel: Kernel, source: Path | None, patches: Sequence[Path]) -> DebugInfo:
    """What was built earlier."""
    return DebugInfo(_own(kernel) or _made(kernel), driver.find_debuginfo(kernel, source, patches))


def build(
    ctx: Context, kernel: Kernel, source: Path | None, patches: Sequence[Path], plain: Path
) -> DebugInfo:
    """Of a kernel and of the driver for it; `plain`: the folder with the driver that runs."""
    modules = build_driver(ctx, kernel, source, patches, plain)
    return DebugInfo(_own(kernel) or _made(kernel) or _kernel(ctx, kernel), modules)


def build_driver(
    ctx: Context, kernel: Kernel, source: Path | None, patches: Sequence[Path], plain: Path
) -> Path:
    """Of the driver alone: seconds."""
    modules = driver.build(ctx, kernel, source, patches, debuginfo=True)
    ran = elf.Elf(plain / driver.MODULE)
    if wrong := differences(ran, elf.Elf(modules / driver.MODULE)):
        raise EnvironmentFailure(
            f"the driver with debug information is another: {', '.join(wrong)} differ"
        )
    return modules


def _own(kernel: Kernel) -> Path | None:
    """A kernel of the user's may have it already."""
    vmlinux = kernel.build_dir / "vmlinux"
    if not vmlinux.is_file() or kernel.patched:
        return None
    return vmlinux if elf.Elf(vmlinux).section(".debug_info") else None


def _work(kernel: Kernel) -> Path:
    name = f"linux-debuginfo-{cache.digest(str(kernel.build_dir))}"
    return cache.used(paths.cache_dir("work") / name)


def _made(kernel: Kernel) -> Path | None:
    work = _work(kernel)
    known = cache.stamp_read(work / ".hmmbench.json")
    return work / "vmlinux" if known.get("key") == _key(kernel) else None


def _key(kernel: Kernel) -> str:
    return cache.digest(kernel.key, *FLAGS)


def _kernel(ctx: Context, kernel: Kernel) -> Path:
    source = kernel.source_dir
    if source is None:
        raise UsageError(
            f"the source of the kernel in {kernel.build_dir} is not known",
            "Debug information needs it; or build that kernel with CONFIG_DEBUG_INFO_DWARF5=y.",
        )
    if kernel.patched:
        raise UsageError(
            "debug information of a kernel with --kernel-patch is not made",
            "Apply the patch to a source tree of your own and give it as --kernel-source.",
        )
    work = _work(kernel)
    stamp = work / ".hmmbench.json"
    with ctx.lock(work.name, f"debug information of {kernel.release}"):
        if made := _made(kernel):  # by another process, meanwhile
            return made
        log = ctx.log("kernel-debuginfo")
        with ctx.ui.stage(f"debug information of {kernel.release}: compiling", log) as stage:
            stamp.unlink(missing_ok=True)
            _prepare(ctx, kernel, source, work, log)
            _number(kernel, work)
            done = 0

            def watch(line: str) -> None:
                nonlocal done
                if match := re.match(r"  [A-Z]+ +(\S+)", line):
                    done += 1
                    stage.progress(min(done, _EXPECTED_LINES - 1), _EXPECTED_LINES, match[1])

            ctx.programs.run(
                ["make", f"-j{ctx.jobs}", *_where(kernel, source, work), *FLAGS, "vmlinux"],
                what="building the kernel's debug information",
                log=log, env=_same_build(kernel), watch=watch,
            )  # fmt: skip
            check(kernel.build_dir, work)
            _drop_objects(work)
        cache.stamp_write(stamp, {"key": _key(kernel), "of": str(kernel.build_dir)})
    return work / "vmlinux"


def _where(kernel: Kernel, source: Path, work: Path) -> list[str | Path]:
    """Make's words for the tree: of a kernel that was built in its source, a copy is."""
    place: list[str | Path] = ["-C", source, f"O={work}"]
    if source == kernel.build_dir:
        place = ["-C", work]
    words = gcov_words() if enabled(kernel, "CONFIG_GCOV_KERNEL") else []
    return [*place, *words, *(["LLVM=1"] if enabled(kernel, "CONFIG_CC_IS_CLANG") else [])]


def _prepare(ctx: Context, kernel: Kernel, source: Path, work: Path, log: Path) -> None:
    if source == kernel.build_dir:
        shutil.rmtree(work, ignore_errors=True)
        ctx.programs.run(
            ["cp", "-a", "--reflink=auto", source, work],
            what="copying the kernel's build folder", log=log,
        )  # fmt: skip
        kernel_patch.move(source, work)
        return
    work.mkdir(parents=True, exist_ok=True)
    config = (kernel.build_dir / ".config").read_bytes()
    cache.write_changed(config, work / ".config")
    ctx.programs.run(
        ["make", "-s", *_where(kernel, source, work), "olddefconfig"],
        what="configuring the kernel", log=log, env=_same_build(kernel),
    )  # fmt: skip
    if (work / ".config").read_bytes() != config:
        raise EnvironmentFailure(
            f"the configuration of {kernel.build_dir} does not fit its source {source}",
            "It was changed after the build, or the compiler was. Build the kernel again.",
        )


def _banner(kernel: Kernel) -> dict[str, str]:
    """Number, time, user and host of the kernel that ran, by make's names for them."""
    generated = kernel.build_dir / "include/generated"
    names: dict[str, str] = {}
    for file in ("utsversion.h", "compile.h"):
        text = (generated / file).read_text() if (generated / file).is_file() else ""
        names |= dict(re.findall(r'#\s*define\s+(\w+)\s+"([^"]*)"', text))
    number, _, rest = names.get("UTS_VERSION", "").partition(" ")
    found = {
        "KBUILD_BUILD_VERSION": number.lstrip("#"),
        "KBUILD_BUILD_TIMESTAMP": re.sub(r"^(?:(?:SMP|PREEMPT\w*) )+", "", rest),
        "KBUILD_BUILD_USER": names.get("LINUX_COMPILE_BY", ""),
        "KBUILD_BUILD_HOST": names.get("LINUX_COMPILE_HOST", ""),
    }
    return {name: value for name, value in found.items() if value}


def _counted(kernel: Kernel) -> int:
    """The number of a build that make has counted; 0 if it was given to make.

    That makes a difference: one of the two banners has no number that make has counted.
    """
    try:
        counted = (kernel.build_dir / ".version").read_text().strip()
    except OSError:
        return 0
    same = counted == _banner(kernel).get("KBUILD_BUILD_VERSION")
    return int(counted) if same and counted.isdigit() else 0


def _number(kernel: Kernel, work: Path) -> None:
    """Let make count to the same number."""
    (work / ".version").unlink(missing_ok=True)
    if (number := _counted(kernel)) > 1:
        (work / ".version").write_text(f"{number - 1}\n")


def _same_build(kernel: Kernel) -> Mapping[str, str]:
    """The environment in which a kernel gets the banner of the one that ran."""
    banner = _banner(kernel)
    if _counted(kernel):
        del banner["KBUILD_BUILD_VERSION"]
    return {**environment(), **banner}


def _drop_objects(work: Path) -> None:
    """Their debug information is in vmlinux, and they take four times its place."""
    for path in work.rglob("*"):
        if path.suffix in (".o", ".a", ".ko") and path.is_file() and not path.is_symlink():
            path.unlink()


def check(ran: Path, made: Path) -> None:
    """Raise EnvironmentFailure unless both build folders hold the same kernel."""
    wrong = differences(elf.Elf(ran / "vmlinux"), elf.Elf(made / "vmlinux"))
    if (ran / "System.map").read_bytes() != (made / "System.map").read_bytes():
        wrong.append("System.map")
    if wrong:
        raise EnvironmentFailure(
            f"the kernel with debug information is another: {', '.join(wrong)} differ",
            f"Was {ran} built by another compiler, or its source changed since?",
        )


def differences(ran: elf.Elf, made: elf.Elf) -> list[str]:
    """Names of the sections in memory that differ in place, size or content."""
    one, other = _contents(ran), _contents(made)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _contents(file: elf.Elf) -> dict[str, tuple[int, int, str]]:
    # Hashed with what is relocated in them: of a module's calls only that names the callee.
    # A section's own symbol has no name, and debug information adds sections, so no number either.
    names = [
        symbol.name or (file.sections[symbol.section].name if symbol.section < elf.SHN_LORESERVE
                        else "") for symbol in file.symbols()
    ]  # fmt: skip
    relocated = {
        section.name: repr([(r.offset, r.kind, names[r.symbol], r.addend) for r in relocations])
        for section, relocations in file.relocations()
    }
    found = {}
    for section in file.sections:
        if section.flags & elf.SHF_ALLOC and not _IDENTITY.fullmatch(section.name):
            data = hashlib.sha256(_BUILD_ID.sub(rb"\1", file.content(section)))
            data.update(relocated.get(section.name, "").encode())
            found[section.name] = (section.address, section.size, data.hexdigest())
    return found
