# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench exact`: do executions of exact machines repeat?"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from hmmbench.base import paths
from hmmbench.base.errors import EXIT_OK, EXIT_VIOLATION, UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, BuildRequest, depends, ensure, normalise
from hmmbench.campaign import fleet
from hmmbench.campaign.generate import version
from hmmbench.campaign.repeat import CPUS, exact_specs, load, repeat
from hmmbench.commands import options
from hmmbench.compare import checkouts, exact
from hmmbench.report.result import check_writable, write_json, write_result
from hmmbench.vm import kinds
from hmmbench.vm.standard import standard_spec


def main(
    examples: Annotated[int, typer.Option(min=1, help="Programs of the campaign.")] = 20,
    times: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="3; with --against 1",
            help="Executions of each; 1 compares nothing, but tells of each program.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of programs and schedules.")] = 1,
    grammar: options.Grammar = None,
    chain: Annotated[
        int, typer.Option(min=1, help="So many programs one after another in one machine.")
    ] = 1,
    cpus: Annotated[
        str, typer.Option(help="CPUs of the machine; of several, the first program draws one.")
    ] = ",".join(map(str, CPUS)),
    machine: options.Machine = "",
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    kernel_source: options.KernelSource = None,
    qemu_source: options.QemuSource = None,
    driver_dir: options.DriverDir = None,
    driver_patch: options.DriverPatch = None,
    busy: Annotated[
        bool,
        typer.Option("--load", help="Keep all CPUs of this host busy and write its disk."),
    ] = False,
    memory: Annotated[
        bool, typer.Option(help="Compare each page of RAM and VRAM, too.")
    ] = True,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=64, show_default="one a CPU", help="Machines.")
    ] = None,
    built: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use these builds: written by `build --json`."),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="DIR",
            help="Compare with another checkout: each runs every program once with its own "
            "Python, on the guest and QEMU of this one.",
        ),
    ] = None,
    verdicts: Annotated[
        bool,
        typer.Option(
            "--verdicts",
            help="With --against: compare verdicts alone; each builds its own guest and QEMU.",
        ),
    ] = False,
    json_file: options.JsonFile = None,
) -> int:
    """Run programs of the campaign several times each, and compare the executions bit by bit.

    Two executions that differ are told apart at the first decision (which CPU, how far, where)
    in which they do; exit status 1 then.

    Example:  ./hmmbench exact --examples 200 --times 5 --load --json exact.json

    After a change of Python:  ./hmmbench exact --against ../hmmbench-before --examples 100
    """
    check_writable(json_file, "--json")
    try:
        wanted = tuple(int(word) for word in cpus.split(","))
    except ValueError:
        wanted = ()
    if not wanted or not set(wanted) <= set(CPUS):
        raise UsageError(f"--cpus {cpus}: any of {', '.join(map(str, CPUS))}, with commas between")
    request = BuildRequest(
        kernel=kernel, kernel_build=kernel_build, kernel_source=kernel_source,
        qemu_source=qemu_source, driver_source=driver_dir,
        driver_patches=tuple(driver_patch or ()), full=built is None and kinds.needs_full(machine),
    )  # fmt: skip
    ui = Ui()
    if built is not None and request != BuildRequest():
        raise UsageError("--built names all builds: no other option may ask for some")
    if verdicts and other is None:
        raise UsageError("--verdicts is a way to --against")
    if other is not None:
        if times is not None or built is not None or busy or machine:
            raise UsageError("--against has no use for --times, --built, --load and --machine")
        words = [
            "--examples", str(examples), "--times", "1", "--seed", str(seed), "--chain", str(chain),
            "--cpus", cpus, "--memory" if memory and not verdicts else "--no-memory",
            *([] if jobs is None else ["--jobs", str(jobs)]),
        ]  # fmt: skip
        return _against(
            checkouts.checkout(other), request, words, verdicts, version(grammar), ui, json_file
        )
    times = times or 3
    grammar = version(grammar)
    artifacts = Artifacts.read(built) if built is not None else ensure(request, ui)
    on = depends.built(request, artifacts)
    specs = {
        n: kinds.made(spec, machine)
        for n, spec in exact_specs(standard_spec(artifacts), wanted).items()
    }
    with ui.stage("virtual machines"):
        points = {n: fleet.exact_points(artifacts, spec) for n, spec in specs.items()}
    total = examples * times
    made = [0, 0]
    with ui.stage("executions") as stage, load(busy):

        def done(equal: int) -> None:
            made[0] += 1
            made[1] += equal
            stage.progress(made[0], total, f"{made[1]} equal")

        begun = time.monotonic()
        found = repeat(
            specs, points, seed=seed, examples=examples, times=times, chain=chain,
            jobs=jobs or fleet.size(20 * examples), memory=memory, done=done, grammar=grammar,
        )  # fmt: skip
    seconds = time.monotonic() - begun
    result = {
        "verdict": "fail" if found.parted else "pass",
        "seed": seed,
        "grammar": grammar,
        "kernel": artifacts.kernel_release,
        **({"machine": machine} if machine else {}),
        "examples": examples,
        "times": times,
        "chain": chain,
        "load": busy,
        "executions": found.executions,
        "equal": found.equal,
        "parted": [
            {"example": part.example, "execution": part.execution,
             "differs": list(part.differs), "where": part.where}
            for part in found.parted
        ],
        "operations": found.operations,
        "virtual_s": round(found.virtual_s, 3),
        "wall_s": round(seconds, 3),
        "violations": found.violations,
        "programs": [asdict(digest) for digest in found.digests],
    }
    if built is None:
        write_result(json_file, "exact", result, on)
    else:
        # What it depends on is not known here: the builds may be another checkout's.
        write_json(json_file, {"command": "exact", **result})
    typer.echo(
        f"{found.equal} of {found.executions} executions equal their program's first,"
        f" in {seconds:.0f} s"
    )
    for part in found.parted[:10]:
        typer.echo(f"{part}")
    for text in found.violations[:10]:
        typer.echo(f"a violation, in each execution of the program: {text}")
    return EXIT_VIOLATION if found.parted else EXIT_OK


def _against(
    folder: Path, request: BuildRequest, words: list[str], verdicts: bool, grammar: int,
    ui: Ui, json_file: Path | None,
) -> int:  # fmt: skip
    asked = exact.check(folder, one_guest=not verdicts, grammar=grammar)
    begun = time.monotonic()
    with TemporaryDirectory(prefix="hmmbench-against-") as scratch:
        if verdicts:
            words += _asked(request)
            what: tuple[str, ...] = (exact.VERDICT,)
        else:
            guest = Path(scratch, "built.json")
            write_json(guest, ensure(request, ui).as_json())
            words += ["--built", str(guest)]
            what = exact.WHAT
        ours, theirs = exact.both(
            folder, [*words, exact.GRAMMAR, str(grammar)], [*words, *asked], ui
        )
    parted = exact.compare(ours, theirs, what)
    # No kind that `sum` adds up: it is about two checkouts.
    write_json(json_file, {
        "command": "exact-against",
        "verdict": "fail" if parted else "pass",
        "this": depends.checkout(paths.project_root()),
        "against": {"folder": str(folder), **depends.checkout(folder)},
        "compared": list(what),
        "executions": len(ours),
        "equal": len(ours) - len(parted),
        "parted": [
            {"example": one.example, "differs": list(one.differs), "verdicts": list(one.verdicts)}
            for one in parted
        ],
        "wall_s": round(time.monotonic() - begun, 3),
    })  # fmt: skip
    typer.echo(
        f"{len(ours) - len(parted)} of {len(ours)} programs are equal in {', '.join(what)}:"
        f" this checkout and {folder}"
    )
    for one in parted[:10]:
        typer.echo(f"{one}")
    return EXIT_VIOLATION if parted else EXIT_OK


def _asked(request: BuildRequest) -> list[str]:
    """The options that ask for these builds, from any folder."""
    patches = tuple(patch.expanduser().resolve() for patch in request.driver_patches)
    request = replace(normalise(request), driver_patches=patches)
    words = options.same(request)
    for name, path in (
        ("--kernel-source", request.kernel_source), ("--qemu-source", request.qemu_source),
    ):  # fmt: skip
        words += [] if path is None else [name, str(path)]
    return words
