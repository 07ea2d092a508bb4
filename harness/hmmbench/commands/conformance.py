# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench conformance`: is the GPU's instruction set RISC-V's?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hmmbench.base.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_VIOLATION
from hmmbench.base.ui import Ui
from hmmbench.build import depends
from hmmbench.build.riscv import Tools
from hmmbench.commands import options
from hmmbench.device.library import library
from hmmbench.report.result import check_writable, write_result
from hmmbench.suites import conformance


def main(
    riscv_tests: Annotated[
        Path,
        typer.Option("--riscv-tests", metavar="DIR", help="A checkout of the riscv-tests."),
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAMES...]", help="Suites or tests (default: all)."),
    ] = None,
    json_file: options.JsonFile = None,
) -> int:
    """Run the RISC-V project's riscv-tests (rv64ui, um, ua, uf, ud) on a lane of the GPU.

    Needs no virtual machine: the device core is compiled for this host, the tests by clang. One
    line a test. Exit status 1 if a test failed, 3 if one could not be built.

    Example:  ./hmmbench conformance --riscv-tests ~/riscv-tests rv64uf rv64ui/add
    """
    check_writable(json_file, "--json")
    wanted = conformance.choose(riscv_tests, names or ())
    tools = Tools.find()
    ui = Ui()
    on = depends.of()
    with ui.stage("device core: compiling"):
        library()
    done: list[conformance.ConformanceOutcome] = []
    try:
        with ui.stage("riscv-tests") as stage:
            for outcome in conformance.run(riscv_tests, wanted, tools):
                done.append(outcome)
                typer.echo(f"{outcome.name:24} {outcome.verdict:5} {outcome.detail}".rstrip())
                stage.progress(len(done), len(wanted), outcome.name)
    finally:
        # Also after an interrupt: what was found up to then is worth having.
        count = {v: sum(o.verdict == v for o in done) for v in ("pass", "fail", "error")}
        write_result(
            json_file,
            "conformance",
            {
                "tests": [asdict(o) for o in done],
                "passed": count["pass"],
                "failed": count["fail"],
                "errors": count["error"],
                "not_run": len(wanted) - len(done),
                "compiler": tools.version(),
                "riscv_tests": conformance.revision(riscv_tests),
            },
            on,
        )
    typer.echo(f"{count['pass']} of {len(wanted)} passed")
    if count["fail"]:
        return EXIT_VIOLATION
    return EXIT_ENVIRONMENT if count["error"] else EXIT_OK
