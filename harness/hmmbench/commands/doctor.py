# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench doctor`: is this machine ready, and if not, which command makes it so."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape

from hmmbench.base.errors import EXIT_USAGE
from hmmbench.commands import options
from hmmbench.report.result import write_json
from hmmbench.suites import doctor

_STYLE = {"ok": "green", "note": "yellow", "missing": "red"}


def main(
    json_file: options.JsonFile = None,
) -> None:
    """Say what this host has, which accelerator is used and why, what is cached and missing.

    Ends with 2 if something is missing; the command that mends it stands beside it.

    Example:  ./hmmbench doctor --json doctor.json
    """
    report = doctor.examine()
    write_json(json_file, report.as_json())
    console = Console(highlight=False)
    for finding in report.findings:
        style = _STYLE[finding.level]
        level = f"[{style}]{finding.level:<8}[/{style}]"
        # Never wrapped: the commands are there to be copied.
        console.print(f"{finding.topic:<14} {level} {escape(finding.text)}", soft_wrap=True)
        if finding.mend:
            console.print(f"{'':<23} -> {escape(finding.mend)}", soft_wrap=True)
    if not report.ready:
        raise typer.Exit(EXIT_USAGE)
