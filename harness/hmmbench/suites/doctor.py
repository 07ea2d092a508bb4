# SPDX-License-Identifier: GPL-2.0-or-later
"""What `hmmbench doctor` finds out. Only looks: nothing is installed, built or downloaded."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hmmbench.base import host, paths
from hmmbench.build import NotBuilt, kernel, peek, qemu_build, ssh
from hmmbench.build.cache import stamp_read
from hmmbench.vm.accel import exact_refused
from hmmbench.vm.standard import best_spec

KVM = Path("/dev/kvm")

Level = Literal["ok", "note", "missing"]

#: Free space below which a first build is likely to fail.
NEEDED_GB = 6.0
#: Cores and memory below which the time bars do not hold.
NEEDED_CORES = 2
NEEDED_MEMORY_GB = 4.0


@dataclass(frozen=True)
class Finding:
    """One line of the report; `mend` is a command or a sentence saying what to do."""

    topic: str
    level: Level
    text: str
    mend: str = ""


@dataclass(frozen=True)
class Checkup:
    findings: list[Finding]

    @property
    def ready(self) -> bool:
        return not any(finding.level == "missing" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {"ready": self.ready, "findings": [asdict(finding) for finding in self.findings]}


def examine() -> Checkup:
    findings = [*_host(), *_packages(), *_exact(), *_accelerator(), *_cache()]
    return Checkup(findings)


def wanted_packages(text: str) -> list[str]:
    """The words of ci/packages.txt, comments left out."""
    return [word for line in text.splitlines() for word in line.partition("#")[0].split()]


def _host() -> Iterator[Finding]:
    machine = platform.machine()
    if machine == "x86_64":
        yield Finding("host", "ok", f"{_distribution()}, {machine}, Linux {platform.release()}")
    else:
        yield Finding(
            "host",
            "missing",
            f"{machine}: the guest is x86_64, and nothing here cross-compiles it",
            "Use an x86_64 machine or container.",
        )
    cores = host.cpus()
    yield Finding(
        "cores",
        "ok" if cores >= NEEDED_CORES else "note",
        f"{cores}",
        "" if cores >= NEEDED_CORES else "It works, more slowly than the documented times.",
    )
    memory = host.memory_gb()
    yield Finding(
        "memory",
        "ok" if memory >= NEEDED_MEMORY_GB else "note",
        f"{memory:.1f} GB available",
        "" if memory >= NEEDED_MEMORY_GB else "A machine needs about 1.5 GB; close something.",
    )


def _distribution() -> str:
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return "unknown system"
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', text, re.MULTILINE)
    return match[1] if match else "unknown system"


def _packages() -> Iterator[Finding]:
    wanted = wanted_packages((paths.project_root() / "ci" / "packages.txt").read_text())
    if shutil.which("dpkg-query") is None:
        yield Finding(
            "packages",
            "note",
            "not a Debian system: cannot tell which packages are there",
            "Use ci/Containerfile, or pass --kernel-build and --qemu-source.",
        )
        return
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\\n", *wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    have = {line[3:].strip() for line in done.stdout.splitlines() if line.startswith("ii ")}
    missing = [package for package in wanted if package not in have]
    if not missing:
        yield Finding("packages", "ok", f"all {len(wanted)} installed")
        return
    sudo = "" if os.geteuid() == 0 else "sudo "
    yield Finding(
        "packages",
        "missing",
        f"not installed: {' '.join(missing)}",
        f"{sudo}apt-get install --no-install-recommends {' '.join(missing)}",
    )


def _exact() -> Iterator[Finding]:
    """QEMU is asked itself, so the answer needs it built."""
    try:
        without = exact_refused(peek().qemu)
    except NotBuilt:
        return
    if without:
        yield Finding("exact machines", "note", f"{without}; `run` uses machines with threads")
    else:
        yield Finding("exact machines", "ok", "`run` uses them, whatever the accelerator")


def _accelerator() -> Iterator[Finding]:
    """KVM counts only where it boots the guest kernel, so the answer needs the builds."""
    if not KVM.exists():
        yield Finding("accelerator", "ok", "tcg: this host has no /dev/kvm")
        return
    if not os.access(KVM, os.R_OK | os.W_OK):
        yield Finding(
            "accelerator",
            "note",
            "tcg: this user may not open /dev/kvm",
            "sudo adduser $USER kvm   (then log in again; only to try whether KVM works here)",
        )
        return
    try:
        built = peek()
    except NotBuilt:
        yield Finding(
            "accelerator",
            "note",
            "/dev/kvm is there; whether it runs the guest is tried once it is built, else tcg",
            "./hmmbench build",
        )
        return
    _, answer = best_spec(built)
    yield Finding("accelerator", "ok", f"{answer.name}: {answer.reason}")


def _cache() -> Iterator[Finding]:
    root = paths.cache_root()
    at = root
    while not at.exists():
        at = at.parent
    writable = os.access(at, os.W_OK)
    free = shutil.disk_usage(at).free / 1e9
    built = [_built_qemu(root), _built_kernel(root, "lts"), _built_kernel(root, "latest")]
    enough = free >= NEEDED_GB or all(finding.level == "ok" for finding in built[:2])
    yield Finding(
        "cache",
        "ok" if writable and enough else "missing",
        f"{root}, {free:.1f} GB free" + ("" if writable else ", not writable"),
        "" if writable and enough else "export HMMBENCH_CACHE=FOLDER_WITH_6_GB_FREE",
    )
    yield from built
    if ssh.server() is None:
        yield Finding(
            "ssh", "note", "no dropbear: the guest will have no SSH", "apt-get install dropbear-bin"
        )


def _built_qemu(root: Path) -> Finding:
    found = sorted(
        (path for path in (root / "artefacts").glob("qemu-*") if (path / "version").is_file()),
        key=lambda path: path.stat().st_mtime,
    )
    if found:
        origin = stamp_read(root / "resolved" / "qemu.json").get("origin", "your own source")
        version = (found[-1] / "version").read_text().strip()
        return Finding("qemu", "ok", f"{version} built, from {origin}")
    return Finding(
        "qemu",
        "note",
        f"QEMU {qemu_build.SERIES} is not built yet (a few minutes; `run` does it by itself)",
        "./hmmbench build",
    )


def _built_kernel(root: Path, which: str) -> Finding:
    for stamp in (root / "work").glob(f"linux-{which}-base-*/.hmmbench.json"):
        try:
            built = kernel.describe(stamp.parent, str(stamp_read(stamp).get("origin", "")), None)
        except Exception as error:
            return Finding(
                f"kernel {which}",
                "note",
                f"{stamp.parent} is damaged: {error}",
                f"rm -r {stamp.parent}",
            )
        return Finding(f"kernel {which}", "ok", f"{built.release} built, from {built.origin}")
    command = "./hmmbench build" + ("" if which == "lts" else f" --kernel {which}")
    return Finding(
        f"kernel {which}", "note", "not built yet (a few minutes; done when asked for)", command
    )
