# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench bench`: measure the driver and the bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hmmbench import bench, simt_bench
from hmmbench.build import BuildRequest, ensure
from hmmbench.commands import options
from hmmbench.report import check_writable, write_json
from hmmbench.ui import Ui
from hmmbench.vm.standard import best_spec

#: Figures of the bench itself: key, words, unit.
_OWN = (
    ("boot_s", "boot to the agent's first answer", "s"),
    ("restore_s", "restore to the agent's first answer", "s"),
    ("operations_per_s", "checked operations", "/s"),
    ("driver_rebuild_s", "rebuild after a changed line of the driver", "s"),
)


def main(
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    only: Annotated[
        list[bench.Part] | None, typer.Option(help="Measure this part alone (may be repeated).")
    ] = None,
    qemu_riscv64: Annotated[
        Path | None,
        typer.Option(
            "--qemu-riscv64", metavar="PATH",
            help="The emulator that simt compares with (default: the one in PATH).",
        ),
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """Measure the driver beside the kernel's test driver, the GPU's lanes beside qemu-riscv64,
    and the bench itself.

    Both drivers run in one virtual machine, in alternate rounds; a ratio below 1 means this
    driver and device are faster than test_hmm, which has no device. Of the lanes (simt, which
    needs no virtual machine) a ratio above 1 means that they are faster.

    Example:  ./hmmbench bench --json figures.json
    """
    check_writable(json_file, "--json")
    parts = frozenset(only or bench.Part)
    qemu = simt_bench.find_qemu(qemu_riscv64)
    ui = Ui()
    subject = None
    if parts - {bench.Part.simt}:
        request = BuildRequest(kernel=kernel, kernel_build=kernel_build)
        artifacts = ensure(request, ui)
        spec, accel = best_spec(artifacts)
        subject = bench.Subject(artifacts, request, spec, accel)
    report = bench.everything(subject, parts, qemu, ui)
    write_json(json_file, report)
    console = Console()
    if subject is not None:
        show(report, console)
    if bench.Part.simt in parts:
        show_simt(report, console)


def show_simt(report: dict[str, Any], console: Console) -> None:
    """One table: the lanes beside qemu-riscv64; or a line that says what is missing."""
    table = Table(
        title=f"SIMT engine ({report['simt_vectors']}), millions a second of one thread's CPU time"
    )
    for title in ("kernel", "of", "hmm_gpu", "qemu-riscv64", "ratio", "two SMs", "by CPU time"):
        table.add_column(title, justify="left" if title in ("kernel", "of") else "right")
    compared = False
    for kernel in simt_bench.KERNELS:
        key = f"simt_{kernel.name}"
        theirs = report.get(f"{key}_qemu_per_s")
        compared |= theirs is not None
        table.add_row(
            kernel.name, kernel.unit, _number(report[f"{key}_per_s"] / 1e6),
            _number(None if theirs is None else theirs / 1e6),
            _number(report.get(f"{key}_ratio")), _number(report.get(f"{key}_two_sms")),
            _number(report.get(f"{key}_two_sms_cpu")),
        )  # fmt: skip
    console.print(table)
    if not compared:
        console.print(simt_bench.MISSING)


def show(report: dict[str, Any], console: Console) -> None:
    """Two tables: the drivers, and the bench."""
    table = Table(title=f"{report['kernel']}, {report['accel']}, µs a page or event")
    for title in ("measurement", "", "hmm_gpu", "test_hmm", "ratio", "p50", "p99"):
        table.add_column(title, justify="left" if title in ("measurement", "") else "right")
    for one in bench.MEASUREMENTS:
        cells = [
            _number(report.get(f"{one.name}_{key}"))
            for key in ("us", "test_hmm_us", "ratio", "p50_us", "p99_us")
        ]
        table.add_row(one.name, one.what, *cells)
    console.print(table)
    own = Table(title=f"the bench, host load {report['host_load']} on {report['host_cpus']} CPUs")
    own.add_column("figure")
    own.add_column("value", justify="right")
    for key, words, unit in _OWN:
        own.add_row(words, f"{_number(report.get(key))} {unit}")
    own.add_row("CPU time that other guests of the host took", f"{report['host_stolen']:.0%}")
    console.print(own)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
