# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench run`: the main job."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hmmbench.base.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_SHORT,
    EXIT_VIOLATION,
    HmmbenchError,
    UsageError,
)
from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, BuildRequest, depends, ensure
from hmmbench.campaign import fleet, line_coverage, second_look
from hmmbench.campaign.generate import version
from hmmbench.campaign.progress import Progress
from hmmbench.campaign.runner import PROFILES, UNBOUNDED, Campaign
from hmmbench.campaign.surroundings import INJECTIONS
from hmmbench.commands import options
from hmmbench.example import schedules
from hmmbench.example.delays import SCHEDULES
from hmmbench.example.recipe import BUILT
from hmmbench.example.totals import Totals
from hmmbench.example.vm_target import VmTarget
from hmmbench.report.filling import conclude, fill
from hmmbench.report.folder import own
from hmmbench.report.page import write as write_page
from hmmbench.report.result import Report, check_writable
from hmmbench.report.tally import Tally
from hmmbench.suites import moments
from hmmbench.symbols.source import explainer
from hmmbench.vm.accel import exact_refused
from hmmbench.vm.errors import VmError
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec, standard_spec


class Schedule(StrEnum):
    """Of exact machines (schedules.py), and of machines with threads (delays.py)."""

    mixed = "mixed"
    random = "random"
    points = "points"
    pct = "pct"
    crowd = "crowd"
    aimed = "aimed"
    delay_random = "delay-random"
    delay_pct = "delay-pct"
    delay_pairs = "delay-pairs"


#: Of the examples of a run on exact machines, one of so many is run on machines with threads: for
#: real parallelism, and memory order that one thread cannot show.
THREADS_EACH = 10

#: Their numbers begin here, so that they are other programs.
THREADS_FIRST = 1_000_000


_CODES = {"pass": EXIT_OK, "fail": EXIT_VIOLATION, "short": EXIT_SHORT}

#: The seed that is drawn, from so many bits.
RANDOM, SEED_BITS = "random", 32


class Profile(StrEnum):
    quick = "quick"
    default = "default"
    long = "long"


def main(
    profile: Annotated[
        Profile | None,
        typer.Option(
            show_default="quick", help="quick: 300 examples, default: 3,000, long: 30,000."
        ),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(
            metavar="N|random",
            help="The same seed gives the same examples; random draws one, which is printed and "
            "is in every result.",
        ),
    ] = "1",
    grammar: options.Grammar = None,
    examples: Annotated[
        int | None, typer.Option(min=1, help="So many examples instead of the profile's.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="As many examples as fit so many minutes, builds not counted, instead."
        ),
    ] = None,
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    kernel_source: options.KernelSource = None,
    kernel_debug: options.KernelDebug = False,
    full: options.Full = False,
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
            show_default="exact; with --kernel-debug threads",
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
        Path,
        typer.Option(
            metavar="DIR",
            help="Where report.html, recipes and evidence go; those of the run before: DIR/before.",
        ),
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

    Nightly:  ./hmmbench run --minutes 480 --seed random --json night.json
    """
    number = _seed(seed)
    if minutes is not None and (examples is not None or profile is not None):
        given = "--profile" if examples is None else "--examples"
        raise UsageError(f"--minutes and {given} contradict each other", "Give one of them.")
    profile = profile or Profile.quick
    check_writable(json_file, "--json")
    check_writable(junit, "--junit")
    check_writable(ktap, "--ktap")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is not a folder")
    request = BuildRequest(
        kernel=kernel, kernel_build=kernel_build, kernel_source=kernel_source,
        kernel_debug=kernel_debug, full=full, qemu_source=qemu_source, driver_source=driver_dir,
        driver_patches=tuple(driver_patch or ()),
        kernel_patches=tuple(kernel_patch or ()), coverage=coverage,
    )  # fmt: skip
    ui = Ui()
    if kernel_debug and accel is None:
        accel = options.Accel.threads
        ui.say(
            "The sanitised kernel runs on machines with threads alone: nobody has tried yet whether"
            " its slowness is taken for hangs on exact ones (--accel exact tries)."
        )
    report = Report(
        seed=number, grammar=version(grammar),
        profile=f"{minutes:g} minutes" if minutes else profile.value,
        options=options.same(request), audit=audit.value,
        schedule=_schedule(schedule, accel or options.Accel.exact), minutes=minutes or 0.0,
    )  # fmt: skip
    count = UNBOUNDED if minutes else examples or PROFILES[profile.value]
    wanted = _Wanted(
        request, out, number, report.grammar, count, None if minutes is None else 60 * minutes,
        jobs or fleet.size(count), inject, delays, accel, schedule,
    )  # fmt: skip
    with own(out) as before:
        if before is not None:
            ui.say(f"what an earlier run left in {out} is in {before}")
        if seed == RANDOM:
            ui.say(f"seed {number}")
        return _reported(wanted, ui, report, json_file, junit, ktap)


def _reported(
    wanted: _Wanted, ui: Ui, report: Report, json_file: Path | None, junit: Path | None,
    ktap: Path | None,
) -> int:  # fmt: skip
    """Run, and write and show what came of it; the exit status."""
    begun = time.monotonic()
    code = EXIT_ENVIRONMENT
    done: list[tuple[Tally, Counter[str]]] = []
    try:
        _run(wanted, ui, report, done)
        conclude(report)
        code = _CODES[report.verdict]
    except UsageError:
        raise
    except HmmbenchError as error:
        report.error = error.message
        code = error.exit_code
        if not report.violations or code == EXIT_INTERRUPTED:
            raise
        # What was found is no less true for what failed after it.
        report.verdict, code = "fail", EXIT_VIOLATION
        ui.say(f"broken off: {error}")
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
            _page(ui, report, finished, counts, wanted.out / "report.html")
        if json_file is not None:
            report.write_json(json_file)
        if junit is not None:
            report.write_junit(junit)
        if ktap is not None:
            report.write_ktap(ktap)
    report.show(ui.console)
    return code


@dataclass(frozen=True)
class _Wanted:
    """What the options say; `jobs` machines, `limit_s` None: `examples` alone count."""

    request: BuildRequest
    out: Path
    seed: int
    grammar: int
    examples: int
    limit_s: float | None
    jobs: int
    inject: bool
    delays: bool
    accel: options.Accel | None
    schedule: Schedule | None


@dataclass(frozen=True)
class _Portion:
    """Examples on machines of one kind: how many, or for how long, and the first one's number."""

    exact: bool
    examples: int
    limit_s: float | None
    first: int = 0


def portions(accel: options.Accel, examples: int, limit_s: float | None) -> list[_Portion]:
    """One of THREADS_EACH examples, or so much of the time, is for threads."""
    if accel != options.Accel.exact:
        return [_Portion(False, examples, limit_s)]
    if limit_s is not None:
        on_threads = limit_s / THREADS_EACH
        return [
            _Portion(True, examples, limit_s - on_threads),
            _Portion(False, examples, on_threads, THREADS_FIRST),
        ]
    few = examples // THREADS_EACH
    both = [_Portion(True, examples - few, None), _Portion(False, few, None, THREADS_FIRST)]
    return [portion for portion in both if portion.examples]


def _run(
    wanted: _Wanted, ui: Ui, report: Report, done: list[tuple[Tally, Counter[str]]]
) -> Tally:
    request = wanted.request
    report.depends = depends.of(request)
    artifacts = ensure(request, ui)
    report.depends["kernel"] = depends.kernel(request, artifacts)
    accel = _accel(wanted.accel, artifacts, ui)
    report.schedule = _schedule(wanted.schedule, accel)
    spec = describe(artifacts, report, accel)
    counted = line_coverage.Collector.of(artifacts) if request.coverage else None
    leaving = counted.take if counted is not None else lambda vm: None
    explain = explainer(artifacts, report.options)
    tally = Tally()
    counts = Totals()
    for portion in portions(accel, wanted.examples, wanted.limit_s):
        if tally.findings:
            break
        with ExitStack() as stack:
            targets: list[VmTarget] = []
            points = None
            with ui.stage("virtual machine"):
                if portion.exact:
                    found, points = stack.enter_context(
                        fleet.exact_fleet(
                            artifacts, spec, wanted.jobs, wanted.out, ui.say, leaving,
                            explain=explain, aimed=report.schedule in schedules.AIMED,
                        )
                    )
                    targets += found
                else:
                    targets = stack.enter_context(
                        fleet.fleet(
                            spec, wanted.jobs, wanted.out, ui.say, leaving, explain=explain
                        )
                    )
                report.jobs = len(targets)
                try:
                    delay_points = targets[0].delay_points() if wanted.delays else []
                except VmError:
                    # That may be a finding.
                    for target in targets:
                        target.close()
                    counts += fleet.totals(targets)
                    fill(report, tally, counts)
                    raise
            with ui.stage("examples") as stage:
                campaign = Campaign(
                    targets, wanted.out, seed=wanted.seed, grammar=wanted.grammar,
                    examples=portion.examples,
                    kernel=report.kernel, delays=delay_points,
                    injections=INJECTIONS if wanted.inject else (),
                    note=Progress(stage, tally, wanted.examples, portion.limit_s),
                    audit=report.audit, limit_s=portion.limit_s,
                    schedule=report.schedule if report.schedule in SCHEDULES else "delay-random",
                    kind=report.schedule, exact=points,
                    cpus=fleet.EXACT_CPUS if portion.exact else 0, first=portion.first,
                    tally=tally,
                    built=depends.parts(report.depends, BUILT) if portion.exact else None,
                )  # fmt: skip
                try:
                    campaign.run()
                finally:
                    for target in targets:
                        target.close()
                    counts += fleet.totals(targets)
                    fill(report, tally, counts)
                    report.interleavings = (
                        campaign.schedule.coverage() or campaign.meetings.coverage()
                        or report.interleavings
                    )  # fmt: skip
                    done[:] = [(tally, counts.counts)]
        if tally.findings and accel == options.Accel.exact and not portion.exact:
            _look_again(
                artifacts, spec, wanted, tally, ui, depends.parts(report.depends, BUILT)
            )
            fill(report, tally, counts)
    if counted is not None:
        moments.take_all(report, artifacts, spec, counted, ui)
    return tally


def _look_again(
    artifacts: Artifacts, spec: MachineSpec, wanted: _Wanted, tally: Tally, ui: Ui,
    built: dict[str, str],
) -> None:  # fmt: skip
    """What threads have found, in exact machines; one that fails costs nothing that was found."""
    explain = explainer(artifacts, options.same(wanted.request))
    try:
        with (
            ui.stage("the same in exact machines") as stage,
            fleet.exact_fleet(
                artifacts, spec, wanted.jobs, wanted.out, ui.say, explain=explain
            ) as (targets, points),
        ):
            for finding in tally.findings:
                second_look.look(
                    finding, targets, points, cpus=fleet.EXACT_CPUS,
                    limit_s=second_look.LOOK_S / len(tally.findings), built=built,
                    note=lambda tally, text: stage.note(text or f"{tally.examples} executions"),
                )  # fmt: skip
    except HmmbenchError as error:
        ui.say(f"exact machines could not look for what threads have found: {error.message}")


def _seed(text: str) -> int:
    if text == RANDOM:
        return secrets.randbelow(1 << SEED_BITS)
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--seed {text}: a number from 0 on, or {RANDOM}")
    return int(text)


def _schedule(wanted: Schedule | None, accel: options.Accel) -> str:
    """Raises UsageError if it is none of these machines."""
    exact = accel == options.Accel.exact
    name = wanted.value if wanted is not None else "mixed" if exact else "delay-random"
    kinds = schedules.KINDS if exact else SCHEDULES
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
    """The page for people.  What it lacks (a full disk, a finding that it cannot draw) must cost
    neither the verdict nor the results for programs."""
    try:
        write_page(path, report, tally, counts)
        report.html = str(path)
    except OSError as error:
        ui.say(f"no report page: cannot write {path}: {error.strerror}")
    except Exception as error:
        ui.say(f"no report page: it could not be made: {error!r}. This is a mistake in hmmbench.")

