# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver's other moments as a part of a run that counts lines: what each came to is judged."""

from __future__ import annotations

from hmmbench.base.errors import UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, hmm_tests
from hmmbench.build.context import Context
from hmmbench.campaign.line_coverage import Collector
from hmmbench.report.result import Report
from hmmbench.suites import driver_life
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec


def take_all(
    report: Report, artifacts: Artifacts, spec: MachineSpec, counted: Collector, ui: Ui
) -> None:
    """Go through them, the kernel's own tests the last; the lines of all that ran are counted."""
    with ui.stage("the driver's other moments"):
        report.line_coverage_ran = [f"{report.examples} examples"]
        with Opener(spec) as opener:
            for part in driver_life.parts(opener, counted.take):
                take(report, part)
        try:
            program = hmm_tests.build(Context(ui), artifacts.kernel_source_dir)
        except UsageError as error:
            # A user's kernel without its source.
            report.line_coverage_ran.append(f"hmm-tests: {error.message}")
        else:
            take(report, driver_life.kernels_own(spec, program, counted.take))
    report.line_coverage_ran += counted.failed
    report.line_coverage = counted.to_json()
    report.line_coverage_total = {
        name: found.to_json() for name, found in counted.groups().items()
    }


def take(report: Report, part: driver_life.Part) -> None:
    """What one of them came to is part of the verdict."""
    found = part.violation()
    if found is not None:
        report.violations.append(found)
    elif part.what:
        report.shortfalls.append(f"not judged: {part.name}: {part.what}")
    report.line_coverage_ran.append(f"{part.name}: {part.what or 'done'}")
