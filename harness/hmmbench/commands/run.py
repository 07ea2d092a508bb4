# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench run`: the main job."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hmmbench import depends, exact_schedule, fleet, life, lines
from hmmbench.build import Artifacts, BuildRequest, ensure, hmm_tests
from hmmbench.build.context import Context
from hmmbench.commands import options
from hmmbench.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_VIOLATION,
    HmmbenchError,
    UsageError,
)
from hmmbench.page import write as write_page
from hmmbench.report import Report, check_writable
from hmmbench.runner import INJECTIONS, PROFILES, Campaign, Tally
from hmmbench.schedule import SCHEDULES
from hmmbench.symbols.source import explainer
from hmmbench.target import Totals, VmTarget
from hmmbench.ui import Stage, Ui
from hmmbench.vm.accel import exact_refused
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec, standard_spec


class Schedule(StrEnum):
    """Of exact machines (exact_schedule.py), and of machines with threads (schedule.py)."""

    mixed = "mixed"
    random = "random"
    points = "points"
    pct = "pct"
    delay_random = "delay-random"
    delay_pct = "delay-pct"
    delay_pairs = "delay-pairs"


#: Of the examples of a run on exact machines, one of so many is run on machines with threads: for
#: real parallelism, and memory order that one thread cannot show.
THREADS_EACH = 10

#: Their numbers begin here, so that they are other programs.
THREADS_FIRST = 1_000_000


class Profile(StrEnum):
    quick = "quick"
    default = "default"
    long = "long"


def main(
    profile: Annotated[
        Profile, typer.Option(help="quick: 300 examples, default: 3,000, long: 30,000.")
    ] = Profile.quick,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same examples.")] = 1,
    examples: Annotated[
        int | None, typer.Option(min=1, help="So many examples instead of the profile's.")
    ] = None,
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    kernel_source: options.KernelSource = None,
    kernel_debug: options.KernelDebug = False,
    qemu_source: options.QemuSource = None,
    driver_dir: options.DriverDir = None,
    driver_patch: options.DriverPatch = None,
    kernel_patch: options.KernelPatch = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, show_default="one a CPU and 2 GB of memory",
            help="Virtual machines at the same time; they share the examples.",
        ),
    ] = None,
    inject: Annotated[
        bool, typer.Option(help="Let the device misbehave now and then, as hardware may.")
    ] = True,
    delays: Annotated[
        bool, typer.Option(help="Widen races at the driver's delay points now and then.")
    ] = True,
    schedule: Annotated[
        Schedule | None,
        typer.Option(
            show_default="mixed; with threads alone delay-random",
            help="Who runs when. Exact machines: at random; CPUs held at functions that drivers "
            "have or call; few switches; a mixture. With threads: delay points at random, few "
            "waits at single passages, each ordered pair of points in turn."
        ),
    ] = None,
    accel: Annotated[
        options.Accel | None,
        typer.Option(
            show_default="exact",
            help="Machines whose executions repeat to the instruction, and for a tenth of the "
            "examples machines with threads; threads alone; KVM (not tried by us)."
        ),
    ] = None,
    audit: Annotated[
        options.Audit,
        typer.Option(
            help="When the device compares its translations with the CPU's page table: never, "
            "for one access of 16, when it takes one up, at every access."
        ),
    ] = options.Audit.fill,
    coverage: Annotated[
        bool,
        typer.Option(
            help="Count the lines of the driver, mm/hmm.c and mm/migrate_device.c that are "
            "executed: in a kernel of its own (the first time a build of minutes), and with the "
            "driver's other moments after the examples."
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where report.html, recipes and evidence go.")
    ] = Path("hmmbench-out"),
    json_file: options.JsonFile = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result as JUnit XML.")
    ] = None,
    ktap: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result as KTAP, by oracle.")
    ] = None,
) -> int:
    """Test the driver: random programs of memory operations on CPU and GPU, checked by a model.

    Builds what is missing, boots a virtual machine once, restores it, and runs examples in it.
    A violation is made small and kept as a recipe for `replay`.

    Example:  ./hmmbench run --profile default --seed 7 --json result.json
    """
    check_writable(json_file, "--json")
    check_writable(junit, "--junit")
    check_writable(ktap, "--ktap")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is not a folder")
    request = BuildRequest(
        kernel=kernel, kernel_build=kernel_build, kernel_source=kernel_source,
        kernel_debug=kernel_debug, qemu_source=qemu_source, driver_source=driver_dir,
        driver_patches=tuple(driver_patch or ()),
        kernel_patches=tuple(kernel_patch or ()), coverage=coverage,
    )  # fmt: skip
    ui = Ui()
    report = Report(
        seed=seed, profile=profile.value, options=options.same(request), audit=audit.value,
        schedule=_schedule(schedule, accel or options.Accel.exact),
    )  # fmt: skip
    begun = time.monotonic()
    count = examples or PROFILES[profile.value]
    code = EXIT_ENVIRONMENT
    done: list[tuple[Tally, Counter[str]]] = []
    try:
        tally = _run(
            request, ui, report, out, seed, count, jobs or fleet.size(count), inject, delays, accel,
            schedule, done,
        )
        report.verdict = "fail" if tally.findings else "pass"
        code = EXIT_VIOLATION if tally.findings else EXIT_OK
    except UsageError:
        raise
    except HmmbenchError as error:
        report.error = error.message
        code = error.exit_code
        raise
    except KeyboardInterrupt:
        report.error = "interrupted"
        code = EXIT_INTERRUPTED
        raise
    except Exception as error:
        report.error = f"internal error: {error!r}"
        code = EXIT_INTERNAL
        raise
    finally:
        report.wall_s = round(time.monotonic() - begun, 3)
        report.stages = dict(ui.seconds)
        for finished, counts in done:
            _page(ui, report, finished, counts, out / "report.html")
        if json_file is not None:
            report.write_json(json_file)
        if junit is not None:
            report.write_junit(junit)
        if ktap is not None:
            report.write_ktap(ktap)
    report.show(ui.console)
    return code


def _run(
    request: BuildRequest,
    ui: Ui,
    report: Report,
    out: Path,
    seed: int,
    count: int,
    jobs: int,
    inject: bool,
    delays: bool,
    wanted: options.Accel | None,
    schedule: Schedule | None,
    done: list[tuple[Tally, Counter[str]]],
) -> Tally:
    report.depends = depends.of(request)
    artifacts = ensure(request, ui)
    report.depends["kernel"] = depends.kernel(request, artifacts)
    accel = _accel(wanted, artifacts, ui)
    report.schedule = _schedule(schedule, accel)
    spec = describe(artifacts, report, accel)
    counted = lines.Collector.of(artifacts) if request.coverage else None
    leaving = counted.take if counted is not None else lambda vm: None
    explain = explainer(artifacts, report.options)
    tally = Tally()
    counts = Totals()
    on_threads = count if accel != options.Accel.exact else count // THREADS_EACH
    portions = [(count - on_threads, True), (on_threads, False)]
    for number, exact in portions:
        if not number or tally.findings:
            continue
        with ExitStack() as stack:
            targets: list[VmTarget] = []
            points = None
            with ui.stage("virtual machine"):
                if exact:
                    found, points = stack.enter_context(
                        fleet.exact_fleet(
                            artifacts, spec, jobs, out, ui.say, leaving, explain=explain
                        )
                    )
                    targets += found
                else:
                    targets = stack.enter_context(
                        fleet.fleet(spec, jobs, out, ui.say, leaving, explain=explain)
                    )
                report.jobs = len(targets)
                delay_points = targets[0].delay_points() if delays else []
            with ui.stage("examples") as stage:
                campaign = Campaign(
                    targets, out, seed=seed, examples=number, kernel=report.kernel,
                    delays=delay_points, injections=INJECTIONS if inject else (),
                    note=_Progress(stage, count), audit=report.audit,
                    schedule=report.schedule if report.schedule in SCHEDULES else "delay-random",
                    kind=report.schedule, exact=points, cpus=fleet.EXACT_CPUS if exact else 0,
                    first=0 if number == count or exact else THREADS_FIRST, tally=tally,
                )  # fmt: skip
                try:
                    campaign.run()
                finally:
                    for target in targets:
                        target.close()
                    counts += fleet.totals(targets)
                    _fill(report, tally, counts)
                    report.interleavings = campaign.schedule.coverage()
                    done[:] = [(tally, counts.counts)]
    if report.audit != "off" and report.gpu_accesses and not report.audit_checks:
        ui.say(
            "NO MIRROR AUDIT: the device compared nothing. An IOMMU that translates, "
            "a driver that does not program it, or another architecture."
        )
    if counted is not None:
        with ui.stage("the driver's other moments"):
            with Opener(spec) as opener:
                parts = life.parts(opener, leaving)
            try:
                program = hmm_tests.build(Context(ui), artifacts.kernel_source_dir)
                parts.append(life.kernels_own(spec, program, leaving))
            except UsageError as error:
                # A user's kernel without its source.
                parts.append(life.Part("hmm-tests", error.message))
        for part in parts:
            if part.what:
                ui.say(f"not sound, beside the examples: {part.name}: {part.what}")
        report.line_coverage_ran = [
            f"{tally.examples} examples",
            *(f"{part.name}: {part.what or 'done'}" for part in parts),
        ]
        report.line_coverage = counted.to_json()
        report.line_coverage_total = {
            name: found.to_json() for name, found in counted.groups().items()
        }
    return tally


class _Progress:
    """The line that moves while examples run."""

    def __init__(self, stage: Stage, count: int) -> None:
        self._stage, self._count = stage, count
        self._begun = self._said = time.monotonic()

    def __call__(self, tally: Tally, text: str) -> None:
        now = time.monotonic()
        if text:
            self._stage.progress(tally.examples, self._count, text)
        elif now - self._said > 0.5:
            self._said = now
            rate = tally.operations / (now - self._begun)
            self._stage.progress(
                tally.examples, self._count,
                f"{tally.gpu_accesses} GPU accesses, {rate:.0f} operations/s",
            )  # fmt: skip


def _schedule(wanted: Schedule | None, accel: options.Accel) -> str:
    """Raises UsageError if it is none of these machines."""
    exact = accel == options.Accel.exact
    name = wanted.value if wanted is not None else "mixed" if exact else "delay-random"
    kinds = exact_schedule.KINDS if exact else SCHEDULES
    if name not in kinds:
        raise UsageError(f"--schedule {name} is not for --accel {accel.value}: {', '.join(kinds)}")
    return name


def _accel(wanted: options.Accel | None, artifacts: Artifacts, ui: Ui) -> options.Accel:
    """Exact machines if nothing else is asked for, and this QEMU can run them."""
    if wanted is not None and wanted != options.Accel.exact:
        return wanted
    without = exact_refused(artifacts.qemu)
    if not without:
        return options.Accel.exact
    if wanted is not None:
        raise UsageError(f"--accel exact: {without}", "Use --accel threads with this QEMU.")
    ui.say(f"NO EXACT MACHINES: {without}. Machines with threads are used: no execution repeats.")
    return options.Accel.threads


def describe(artifacts: Artifacts, report: Report, accel: options.Accel) -> MachineSpec:
    """The machine for these builds, and its description in the report."""
    spec = standard_spec(artifacts)
    report.accel = "exact" if accel == options.Accel.exact else spec.accel
    if accel == options.Accel.kvm:
        spec, found = best_spec(artifacts)
        if found.name != "kvm":
            raise UsageError(f"--accel kvm: {found.reason}")
        report.accel = found.name
    report.kernel = artifacts.kernel_release
    report.qemu = artifacts.versions.get("qemu", "")
    report.versions = dict(artifacts.versions)
    return spec


def _page(ui: Ui, report: Report, tally: Tally, counts: Counter[str], path: Path) -> None:
    """The page for people.  What it lacks (a full disk) must not cost the verdict."""
    try:
        write_page(path, report, tally, counts)
        report.html = str(path)
    except OSError as error:
        ui.say(f"no report page: cannot write {path}: {error.strerror}")


def _fill(report: Report, tally: Tally, totals: Totals) -> None:
    report.examples = tally.examples
    report.operations = tally.operations
    report.gpu_accesses = tally.gpu_accesses
    report.undecided = tally.undecided
    report.violations = [f.to_json() for f in tally.findings]
    report.coverage = tally.coverage.to_json()
    report.gpu_faults, report.replays = totals.faults, totals.replays
    report.pages_to_device, report.pages_to_system = totals.to_device, totals.to_system
    report.machines = totals.machines
    report.audit_checks, report.audit_undecided = totals.audit_checks, totals.audit_undecided
    if tally.run_s:
        report.ops_per_s = round(tally.operations / tally.run_s, 1)
