# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench run`: the main job."""

from __future__ import annotations

import secrets
import time
from collections import Counter
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
    EnvironmentFailure,
    HmmbenchError,
    UsageError,
)
from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, BuildRequest, depends, ensure, kernel, kernel_config
from hmmbench.campaign import fleet, line_coverage, machines, second_look
from hmmbench.campaign.explore import Feedback
from hmmbench.campaign.generate import version
from hmmbench.campaign.portions import (
    DRAWS,
    Draw,
    Portion,
    drawn,
    portions,
    profile_of,
    sanitised,
)
from hmmbench.campaign.runner import PROFILES, UNBOUNDED
from hmmbench.commands import options
from hmmbench.device import injection
from hmmbench.example import schedules
from hmmbench.example.delays import SCHEDULES
from hmmbench.example.totals import Totals
from hmmbench.report.filling import conclude, fill
from hmmbench.report.folder import own
from hmmbench.report.page import write as write_page
from hmmbench.report.result import Report, check_writable
from hmmbench.report.tally import EXACT, THREADS, Tally
from hmmbench.suites import moments
from hmmbench.symbols.source import explainer
from hmmbench.vm import kinds
from hmmbench.vm.accel import exact_refused
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
    kernel_variant: options.KernelVariant = None,
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
    inject_only: Annotated[
        str,
        typer.Option(
            metavar="EVENTS", show_default="all that a sound driver survives",
            help="And only so: EVENT or EVENT:ACTION of docs/device.md, with commas between them.",
        ),
    ] = "",
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
            show_default="exact; with --kernel-variant threads",
            help="Machines whose executions repeat to the instruction, and for a tenth of the "
            "examples machines with threads; threads alone; KVM (not tried by us)."
        ),
    ] = None,
    device: Annotated[
        options.Device | None,
        typer.Option(
            help="Another GPU: whose VRAM is memory of the CPU too; with a data cache, which the "
            "driver has to flush; whose copies report what they miss to another ring, and wait."
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="KIND[+KIND]|usual", show_default="drawn",
            help=f"All examples on one machine, not most on the usual one and some on others "
            f"that are drawn: {', '.join(kinds.DRAWN)}.",
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
    feedback: Annotated[
        bool | None,
        typer.Option(
            "--feedback/--no-feedback", show_default="no, but with --corpus",
            help="Draw examples out of those that reached something new (docs/exploration.md).",
        ),
    ] = None,
    corpora: Annotated[
        list[Path] | None,
        typer.Option(
            "--corpus", metavar="DIR",
            help="With feedback: begin with the inputs that are kept there, and keep the new ones, "
            "made small. May be repeated: others are only read, and so merged into the first.",
        ),
    ] = None,
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
    injection.chosen(inject_only)
    if machine == kinds.USUAL:
        machine = ""
    kinds.kinds(machine or "")
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
        kernel_variants=options.variants(kernel_debug, kernel_variant),
        full=full or kinds.needs_full(machine or ""),
        qemu_source=qemu_source, driver_source=driver_dir,
        driver_patches=tuple(driver_patch or ()),
        kernel_patches=tuple(kernel_patch or ()), coverage=coverage,
    )  # fmt: skip
    ui = Ui()
    if request.kernel_variants and accel is None:
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
    exact = accel in (None, options.Accel.exact)
    wanted = _Wanted(
        out, number, report.grammar, count, jobs or fleet.size(count),
        inject_only if inject else None, delays, device or "",
        Feedback.asked(feedback, corpora or (), report.grammar, exact), request,
        None if minutes is None else 60 * minutes, accel, schedule, machine,
        _draw(profile, minutes, machine, request, accel),
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
class _Wanted(machines.Asked):
    """What the options say; `limit_s` None: `examples` alone count; `machine` None, and `draw`:
    which machines are drawn."""

    request: BuildRequest
    limit_s: float | None
    accel: options.Accel | None
    schedule: Schedule | None
    machine: str | None
    draw: Draw | None


def _draw(
    profile: Profile, minutes: float | None, machine: str | None, request: BuildRequest,
    accel: options.Accel | None,
) -> Draw | None:  # fmt: skip
    """None: all examples are on the machine that was asked for."""
    asked = machine is not None or request.kernel_variants or request.coverage
    if asked or accel == options.Accel.kvm:
        return None
    return DRAWS[profile.value if minutes is None else profile_of(minutes)]


def _portions(
    wanted: _Wanted, artifacts: Artifacts, spec: MachineSpec, accel: options.Accel
) -> list[Portion]:
    exact = accel == options.Accel.exact
    others: list[Portion] = []
    if wanted.draw is not None:
        usual = fleet.exact_machine(spec) if exact else spec
        ours = wanted.request.kernel_build is None
        others = drawn(
            wanted.draw, wanted.seed, usual, kernel_config(artifacts),
            kernel.read_config(kernel.FRAGMENTS / "full.config") if ours else None,
        )  # fmt: skip
        others += sanitised(wanted.draw) if ours else []
    return portions(
        exact, wanted.examples, wanted.limit_s, others,
        wanted.draw.each if wanted.draw is not None else 1, wanted.machine or "",
    )  # fmt: skip


def _run(
    wanted: _Wanted, ui: Ui, report: Report, done: list[tuple[Tally, Counter[str]]]
) -> Tally:
    request = wanted.request
    report.depends = depends.of(request)
    artifacts = ensure(request, ui)
    report.depends["kernel"] = depends.kernel(request, artifacts)
    if wanted.device:
        report.depends["gpu"] = wanted.device
    accel = _accel(wanted.accel, artifacts, ui)
    if wanted.feedback is not None and accel != options.Accel.exact:
        ui.say("NO FEEDBACK: it is of exact machines.")
    report.schedule = _schedule(wanted.schedule, accel)
    spec = describe(artifacts, report, accel).with_device(wanted.device)
    if lost := kinds.lacking(wanted.machine or "", kernel_config(artifacts)):
        raise UsageError(f"--machine {wanted.machine}: this kernel has not {', '.join(lost)}")
    counted = line_coverage.Collector.of(artifacts) if request.coverage else None
    leaving = counted.take if counted is not None else lambda vm: None
    tally, counts = Tally(), Totals()
    usual = machines.On(request, artifacts, spec, dict(report.depends))
    for portion in _portions(wanted, artifacts, spec, accel):
        if tally.findings:
            break
        on = usual
        if portion.variant:
            try:
                on = machines.other_kernel(usual, portion.variant, ui)
            except EnvironmentFailure as error:
                # Hours into a run: what it has found up to here is worth more.
                report.shortfalls.append(f"machine not built: {portion.name}: {error.message}")
                continue
            report.depends["kernel"] |= on.depends["kernel"]
        report.options = options.same(on.request)
        begun, examples = time.monotonic(), tally.examples
        refused = ""
        try:
            refused = machines.run(
                wanted, portion, on, ui, report, leaving, tally, counts, done
            )
        finally:
            report.portions.append({
                "machine": portion.name,
                "kind": accel.value if portion.exact == (accel == EXACT) else THREADS,
                "kernel": depends.kernel_name(on.request), "first": portion.first,
                "examples": tally.examples - examples, "refused": refused,
                "seconds": round(time.monotonic() - begun, 3),
            })  # fmt: skip
        if tally.findings and accel == options.Accel.exact and not portion.exact:
            if not on.request.kernel_variants:
                second_look.look_at_all(
                    tally.findings, on.artifacts, on.spec, portion.machine, wanted.jobs,
                    wanted.out, ui, explainer(on.artifacts, report.options), on.built,
                )  # fmt: skip
            fill(report, tally, counts)
    if not tally.findings:
        report.options = options.same(request)
    if counted is not None:
        moments.take_all(report, artifacts, spec, counted, ui)
    return tally


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
    known = schedules.KINDS if exact else SCHEDULES
    if name not in known:
        raise UsageError(f"--schedule {name} is not for --accel {accel.value}: {', '.join(known)}")
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

