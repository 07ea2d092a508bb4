# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench bench`: measure the driver and the bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hmmbench.base.errors import UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import BuildRequest, depends, ensure
from hmmbench.commands import options
from hmmbench.compare import checkouts, figures
from hmmbench.report.result import check_writable, write_result
from hmmbench.suites import bench, simt_bench
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
    older: Annotated[
        Path | None,
        typer.Option(
            "--compare", metavar="OLD.json",
            help="Put the figures beside those of an earlier `bench --json`.",
        ),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="DIR",
            help="Another checkout: both are measured in turn, and each figure is better, worse "
            "or noise.",
        ),
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=checkouts.LEAST, help="With --against: measurements of each.")
    ] = checkouts.LEAST,
    seed: Annotated[
        int, typer.Option(min=0, help="With --against: draws who is first in each pair.")
    ] = 1,
    json_file: options.JsonFile = None,
) -> None:
    """Measure the driver beside the kernel's test driver, the GPU's lanes beside qemu-riscv64,
    and the bench itself.

    Both drivers run in one virtual machine, in alternate rounds; a ratio below 1 means this
    driver and device are faster than test_hmm, which has no device; where a GPU cannot do
    without trips of an interrupt to a thread and of a thread to an engine, a second ratio is to
    test_hmm and these, which are measured in between. Of the lanes (simt, which
    needs no virtual machine) a ratio above 1 means that they are faster.

    Compared with another measurement, a ratio above 1 means that this one is better, be the
    figure a time or a speed. What was measured before an interrupt is kept in the JSON.

    Example:  ./hmmbench bench --json figures.json

    ./hmmbench bench --only operations --against ../hmmbench-before --json against.json
    """
    if older is not None and other is not None:
        raise UsageError("--compare and --against exclude each other")
    check_writable(json_file, "--json")
    parts = frozenset(only or bench.Part)
    request = BuildRequest(kernel=kernel, kernel_build=kernel_build)
    if other is not None:
        measured = checkouts.Pairs(checkouts.checkout(other), seed)
        words = _words(request, only, qemu_riscv64)
        _against(measured, pairs, words, request, parts != {bench.Part.simt}, json_file)
        return
    before = _older(older) if older is not None else None
    qemu = simt_bench.find_qemu(qemu_riscv64)
    ui = Ui()
    subject, on = None, depends.of(request)
    if parts - {bench.Part.simt}:
        artifacts = ensure(request, ui)
        on["kernel"] = depends.kernel(request, artifacts)
        spec, accel = best_spec(artifacts)
        subject = bench.Subject(artifacts, request, spec, accel)
    report: dict[str, Any] = {}
    try:
        bench.everything(subject, parts, qemu, ui, report)
    finally:
        # Also after an interrupt: what was found up to then is worth having.
        write_result(json_file, "bench", report, on)
        console = Console()
        if subject is not None:
            show(report, console)
        if bench.Part.simt in parts:
            show_simt(report, console)
        if missing := report.get("missing"):
            console.print(f"not measured to its end: {', '.join(missing)}")
    if older is not None and before is not None:
        show_compared(older, figures.figures(report), before, console)


def _older(path: Path) -> dict[str, float]:
    """The figures of an earlier measurement.  Raises UsageError."""
    try:
        found = figures.figures(json.loads(path.read_text()))
    except OSError as error:
        raise UsageError(f"--compare {path}: {error.strerror}") from error
    except (ValueError, AttributeError) as error:
        raise UsageError(f"--compare {path}: not what `bench --json` writes") from error
    if not found:
        raise UsageError(f"--compare {path}: no figure of `bench` in it")
    return found


def _words(
    request: BuildRequest, only: list[bench.Part] | None, qemu_riscv64: Path | None
) -> list[str]:
    """The options that both checkouts are given: those that were given here."""
    words = [] if request.kernel == "lts" else ["--kernel", _place(request.kernel)]
    if request.kernel_build is not None:
        words += ["--kernel-build", str(request.kernel_build.resolve())]
    for part in only or ():
        words += ["--only", part.value]
    if qemu_riscv64 is not None:
        words += ["--qemu-riscv64", str(qemu_riscv64.resolve())]
    return words


def _place(kernel: str) -> str:
    """The checkouts run elsewhere: a folder is named from the root."""
    return kernel if kernel in ("lts", "latest") else str(Path(kernel).expanduser().resolve())


def _against(
    measured: checkouts.Pairs, count: int, words: list[str], request: BuildRequest,
    machine: bool, json_file: Path | None,
) -> None:  # fmt: skip
    on = depends.of(request)
    warm = None
    if machine:
        # It builds what is missing, and takes the snapshot: of ten examples the last runs on the
        # kind of machine that is measured here.
        kernel = [] if request.kernel == "lts" else ["--kernel", _place(request.kernel)]
        if request.kernel_build is not None:
            kernel += ["--kernel-build", str(request.kernel_build.resolve())]
        warm = ["run", "--examples", "10", "--no-inject", "--no-delays", *kernel]

    def keep() -> None:
        if measured.pairs:
            on["kernel"] = measured.pairs[0]["this"].get("depends", {}).get("kernel", {})
        write_result(json_file, "bench", measured.to_json(), on)

    try:
        checkouts.measure(measured, count, words, warm, Ui(), keep)
    finally:
        keep()
    shared = measured.shared()
    if not shared.both:
        raise UsageError(f"the two checkouts have no figure in common: {measured.folder}")
    show_pairs(measured, Console())


def show_pairs(measured: checkouts.Pairs, console: Console) -> None:
    """A line for each figure: both, the ratio with its interval, and the word for it."""
    table = Table(title=f"{len(measured.pairs)} pairs with {measured.folder}")
    table.add_column("figure")
    for title in ("this", "other", "times as good", "from", "to", ""):
        table.add_column(title, justify="right")
    colour = {figures.BETTER: "green", figures.WORSE: "red"}
    for one in measured.compared():
        style = colour.get(one.word, "")
        table.add_row(
            one.name, _number(one.ours), _number(one.theirs), f"{one.ratio:.3f}",
            f"{one.low:.3f}", f"{one.high:.3f}", one.word, style=style,
        )  # fmt: skip
    console.print(table)
    _unshared(measured.shared(), "the other checkout", console)
    console.print(
        "Geometric means; intervals by Student's t on logarithms, which all hold together with "
        f"{figures.CONFIDENCE:.0%}.", highlight=False,
    )  # fmt: skip


def show_compared(
    path: Path, ours: dict[str, float], theirs: dict[str, float], console: Console
) -> None:
    """One measurement beside another: nothing says what of it is noise."""
    shared = figures.Shared.of(ours, theirs)
    table = Table(title=f"beside {path}")
    table.add_column("figure")
    for title in ("now", "then", "times as good"):
        table.add_column(title, justify="right")
    for name in shared.both:
        ratio = figures.ratio(name, ours[name], theirs[name])
        table.add_row(name, _number(ours[name]), _number(theirs[name]), f"{ratio:.3f}")
    console.print(table)
    _unshared(shared, str(path), console)
    console.print("One measurement of each: --against DIR tells better and worse from noise.")


def _unshared(shared: figures.Shared, other: str, console: Console) -> None:
    for names, where in ((shared.only_ours, other), (shared.only_theirs, "this one")):
        if names:
            console.print(
                f"missing in {where}: {', '.join(names)}", highlight=False, markup=False,
                soft_wrap=True,
            )  # fmt: skip


def show_simt(report: dict[str, Any], console: Console) -> None:
    """One table: the lanes beside qemu-riscv64; or a line that says what is missing."""
    table = Table(
        title=f"SIMT engine ({report.get('simt_vectors', '-')}), "
        "millions a second of one thread's CPU time"
    )
    for title in ("kernel", "of", "hmm_gpu", "qemu-riscv64", "ratio", "two SMs", "by CPU time"):
        table.add_column(title, justify="left" if title in ("kernel", "of") else "right")
    compared = False
    for kernel in simt_bench.KERNELS:
        key = f"simt_{kernel.name}"
        ours, theirs = report.get(f"{key}_per_s"), report.get(f"{key}_qemu_per_s")
        compared |= theirs is not None
        table.add_row(
            kernel.name, kernel.unit, _number(None if ours is None else ours / 1e6),
            _number(None if theirs is None else theirs / 1e6),
            _number(report.get(f"{key}_ratio")), _number(report.get(f"{key}_two_sms")),
            _number(report.get(f"{key}_two_sms_cpu")),
        )  # fmt: skip
    console.print(table)
    if not compared and "simt" not in report.get("missing", ()):
        console.print(simt_bench.MISSING)


#: Column -> how the figure's name goes on behind the measurement's.
_KEYS = {
    "hmm_gpu": "us", "test_hmm": "test_hmm_us", "ratio": "ratio", "a trip": "trips_us",
    "+ trips": "trips_ratio", "p50": "p50_us", "p99": "p99_us",
}  # fmt: skip


def show(report: dict[str, Any], console: Console) -> None:
    """Two tables: the drivers, and the bench."""
    if "host_load" not in report:
        return  # nothing was begun
    table = Table(title=f"{report['kernel']}, {report['accel']}, µs a page or event")
    for title in ("measurement", "", *_KEYS):
        table.add_column(title, justify="left" if title in ("measurement", "") else "right")
    for one in bench.MEASUREMENTS:
        cells = [
            _number(report.get(f"{one.name}_{key}"))
            for key in _KEYS.values()
        ]
        table.add_row(one.name, one.what, *cells)
    console.print(table)
    console.print(
        f"Trips one behind the other: {_number(report.get('trip_to_engine_us'))} µs from a "
        f"register write to the engine, {_number(report.get('trip_to_thread_us'))} µs from its "
        "interrupt to a thread; "
        "the second ratio is to test_hmm and the trips that a GPU cannot do without, which are "
        "made beside its events.",
        highlight=False,
    )
    own = Table(title=f"the bench, host load {report['host_load']} on {report['host_cpus']} CPUs")
    own.add_column("figure")
    own.add_column("value", justify="right")
    for key, words, unit in _OWN:
        own.add_row(words, f"{_number(report.get(key))} {unit}")
    stolen = report.get("host_stolen")
    if stolen is not None:
        own.add_row("CPU time that other guests of the host took", f"{stolen:.0%}")
    console.print(own)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
