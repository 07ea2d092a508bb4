# SPDX-License-Identifier: GPL-2.0-or-later
"""What a result depends on: a hash for each part of the house that decides it.

Every result a command writes as JSON says so, under "depends"; `hmmbench sum` adds results up
that depend on the same, and says of each whether it still holds for a checkout.  Hashes are of
contents: a commit that changes none of these files leaves a result as good as it was.

    commit, dirty -- of the checkout; for people, nothing is compared by them
    device        -- the device's core, its glue to QEMU, and what is changed in QEMU for it
    driver        -- the kernel module, with the patches and the folder that were asked for
    agent         -- the program in the guest, its library and GPU kernels
    kernel        -- {how it was asked for: release and hash of its configuration}
    oracles       -- what turns an answer into a verdict: oracles, model, and what calls them
    campaign      -- what decides which programs run, in which surroundings and machine
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hmmbench.base import outside, paths
from hmmbench.build import Artifacts, BuildRequest, agent, cache, driver, guest_tree, variant
from hmmbench.build.kernel import read_config

#: Of qemu-device/; its tests decide nothing.
DEVICE = ("core", "include", "qemu")
#: In QEMU's source, beside the device.
QEMU = "harness/hmmbench/build/qemu"

#: Modules of the bench, files and folders.  tests/host/build/test_depends.py holds that what the
#: first list imports is in it too, or is known to decide nothing.
ORACLES = (
    "base/outside.py", "device/injection.py", "oracle", "model", "guest/program.py",
    "guest/splat.py",
    "example/recipe.py", "example/target.py", "example/judge.py", "example/vm_target.py",
    "example/exact_target.py",
    "suites/selftests.py", "suites/ktap.py",
)  # fmt: skip
CAMPAIGN = (
    "campaign/corpus.py", "campaign/explore.py", "campaign/features.py", "campaign/generate.py",
    "campaign/mutate.py", "campaign/portions.py", "campaign/runner.py", "campaign/surroundings.py",
    "model/drawing.py", "model/scenes.py", "model/ops",
    "example/delays.py", "example/schedules.py", "symbols/points.py",
    "vm/kinds.py", "vm/spec.py", "vm/standard.py",
)  # fmt: skip

#: Those that are one hash each.
PARTS = ("device", "driver", "agent", "oracles", "campaign")


def of(request: BuildRequest | None = None) -> dict[str, Any]:
    """Of this checkout as its files are now; `kernel` is empty until `kernel()` is added.

    Raises UsageError if the driver's folder that was asked for is none.
    """
    request = request or BuildRequest()
    return {
        **checkout(paths.project_root()),
        "device": device(),
        "driver": module(request),
        "agent": cache.sources_digest(agent.sources()),
        "kernel": {},
        "oracles": modules(ORACLES, outside.families()),
        "campaign": modules(CAMPAIGN, outside.families()),
    }


def built(request: BuildRequest, artifacts: Artifacts) -> dict[str, Any]:
    """The same, with the kernel that was built for the request."""
    return of(request) | {"kernel": kernel(request, artifacts)}


def parts(of: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Some of them as a text each; the kernel's without how it was asked for."""
    found = {name: of[name] for name in names}
    return {
        name: " ".join(what.values()) if isinstance(what, dict) else str(what)
        for name, what in found.items()
    }


def checkout(root: Path) -> dict[str, Any]:
    """Commit, and whether files differ from it; without git's history none and False."""
    commit = _git(root, "rev-parse", "HEAD")
    return {"commit": commit, "dirty": bool(commit and _git(root, "status", "--porcelain"))}


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def device() -> str:
    files = {
        at: file
        for part in DEVICE
        for at, file in cache.read_sources(paths.device_sources() / part, part).items()
    }
    return cache.sources_digest(files | cache.read_sources(paths.project_root() / QEMU, "patches"))


def module(request: BuildRequest) -> str:
    folder = request.driver_source and request.driver_source.expanduser()
    files = guest_tree.only(guest_tree.read(folder), *driver.PARTS)
    plain = cache.sources_digest(files)
    patches = [patch.read_bytes() for patch in request.driver_patches if patch.is_file()]
    return cache.digest(plain, *patches) if patches else plain


def kernel(request: BuildRequest, artifacts: Artifacts) -> dict[str, str]:
    """{name: what it is}; the name is that of `kernel_name`."""
    patches = [cache.file_digest(patch) for patch in request.kernel_patches]
    what = describe(artifacts.kernel_release, artifacts.kernel_build_dir)
    return {kernel_name(request): " ".join([what, *patches])}


def describe(release: str, build_dir: Path) -> str:
    """A built kernel: its release, and a hash of its configuration, without the comments."""
    config = read_config(build_dir / ".config")
    settings = cache.digest(*(f"{name}={value}" for name, value in sorted(config.items())))
    return f"{release} {settings}"


def kernel_name(request: BuildRequest) -> str:
    """As a user would ask for it: "lts", "latest debug", a folder."""
    tree = request.kernel_build or request.kernel_source
    words = [str(tree.expanduser().resolve()) if tree is not None else request.kernel]
    words += variant(request)
    return " ".join([*words, *(f"+{patch.stem}" for patch in request.kernel_patches)])


def modules(names: Sequence[str], more: Iterable[Path] = ()) -> str:
    """Of files and folders in harness/hmmbench/, and of modules from outside."""
    files = {path.relative_to(package()): path for path in module_files(names)}
    files |= {Path("outside", path.name): path for path in more}
    return cache.sources_digest(
        {at: cache.SourceFile(path.read_bytes(), 0o644) for at, path in files.items()}
    )


def module_files(names: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        path = package() / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def package() -> Path:
    return Path(__file__).parents[1]
