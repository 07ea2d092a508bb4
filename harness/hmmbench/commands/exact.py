# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench exact`: do executions of exact machines repeat?"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hmmbench import depends, fleet
from hmmbench.build import BuildRequest, ensure
from hmmbench.commands import options
from hmmbench.errors import EXIT_OK, EXIT_VIOLATION, UsageError
from hmmbench.repeat import CPUS, exact_specs, load, repeat
from hmmbench.report import check_writable, write_result
from hmmbench.ui import Ui
from hmmbench.vm.standard import standard_spec


def main(
    examples: Annotated[int, typer.Option(min=1, help="Programs of the campaign.")] = 20,
    times: Annotated[int, typer.Option(min=2, help="Executions of each.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of programs and schedules.")] = 1,
    chain: Annotated[
        int, typer.Option(min=1, help="So many programs one after another in one machine.")
    ] = 1,
    cpus: Annotated[
        str, typer.Option(help="CPUs of the machine; of several, the first program draws one.")
    ] = ",".join(map(str, CPUS)),
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
    json_file: options.JsonFile = None,
) -> int:
    """Run programs of the campaign several times each, and compare the executions bit by bit.

    Two executions that differ are told apart at the first decision (which CPU, how far, where)
    in which they do; exit status 1 then.

    Example:  ./hmmbench exact --examples 200 --times 5 --load --json exact.json
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
        driver_patches=tuple(driver_patch or ()),
    )  # fmt: skip
    ui = Ui()
    artifacts = ensure(request, ui)
    on = depends.built(request, artifacts)
    specs = exact_specs(standard_spec(artifacts), wanted)
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
            jobs=jobs or fleet.size(20 * examples), memory=memory, done=done,
        )  # fmt: skip
    seconds = time.monotonic() - begun
    write_result(json_file, "exact", {
        "verdict": "fail" if found.parted else "pass",
        "seed": seed,
        "kernel": artifacts.kernel_release,
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
        "digest": found.digest,
    }, on)  # fmt: skip
    typer.echo(
        f"{found.equal} of {found.executions} executions equal their program's first,"
        f" in {seconds:.0f} s"
    )
    for part in found.parted[:10]:
        typer.echo(f"{part}")
    for text in found.violations[:10]:
        typer.echo(f"a violation, in each execution of the program: {text}")
    return EXIT_VIOLATION if found.parted else EXIT_OK
