# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench replay`: repeat what `run` found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from hmmbench.base.errors import EXIT_OK, EXIT_SHORT, EXIT_VIOLATION, UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, BuildRequest, depends, ensure, kernel_config
from hmmbench.campaign import fleet
from hmmbench.campaign.export_c import export
from hmmbench.campaign.fresh import Fresh
from hmmbench.campaign.replay import (
    Replayed,
    built_differs,
    elsewhere,
    other_schedules,
    parting,
    replay,
    sound,
)
from hmmbench.commands import options
from hmmbench.debug import session as debugger
from hmmbench.debug.back import Back
from hmmbench.example import holds
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.recipe import BUILT, Recipe
from hmmbench.example.schedules import Points
from hmmbench.example.target import Execution
from hmmbench.example.tracer import DEVICE_EVENTS, Tracer
from hmmbench.example.vm_target import VmTarget
from hmmbench.report.result import check_writable, write_result
from hmmbench.report.trace import chrome
from hmmbench.report.trace import write as write_trace
from hmmbench.symbols.source import explainer
from hmmbench.vm import decisions, kinds
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec, exact_spec

#: Schedules of the recipe's kind that are tried where its own does not fail.
SEEDS = 20


def main(
    recipe_file: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe.json of `run`.")],
    times: Annotated[
        int | None, typer.Option(min=1, help="Executions at most (default: as the recipe says).")
    ] = None,
    all_times: Annotated[
        bool, typer.Option("--all", help="Do not stop at the first violation: count them.")
    ] = False,
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    kernel_debug: options.KernelDebug = False,
    kernel_variant: options.KernelVariant = None,
    full: options.Full = False,
    driver_dir: options.DriverDir = None,
    driver_patch: options.DriverPatch = None,
    kernel_patch: options.KernelPatch = None,
    export_c: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a C program instead, that needs no bench."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the failing execution as a trace for Perfetto."),
    ] = None,
    gdb: Annotated[
        bool,
        typer.Option(
            "--gdb",
            help="Open gdb at the machine of the first execution that fails (docs/debugging.md); "
            "builds debug information the first time.",
        ),
    ] = False,
    json_file: options.JsonFile = None,
    out: options.KeepIn = None,
) -> int:
    """Repeat a recipe until it fails again; exit status 1 if it did.

    Example:  ./hmmbench replay hmmbench-out/violation-1/recipe.json --times 100
    """
    recipe = Recipe.read(recipe_file)
    if not sound(recipe.program).ops:
        raise UsageError(f"{recipe_file} has no operation that can be judged")
    check_writable(json_file, "--json")
    if trace is not None and recipe.exact:
        raise UsageError("--trace asks a guest that runs, and an exact machine would part then")
    check_writable(trace, "--trace")
    if gdb and all_times:
        raise UsageError("--gdb stops at the first violation, and --all goes on")
    if export_c is not None:
        check_writable(export_c, "--export-c")
        export_c.write_text(export(recipe))
        typer.echo(f"wrote {export_c}; how to build it is said at its top")
        return EXIT_OK
    if gdb:
        debugger.check()
    ui = Ui()
    request = BuildRequest(
        kernel=kernel, kernel_build=kernel_build,
        kernel_variants=options.variants(kernel_debug, kernel_variant),
        full=full or kinds.needs_full(recipe.machine),
        driver_source=driver_dir, driver_patches=tuple(driver_patch or ()),
        kernel_patches=tuple(kernel_patch or ()), debuginfo=gdb, driver_debuginfo=True,
    )  # fmt: skip
    artifacts = ensure(request, ui)
    on = depends.built(request, artifacts)
    if lost := kinds.lacking(recipe.machine, kernel_config(artifacts)):
        raise UsageError(
            f"no machine {recipe.machine} with this kernel, which has not {', '.join(lost)}"
        )
    spec, accel = best_spec(artifacts)
    spec = spec.with_device(recipe.device)
    if trace is not None:
        spec = dataclasses.replace(spec, trace=DEVICE_EVENTS)
    tracing = _Tracing()
    explain = explainer(artifacts, options.same(request))
    points = Points()
    written, left_out = recipe, ""
    if recipe.exact:
        spec = exact_spec(spec, recipe.cpus)
    spec = kinds.made(spec, recipe.machine)
    if recipe.exact:
        with ui.stage("virtual machine"):
            points = fleet.exact_points(artifacts, spec)
        recipe, lost = holds.here(recipe, points.table)
        for one in lost:
            ui.say(f"left out, for no symbol here has this name: {one}")
        left_out = "; ".join(lost)
    parted, others = "", built_differs(recipe, depends.parts(on, BUILT))
    with ExitStack() as stack:
        opener = stack.enter_context(Opener(spec))
        target: VmTarget = stack.enter_context(
            ExactTarget(
                opener, explain=explain, points=points.all, names=fleet.names_of(artifacts, spec),
            ) if recipe.exact
            else VmTarget(opener, explain=explain)
        )  # fmt: skip
        if kinds.may_be_refused(recipe.machine) and not target.has_driver():
            refused = kinds.words(recipe.machine)
            typer.echo(f"the driver refuses the device: {refused}")
            write_result(json_file, "replay", {
                "verdict": "short", "recipe": str(recipe_file), "machine": recipe.machine,
                "kernel": artifacts.kernel_release, "refused": refused, "executions": 0,
                "failures": 0, "violations": [],
            }, on)  # fmt: skip
            return EXIT_SHORT
        with ui.stage("replay") as stage_:
            result = replay(
                Fresh(target, recipe.chain) if recipe.exact else target,
                recipe, times, not all_times,
                lambda done, total: stage_.progress(done, total),
                before=(lambda: tracing.start(target)) if trace else lambda: None,
                after=tracing.write_to(trace) if trace else lambda execution: None,
            )  # fmt: skip
        as_recorded = result.found
        if isinstance(target, ExactTarget):
            parted = parting(recipe, target.record(), recipe_file.with_name(decisions.KEPT))
            if parted:
                ui.say(parted)
            for line in elsewhere(written, others):
                ui.say(line)
        if recipe.exact and not result.found and recipe.environment.schedule:
            ui.say("does not fail as recorded; schedules near its own are tried")
            with ui.stage("other schedules") as stage_:
                result = other_schedules(
                    Fresh(target, recipe.chain), recipe, SEEDS,
                    lambda done, total: stage_.progress(done, total),
                )
        if gdb and result.found:
            _debug(target, artifacts, spec, result, recipe)
        if out is not None and result.found:
            target.keep(out)
    # What a machine died of when nothing ran in it is no failure of the recipe, but no pass.
    ends = target.totals.ends
    write_result(json_file, "replay", {
        "verdict": "fail" if result.found or ends else "pass",
        "recipe": str(recipe_file),
        "kernel": artifacts.kernel_release,
        "accel": "exact" if recipe.exact else accel.name,
        **({"machine": recipe.machine} if recipe.machine else {}),
        "as_recorded": as_recorded,
        **({"parted": parted, "built_differs": others} if recipe.exact else {}),
        **({"left_out": left_out} if left_out else {}),
        "executions": result.executions,
        "failures": result.failures,
        "violations": [
            {"oracle": v.oracle, "message": v.message, "details": v.details}
            for v in [*result.violations[:20], *ends]
        ],
    }, on)  # fmt: skip
    for v in ends:
        typer.echo(f"{v.oracle}: {v.message}")
    if not result.found:
        typer.echo(f"no violation in {result.executions} executions")
        return EXIT_VIOLATION if ends else EXIT_OK
    if trace is not None:
        typer.echo(tracing.said)
    typer.echo(f"{result.failures} of {result.executions} executions failed")
    for v in result.violations[:3]:
        typer.echo(f"{v.oracle}: {v.message}")
    if report := next((v.details for v in result.violations if v.oracle == "kernel"), ""):
        typer.echo(f"\n{report}")
    return EXIT_VIOLATION


def _debug(
    target: VmTarget, artifacts: Artifacts, spec: MachineSpec, result: Replayed, recipe: Recipe
) -> None:
    """gdb at the machine as the last execution left it; an exact one can be taken back."""
    vm = target.left
    if vm is None:
        typer.echo("the machine has ended with the execution: there is nothing to debug")
        return
    for v in result.violations[:3]:
        typer.echo(f"{v.oracle}: {v.message}")
    places = Snapshots().sections(spec)
    if not isinstance(target, ExactTarget):
        typer.echo("the machine stands after the execution that failed; `help hmm` in gdb")
        debugger.interactive(vm, artifacts, places)
        return
    chain = [(link.program, link.environment) for link in recipe.chain]
    last = sound(recipe.program), result.environment or recipe.environment
    back = Back(target, [*chain, last], result.violations[0])
    moment = back.at_violation()
    where = moment or "after the execution: this violation has no moment of its own"
    typer.echo(f"the machine stands {where}; `help hmm` in gdb")
    debugger.interactive(back.machine, artifacts, places, back)


class _Tracing:
    """Traces executions and writes the first that fails.  `said`: what became of it."""

    def __init__(self) -> None:
        self.said = "no trace: no execution failed"
        self._tracer: Tracer | None = None

    def start(self, target: VmTarget) -> None:
        self._tracer = Tracer(target.vm)
        self._tracer.start()

    def write_to(self, path: Path) -> Callable[[Execution], None]:
        def write(execution: Execution) -> None:
            tracer, result = self._tracer, execution.result
            if tracer is None or result is None:
                self.said = "no trace: the machine did not survive the execution"
                return
            data = chrome(execution.program, result, tracer.driver(), tracer.device())
            write_trace(path, data)
            clock = data["otherData"]["device_clock"]
            self.said = f"wrote {path} for ui.perfetto.dev (device times: {clock})"

        return write
