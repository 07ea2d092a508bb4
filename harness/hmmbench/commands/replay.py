# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench replay`: repeat what `run` found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hmmbench.build import BuildRequest, ensure
from hmmbench.commands import options
from hmmbench.errors import EXIT_OK, EXIT_VIOLATION, UsageError
from hmmbench.export_c import export
from hmmbench.recipe import Recipe
from hmmbench.replay import replay, sound
from hmmbench.report import check_writable
from hmmbench.target import VmTarget
from hmmbench.ui import Ui
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec


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
    driver_dir: options.DriverDir = None,
    driver_patch: options.DriverPatch = None,
    export_c: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a C program instead, that needs no bench."),
    ] = None,
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
    if export_c is not None:
        check_writable(export_c, "--export-c")
        export_c.write_text(export(recipe))
        typer.echo(f"wrote {export_c}; how to build it is said at its top")
        return EXIT_OK
    ui = Ui()
    artifacts = ensure(
        BuildRequest(
            kernel=kernel, kernel_build=kernel_build, kernel_debug=kernel_debug,
            driver_source=driver_dir, driver_patches=tuple(driver_patch or ()),
        ), ui,
    )  # fmt: skip
    spec, accel = best_spec(artifacts)
    with Opener(spec) as opener, VmTarget(opener) as target:
        with ui.stage("replay") as stage:
            result = replay(
                target, recipe, times, not all_times,
                lambda done, total: stage.progress(done, total),
            )  # fmt: skip
        if out is not None and result.found:
            target.keep(out)
    if json_file is not None:
        json_file.write_text(
            json.dumps(
                {
                    "verdict": "fail" if result.found else "pass",
                    "recipe": str(recipe_file),
                    "kernel": artifacts.kernel_release,
                    "accel": accel.name,
                    "executions": result.executions,
                    "failures": result.failures,
                    "violations": [
                        {"oracle": v.oracle, "message": v.message} for v in result.violations[:20]
                    ],
                },
                indent=1,
            )
            + "\n"
        )
    if not result.found:
        typer.echo(f"no violation in {result.executions} executions")
        return EXIT_OK
    typer.echo(f"{result.failures} of {result.executions} executions failed")
    for v in result.violations[:3]:
        typer.echo(f"{v.oracle}: {v.message}")
    return EXIT_VIOLATION
