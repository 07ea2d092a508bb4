# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench workload`: GPU programs whose answers are known."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hmmbench import workload
from hmmbench.build import BuildRequest, ensure
from hmmbench.commands import options
from hmmbench.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_VIOLATION, UsageError
from hmmbench.gpu.errors import SessionError
from hmmbench.report import check_writable, write_json
from hmmbench.ui import Ui, stdout_is_terminal
from hmmbench.vm.errors import VmError
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec

#: What tells most of the story: title, counter.
_STORY = (
    ("faults", "faults"),
    ("batches", "fault_batches"),
    ("to VRAM", "pages_to_device"),
    ("back", "pages_to_system"),
    ("evicted", "pages_evicted"),
    ("copied", "copy_bytes"),
)


class Size(StrEnum):
    """How much data."""

    tiny = "tiny"
    small = "small"
    large = "large"


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAMES...]", help="Workloads, or .py files of your own."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    size: Annotated[Size, typer.Option(help="How much data.")] = Size.small,
    vram: Annotated[
        str | None,
        typer.Option(
            metavar="PAGES|FACTORx",
            help="VRAM the driver may use: pages, or 0.5x of each workload's footprint.",
        ),
    ] = None,
    limit: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="For one GPU job.")
    ] = 600.0,
    audit: Annotated[
        options.Audit,
        typer.Option(help="Compare the GPU's translations with the CPU's page table (slower)."),
    ] = options.Audit.off,
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    json_file: options.JsonFile = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Say what each workload shows, and end.")
    ] = False,
) -> int:
    """Run GPU programs on unified memory and compare their results with numpy's.

    A table with what each cost: GPU faults and the batches they came in, pages moved to VRAM and
    back, pages evicted, bytes copied by the driver. Exit status 1 if a result is wrong, a job fails
    or kernel or device complain.

    Example:  ./hmmbench workload saxpy one_pointer --size small --vram 0.5x
    """
    if list_only:
        for one in workload.find():
            typer.echo(f"{one.name:16} {one.what}")
        return EXIT_OK
    if everything == bool(names):
        raise UsageError("name workloads, or give --all", "./hmmbench workload --list names them")
    amount = vram_amount(vram)
    chosen = workload.find() if everything else workload.choose(names or ())
    check_writable(json_file, "--json")
    ui = Ui()
    artifacts = ensure(BuildRequest(kernel=kernel, kernel_build=kernel_build), ui)
    spec, accel = best_spec(artifacts)
    done: list[workload.Outcome] = []
    try:
        with Opener(spec) as opener, ui.stage("workloads") as stage:
            vm = opener()
            for one in chosen:
                stage.progress(len(done), len(chosen), one.name)
                try:
                    outcome = workload.run_one(
                        vm, one, size, amount, limit, audit=audit.value
                    )
                except (VmError, SessionError) as error:
                    outcome = workload.Outcome(one.name, size, "error", error.message)
                done.append(outcome)
                if outcome.verdict != "pass":
                    # Whatever it has left behind is not the next one's.
                    vm = opener()
    finally:
        # Also after an interrupt: what was found up to then is worth having.
        write_json(
            json_file,
            {
                "workloads": [asdict(o) for o in done],
                "not_run": [w.name for w in chosen[len(done) :]],
                "kernel": artifacts.kernel_release,
                "accel": accel.name,
            },
        )
    show(done, Console(highlight=False, width=None if stdout_is_terminal() else 110))
    if any(o.verdict == "fail" for o in done):
        return EXIT_VIOLATION
    return EXIT_ENVIRONMENT if any(o.verdict == "error" for o in done) else EXIT_OK


def vram_amount(text: str | None) -> int | float | None:
    """Pages as an int, FACTORx as a float.  Raises UsageError."""
    if text is None:
        return None
    try:
        value: int | float = float(text[:-1]) if text.endswith("x") else int(text)
    except ValueError:
        value = 0
    # No more than any machine has: inf and nan are no factors either.
    if not 0 < value <= 1 << 40:
        raise UsageError(f"--vram {text}: a number of pages, or a factor like 0.5x")
    return value


def show(done: list[workload.Outcome], console: Console) -> None:
    """The table, and what is wrong below it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("workload")
    table.add_column("verdict")
    for title in ("seconds", "MiB", *(title for title, _ in _STORY)):
        table.add_column(title, justify="right")
    for o in done:
        table.add_row(
            escape(o.name), o.verdict, f"{o.seconds:.2f}", f"{o.footprint / (1 << 20):.2f}",
            *(str(o.counters.get(counter, "-")) for _, counter in _STORY),
        )  # fmt: skip
    console.print(table)
    for o in done:
        for line in o.printed.splitlines():
            console.print(f"{o.name}: {line}", markup=False, soft_wrap=True)
        if o.detail:
            console.print(f"{o.name}: {o.verdict}: {o.detail}", markup=False, soft_wrap=True)
        for name, value in o.figures.items():
            words = value.items() if isinstance(value, dict) else [("", value)]
            console.print(
                f"{o.name}: {name}: " + ", ".join(f"{v} {n}".rstrip() for n, v in words),
                markup=False, soft_wrap=True,
            )  # fmt: skip
    passed = sum(o.verdict == "pass" for o in done)
    console.print(f"{passed} of {len(done)} passed")
