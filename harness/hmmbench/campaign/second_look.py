# SPDX-License-Identifier: GPL-2.0-or-later
"""What machines with threads have found, looked for in exact machines.

The same program and surroundings run there under other and other schedules, within a budget.  An
exact machine that shows it gives a recipe that repeats, and a smaller one; what none shows in that
time may need real parallelism, or be rare.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hmmbench.base.errors import HmmbenchError
from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts
from hmmbench.campaign import fleet
from hmmbench.campaign.runner import UNBOUNDED, Campaign
from hmmbench.example.recipe import Link, Recipe
from hmmbench.example.schedules import Points
from hmmbench.example.target import Target
from hmmbench.report.tally import EXACT, Finding, Tally
from hmmbench.vm import decisions
from hmmbench.vm.spec import MachineSpec

#: Seconds for all findings of a run, and for making what is found small.
LOOK_S = 60.0
SHRINK_S = 60.0

#: The recipe of the machines with threads, beside the exact one.
THREADS_RECIPE = "threads.json"


def look(
    finding: Finding, targets: Sequence[Target], points: Points, *, cpus: int,
    limit_s: float = LOOK_S, shrink_s: float = SHRINK_S, built: Mapping[str, str] | None = None,
    note: Callable[[Tally, str], None] = lambda tally, text: None,
) -> None:  # fmt: skip
    """Make the finding an exact machine's, if one shows a violation within `limit_s`.

    Both the small program and the whole one are run: what is left of a rare race may be too small
    to meet it by chance.  Raises HmmbenchError if the machines fail; the finding is as it was.
    """
    small = Recipe.read(finding.recipe)
    whole = Recipe.read(finding.folder / "original.json")
    given = [Link(one.program, one.environment) for one in (small, whole)]
    tally = Campaign(
        targets, finding.folder / "exact", seed=small.seed, examples=UNBOUNDED,
        kernel=small.kernel, limit_s=limit_s, shrink_s=shrink_s, device=small.device,
        exact=points, cpus=cpus, machine=small.machine,
        given=given[: 1 if given[0] == given[1] else 2], note=note, built=built,
    ).run()  # fmt: skip
    finding.looked_for += tally.examples
    found = tally.finding
    if found is None or not found.rate:
        return
    shutil.copyfile(finding.recipe, finding.folder / THREADS_RECIPE)
    shutil.copyfile(found.recipe, finding.recipe)
    log = found.recipe.with_name(decisions.KEPT)
    if log.exists():
        shutil.copyfile(log, finding.recipe.with_name(decisions.KEPT))
    finding.shown_by = (*finding.shown_by, EXACT)
    finding.violation, finding.operations = found.violation, found.operations
    finding.rate, finding.portrait = found.rate, found.portrait


def look_at_all(
    findings: Sequence[Finding], artifacts: Artifacts, spec: MachineSpec, machine: str, jobs: int,
    out: Path, ui: Ui, explain: Callable[[str], str], built: Mapping[str, str],
) -> None:  # fmt: skip
    """Of a run's portion with threads, on exact machines of its kind; one that fails costs nothing
    that was found."""
    try:
        with (
            ui.stage("the same in exact machines") as stage,
            fleet.exact_fleet(
                artifacts, spec, jobs, out, ui.say, explain=explain, machine=machine
            ) as (targets, points),
        ):
            for finding in findings:
                look(
                    finding, targets, points, cpus=fleet.exact_machine(spec, machine).cpus,
                    limit_s=LOOK_S / len(findings), built=built,
                    note=lambda tally, text: stage.note(text or f"{tally.examples} executions"),
                )  # fmt: skip
    except HmmbenchError as error:
        ui.say(f"exact machines could not look for what threads have found: {error.message}")
