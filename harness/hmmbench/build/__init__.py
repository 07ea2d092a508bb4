# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything a virtual machine of the bench is made from: `ensure()` makes or finds it.

QEMU and the kernel are built at the same time; driver and agent follow the kernel. What is in
the cache is not built again, and a run with everything there needs neither network nor apt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmmbench import __version__
from hmmbench.base.errors import Cancelled, HmmbenchError, UsageError
from hmmbench.base.interrupt import interruptible
from hmmbench.base.ui import Stage, Ui
from hmmbench.build import (
    agent,
    cache,
    debuginfo,
    driver,
    initramfs,
    kernel,
    kernel_patch,
    qemu_build,
    ssh,
)
from hmmbench.build.context import Context

__all__ = ["Artifacts", "BuildRequest", "NotBuilt", "ensure", "kernel_config", "peek"]


@dataclass(frozen=True)
class BuildRequest:
    """What to build; the defaults are what `./hmmbench run` uses."""

    #: "lts", "latest", or a folder: a built kernel tree, else a source tree
    kernel: str = "lts"
    kernel_build: Path | None = None
    kernel_source: Path | None = None
    #: sanitised, names of kernel.SANITISED: "debug" has lockdep, KASAN, kmemleak and more
    kernel_variants: tuple[str, ...] = ()
    #: the full configuration of kernel and QEMU (docs/building.md)
    full: bool = False
    qemu_source: Path | None = None
    #: another folder than guest-driver/ for the module, laid out as that one is
    driver_source: Path | None = None
    #: applied (-p1, from the checkout's root) to the copy of the driver that is built
    driver_patches: tuple[Path, ...] = ()
    #: applied (-p1) to C sources of the kernel, which is not built anew for it
    kernel_patches: tuple[Path, ...] = ()
    #: the kernel that counts executed lines (GCOV_KERNEL), and the driver in it
    coverage: bool = False
    #: debug information of kernel and driver, beside what runs (debuginfo.py)
    debuginfo: bool = False
    #: of the driver at least, which takes seconds
    driver_debuginfo: bool = False
    #: ask the archive for newer versions
    update: bool = False
    jobs: int | None = None


@dataclass(frozen=True)
class Artifacts:
    """What a virtual machine is made from."""

    qemu: Path
    #: folders for QEMU's -L
    qemu_data_dirs: tuple[Path, ...]
    #: for -kernel
    kernel_image: Path
    #: for `make M=...`
    kernel_build_dir: Path
    kernel_source_dir: Path | None
    kernel_release: str
    #: where the image's symbols are
    system_map: Path | None
    #: the kernel's own modules that the guest loads before the driver
    kernel_modules: tuple[Path, ...]
    #: folder with hmm_gpu.ko
    module_dir: Path
    agent: Path
    #: for -initrd
    initramfs: Path
    #: private key for SSH into the guest, or None where the host has no dropbear
    ssh_key: Path | None
    #: the kernel with debug information and the folder with the driver's: if asked for, or there
    debug_vmlinux: Path | None
    debug_module_dir: Path | None
    #: for the report: what of which version
    versions: dict[str, str]
    #: seconds by stage, of this call
    stages: dict[str, float]
    #: changes when anything above does: names snapshots
    key: str

    def as_json(self) -> dict[str, Any]:
        def plain(value: object) -> object:
            if isinstance(value, Path):
                return str(value)
            if isinstance(value, tuple):
                return [plain(item) for item in value]
            return value

        return {name: plain(value) for name, value in vars(self).items()}

    @staticmethod
    def read(path: Path) -> Artifacts:
        """What `build --json` wrote.  Raises UsageError if it is no such file, or is not true
        any more."""
        texts = ("kernel_release", "key", "versions", "stages")
        try:
            data: dict[str, Any] = {
                name: value
                if name in texts or value is None
                else tuple(map(Path, value))
                if isinstance(value, list)
                else Path(value)
                for name, value in json.loads(path.read_text()).items()
            }
            found = Artifacts(**data)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"{path} was not written by build --json: {error}") from error
        for needed in (found.qemu, found.kernel_image, found.initramfs, found.module_dir):
            if not needed.exists():
                raise UsageError(f"{path}: {needed} is not there any more", "Build again.")
        return found


def ensure(request: BuildRequest | None = None, ui: Ui | None = None) -> Artifacts:
    """Build what is missing and say where everything is."""
    request = normalise(request or BuildRequest())
    ctx = Context(ui or Ui(), update=request.update)
    if request.jobs is not None:
        ctx.jobs = request.jobs
    before = dict(ctx.ui.seconds)
    cache.remove_leftovers()
    cache.prune_trees()
    with interruptible(), ThreadPoolExecutor(2, "build") as pool:
        try:
            qemu_future = pool.submit(qemu_build.build, ctx, request.qemu_source, request.full)
            guest_future = pool.submit(_guest, ctx, request)
            _wait([qemu_future, guest_future])
        except BaseException:
            # From the first thread on: to leave the pool is to wait for what it runs.
            ctx.programs.end()
            raise
        qemu, (built, module_dir, agent_dir, archive, keys) = (
            qemu_future.result(),
            guest_future.result(),
        )
        debug = _debuginfo(ctx, request, built, module_dir)
    stages = {
        name: round(seconds - before.get(name, 0.0), 3)
        for name, seconds in ctx.ui.seconds.items()
        if seconds != before.get(name)
    }
    return Artifacts(
        qemu=qemu.binary,
        qemu_data_dirs=qemu.data_dirs,
        kernel_image=built.image,
        kernel_build_dir=built.build_dir,
        kernel_source_dir=built.source_dir,
        kernel_release=built.release,
        system_map=built.system_map,
        kernel_modules=built.modules,
        module_dir=module_dir,
        agent=agent_dir / agent.PROGRAM,
        initramfs=archive,
        ssh_key=keys.client if keys else None,
        debug_vmlinux=debug.vmlinux,
        debug_module_dir=debug.modules,
        versions={
            "hmmbench": __version__,
            "qemu": f"{qemu.version} from {qemu.origin}",
            "kernel": f"{built.release} from {built.origin}",
            "driver": module_dir.name,
        },
        stages=stages,
        key=cache.digest(qemu.key, built.key, archive.parent.name),
    )


def kernel_config(artifacts: Artifacts) -> dict[str, str]:
    """Options of the kernel; empty if its build folder does not say."""
    path = artifacts.kernel_build_dir / ".config"
    return kernel.read_config(path) if path.is_file() else {}


class NotBuilt(HmmbenchError):
    """peek() met something that only ensure() would make."""


class _CacheOnly(Ui):
    """Every step that makes something announces itself as a stage: here it is refused."""

    @contextmanager
    def stage(self, name: str, log: Path | None = None) -> Iterator[Stage]:
        raise NotBuilt(f"not built yet: {name}", "./hmmbench build")
        yield


def peek(request: BuildRequest | None = None) -> Artifacts:
    """What ensure() would return if all of it is in the cache; else NotBuilt."""
    return ensure(request, _CacheOnly(quiet=True))


def normalise(request: BuildRequest) -> BuildRequest:
    """Resolve `--kernel DIR` into a build or a source, and refuse contradictions."""
    given = [
        name
        for name, value in (
            ("--kernel-build", request.kernel_build),
            ("--kernel-source", request.kernel_source),
            (f"--kernel {request.kernel}", request.kernel != "lts"),
        )
        if value
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} contradict each other", "Give one of them.")
    values = vars(request) | {
        name: path.expanduser().resolve()
        for name in ("kernel_build", "kernel_source", "qemu_source", "driver_source")
        if (path := getattr(request, name)) is not None
    }
    if request.kernel not in ("lts", "latest"):
        folder = Path(request.kernel).expanduser().resolve()
        if not folder.is_dir():
            raise UsageError(
                f"--kernel {request.kernel}: neither lts nor latest, nor a folder",
            )
        built = (folder / "Module.symvers").is_file() or (folder / ".config").is_file()
        values["kernel_build" if built else "kernel_source"] = folder
        values["kernel"] = "lts"
    if values["kernel_build"] is not None and request.kernel_variants:
        raise UsageError(
            "a variant configures a kernel, and --kernel-build is configured already"
        )
    request = BuildRequest(**values)
    kernel.check_variants(request.kernel_variants)
    # Wrong folders are told before minutes of downloading, not after.
    if request.kernel_build is not None:
        kernel.from_build(request.kernel_build)
    for patch in request.driver_patches:
        if not patch.is_file():
            raise UsageError(f"the driver patch {patch} does not exist")
    for patch in request.kernel_patches:
        kernel_patch.files(patch)
    return request


def variant(request: BuildRequest) -> kernel.Variant:
    """What is merged into the kernel's configuration."""
    wanted = {*request.kernel_variants}
    wanted |= {"full"} if request.full else set()
    wanted |= {"coverage"} if request.coverage else set()
    return tuple(name for name in kernel.VARIANTS if name in wanted)


def _guest(
    ctx: Context, request: BuildRequest
) -> tuple[kernel.Kernel, Path, Path, Path, ssh.Keys | None]:
    """Kernel, then what runs in it."""
    keys = ssh.keys(ctx)
    if request.kernel_build is not None:
        built = kernel.from_build(request.kernel_build)
    elif request.kernel_source is not None:
        built = kernel.from_source(
            ctx,
            request.kernel_source,
            str(request.kernel_source),
            variant(request),
            label="own",
            trusted=False,
        )
    else:
        built = kernel.build(ctx, request.kernel, variant(request))
    if request.coverage and not kernel.enabled(built, "CONFIG_GCOV_KERNEL"):
        raise UsageError(
            f"the kernel in {built.build_dir} counts no lines",
            "Coverage needs a kernel with CONFIG_GCOV_KERNEL; the bench's own is built if asked.",
        )
    module_dir = driver.build(ctx, built, request.driver_source, request.driver_patches)
    agent_dir = agent.build(ctx, built)
    contents = initramfs.Contents(built, module_dir, agent_dir)
    archive = initramfs.build(ctx, contents, keys)
    if request.kernel_patches:
        # Last: everything that is built for the kernel fits the patched one too.
        built = kernel_patch.build(ctx, built, request.kernel_patches)
    return built, module_dir, agent_dir, archive, keys


def _debuginfo(
    ctx: Context, request: BuildRequest, built: kernel.Kernel, module_dir: Path
) -> debuginfo.DebugInfo:
    source, patches = request.driver_source, request.driver_patches
    if request.debuginfo:
        return debuginfo.build(ctx, built, source, patches, module_dir)
    found = debuginfo.find(built, source, patches)
    if request.driver_debuginfo and found.modules is None:
        modules = debuginfo.build_driver(ctx, built, source, patches, module_dir)
        return debuginfo.DebugInfo(found.vmlinux, modules)
    return found


def _wait(futures: list[Future[Any]]) -> None:
    """Wait for all, or for the first failure, which is raised."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    failed = [error for future in done if (error := future.exception()) is not None]
    if failed:
        # The cause, not the cancellation it brought to the other track.
        raise next((error for error in failed if not isinstance(error, Cancelled)), failed[0])
