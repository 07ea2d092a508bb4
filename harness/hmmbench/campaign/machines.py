# SPDX-License-Identifier: GPL-2.0-or-later
"""Running a portion of a run's examples (portions.py) on the machines that it is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, BuildRequest, depends, ensure
from hmmbench.campaign import fleet
from hmmbench.campaign.explore import Explorer, Feedback
from hmmbench.campaign.portions import Portion
from hmmbench.campaign.progress import Progress
from hmmbench.campaign.runner import CHAIN, Campaign
from hmmbench.campaign.surroundings import injections
from hmmbench.device import injection
from hmmbench.example import schedules
from hmmbench.example.delays import SCHEDULES
from hmmbench.example.recipe import BUILT
from hmmbench.example.totals import Totals
from hmmbench.example.vm_target import VmTarget
from hmmbench.report.filling import fill
from hmmbench.report.result import Report
from hmmbench.report.tally import Tally
from hmmbench.symbols.source import explainer
from hmmbench.vm import kinds
from hmmbench.vm.errors import VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import standard_spec


@dataclass(frozen=True)
class Asked:
    """Of a whole run: `jobs` machines at the same time, `examples` in all its portions; `inject`:
    as injection.chosen() has it, None: the device behaves; `device`: one of DEVICES;
    `feedback`: of the machine that was asked for (None: there is none)."""

    out: Path
    seed: int
    grammar: int
    examples: int
    jobs: int
    inject: str | None
    delays: bool
    device: str
    feedback: Feedback | None


@dataclass(frozen=True)
class On:
    """What a portion runs on: the usual machine of these builds."""

    request: BuildRequest
    artifacts: Artifacts
    spec: MachineSpec
    depends: dict[str, Any]

    @property
    def built(self) -> dict[str, str]:
        return depends.parts(self.depends, BUILT)


def other_kernel(on: On, variant: tuple[str, ...], ui: Ui) -> On:
    request = replace(
        on.request, full=on.request.full or "full" in variant,
        kernel_variants=tuple(name for name in variant if name != "full"),
    )  # fmt: skip
    artifacts = ensure(request, ui)
    spec = replace(standard_spec(artifacts), accel=on.spec.accel, gpu=on.spec.gpu)
    return On(
        request, artifacts, spec, on.depends | {"kernel": depends.kernel(request, artifacts)}
    )


def run(
    asked: Asked, portion: Portion, on: On, ui: Ui, report: Report,
    leaving: Callable[[Machine], None], tally: Tally, counts: Totals,
    done: list[tuple[Tally, Counter[str]]],
) -> str:  # fmt: skip
    """Run a portion; why there was nothing to run, if the driver may and did refuse it."""
    explain = explainer(on.artifacts, report.options)
    spec = kinds.made(on.spec, portion.machine)
    # Other machines reach other things: a corpus is of the one that was asked for.
    feedback = asked.feedback if portion.exact and portion.first == 0 else None
    with ExitStack() as stack:
        targets: list[VmTarget] = []

        def over() -> None:
            for target in targets:
                target.close()
            nonlocal counts
            counts += fleet.totals(targets)
            fill(report, tally, counts)

        points = None
        other = "" if portion.name == kinds.USUAL else f" ({portion.name})"
        with ui.stage(f"virtual machine{other}"):
            if portion.exact:
                spec = fleet.exact_machine(on.spec, portion.machine)
                found, points = stack.enter_context(
                    fleet.exact_fleet(
                        on.artifacts, on.spec, asked.jobs, asked.out, ui.say, leaving,
                        explain=explain, aimed=report.schedule in schedules.AIMED,
                        machine=portion.machine, look=feedback is not None,
                    )
                )
                targets += found
            else:
                targets = stack.enter_context(
                    fleet.fleet(spec, asked.jobs, asked.out, ui.say, leaving, explain=explain)
                )
            report.jobs = len(targets)
            try:
                if kinds.may_be_refused(portion.machine) and not targets[0].has_driver():
                    over()
                    return kinds.words(portion.machine)
                delay_points = targets[0].delay_points() if asked.delays else []
                rules = injection.chosen(asked.inject, targets[0].watches())
            except VmError:
                # That may be a finding.
                over()
                raise
        explorer = None
        if feedback is not None:
            explorer = Explorer(
                asked.seed, asked.grammar, feedback.kept, machines=len(targets), size=CHAIN
            )
        with ui.stage("examples") as stage:
            campaign = Campaign(
                targets, asked.out, seed=asked.seed, grammar=asked.grammar,
                examples=portion.examples,
                kernel=on.artifacts.kernel_release, delays=delay_points,
                injections=injections(spec, rules),
                note=Progress(stage, tally, asked.examples, portion.limit_s),
                audit=report.audit, limit_s=portion.limit_s,
                schedule=report.schedule if report.schedule in SCHEDULES else "delay-random",
                kind=report.schedule, exact=points,
                cpus=spec.cpus if portion.exact else 0, first=portion.first,
                tally=tally, built=on.built if portion.exact else None, machine=portion.machine,
                device=asked.device, explorer=explorer,
            )  # fmt: skip
            try:
                campaign.run()
            finally:
                # Counts first: a corpus may wait for other runs', and a second interrupt ends that.
                over()
                if explorer is not None and feedback is not None:
                    report.exploration = explorer.end(feedback.folder, ui.say)
                report.interleavings = (
                    campaign.schedule.coverage() or campaign.meetings.coverage()
                    or report.interleavings
                )  # fmt: skip
                done[:] = [(tally, counts.counts)]
    return ""
