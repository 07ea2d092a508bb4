# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench mutants`: proof that the bench sees faults, one broken driver after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hmmbench.base import host
from hmmbench.base.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_VIOLATION, UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import depends
from hmmbench.commands import options
from hmmbench.compare.feedback import Comparison
from hmmbench.mutation import kernel_bugs as kernel_set
from hmmbench.mutation.jobs import run_many
from hmmbench.mutation.mutants import Mutant, choose, table
from hmmbench.mutation.trial import (
    ALIVE,
    ERROR,
    KILLED,
    NOT_RUN,
    How,
    Result,
    Row,
    run_hmm_tests,
    run_one,
    run_sound,
)
from hmmbench.report.result import check_writable, write_result


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMES...]", help="Mutants (default: all).")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, max=64, help="Virtual machines at the same time.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same examples.")] = 1,
    limit: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="For each mutant, to be killed.")
    ] = 300.0,
    shrink: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="For making each recipe small.")
    ] = 100.0,
    machines: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, show_default="CPUs, shared by --jobs",
            help="Exact machines that make one failure small together.",
        ),
    ] = None,
    accel: Annotated[
        options.Accel, typer.Option(help="In exact machines (docs/exact.md), or with threads.")
    ] = options.Accel.exact,
    machine: options.Machine = "",
    kernel_variant: Annotated[
        options.Variant | None,
        typer.Option(
            help="In a kernel that looks for mistakes itself, with threads: those whose patch asks "
            "for none."
        ),
    ] = None,
    draw: Annotated[
        int,
        typer.Option(
            min=0, metavar="N",
            help="So many other machines share the last third of each mutant's time.",
        ),
    ] = 0,
    full: Annotated[
        bool,
        typer.Option("--full", help="With --draw: also those that take the full configuration."),
    ] = False,
    delays: Annotated[
        bool, typer.Option(help="Widen races at the driver's delay points now and then.")
    ] = True,
    examples: Annotated[
        int | None, typer.Option(min=1, help="For each mutant, so many at most.")
    ] = None,
    feedback: Annotated[
        bool,
        typer.Option(
            "--feedback/--no-feedback",
            help="Draw examples out of those that reached something new (docs/exploration.md).",
        ),
    ] = False,
    both_ways: Annotated[
        bool,
        typer.Option(
            "--both-ways",
            help="Each without and with feedback: which takes fewer examples? Nothing is made "
            "small. With --examples, and time enough, the host's speed has no say in it.",
        ),
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="With --both-ways: so many seeds, from --seed on.")
    ] = 1,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Patches of your own (default: tests/mutants)."),
    ] = None,
    control: Annotated[
        bool, typer.Option(help="Run the sound driver as well: it has to stay silent.")
    ] = True,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where recipes and evidence go.")] = Path(
        "hmmbench-out/mutants"
    ),
    json_file: options.JsonFile = None,
    kernel_bugs: Annotated[
        bool,
        typer.Option(
            help="Break the kernel instead: bugs it once had (a minute to build each)."
        ),
    ] = False,
    hmm_tests: Annotated[
        bool,
        typer.Option("--hmm-tests", help="Run the kernel's own HMM tests on each as well."),
    ] = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="Name the mutants and what they stand for, and end.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option(help="With --list: the table of docs/mutants.md, docs/kernel-bugs.md.")
    ] = False,
) -> int:
    """Break the driver on purpose, in one place at a time, and see that the bench notices.

    A row for each mutant at once, then a summary. The recipe of a kill is executed once with the
    sound driver, too. Exit status 1 if one stays alive that is not proven equivalent, if a proof
    does not hold, or if the sound driver is accused.

    With --kernel-bugs it is the kernel that is broken (tests/kernel-bugs/).

    With --both-ways: is feedback worth it?

    ./hmmbench mutants --both-ways --examples 1500 --seeds 3 --folder DIR --json feedback.json

    Example:  ./hmmbench mutants no-read-retry no-set-seq --json mutants.json
    """
    if kernel_bugs and folder is not None:
        raise UsageError("--folder is of broken drivers, --kernel-bugs of broken kernels")
    if (feedback or both_ways) and accel != options.Accel.exact:
        raise UsageError(f"feedback is of exact machines, not of --accel {accel.value}")
    if both_ways and (feedback or hmm_tests):
        raise UsageError("--both-ways excludes --feedback and --hmm-tests")
    if seeds > 1 and not both_ways:
        raise UsageError("--seeds is of --both-ways")
    if accel == options.Accel.kvm:
        raise UsageError("--accel kvm: broken drivers are tried with exact or threads")
    chosen: list[Mutant] = [
        *(kernel_set.choose(names or ()) if kernel_bugs else choose(names or (), folder))
    ]
    if kernel_variant is not None:
        chosen = [replace(m, variant=m.variant or kernel_variant.value) for m in chosen]
    if markdown and not list_only:
        raise UsageError("--markdown is a way to --list")
    if list_only:
        if markdown:
            typer.echo((kernel_set.table if kernel_bugs else table)(chosen), nl=False)
            return EXIT_OK
        for m in chosen:
            typer.echo(f"{m.name:34} {m.bug_class}{'  (equivalent)' if m.proof else ''}")
        return EXIT_OK
    check_writable(json_file, "--json")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is not a folder")
    result = Result(seed, limit, depends.of())
    ui = Ui()
    try:
        how = How(
            seed, limit, shrink, delays, accel == options.Accel.exact,
            machines or max(1, host.cpus() // jobs), machine, draw, full, feedback, examples,
        )  # fmt: skip
        if both_ways:
            _both_ways(result, chosen, ui, out, jobs, how, control, seeds)
        else:
            _run(result, chosen, ui, out, jobs, how, control, hmm_tests)
    finally:
        # Also after an interrupt: what was found up to then is worth having.
        data = result.to_json()
        if both_ways:
            data["feedback"] = Comparison.of(result.rows).to_json()
        write_result(json_file, "mutants", data, result.depending())
    _show_summary(result)
    if both_ways:
        typer.echo("\n" + "\n".join(Comparison.of(result.rows).lines()))
    return {"pass": EXIT_OK, "fail": EXIT_VIOLATION}.get(result.verdict, EXIT_ENVIRONMENT)


def _run(
    result: Result, chosen: list[Mutant], ui: Ui, out: Path, jobs: int, how: How, control: bool,
    hmm_tests: bool,
) -> None:  # fmt: skip
    _header()
    _rows(result, chosen, ui, out, jobs, how, hmm_tests)
    if control:
        _controls(result, chosen, ui, out, how)


def _both_ways(
    result: Result, chosen: list[Mutant], ui: Ui, out: Path, jobs: int, how: How, control: bool,
    seeds: int,
) -> None:  # fmt: skip
    """Without and with feedback in turn, so that what is broken off leaves pairs."""
    # A proof that nothing differs says nothing of either way; sanitised kernels run with threads.
    left = [m for m in chosen if not m.proof and not m.debug]
    if not left:
        raise UsageError("--both-ways is of mutants that exact machines are to kill: none of these")
    ui.say(f"{len(left)} mutants, {seeds} seeds, both ways; {len(chosen) - len(left)} left out")
    how = replace(how, shrink_s=0.0)
    _header()
    for seed in range(how.seed, how.seed + seeds):
        for first in range(0, len(left), jobs):
            for way in (False, True):
                one, name = replace(how, seed=seed, feedback=way), "feedback" if way else "chance"
                part = left[first : first + jobs]
                _rows(result, part, ui, out / f"seed-{seed}-{name}", jobs, one, False)
    if control:
        _controls(result, left, ui, out, replace(how, feedback=True))


def _header() -> None:
    typer.echo(
        _line(
            "mutant", "class", "status", "oracle", "examples", "seconds", "cpu", "ops", "hmm-tests",
            "recipe",
        )
    )  # fmt: skip


def _rows(
    result: Result, chosen: list[Mutant], ui: Ui, out: Path, jobs: int, how: How, hmm_tests: bool
) -> None:
    def took(row: Row) -> None:
        result.rows.append(row)
        _show(row)

    if jobs == 1 or len(chosen) == 1:
        for m in chosen:
            row = run_one(m, ui, out, how)
            if hmm_tests:
                run_hmm_tests(row, m, ui)
            took(row)
    else:
        run_many(
            chosen, ui, out, jobs, took, how, ["--hmm-tests"] if hmm_tests else []
        )


def _controls(result: Result, chosen: list[Mutant], ui: Ui, out: Path, how: How) -> None:
    machines = {m.name: (m.kernel, m.full, m.variant, m.device, m.machine) for m in chosen}
    for wanted in sorted(set(machines.values())):
        kernel, full, variant, device, machine = wanted
        rows = [r for r in result.having(KILLED) if machines[r.name] == wanted]
        row = run_sound(
            ui, out, how, examples=max((r.examples for r in rows), default=0),
            kernel=kernel, full=full, variant=variant, device=device,
            machine=machine or how.machine,
        )  # fmt: skip
        result.controls.append(row)
        _show(row)


def _line(
    name: str, kind: str, status: str, oracle: str, examples: str, seconds: str, cpu: str,
    ops: str, theirs: str, recipe: str,
) -> str:  # fmt: skip
    return (
        f"{name:31} {kind[:34]:34} {status:10} {oracle:9} {examples:>8} {seconds:>8}"
        f" {cpu:>7} {ops:>4}  {theirs:9}  {recipe}"
    )


def _show(row: Row) -> None:
    status = row.status + ("!" if row.wrong else "")
    killed = row.status == KILLED
    typer.echo(
        _line(
            row.name,
            row.bug_class,
            status,
            row.oracle or "-",
            str(row.examples),
            f"{row.seconds:.1f}",
            f"{row.cpu_s:.1f}",
            str(row.operations) if killed else "-",
            "-" if row.hmm_tests == NOT_RUN else row.hmm_tests,
            row.recipe or "-",
        )
    )
    if row.status == ERROR:
        typer.echo(f"  {row.message}")
    elif row.declared and killed:
        typer.echo("  the patch's proof that it is equivalent does not hold")


def _show_summary(result: Result) -> None:
    data = result.to_json()["summary"]
    typer.echo(
        f"\n{data['killed']} killed, {data['equivalent']} equivalent, {data['alive']} alive, "
        f"{data['error']} errors"
    )
    if data["killed"]:
        typer.echo(
            f"to the kill: median {data['median_s']:.1f} s and {data['median_examples']:.0f} "
            f"examples, slowest {data['slowest_s']:.1f} s; CPU median "
            f"{data['median_cpu_s']:.1f} s, in all {data['cpu_s']:.0f} s; "
            f"{data['recipes_of_10_or_less']} recipes of at most 10 operations"
        )
    if data["hmm_tests_killed"] + data["hmm_tests_alive"]:
        typer.echo(
            f"the kernel's hmm-tests: {data['hmm_tests_killed']} killed, "
            f"{data['hmm_tests_alive']} alive"
        )
    for row in result.having(ALIVE):
        typer.echo(f"alive: {row.name} ({row.bug_class})")
    for row in result.rows:
        if row.false_alarm:
            typer.echo(f"FALSE ALARM by {row.name}: {row.message}")
    for row in result.controls:
        if row.status == KILLED:
            typer.echo(f"FALSE ALARM on the sound driver: {row.message}")
