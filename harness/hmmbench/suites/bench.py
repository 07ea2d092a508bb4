# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast it is: the driver beside the kernel's own test driver, and the bench itself.

What both drivers can do is measured for both in one virtual machine, in rounds that alternate
(guest-driver/user/agent/bench.c), and given as a ratio: absolute times of an emulated machine say
little, and a busy host slows both.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hmmbench import __version__
from hmmbench.base import host, paths
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, BuildRequest, cache, ensure
from hmmbench.campaign import fleet
from hmmbench.campaign.runner import Campaign
from hmmbench.example.vm_target import VmTarget
from hmmbench.suites import simt_bench
from hmmbench.vm.accel import Accel
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

#: Seconds for one measurement in the guest.
TIMEOUT = 300.0
#: Of the programs that are measured: what any older checkout draws, too.
GRAMMAR = 1


@dataclass(frozen=True)
class Measurement:
    """One request to the agent, and the name its figures get in the report."""

    name: str
    request: dict[str, Any]
    what: str


#: us = microseconds a page (or an event); with _test_hmm_ the kernel's test driver.
MEASUREMENTS = (
    Measurement(
        "bulk_fault", {"measure": "bulk_fault", "pages": 2048, "rounds": 7},
        "GPU reads pages the CPU has written, all faults at once",
    ),
    Measurement(
        "bulk_fault_write", {"measure": "bulk_fault", "pages": 2048, "rounds": 5, "write": 1},
        "the same, GPU writes",
    ),
    Measurement(
        "single_fault", {"measure": "single_fault", "pages": 512, "rounds": 5},
        "one access of the GPU to a page it has not mapped",
    ),
    Measurement(
        "migrate_to_device", {"measure": "migrate_to_device", "pages": 2048, "rounds": 7},
        "pages of 4 KiB to the device",
    ),
    Measurement(
        "migrate_to_device_thp",
        {"measure": "migrate_to_device", "pages": 2048, "rounds": 5, "thp": 1},
        "huge pages to the device",
    ),
    Measurement(
        "cpu_fault_back", {"measure": "cpu_fault_back", "pages": 2048, "rounds": 7},
        "CPU reads pages that are in device memory, in order",
    ),
    Measurement(
        "cpu_fault_back_random",
        {"measure": "cpu_fault_back", "pages": 2048, "rounds": 5, "random": 1},
        "the same, in random order",
    ),
    Measurement(
        "touch_round", {"measure": "touch_round", "pages": 256, "rounds": 5},
        "madvise(DONTNEED), CPU write, device read of one page",
    ),
    Measurement(
        "launch", {"measure": "launch", "pages": 256, "rounds": 3},
        "an empty GPU kernel, submission to wake-up",
    ),
    Measurement(
        "trip_to_engine", {"measure": "trip", "pages": 512, "rounds": 3, "one_way": 1},
        "a thread's register write, to the word that the engine writes",
    ),
    Measurement(
        "trip", {"measure": "trip", "pages": 512, "rounds": 3},
        "the same, and the engine's interrupt to a thread",
    ),
)  # fmt: skip


def drivers(
    spec: MachineSpec, snapshots: Snapshots, ui: Ui, figures: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Every measurement in the guest. Figures are named NAME_us, NAME_test_hmm_us, NAME_ratio.

    NAME_trips_us and NAME_trips_ratio: one of the trips that a GPU cannot do without, made beside
    its events, and the ratio to test_hmm and these; trip_to_thread_us is what the way back takes
    of a trip (docs/guards.md).

    figures -- filled and returned, so that what was measured survives an interrupt
    """
    figures = {} if figures is None else figures
    with ui.stage("drivers") as stage, snapshots.open(_with_test_hmm(spec)) as vm:
        if vm.agent.execute("test -c /dev/hmm_dmirror0").status != 0:
            raise EnvironmentFailure(
                "the guest kernel has no test_hmm module to compare with",
                "It needs CONFIG_TEST_HMM=m; the kernel of ./hmmbench build has it.",
            )
        for number, one in enumerate(MEASUREMENTS):
            stage.progress(number, len(MEASUREMENTS), one.name)
            answer = vm.agent.bench(one.request, TIMEOUT)
            figures.update(_flat(one.name, answer))
            vm.check()
    figures["trip_to_thread_us"] = round(figures["trip_us"] - figures["trip_to_engine_us"], 4)
    return figures


def _with_test_hmm(spec: MachineSpec) -> MachineSpec:
    return replace(spec, cmdline=(*spec.cmdline, "hmmbench.testhmm"))


def _flat(name: str, answer: dict[str, Any]) -> dict[str, float]:
    """The agent's figures under the measurement's name; `ours_` is what needs no mention."""
    found = {}
    for key, value in answer.items():
        if key == "ratio" or key.startswith(("ours_", "test_hmm_", "trips_")):
            found[f"{name}_{key.removeprefix('ours_')}"] = float(value)
    return found


def boot(spec: MachineSpec, ui: Ui, rounds: int = 3) -> dict[str, float]:
    """Seconds from the start of QEMU to the agent's first answer, booting from nothing."""

    def once() -> float:
        with Machine(spec) as vm:
            return vm.ready_s

    return _series("boot", once, rounds, ui)


def restore(spec: MachineSpec, snapshots: Snapshots, ui: Ui, rounds: int = 9) -> dict[str, float]:
    """The same, restoring a snapshot with the driver loaded."""
    snapshots.ensure(spec)

    def once() -> float:
        with snapshots.open(spec) as vm:
            return vm.ready_s

    return _series("restore", once, rounds, ui)


def _series(name: str, once: Callable[[], float], rounds: int, ui: Ui) -> dict[str, float]:
    with ui.stage(name) as stage:
        seen = []
        for number in range(rounds):
            stage.progress(number, rounds)
            seen.append(once())
    return {
        f"{name}_s": round(statistics.median(seen), 4),
        f"{name}_min_s": round(min(seen), 4),
        f"{name}_max_s": round(max(seen), 4),
    }


def operations(
    spec: MachineSpec, snapshots: Snapshots, ui: Ui, examples: int = 200, seed: int = 1
) -> dict[str, float]:
    """Checked operations a second: a campaign as `run` does it, without injection."""
    with (
        ui.stage("operations") as stage,
        TemporaryDirectory(prefix="hmmbench-bench-") as out,
        fleet.fleet(
            spec, fleet.size(examples), Path(out), ui.say, snapshots=snapshots
        ) as targets,
    ):
        campaign = Campaign(
            targets, Path(out), seed=seed, grammar=GRAMMAR, examples=examples,
            injections=(), delays=(),
            note=lambda tally, text: stage.progress(tally.examples, examples, text),
        )  # fmt: skip
        stolen = host.stolen_s()
        tally = campaign.run()
        stolen = host.stolen_s() - stolen
    if tally.findings:
        raise EnvironmentFailure(
            f"the driver fails: {tally.findings[0].violation.message}",
            "A broken driver is not worth measuring: ./hmmbench run says more.",
        )
    return {
        "operations_per_s": round(tally.operations / tally.run_s, 1),
        "operations": tally.operations,
        "operations_stolen": round(stolen / tally.run_s / (os.cpu_count() or 1), 3),
        "operations_jobs": len(targets),
        "operations_examples": tally.examples,
        "operations_gpu_accesses_per_s": round(tally.gpu_accesses / tally.run_s, 1),
    }


def audit(
    spec: MachineSpec, snapshots: Snapshots, ui: Ui, examples: int = 60, rounds: int = 2
) -> dict[str, float]:
    """What the mirror audit costs: checked operations a second without it over those with it.

    The modes take turns with the same examples, each in a fresh machine, so that a busy host
    weighs on all alike; the median of each counts.
    """
    seen: dict[str, list[float]] = {"off": [], "fill": [], "access": []}
    with ui.stage("audit") as stage, TemporaryDirectory(prefix="hmmbench-bench-") as out:
        for n in range(rounds * len(seen)):
            mode = list(seen)[n % len(seen)]
            stage.progress(n, rounds * len(seen), mode)
            with VmTarget(lambda: _entered(snapshots, spec)) as target:
                tally = Campaign(
                    target, Path(out), seed=1, grammar=GRAMMAR, examples=examples,
                    injections=(), delays=(), audit=mode,
                ).run()  # fmt: skip
            if tally.findings:
                raise EnvironmentFailure(
                    f"the driver fails: {tally.findings[0].violation.message}",
                    "A broken driver is not worth measuring: ./hmmbench run says more.",
                )
            if mode != "off" and not target.totals.audit_checks:
                raise EnvironmentFailure("the mirror audit compared nothing", "Has it an IOMMU?")
            seen[mode].append(tally.operations / tally.run_s)
    speed = {mode: statistics.median(values) for mode, values in seen.items()}
    return {f"audit_{mode}_operations_per_s": round(v, 1) for mode, v in speed.items()} | {
        "audit_fill_cost": round(speed["off"] / speed["fill"], 3),
        "audit_access_cost": round(speed["off"] / speed["access"], 3),
    }


def _entered(snapshots: Snapshots, spec: MachineSpec) -> Machine:
    machine = snapshots.machine(spec)
    machine.__enter__()
    return machine


def rebuild(request: BuildRequest, ui: Ui) -> dict[str, float]:
    """Seconds from a changed line of the driver to an initramfs with it.

    A copy of the sources is changed, not the user's. It lies in the cache, so that the build
    folder that belongs to it is the same the next time.
    """
    copy = cache.used(paths.cache_dir("work") / "bench-driver-source")
    shutil.copytree(
        paths.driver_sources(), copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.o*")
    )
    changed = replace(request, driver_source=copy)

    def change_and_build() -> float:
        with (copy / "module/mem/svm.c").open("a") as file:
            file.write(f"/* {time.time_ns()} */\n")
        begun = time.monotonic()
        ensure(changed, ui)
        return time.monotonic() - begun

    # The first may find an empty build folder and compile everything.
    change_and_build()
    seconds = change_and_build()
    return {"driver_rebuild_s": round(seconds, 3)}


class Part(StrEnum):
    """What can be measured by itself."""

    drivers = "drivers"
    boot = "boot"
    restore = "restore"
    operations = "operations"
    audit = "audit"
    rebuild = "rebuild"
    simt = "simt"


@dataclass(frozen=True)
class Subject:
    """What all parts but simt measure: a built driver in a machine."""

    artifacts: Artifacts
    request: BuildRequest
    spec: MachineSpec
    accel: Accel


def everything(
    subject: Subject | None, parts: Collection[Part], qemu_riscv64: Path | None, ui: Ui,
    report: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The figures of these parts, flat, and what they were measured on.

    subject      -- None only if `parts` is simt alone
    qemu_riscv64 -- what simt compares with, if there is one
    report       -- filled and returned: who gives it has what was measured before an interrupt;
                    its "missing" are the parts that were not, or not to their end
    """
    report = {} if report is None else report
    report |= {
        "hmmbench": __version__,
        "host_cpus": os.cpu_count(),
        "host_machine": platform.machine(),
        # Read the figures with it: on a busy host absolute times are too long.
        "host_load": round(os.getloadavg()[0], 2),
        "missing": [part.value for part in Part if part in parts],
    }
    begun, stolen = time.monotonic(), host.stolen_s()
    if subject is not None:
        report |= {
            "kernel": subject.artifacts.kernel_release,
            "qemu": subject.artifacts.versions.get("qemu", ""),
            "accel": subject.accel.name,
        }
    measure = _measurements(subject, qemu_riscv64, ui, report)
    for name in list(report["missing"]):
        report |= measure[Part(name)]()
        report["missing"].remove(name)
        # Likewise, where the host is itself a virtual machine with neighbours.
        whole = (time.monotonic() - begun) * (os.cpu_count() or 1)
        report["host_stolen"] = round((host.stolen_s() - stolen) / whole, 3)
    return report


def _measurements(
    subject: Subject | None, qemu_riscv64: Path | None, ui: Ui, report: dict[str, Any]
) -> dict[Part, Callable[[], dict[str, Any]]]:
    """How each part is measured; those of many measurements fill the report with each."""
    measure: dict[Part, Callable[[], dict[str, Any]]] = {
        Part.simt: lambda: simt_bench.simt(ui, qemu_riscv64, figures=report)
    }
    if subject is None:
        return measure
    snapshots, spec = Snapshots(), subject.spec
    return measure | {
        Part.drivers: lambda: drivers(spec, snapshots, ui, report),
        Part.boot: lambda: boot(spec, ui),
        Part.restore: lambda: restore(spec, snapshots, ui),
        Part.operations: lambda: operations(spec, snapshots, ui),
        Part.audit: lambda: audit(spec, snapshots, ui),
        Part.rebuild: lambda: rebuild(subject.request, ui),
    }
