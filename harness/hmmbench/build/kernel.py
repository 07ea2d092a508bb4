# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest kernel: from Debian's linux-source, from the user's source, or the user's build."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import EnvironmentFailure, UsageError
from hmmbench.build import cache, extract
from hmmbench.build.apt import Apt, Candidate
from hmmbench.build.context import Context

FRAGMENTS = Path(__file__).parent / "kernel"

#: The branch that `--kernel lts` means, and where it is kept. Its candidates come from stable
#: suites and their security archives only.
LTS = "6.12"
LTS_SUITES = (
    "trixie",
    "trixie-security",
    "bookworm-backports",
    "bookworm-security",
)
#: Where the newest kernels are. Their versions move every week: resolved when building.
LATEST_SUITES = ("trixie-backports", "sid")

#: Fragments that are merged over base.config, in this order.
Variant = tuple[str, ...]
#: Those that look for mistakes.  "debug" has what the three behind it have, and more.
SANITISED = ("debug", "kasan", "lockdep", "debug-vm", "kcsan")
VARIANTS = ("full", *SANITISED, "coverage")

#: In a build folder: what it was finished for.
STAMP = ".hmmbench.json"

#: Options without which the bench cannot work, and what each is for.
REQUIRED = {
    "CONFIG_DEVICE_PRIVATE": "pages of GPU memory",
    "CONFIG_HMM_MIRROR": "hmm_range_fault()",
    "CONFIG_MMU_NOTIFIER": "invalidation callbacks",
    "CONFIG_MIGRATION": "migration",
    "CONFIG_PCI_MSI": "the device's interrupts",
    "CONFIG_MODULES": "loading the driver",
    "CONFIG_BLK_DEV_INITRD": "the initramfs",
    "CONFIG_BINFMT_ELF": "programs",
    "CONFIG_BINFMT_SCRIPT": "the init script",
    "CONFIG_DEVTMPFS": "/dev",
    "CONFIG_TMPFS": "/tmp and file mappings",
    "CONFIG_PROC_FS": "/proc",
    "CONFIG_SYSFS": "/sys",
    "CONFIG_SERIAL_8250_CONSOLE": "the console",
}
#: May be modules: they travel in the initramfs, with what they depend on.
REQUIRED_OR_MODULE = {
    "CONFIG_DRM": ("drm", "the driver's interface"),
    "CONFIG_VIRTIO_PCI": ("virtio_pci", "the agent's channel"),
    "CONFIG_VIRTIO_CONSOLE": ("virtio_console", "the agent's channel"),
}
#: Taken along if they are modules, not missed if absent.
OPTIONAL_MODULES = ("virtio_net", "virtio_rng", "zram")

#: What counts its lines in the coverage variant: the files that HMM and migration are.  By make's
#: command line, because the source stays as it is.
GCOV_FILES = ("mm/hmm.c", "mm/migrate_device.c")

#: Lines make prints for the base configuration; only for the progress bar.
_EXPECTED_LINES = 1650


@dataclass(frozen=True)
class Kernel:
    """A built kernel and its build tree."""

    #: "6.12.117-hmmbench": what uname says
    release: str
    #: where it came from, for the report: a package with version and suite, or a folder
    origin: str
    #: names everything that depends on this kernel
    key: str
    #: the tree that `make M=...` builds modules against
    build_dir: Path
    #: what QEMU's -kernel gets
    image: Path
    #: the source tree, where known
    source_dir: Path | None
    #: the kernel's own HMM test module, where built
    test_hmm: Path | None
    #: modules the guest needs before the driver, in order of loading
    modules: tuple[Path, ...]
    #: where the image's symbols are; a user's build may have lost it
    system_map: Path | None
    #: the image is another than that of the build tree (kernel_patch.py)
    patched: bool = False


def check_variants(names: Sequence[str]) -> None:
    """Raises UsageError for what is no variant, and for two that no kernel can be at once."""
    unknown = [name for name in names if name not in SANITISED]
    if unknown:
        raise UsageError(
            f"there is no kernel variant {', '.join(unknown)}: {', '.join(SANITISED)}"
        )
    if "kcsan" in names and {"debug", "kasan"} & set(names):
        raise UsageError("KCSAN and KASAN are not to be had in one kernel")


def build(ctx: Context, which: str, variant: Variant = ()) -> Kernel:
    """The kernel of a linux-source package: `which` is "lts" or "latest"."""
    name, origin, deb = resolve(ctx, which)
    source = paths.cache_root() / "src" / name
    if not source.is_dir():
        if deb is None:
            raise EnvironmentFailure(f"the source of {origin} is gone from the cache")
        with ctx.ui.stage(f"kernel {which}: unpacking the source"):
            source = extract.into_cache(
                name, lambda target: extract.kernel_source(ctx.programs, deb, target)
            )
        deb.unlink(missing_ok=True)  # 150 MB that nothing reads again
    return from_source(ctx, source, origin, variant, label=which, trusted=True)


def resolve(ctx: Context, which: str) -> tuple[str, str, Path | None]:
    """Which version `lts` or `latest` is: (name of the source tree, origin, package file).

    The answer is remembered, so that a later start needs no network and builds nothing anew;
    `hmmbench build --update` asks the archive again.
    """
    memory = paths.cache_dir("resolved") / f"kernel-{which}.json"
    known = cache.stamp_read(memory)
    if known and not ctx.update and (paths.cache_root() / "src" / known["name"]).is_dir():
        return known["name"], known["origin"], None
    log = ctx.log(f"kernel-{which}-download")
    with ctx.ui.stage(f"kernel {which}: downloading", log) as stage:
        suites = LTS_SUITES if which == "lts" else LATEST_SUITES
        apt = Apt(ctx.programs, ctx.ui, suites, sources=False, mirror=ctx.mirror)
        stage.note("package indexes")
        apt.update(log, force=ctx.update)
        stage.note("linux-source")
        candidate, deb = apt.download(_candidates(apt, which), log)
    name = deb.name.removesuffix(".deb").replace("%3a", ":")
    cache.stamp_write(memory, {"name": name, "origin": str(candidate)})
    return name, str(candidate), deb


def _candidates(apt: Apt, which: str) -> list[Candidate]:
    if which == "lts":
        return apt.candidates(f"linux-source-{LTS}")
    branches = newest_first(apt.packages("linux-source-"))
    return [candidate for branch in branches for candidate in apt.candidates(branch)]


def newest_first(packages: Sequence[str]) -> list[str]:
    """linux-source-N.M packages, highest branch first; flavours and metapackages left out."""
    branches = []
    for package in packages:
        match = re.fullmatch(r"linux-source-(\d+)\.(\d+)", package)
        if match:
            branches.append((int(match[1]), int(match[2]), package))
    return [package for _, _, package in sorted(branches, reverse=True)]


def from_source(
    ctx: Context, source: Path, origin: str, variant: Variant, *, label: str, trusted: bool
) -> Kernel:
    """Configure and build a source tree in a folder of the cache."""
    if not trusted:
        _check_source(source)
    build_dir, fragments = _place(ctx, source, label, variant)
    key = cache.digest(*options(fragments))
    stamp = build_dir / STAMP
    # A user's own source may have changed: make decides what to do. Ours cannot.
    if not (trusted and cache.stamp_read(stamp).get("key") == key):
        with ctx.lock(build_dir.name, f"kernel {label}"):
            if not (trusted and cache.stamp_read(stamp).get("key") == key):
                build_dir.mkdir(exist_ok=True)
                stamp.unlink(missing_ok=True)
                _configure(ctx, source, build_dir, fragments, label)
                _make(ctx, build_dir, label, gcov_words() if "coverage" in variant else [])
                check_config(read_config(build_dir / ".config"), build_dir)
                cache.stamp_write(stamp, {"key": key, "origin": origin})
    return describe(build_dir, origin, source)


def _place(ctx: Context, source: Path, label: str, variant: Variant) -> tuple[Path, str]:
    """Where a source tree is built, and the configuration that is asked for."""
    fragments = "".join(
        (FRAGMENTS / f"{name}.config").read_text() for name in ("base", *variant)
    )
    compiler = ctx.programs.output(["gcc", "--version"], what="gcc --version").splitlines()[0]
    # Not by configuration: a changed option then compiles what it touches, and no more.
    words = "-".join(variant) or "base"
    name = f"linux-{label}-{words}-{cache.digest(str(source), compiler)}"
    if source.parent == paths.cache_root() / "src":
        cache.used(source)
    return cache.used(paths.cache_dir("work") / name), fragments


def find(ctx: Context, which: str, variant: Variant = ()) -> Kernel | None:
    """The kernel that `build` would return, if it is built; nothing is made or asked for."""
    known = cache.stamp_read(paths.cache_dir("resolved") / f"kernel-{which}.json")
    source = paths.cache_root() / "src" / str(known.get("name", ""))
    if not known or not source.is_dir():
        return None
    build_dir, fragments = _place(ctx, source, which, variant)
    if cache.stamp_read(build_dir / STAMP).get("key") != cache.digest(*options(fragments)):
        return None
    return describe(build_dir, str(known["origin"]), source)


def _check_source(source: Path) -> None:
    if not (source / "Kbuild").is_file() or not (source / "arch/x86").is_dir():
        raise UsageError(
            f"{source} is not a Linux source tree",
            "--kernel-source wants the folder that holds Kbuild and arch/; for a tree that is"
            " already built use --kernel-build.",
        )
    if (source / ".config").exists() or (source / "include/config").is_dir():
        raise UsageError(
            f"{source} was built in place, and Linux refuses to build elsewhere from it",
            "Use it as it is with --kernel-build, or clean it with `make mrproper`.",
        )


def _configure(ctx: Context, source: Path, build_dir: Path, fragments: str, label: str) -> None:
    log = ctx.log(f"kernel-{label}-configure")
    wanted = build_dir / "hmmbench.config"
    if (
        (build_dir / ".config").is_file()
        and wanted.is_file()
        and options(wanted.read_text()) == options(fragments)
    ):
        return  # an interrupted build goes on where it was
    with ctx.ui.stage(f"kernel {label}: configuring", log):
        wanted.write_text(fragments)
        ctx.programs.run(
            [
                "make",
                "-s",
                "-C",
                source,
                f"O={build_dir}",
                f"KCONFIG_ALLCONFIG={wanted}",
                "allnoconfig",
            ],
            what="configuring the kernel",
            log=log,
            env=environment(),
        )


def gcov_words() -> list[str]:
    return [f"GCOV_PROFILE_{Path(name).stem}.o=y" for name in GCOV_FILES]


def _make(ctx: Context, build_dir: Path, label: str, words: Sequence[str]) -> None:
    log = ctx.log(f"kernel-{label}-build")
    done = 0
    with ctx.ui.stage(f"kernel {label}: compiling", log) as stage:

        def watch(line: str) -> None:
            nonlocal done
            match = re.match(r"  ([A-Z]+(?: \[M\])?) +(\S+)", line)
            if match:
                done += 1
                stage.progress(min(done, _EXPECTED_LINES - 1), _EXPECTED_LINES, match[2])

        ctx.programs.run(
            ["make", f"-j{ctx.jobs}", "-C", build_dir, *words, "bzImage", "modules"],
            what="building the kernel",
            log=log,
            env=environment(),
            watch=watch,
        )


def environment() -> Mapping[str, str]:
    """The same build for everyone: no name of this host or user in the image."""
    keep = {
        key: value for key, value in os.environ.items() if key not in ("ARCH", "KBUILD_OUTPUT", "O")
    }
    return {
        **keep,
        "LC_ALL": "C",
        "KBUILD_BUILD_USER": "hmmbench",
        "KBUILD_BUILD_HOST": "hmmbench",
        "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
    }


def from_build(build_dir: Path) -> Kernel:
    """The user's own built tree, checked so that what is wrong is said before a VM hangs."""
    if not build_dir.is_dir():
        raise UsageError(f"--kernel-build: {build_dir} is not a folder")
    missing = [
        name
        for name in (".config", "Makefile", "Module.symvers", "include/generated/utsrelease.h")
        if not (build_dir / name).is_file()
    ]
    if not missing and _image(build_dir) is None:
        missing = ["arch/x86/boot/bzImage"]
    if missing:
        raise UsageError(
            f"{build_dir} is not a built kernel tree: no {', '.join(missing)}",
            "Build it first (make bzImage modules), or give its source with --kernel-source.",
        )
    check_config(read_config(build_dir / ".config"), build_dir, usage=True)
    return describe(build_dir, str(build_dir), None)


def options(fragment: str) -> list[str]:
    """What a fragment says, without what it explains."""
    lines = (line.strip() for line in fragment.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def read_config(path: Path) -> dict[str, str]:
    options = {}
    for line in path.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and name.startswith("CONFIG_"):
            options[name] = value
    return options


def enabled(kernel: Kernel, option: str) -> bool:
    """Whether an option (its whole name, CONFIG_...) is built in; a module's "m" is not."""
    return read_config(kernel.build_dir / ".config").get(option) == "y"


def check_config(config: Mapping[str, str], where: Path, usage: bool = False) -> None:
    """Refuse a kernel on which the bench cannot work, naming every option and its reason."""
    lacking = [f"{name}=y ({why})" for name, why in REQUIRED.items() if config.get(name) != "y"]
    lacking += [
        f"{name}=y or =m ({why})"
        for name, (_, why) in REQUIRED_OR_MODULE.items()
        if config.get(name) not in ("y", "m")
    ]
    if lacking:
        kind = UsageError if usage else EnvironmentFailure
        raise kind(
            f"the kernel in {where} lacks: {', '.join(lacking)}",
            f"Merge {FRAGMENTS / 'base.config'} into its configuration"
            " (scripts/kconfig/merge_config.sh) and build it again.",
        )


def describe(build_dir: Path, origin: str, source: Path | None) -> Kernel:
    release = re.search(r'"([^"]+)"', (build_dir / "include/generated/utsrelease.h").read_text())
    image = _image(build_dir)
    if release is None or image is None:
        raise EnvironmentFailure(f"the kernel build in {build_dir} is not whole")
    config = read_config(build_dir / ".config")
    test_hmm = build_dir / "lib/test_hmm.ko"
    system_map = build_dir / "System.map"
    # The image's bytes change with every relink; the symbols are what modules depend on.
    key = cache.digest(
        str(build_dir),
        str(image.stat().st_mtime_ns),
        str((build_dir / "Module.symvers").stat().st_mtime_ns),
    )
    return Kernel(
        release=release[1],
        origin=origin,
        key=key,
        build_dir=build_dir,
        image=image,
        source_dir=source or _source_of(build_dir),
        test_hmm=test_hmm if test_hmm.is_file() else None,
        modules=needed_modules(build_dir, config),
        system_map=system_map if system_map.is_file() else None,
    )


def _image(build_dir: Path) -> Path | None:
    image = build_dir / "arch/x86/boot/bzImage"
    return image if image.is_file() else None


def _source_of(build_dir: Path) -> Path | None:
    link = build_dir / "source"
    source = link.resolve() if link.exists() else build_dir
    return source if (source / "lib/test_hmm_uapi.h").is_file() else None


def needed_modules(build_dir: Path, config: Mapping[str, str]) -> tuple[Path, ...]:
    """Those of the guest's needs that this kernel has as modules, dependencies first."""
    if "m" not in config.values():
        return ()
    order = build_dir / "modules.order"
    built = {}
    for line in order.read_text().splitlines() if order.is_file() else []:
        path = build_dir / Path(line).with_suffix(".ko")
        built[path.stem.replace("-", "_")] = path
    wanted = [module for module, _ in REQUIRED_OR_MODULE.values()] + list(OPTIONAL_MODULES)
    chosen: dict[str, Path] = {}

    def take(name: str) -> None:
        path = built.get(name)
        if path is None or name in chosen or not path.is_file():
            return
        for needed in module_depends(path):
            take(needed)
        chosen[name] = path

    for module in wanted:
        take(module)
    return tuple(chosen.values())


def module_depends(path: Path) -> list[str]:
    """The "depends=" field that modpost put into a module."""
    match = re.search(rb"\0?depends=([^\0]*)\0", path.read_bytes())
    names = match[1].decode() if match else ""
    return [name.replace("-", "_") for name in names.split(",") if name]
