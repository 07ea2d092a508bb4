# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench selftests`: the kernel's own HMM tests on this driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hmmbench.base.errors import EXIT_OK, EXIT_VIOLATION
from hmmbench.base.ui import Ui
from hmmbench.build import BuildRequest, depends, ensure, hmm_tests
from hmmbench.build.context import Context
from hmmbench.commands import options
from hmmbench.report.folder import own
from hmmbench.report.result import check_writable, write_result
from hmmbench.suites import selftests
from hmmbench.suites.selftests import OURS, THEIRS, Run, SelftestOutcome
from hmmbench.vm.errors import VmError
from hmmbench.vm.standard import best_spec


def main(
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    kernel_source: options.KernelSource = None,
    kernel_debug: options.KernelDebug = False,
    kernel_variant: options.KernelVariant = None,
    full: options.Full = False,
    driver_dir: options.DriverDir = None,
    driver_patch: options.DriverPatch = None,
    compare: Annotated[
        bool, typer.Option(help="Run the tests on the kernel's test_hmm as well.")
    ] = True,
    audit: Annotated[
        options.Audit, typer.Option(help="Mirror audit by the devices meanwhile (docs/audit.md).")
    ] = options.Audit.fill,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the evidence of a failure goes.")
    ] = Path("hmmbench-out/selftests"),
    json_file: options.JsonFile = None,
) -> int:
    """Run the kernel's own HMM tests (hmm-tests.c, unmodified) on this driver and device.

    KTAP on standard output, then a table beside the same run on the kernel's test_hmm. A test
    that crashed, hung or was not reported has failed; one that was skipped, or failed as expected,
    is no pass. Exit status 1 if a test failed on this driver, the kernel printed a splat, or the
    device saw a stale translation.

    Example:  ./hmmbench selftests --kernel latest --json selftests.json
    """
    check_writable(json_file, "--json")
    request = BuildRequest(
        kernel=kernel, kernel_build=kernel_build, kernel_source=kernel_source,
        kernel_variants=options.variants(kernel_debug, kernel_variant),
        full=full, driver_source=driver_dir,
        driver_patches=tuple(driver_patch or ()),
    )  # fmt: skip
    ui = Ui()
    artifacts = ensure(request, ui)
    on = depends.built(request, artifacts)
    program = hmm_tests.build(Context(ui), artifacts.kernel_source_dir)
    spec, accel = best_spec(artifacts)
    with own(out, (OURS, THEIRS)) as before:
        if before is not None:
            ui.say(f"what an earlier run left in {out} is in {before}")
        with ui.stage(f"hmm-tests on {OURS}"):
            ours = selftests.run(spec, OURS, program, keep=out / OURS, audit=audit.value)
        typer.echo(ours.text, nl=False)
        theirs = None
        if compare:
            try:
                with ui.stage(f"hmm-tests on {THEIRS}"):
                    theirs = selftests.run(spec, THEIRS, program, keep=out / THEIRS)
            except VmError as error:
                # Only the comparison is lost with that machine.
                ui.say(f"NOT COMPARED with {THEIRS}: {error.message}")
    about = {"kernel": artifacts.kernel_release, "accel": accel.name}
    write_result(json_file, "selftests", selftests.to_json(ours, theirs, about), on)
    for line in table(ours, theirs, artifacts.kernel_release, accel.name):
        typer.echo(line)
    if ours.bad:
        typer.echo(f"evidence: {out / OURS}")
    return EXIT_VIOLATION if ours.bad else EXIT_OK


_WORDS = (
    ("pass", "passed"), ("fail", "failed"), ("skip", "skipped"), ("xfail", "failed as expected"),
)  # fmt: skip


def table(ours: Run, theirs: Run | None, kernel: str, accel: str) -> Iterator[str]:
    """A line a test, then the sums."""
    yield f"Linux {kernel}, {accel}; seconds of the guest's time"
    yield _line("test", OURS, "s", THEIRS, "s", "")
    for outcome in ours.outcomes:
        other = theirs.find(outcome.name) if theirs else None
        reason = outcome.reason if outcome.status != "pass" else ""
        yield _line(outcome.name, *_cells(outcome), *_cells(other), reason)
    for one in (ours, theirs):
        if one is None:
            continue
        words = ", ".join(f"{one.count(s)} {w}" for s, w in _WORDS)
        audit = f", {one.audit_checks} translations compared" if one.audit_checks else ""
        yield f"{one.driver}: {words}, {one.seconds:.1f} s{audit}"
        if one.trouble:
            yield f"  {one.trouble}"
    ratio = selftests.ratio(ours, theirs)
    if ratio is not None:
        yield f"{ratio:.2f} times the time of {THEIRS}, over the tests that passed on both"


def _line(name: str, mine: str, s: str, other: str, other_s: str, reason: str) -> str:
    return f"{name:54} {mine:8} {s:>7} {other:8} {other_s:>7}  {reason}".rstrip()


def _cells(outcome: SelftestOutcome | None) -> tuple[str, str]:
    if outcome is None:
        return "-", "-"
    return outcome.status, "-" if outcome.seconds is None else f"{outcome.seconds:.2f}"
