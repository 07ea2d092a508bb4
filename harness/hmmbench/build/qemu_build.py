# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU with the GPU in it: Debian's source (or the user's), the overlay of qemu-device/, ninja.

The build folder persists for each pair of source and configuration, so that a changed device
file costs the files that include it and a link. The binary is published by content hash.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import EnvironmentFailure, UsageError
from hmmbench.build import cache, extract
from hmmbench.build.apt import Apt
from hmmbench.build.cache import Sources
from hmmbench.build.context import Context

#: The long-term branch: the release of trixie, and its security updates.
SERIES = "10.0"
SUITES = ("trixie", "trixie-security")
#: Debian's patches the build needs: its tarball has no EDK2 images and no pycotap wheel.
PATCHES = ("skip-unpack-edk2-blobs.patch", "disable-pycotap.patch")

DEVICES = Path(__file__).parent / "qemu" / "devices.mak"
#: What the full configuration has besides (docs/building.md).
FULL = """\
CONFIG_AMD_IOMMU=y
CONFIG_VIRTIO_IOMMU=y
"""
#: Ours: what is wrong in this branch and ends a test by chance; the hooks of exact machines, and
#: what makes them fast.  Each says at its top what it does.
PATCHED = tuple(
    Path(__file__).parent / "qemu" / f"{name}.patch"
    for name in ("tcg-memory-map", "exact", "tcg-rep-jumps")
)
BINARY = "qemu-system-x86_64"
OVERLAY = Path("hw/misc/hmm-gpu")
CONFIGURE = (
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--without-default-devices",
    "--with-devices-x86_64=hmmbench",
    "--enable-system",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-slirp",
    "--enable-trace-backends=log",
    "--disable-docs",
    "--disable-install-blobs",
    "--disable-debug-info",
    "--disable-werror",
    "--disable-fdt",
    "--disable-download",
)
#: QEMU's build needs a newer meson than Debian 12 has; pycotap is asked for by user's trees.
TOOLS = ("meson>=1.5,<2", "pycotap>=1.1", "setuptools", "wheel")

#: Firmware a q35 machine loads, and the packages that bring it.
FIRMWARE = ("bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin", "pvh.bin")
FIRMWARE_DIRS = ("/usr/share/seabios", "/usr/share/qemu", "/usr/lib/ipxe/qemu")
FIRMWARE_PACKAGES = ("seabios", "qemu-system-data")


@dataclass(frozen=True)
class Qemu:
    """A built QEMU."""

    binary: Path
    #: folders for -L
    data_dirs: tuple[Path, ...]
    #: "10.0.13"
    version: str
    #: where it came from, for the report
    origin: str
    key: str


def build(ctx: Context, source: Path | None, full: bool = False) -> Qemu:
    """Build the user's source tree, or Debian's; `full`: with the devices of FULL."""
    if source is not None:
        if not (source / "configure").is_file() or not (source / "hw/misc/meson.build").is_file():
            raise UsageError(f"{source} is not a QEMU source tree", "--qemu-source wants its root.")
        name, origin = f"user-{cache.digest(str(source))}", str(source)
        folder = None
    else:
        name, origin, folder = resolve(ctx)
    compiler = ctx.programs.output(["gcc", "--version"], what="gcc --version").splitlines()[0]
    patches = [patch.read_text() for patch in PATCHED]
    devices = DEVICES.read_text() + (FULL if full else "")
    work_key = cache.digest(name, devices, *patches, *CONFIGURE, compiler)
    overlay = read_overlay(paths.device_sources())
    overlay_key = cache.sources_digest(overlay)
    key = cache.digest(work_key, overlay_key)
    found = cache.find("qemu", key)
    # A user's tree may have changed: ninja has to look.
    if found is None or source is not None:
        work = cache.used(paths.cache_dir("work") / f"qemu-{work_key}")
        _tools_home()  # ninja runs meson again when files come or go
        with ctx.lock(work.name, "QEMU"):
            found = cache.find("qemu", key)
            if found is None or source is not None:
                tree = _prepare(ctx, work, source, folder)
                found = _build(ctx, work, tree, devices, overlay, key, source is None)
    version = (found / "version").read_text().strip()
    firmware = find_firmware(ctx, source)
    return Qemu(found / BINARY, (found, *firmware), version, origin, found.name)


def resolve(ctx: Context) -> tuple[str, str, Path | None]:
    """Which version of the source package: (name, origin, download folder). Remembered."""
    memory = paths.cache_dir("resolved") / "qemu.json"
    known = cache.stamp_read(memory)
    if known and not ctx.update and Path(known["folder"]).is_dir():
        return known["name"], known["origin"], Path(known["folder"])
    log = ctx.log("qemu-download")
    with ctx.ui.stage("qemu: downloading the source", log) as stage:
        apt = Apt(ctx.programs, ctx.ui, SUITES, sources=True, mirror=ctx.mirror)
        stage.note("package indexes")
        apt.update(log, force=ctx.update)
        stage.note("source package")
        candidates = [
            one
            for one in apt.source_candidates("qemu")
            if f":{SERIES}." in f":{_upstream(one.version)}"
        ]
        candidate, folder = apt.download_source(candidates, log)
    name = f"qemu-{_upstream(candidate.version)}"
    cache.stamp_write(memory, {"name": name, "origin": str(candidate), "folder": str(folder)})
    return name, str(candidate), folder


def _upstream(version: str) -> str:
    """ "1:10.0.13+ds-0+deb13u1" without the epoch."""
    return version.rpartition(":")[2]


def read_overlay(device: Path) -> Sources:
    """The files of qemu-device/ by their place in QEMU's hw/misc/hmm-gpu/."""
    return {
        **cache.read_sources(device / "qemu"),
        **cache.read_sources(device / "core", "core"),
        **cache.read_sources(device / "include", "include"),
    }


def _prepare(ctx: Context, work: Path, source: Path | None, folder: Path | None) -> Path:
    """The source tree the overlay goes into: our own copy, never the user's."""
    tree = work / "src"
    if source is not None:
        with ctx.ui.stage("qemu: copying the source"):
            _copy_user_tree(source, tree)
    elif not (work / "src.complete").exists():
        assert folder is not None
        with ctx.ui.stage("qemu: unpacking the source"):
            shutil.rmtree(tree, ignore_errors=True)
            shutil.rmtree(work / "build", ignore_errors=True)
            tree.mkdir(parents=True)
            _unpack(ctx, folder, tree)
            (work / "src.complete").touch()
    return tree


def _unpack(ctx: Context, folder: Path, tree: Path) -> None:
    orig = next(folder.glob("qemu_*.orig.tar.xz"), None)
    debian = next(folder.glob("qemu_*.debian.tar.xz"), None)
    if orig is None or debian is None:
        raise EnvironmentFailure(
            f"the source package in {folder} is not whole", "Remove the folder."
        )
    extract.tarball(ctx.programs, orig, tree, strip=1)
    extract.tarball(ctx.programs, debian, tree, strip=0)
    series = (tree / "debian/patches/series").read_text().split()
    log = ctx.log("qemu-patch")
    for patch in PATCHES:
        # A later revision of the package may have dropped one because it is not needed there.
        if patch in series:
            ctx.programs.run(
                ["patch", "-p1", "-i", tree / "debian/patches" / patch],
                what=f"applying Debian's {patch}",
                log=log,
                cwd=tree,
            )


def _copy_user_tree(source: Path, tree: Path) -> None:
    """Copy what changed by size and time: a QEMU checkout is too big to compare by content.

    Files we edit in the copy (the hooks) are compared with a pristine copy of their own time.
    """
    skip = {".git", "build", "roms", "__pycache__"}
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if name not in skip]
        at = tree / Path(folder).relative_to(source)
        at.mkdir(parents=True, exist_ok=True)
        for name in files:
            old, new = Path(folder, name), at / name
            was, now = old.lstat(), new.lstat() if new.exists() or new.is_symlink() else None
            if now is None or now.st_mtime_ns != was.st_mtime_ns:
                shutil.copy2(old, new, follow_symlinks=False)


def add_hooks(tree: Path) -> None:
    """Three lines make QEMU's build know the overlay. Their files keep their times, so that a
    copy of a user's tree is not taken for changed."""
    _edit(tree / "hw/misc/meson.build", "subdir('hmm-gpu')\n", None)
    _edit(tree / "hw/misc/Kconfig", "source hmm-gpu/Kconfig\n", None)
    _edit(tree / "meson.build", f"    '{OVERLAY}',\n", "    'hw/misc',\n")


def mend(tree: Path, patch: Path) -> bool:
    """Apply a patch of ours, if this QEMU has the code it is for and it is not there yet.

    Returns whether the tree has it.  Files keep their times, as in `add_hooks`.
    """
    files = [tree / name for name in re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)]
    # What the patch adds may be there or not.
    added = {tree / name for name in re.findall(r"^--- /dev/null\n\+\+\+ b/(\S+)",
                                                patch.read_text(), re.M)}  # fmt: skip
    if not all(path.is_file() or path in added for path in files):
        return False
    command = ["patch", "-p1", "--force", "--silent", "--no-backup-if-mismatch", "-r", "-", "-i",
               str(patch)]  # fmt: skip

    def fits(how: str) -> bool:
        tried = [*command, "--dry-run", "--fuzz=0", how]
        return not subprocess.run(tried, cwd=tree, capture_output=True, check=False).returncode

    if fits("--reverse"):
        return True
    if not fits("--forward"):
        return False
    times = {path: path.stat() for path in files if path not in added}
    subprocess.run([*command, "--forward"], cwd=tree, capture_output=True, check=True)
    for path, old in times.items():
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    return True


def _edit(path: Path, line: str, after: str | None) -> None:
    text = path.read_text()
    if line in text:
        return
    if after is None:
        changed = text.rstrip("\n") + "\n" + line
    elif after in text:
        changed = text.replace(after, after + line, 1)
    else:
        raise UsageError(
            f"cannot add the device to {path}: no line {after.strip()!r}",
            f"The overlay is made for QEMU {SERIES}; this tree's build files differ.",
        )
    times = path.stat()
    path.write_text(changed)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _build(
    ctx: Context, work: Path, tree: Path, devices: str, overlay: Sources, key: str, keep: bool
) -> Path:
    add_hooks(tree)
    missing = [patch for patch in PATCHED if not mend(tree, patch)]
    _, renamed = cache.sync_sources(overlay, tree / OVERLAY)
    cache.write_changed(devices.encode(), tree / "configs/devices/x86_64-softmmu/hmmbench.mak")
    build_dir = work / "build"
    if not (build_dir / "build.ninja").is_file():
        _configure(ctx, tree, build_dir)
    elif renamed:
        # The overlay's meson.build lists its files when meson runs, so meson must run.
        (tree / "hw/misc/meson.build").touch()
    log = ctx.log("qemu-build")
    with ctx.ui.stage("qemu: compiling", log) as stage:
        for patch in missing:
            stage.note(f"{patch.stem}: not for this QEMU")

        def watch(line: str) -> None:
            match = re.match(r"\[(\d+)/(\d+)\] (.*)", line)
            if match:
                stage.progress(int(match[1]), int(match[2]), match[3].rpartition(" ")[2][-48:])

        ctx.programs.run(
            [_ninja(), f"-j{ctx.jobs}", "-C", build_dir, BINARY],
            what="building QEMU",
            log=log,
            env={**os.environ, "NINJA_STATUS": "[%f/%t] "},
            watch=watch,
        )
    binary = build_dir / BINARY
    if not keep:
        key = cache.digest(key, cache.file_digest(binary))
        found = cache.find("qemu", key)
        if found is not None:
            return found
    version = (tree / "VERSION").read_text().strip()

    def fill(folder: Path) -> None:
        shutil.copy2(binary, folder / BINARY)
        (folder / "version").write_text(f"{version}\n")

    return cache.publish("qemu", key, fill)


def _configure(ctx: Context, tree: Path, build_dir: Path) -> None:
    log = ctx.log("qemu-configure")
    with ctx.ui.stage("qemu: configuring", log) as stage:
        stage.note("meson")
        python = _tools(ctx, log)
        # Configure into an empty folder: what an interrupted one left confuses meson.
        shutil.rmtree(build_dir, ignore_errors=True)
        build_dir.mkdir(parents=True)
        stage.note("configure")
        try:
            ctx.programs.run(
                [tree / "configure", f"--python={python}", *CONFIGURE],
                what="configuring QEMU",
                log=log,
                cwd=build_dir,
            )
        except BaseException:
            (build_dir / "build.ninja").unlink(missing_ok=True)
            raise


def _tools_home() -> Path:
    name = f"qemu-python-{cache.digest(*TOOLS, sys.version)}"
    return cache.used(paths.cache_dir("work") / name)


def _tools(ctx: Context, log: Path) -> Path:
    """A Python environment with meson, apart from the bench's own, which changes more often.

    QEMU's build folder names it, so it must not move.
    """
    home = _tools_home()
    with ctx.lock(home.name, "meson's environment"):
        if not (home / ".complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            base = getattr(sys, "_base_executable", sys.executable)
            ctx.programs.run([base, "-m", "venv", home], what="making an environment", log=log)
            ctx.programs.run(
                [
                    home / "bin/python",
                    "-m",
                    "pip",
                    "install",
                    "--disable-pip-version-check",
                    *TOOLS,
                ],
                what="installing meson from the Python package index",
                log=log,
            )
            (home / ".complete").touch()
    return home / "bin/python"


def _ninja() -> str:
    return shutil.which("ninja") or "ninja"


def find_firmware(ctx: Context, source: Path | None) -> tuple[Path, ...]:
    """Folders that hold the firmware: the host's, the user's source tree's, or unpacked here."""
    unpacked = paths.cache_root() / "firmware"
    folders = [Path(name) for name in FIRMWARE_DIRS]
    if source is not None:
        folders.insert(0, source / "pc-bios")
    folders += [unpacked / name.lstrip("/") for name in FIRMWARE_DIRS]
    if firmware_missing(folders):
        log = ctx.log("firmware")
        with ctx.ui.stage("qemu: firmware", log):
            apt = Apt(ctx.programs, ctx.ui, (ctx.mirror.suite,), sources=False, mirror=ctx.mirror)
            apt.update(log)
            for package in FIRMWARE_PACKAGES:
                _, deb = apt.download(apt.candidates(package), log)
                extract.deb_tree(ctx.programs, deb, unpacked)
    missing = firmware_missing(folders)
    if missing:
        raise EnvironmentFailure(
            f"QEMU's firmware is missing: {', '.join(missing)}",
            f"Install the packages {' and '.join(FIRMWARE_PACKAGES)}.",
        )
    return tuple(folder for folder in folders if folder.is_dir())


def firmware_missing(folders: list[Path]) -> list[str]:
    return [name for name in FIRMWARE if not any((at / name).is_file() for at in folders)]
