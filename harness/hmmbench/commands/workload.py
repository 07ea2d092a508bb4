# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench workload`: GPU programs whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hmmbench.base.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_VIOLATION, UsageError
from hmmbench.base.ui import Stage, Ui, stdout_is_terminal
from hmmbench.build import BuildRequest, depends, ensure
from hmmbench.commands import options
from hmmbench.gpu.errors import SessionError
from hmmbench.guest.program import PAGE
from hmmbench.report.result import check_writable, write_result
from hmmbench.suites import sweep as sweeps
from hmmbench.suites import workload
from hmmbench.vm.errors import VmError
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec

#: Columns of the table: title, key of Outcome.story, whether it is bytes.
_STORY = (
    ("faults", "faults", False),
    ("batches", "batches", False),
    ("to VRAM", "bytes_to_vram", True),
    ("back", "bytes_back", True),
    ("evicted", "bytes_evicted", True),
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
            metavar="AMOUNT[,...]",
            help="VRAM the driver may use: pages, 0.5x of what each workload could use, or all."
            " Several: a run with each.",
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="ARGUMENT[=V,...]",
            help="A run with each value of an argument, by default 1/4 to 3 times the size's own."
            " VRAM stays what the own value needs, or --vram of that.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Draw the runs of --sweep or --vram: DIR/NAME.svg."),
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

    A table with what each cost: seconds on this host, GPU faults and the batches they came in,
    bytes moved to VRAM and back, and evicted. Exit status 1 if a result is wrong, a job fails or
    kernel or device complain.

    Examples:  ./hmmbench workload saxpy one_pointer --size small --vram 0.5x

    ./hmmbench workload max_flow --vram 0.5x,1x,1.5x --plot plots

    ./hmmbench workload training --sweep batch --plot plots --json training.json
    """
    if list_only:
        for one in workload.find():
            typer.echo(f"{one.name:16} {one.what}")
        return EXIT_OK
    if everything == bool(names):
        raise UsageError("name workloads, or give --all", "./hmmbench workload --list names them")
    chosen = workload.find() if everything else workload.choose(names or ())
    plan = _plan(chosen, size.value, vram, sweep)
    check_writable(json_file, "--json")
    if plot is not None:
        if sweep is None and len(plan) == len(chosen):
            raise UsageError("--plot draws several runs: give --sweep, or --vram with several")
        try:
            plot.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--plot {plot}: {error.strerror}") from error
    ui = Ui()
    request = BuildRequest(kernel=kernel, kernel_build=kernel_build)
    artifacts = ensure(request, ui)
    on = depends.built(request, artifacts)
    spec, accel = best_spec(artifacts)
    done: list[workload.WorkloadOutcome] = []
    try:
        with Opener(spec) as opener, ui.stage("workloads") as stage:
            _run(opener, plan, size.value, limit, audit.value, sweep is not None, stage, done)
    finally:
        # Also after an interrupt: what was found up to then is worth having.
        words = [_name(t.workload.name, t.words) for t in plan]
        write_result(
            json_file,
            "workload",
            {
                "workloads": [asdict(o) for o in done],
                "not_run": words[len(done) :],
                "kernel": artifacts.kernel_release,
                "accel": accel.name,
            },
            on,
        )
    console = Console(highlight=False, width=None if stdout_is_terminal() else 110)
    show(done, console)
    if plot is not None:
        _draw(done, sweep, plot, f"Linux {artifacts.kernel_release}, {accel.name}", console)
    if any(o.verdict == "fail" for o in done):
        return EXIT_VIOLATION
    return EXIT_ENVIRONMENT if any(o.verdict == "error" for o in done) else EXIT_OK


def _plan(
    chosen: list[workload.Workload], size: str, vram: str | None, sweep: str | None
) -> list[sweeps.Trial]:
    """Every run, those of a workload one after the other.  Raises UsageError."""
    amounts = vram_amounts(vram)
    if sweep is None:
        return [trial for one in chosen for trial in sweeps.by_vram(one, amounts)]
    if len(amounts) > 1:
        raise UsageError("--sweep has one amount of VRAM", "--vram names several")
    what = sweeps.Sweep.parse(sweep)
    amount = 1.0 if vram is None else amounts[0]
    return [t for one in chosen for t in sweeps.by_argument(one, size, what, amount)]


def _run(
    opener: Callable[[], Any], plan: list[sweeps.Trial], size: str, limit: float, audit: str,
    keep: bool, stage: Stage, done: list[workload.WorkloadOutcome],
) -> None:  # fmt: skip
    """Fill `done` in the plan's order.

    keep -- a workload's first run sets the VRAM of its others, which need that it passed
    """
    vm = opener()
    first: workload.WorkloadOutcome | None = None
    for n, trial in enumerate(plan):
        name = _name(trial.workload.name, trial.words)
        stage.progress(n, len(plan), name)

        def told(part: int, of: int, what: str, n: int = n, name: str = name) -> None:
            stage.progress(n, len(plan), f"{name}: {part} of {of} {what}")

        amount = trial.vram
        if n == 0 or plan[n - 1].workload != trial.workload:
            first = None
        elif keep and first is not None:
            amount = first.vram_pages
            if first.verdict != "pass":
                done.append(workload.WorkloadOutcome(
                    trial.workload.name, size, "error", "not run: the first run did not pass",
                    words=trial.words,
                ))  # fmt: skip
                continue
        try:
            outcome = workload.run_one(
                vm, trial.workload, size, amount, limit, audit=audit, change=trial.change,
                progress=told,
            )  # fmt: skip
        except (VmError, SessionError) as error:
            outcome = workload.WorkloadOutcome(trial.workload.name, size, "error", error.message)
        outcome.words = trial.words
        done.append(outcome)
        first = first or outcome
        if outcome.verdict != "pass":
            # Whatever it has left behind is not the next one's.
            vm = opener()


def _name(name: str, words: str) -> str:
    return f"{name}, {words}" if words else name


def _draw(
    done: list[workload.WorkloadOutcome], sweep: str | None, folder: Path, where: str,
    console: Console,
) -> None:  # fmt: skip
    argument = sweeps.Sweep.parse(sweep).argument if sweep is not None else None
    for name, group in groupby(done, key=lambda o: o.name):
        drawn = sweeps.plot(list(group), argument, where)
        if drawn is None:
            console.print(f"{name}: too few runs passed for a plot", markup=False)
            continue
        path = folder / f"{name}.svg"
        try:
            path.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--plot {path}: {error.strerror}") from error
        console.print(f"{name}: {path}", markup=False, soft_wrap=True)


def vram_amounts(text: str | None) -> list[int | float | None]:
    """What --vram lists; without one, all of VRAM.  Raises UsageError."""
    return [None] if text is None else [vram_amount(part) for part in text.split(",")]


def vram_amount(text: str) -> int | float | None:
    """Pages as an int, FACTORx as a float, "all" as None.  Raises UsageError."""
    if text == "all":
        return None
    try:
        value: int | float = float(text[:-1]) if text.endswith("x") else int(text)
    except ValueError:
        value = 0
    # No more than any machine has: inf and nan are no factors either.
    if not 0 < value <= 1 << 40:
        raise UsageError(f"--vram {text}: a number of pages, a factor like 0.5x, or all")
    return value


def show(done: list[workload.WorkloadOutcome], console: Console) -> None:
    """The table, and what is wrong below it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("workload")
    table.add_column("verdict")
    limited = any(o.vram_pages for o in done)
    for title in ("seconds", "bytes", *(["VRAM"] if limited else []), *(t for t, *_ in _STORY)):
        table.add_column(title, justify="right")
    for o in done:
        table.add_row(
            escape(_name(o.name, o.words)), o.verdict, f"{o.seconds:.2f}", _size(o.footprint),
            *([_size(o.vram_pages * PAGE) if o.vram_pages else "all"] if limited else []),
            *(_amount(o.story.get(key), is_size) for _, key, is_size in _STORY),
        )  # fmt: skip
    console.print(table)
    for o in done:
        name = _name(o.name, o.words)
        for line in o.printed.splitlines():
            console.print(f"{name}: {line}", markup=False, soft_wrap=True)
        if o.detail:
            console.print(f"{name}: {o.verdict}: {o.detail}", markup=False, soft_wrap=True)
        for figure, value in o.figures.items():
            words = value.items() if isinstance(value, dict) else [("", value)]
            console.print(
                f"{name}: {figure}: " + ", ".join(f"{v} {n}".rstrip() for n, v in words),
                markup=False, soft_wrap=True,
            )  # fmt: skip
    passed = sum(o.verdict == "pass" for o in done)
    console.print(f"{passed} of {len(done)} passed")


def _amount(value: int | None, is_size: bool) -> str:
    if value is None:
        return "-"
    return _size(value) if is_size else str(value)


def _size(size: int) -> str:
    """Bytes in few characters: 512, 12K, 3.4M."""
    for unit, words in ((1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.1f}{words}" if size < 10 * unit else f"{size / unit:.0f}{words}"
    return str(size)
