# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast the GPU's lanes are: the device core beside qemu-riscv64, on the same C kernels.

The kernels (qemu-device/tests/bench_kernels.c) are compiled twice by the same clang with the
same options: for a launch of 256 threads on one SM, and as a program of one thread for
qemu-riscv64 (user mode).  Each machine says how much CPU time its work took, and a sum of the
results; the sums have to agree.  The two take turns, so that a busy host weighs on both, and the
ratio is the median of the rounds' ratios.  No virtual machine is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmmbench.base import host, paths, processes
from hmmbench.base.errors import EnvironmentFailure, UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import cache
from hmmbench.build.riscv import Tools

QEMU = "qemu-riscv64"

#: What a user without it reads.
MISSING = f"no {QEMU}: nothing to compare with (apt-get install qemu-user, or --qemu-riscv64 PATH)"

#: Seconds for one run of either machine.
TIMEOUT = 120.0


@dataclass(frozen=True)
class Kernel:
    """A kernel, and how much of it one measurement does (a second or two on either machine)."""

    name: str
    rounds: int
    unit: str


KERNELS = (
    Kernel("saxpy", 1500, "elements"),
    Kernel("strided", 1500, "elements"),
    Kernel("matmul", 20, "multiply-adds"),
    Kernel("hash", 2500, "hashes"),
)


def find_qemu(path: Path | None = None) -> Path | None:
    """The user-mode emulator: the one asked for, or what PATH has; None if it has none.

    Raises UsageError if the one asked for cannot be run.
    """
    if path is None:
        found = shutil.which(QEMU) or shutil.which(f"{QEMU}-static")
        return Path(found) if found else None
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise UsageError(f"--qemu-riscv64: {path} is not a program")
    return path.resolve()


def programs() -> Path:
    """The folder with `bench`, and KERNEL.bin and KERNEL.user of each kernel, in the cache."""
    device = paths.device_sources()
    files = cache.read_sources(paths.user_sources() / "kernels", "kernels")
    for part in ("core", "include", "tests"):
        files |= cache.read_sources(device / part, part, skip=("build",))
    tools = Tools.find()
    cc = os.environ.get("CC", "cc")
    key = cache.digest(cache.sources_digest(files), cc, tools.version())
    found = cache.find("simt-bench", key)
    if found is not None:
        return found

    def fill(folder: Path) -> None:
        done = processes.run(
            ["make", "-s", "-C", str(device / "tests"), f"OUT={folder}", f"CC={cc}",
             f"CLANG={tools.clang}", f"LLD={tools.lld}", "bench-programs"]
        )  # fmt: skip
        if done.returncode:
            raise EnvironmentFailure(f"building the SIMT bench: {done.stderr.strip()[-800:]}")

    return cache.publish("simt-bench", key, fill)


@dataclass(frozen=True)
class Run:
    """One run of a kernel: CPU and wall seconds, work done, the sum of its results."""

    cpu_s: float
    wall_s: float
    elements: int
    total: int
    vectors: str = ""


def ours(folder: Path, kernel: Kernel, rounds: int, sms: int = 1) -> Run:
    """The device core, `sms` host threads at work; EnvironmentFailure if the launch failed."""
    said = _output(
        [str(folder / "bench"), "-j", "-s", str(sms), "-r", str(rounds), kernel.name,
         str(folder / f"{kernel.name}.bin")]
    )  # fmt: skip
    found: dict[str, Any] = json.loads(said)
    return Run(
        float(found["cpu_s"]), float(found["wall_s"]), int(found["elements"]),
        int(found["sum"]), str(found["vectors"]),
    )  # fmt: skip


def theirs(folder: Path, kernel: Kernel, rounds: int, qemu: Path) -> tuple[float, int]:
    """CPU seconds of qemu-riscv64, and the sum; EnvironmentFailure if it cannot run it."""
    nanoseconds, total = _output(
        [str(qemu), str(folder / f"{kernel.name}.user"), str(rounds)]
    ).split()
    return int(nanoseconds) * 1e-9, int(total)


def _output(argv: list[str]) -> str:
    try:
        done = processes.run(argv, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(f"{argv[0]}: {error}") from error
    if done.returncode or not done.stdout:
        raise EnvironmentFailure(
            f"{' '.join(argv)} ended with status {done.returncode}", done.stderr.strip()[-800:]
        )
    return done.stdout


def simt(
    ui: Ui, qemu: Path | None, rounds: int = 5, share: float = 1.0,
    figures: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """All figures, flat. simt_KERNEL_per_s: ours, a second of CPU time of one thread;
    simt_KERNEL_qemu_per_s and simt_KERNEL_ratio: qemu-riscv64's, and ours over it;
    simt_KERNEL_two_sms: throughput (wall time) of two SMs over one, where there are two CPUs, and
    simt_KERNEL_two_sms_cpu: what it would be on a host with nothing else to do, by the CPU time
    that both took (two less what they cost each other; waiting does not show in it).

    rounds  -- measurements of each kind
    share   -- of the usual work of each measurement
    figures -- filled and returned, so that what was measured survives an interrupt
    """
    figures = {} if figures is None else figures
    with ui.stage("simt: compiling"):
        folder = programs()
    with ui.stage("simt") as stage:
        for number, kernel in enumerate(KERNELS):
            name, work = f"simt_{kernel.name}", max(1, round(kernel.rounds * share))
            speed: dict[str, list[float]] = {"ours": [], "qemu": [], "ratio": [], "two": [],
                                             "two_cpu": []}  # fmt: skip
            for n in range(rounds):
                stage.progress(number * rounds + n, len(KERNELS) * rounds, kernel.name)
                one = ours(folder, kernel, work)
                speed["ours"].append(one.elements / one.cpu_s)
                figures["simt_vectors"] = one.vectors
                if qemu is not None:
                    seconds, total = theirs(folder, kernel, work, qemu)
                    _agree(kernel, "qemu-riscv64", one.total, total)
                    speed["qemu"].append(one.elements / seconds)
                    speed["ratio"].append(seconds / one.cpu_s)
                if host.cpus() > 1:
                    two = ours(folder, kernel, work, sms=2)
                    _agree(kernel, "two SMs", one.total, two.total)
                    speed["two"].append(one.wall_s / two.wall_s)
                    speed["two_cpu"].append(2 * one.cpu_s / two.cpu_s)
            for kind, key in (
                ("ours", "per_s"), ("qemu", "qemu_per_s"), ("ratio", "ratio"), ("two", "two_sms"),
                ("two_cpu", "two_sms_cpu"),
            ):  # fmt: skip
                if speed[kind]:
                    digits = 0 if kind in ("ours", "qemu") else 3
                    figures[f"{name}_{key}"] = round(statistics.median(speed[kind]), digits)
    return figures


def _agree(kernel: Kernel, other: str, a: int, b: int) -> None:
    """A machine that computes something else is no measure of this one."""
    if a != b:
        raise EnvironmentFailure(f"{kernel.name}: {other} has another result ({a:#x}, {b:#x})")
