# SPDX-License-Identifier: GPL-2.0-or-later
"""Running mutants: does the bench see the fault in each of these drivers?

A mutant is killed when an oracle finds a violation; that QEMU dies is no kill (target.py), it is
an error of the row.  An oracle that cries wolf would kill everything: so the recipe of each kill is
executed with the unpatched driver, which has to survive it, and that driver is run as a control.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hmmbench.base.errors import HmmbenchError, UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import (
    Artifacts,
    BuildRequest,
    cache,
    depends,
    ensure,
    hmm_tests,
    kernel,
    kernel_config,
)
from hmmbench.build.context import Context
from hmmbench.campaign import fleet
from hmmbench.campaign.explore import Explorer
from hmmbench.campaign.fresh import Fresh
from hmmbench.campaign.generate import newest
from hmmbench.campaign.portions import Draw, Portion, drawn
from hmmbench.campaign.replay import replay
from hmmbench.campaign.runner import CHAIN, UNBOUNDED, Campaign
from hmmbench.campaign.surroundings import injections
from hmmbench.example import holds
from hmmbench.example.recipe import Recipe
from hmmbench.example.schedules import Points
from hmmbench.example.vm_target import VmTarget
from hmmbench.mutation.mutants import Mutant, variants_of
from hmmbench.oracle.violation import Violation
from hmmbench.report.folder import own
from hmmbench.report.tally import EXACT, THREADS, Tally
from hmmbench.suites import selftests
from hmmbench.vm import kinds
from hmmbench.vm.errors import VmDied
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

KILLED, EQUIVALENT, ALIVE, ERROR = "killed", "equivalent", "alive", "error"

#: What the controls' rows are called, with the machine's words after it.
SOUND = "sound"

#: What the kernel's hmm-tests said of a mutant.
NOT_RUN = "not run"
#: Seconds for them: a test that waits for what never comes ends after 30.
HMM_TESTS_S = 400.0

#: A mutant with a proof is run for so long (seconds), to see that the proof does not lie.
EQUIVALENT_S = 30.0

#: The part of a mutant's time that the other machines share, where some are drawn.
DRAWN = 0.3

#: Examples of the control at least.
CONTROL_MIN = 200
#: The same in the sanitised kernel, which takes many times as long.
CONTROL_MIN_DEBUG = 40

#: And so many times as long it may take there to make a recipe small.
DEBUG_SHRINK = 3


@dataclass
class Row:
    """What became of one mutant, as in the JSON.

    seconds   -- from the first example to the first violation, or to the end if there was none
    cpu_s     -- of bench and machine in that time, CPU seconds
    machines  -- exact or threads
    shrink_s  -- spent on making the recipe small
    rate      -- failures an execution of the recipe (0: not seen again)
    declared  -- its patch carries a proof that it is equivalent
    hmm_tests -- whether the kernel's own tests kill it: killed, alive, error or not run
    patch     -- hash of its patch, and `kernel` what it ran in (depends.py): a row is as old as
                 these
    false_alarm -- the sound driver failed its recipe, too: that is no kill
    seed, feedback -- of How
    """

    name: str
    bug_class: str
    declared: bool = False
    status: str = ERROR
    oracle: str = ""
    message: str = ""
    examples: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    machines: str = THREADS
    shrink_s: float = 0.0
    operations: int = 0
    rate: float = 0.0
    recipe: str = ""
    hmm_tests: str = NOT_RUN
    patch: str = ""
    kernel: dict[str, str] = field(default_factory=dict)
    false_alarm: bool = False
    seed: int = 0
    feedback: bool = False

    @property
    def lived(self) -> bool:
        """It was looked at to the end, and nothing was found."""
        return self.status in (ALIVE, EQUIVALENT)

    @property
    def wrong(self) -> bool:
        """The bench's failure: not seen, a proof that does not hold, the sound driver accused."""
        proof_lies = self.declared and self.status == KILLED
        return self.status == ALIVE or proof_lies or self.false_alarm

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["class"] = data.pop("bug_class")
        return data

    @staticmethod
    def from_json(data: dict[str, Any]) -> Row:
        values = dict(data)
        values["bug_class"] = values.pop("class")
        return Row(**values)


@dataclass(frozen=True)
class How:
    """How the drivers are run.

    shrink_s -- for making a recipe small
    delays   -- the driver's own delay points are used (widened races)
    exact    -- in exact machines, else in machines with threads
    machine  -- another than the usual one (vm/kinds.py)
    draw     -- so many other machines have a part of the time, if none is asked for
    full     -- of these may be what takes the full configuration
    machines -- that make a failure of an exact machine small; the first of them finds it, so that
                what is found, and when, does not depend on how many there are
    feedback -- examples are drawn out of those that reached something new; exact machines alone
    examples -- at most, for a mutant (None: the time alone counts)
    """

    seed: int
    limit_s: float
    shrink_s: float
    delays: bool = True
    exact: bool = False
    machines: int = 1
    machine: str = ""
    draw: int = 0
    full: bool = False
    feedback: bool = False
    examples: int | None = None


@dataclass
class Result:
    """A whole run.  `controls`: the sound driver's rows, one a machine; none if not asked for."""

    seed: int
    limit_s: float
    #: depends.of(); the kernels are added from the rows
    depends: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    controls: list[Row] = field(default_factory=list)

    def having(self, status: str) -> list[Row]:
        return [r for r in self.rows if r.status == status]

    @property
    def false_alarm(self) -> bool:
        return any(r.status == KILLED for r in self.controls)

    def depending(self) -> dict[str, Any]:
        """What the rows depend on together."""
        kernels = {n: k for r in [*self.rows, *self.controls] for n, k in r.kernel.items()}
        return self.depends | {"kernel": kernels}

    @property
    def verdict(self) -> str:
        rows = [*self.rows, *self.controls]
        if any(r.wrong for r in self.rows) or self.false_alarm:
            return "fail"
        return ERROR if any(r.status == ERROR for r in rows) else "pass"

    def to_json(self) -> dict[str, Any]:
        killed = self.having(KILLED)
        return {
            "verdict": self.verdict,
            "seed": self.seed,
            "limit_s": self.limit_s,
            "mutants": [r.to_json() for r in self.rows],
            "sound": [r.to_json() for r in self.controls],
            "summary": {
                **{s: len(self.having(s)) for s in (KILLED, EQUIVALENT, ALIVE, ERROR)},
                "median_s": _median([r.seconds for r in killed]),
                "median_cpu_s": _median([r.cpu_s for r in killed]),
                "cpu_s": round(sum(r.cpu_s for r in self.rows), 1),
                "slowest_s": max((r.seconds for r in killed), default=None),
                "median_examples": _median([r.examples for r in killed]),
                "recipes_of_10_or_less": sum(0 < r.operations <= 10 for r in killed),
                "hmm_tests_killed": sum(r.hmm_tests == KILLED for r in self.rows),
                "hmm_tests_alive": sum(r.hmm_tests == ALIVE for r in self.rows),
            },
        }


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


#: Called now and then with examples so far, seconds since the first and a text.
Note = Callable[[Tally, str], None]


def run_one(mutant: Mutant, ui: Ui, out: Path, how: How) -> Row:
    """Build, run and judge one mutant.  An environment that fails becomes the row's error."""
    row = Row(
        mutant.name, mutant.bug_class, declared=bool(mutant.proof),
        patch=cache.file_digest(mutant.path), seed=how.seed,
    )  # fmt: skip
    how = replace(how, machine=mutant.machine or how.machine)
    most = how.examples or UNBOUNDED
    seconds = min(how.limit_s, EQUIVALENT_S) if mutant.proof else how.limit_s
    silent = EQUIVALENT if mutant.proof else ALIVE
    if mutant.debug:
        how = replace(how, shrink_s=DEBUG_SHRINK * how.shrink_s)
    try:
        with own(out / row.name):
            _fill(row, mutant.request(), mutant.device, ui, out, how, most, seconds, silent)
            if row.status == KILLED and row.recipe:
                _confirm(row, mutant, ui, out, how)
    except UsageError as error:
        # Something in the way of this row's folder is no reason to end the others.
        row.message = error.message
    return row


def _confirm(row: Row, mutant: Mutant, ui: Ui, out: Path, how: How) -> None:
    """Whether a kill is one: the sound driver, in the same kernel and with the same device, has to
    survive its recipe."""
    try:
        recipe = Recipe.read(Path(row.recipe))
        how = replace(how, exact=row.machines == EXACT, machines=1, machine=recipe.machine)
        request = mutant.sound()
        request = replace(request, full=request.full or kinds.needs_full(recipe.machine))
        artifacts, spec = _built(request, mutant.device)
        with (
            ui.stage(f"{row.name}: the sound driver"),
            _machine(artifacts, spec, how, out / row.name, ui) as ((target, *_), points),
        ):
            if _refused(target, how):
                return
            if points is not None:
                recipe, _lost = holds.here(recipe, points.table)
            again = replay(Fresh(target, recipe.chain) if how.exact else target, recipe, 1)
            if not again.found:
                return
    except HmmbenchError as error:
        if not (isinstance(error, VmDied) and error.panicked):
            row.status = ERROR
            row.message = f"the sound driver could not be tried: {error.message}"
            return
    row.status, row.false_alarm = ERROR, True
    row.message = f"the sound driver fails too: {row.recipe}"


def _built(request: BuildRequest, device: str) -> tuple[Artifacts, MachineSpec]:
    artifacts = ensure(request, Ui(quiet=True))
    spec, _ = best_spec(artifacts)
    return artifacts, spec.with_device(device)


def run_hmm_tests(row: Row, mutant: Mutant, ui: Ui) -> None:
    """The kernel's own tests on a mutant.

    Judged by what they and the kernel's log say: what the devices see is this bench's, and is
    left out.  For coherent memory they have nodes of their own.
    """
    row.hmm_tests = ERROR
    try:
        artifacts = ensure(mutant.request(), Ui(quiet=True))
        program = hmm_tests.build(Context(Ui(quiet=True)), artifacts.kernel_source_dir)
        spec, _ = best_spec(artifacts)
        with ui.stage(f"{row.name}: hmm-tests"):
            found = selftests.run(
                kinds.made(spec, mutant.machine), selftests.OURS, program, timeout=HMM_TESTS_S,
                audit="off", ask=False,
            )
    except VmDied as error:
        row.hmm_tests = KILLED if error.panicked else ERROR
    except HmmbenchError as error:
        row.message = row.message or error.message
    else:
        # That QEMU dies is no kill, here as in status_of().
        if found.oracle == "device":
            row.message = row.message or found.trouble
        else:
            row.hmm_tests = KILLED if found.bad else ALIVE


def run_sound(
    ui: Ui, out: Path, how: How, *, examples: int, kernel: str = "lts", full: bool = False,
    variant: str = "", device: str = "", machine: str = "",
) -> Row:  # fmt: skip
    """The control: the driver without a patch, for so many examples."""
    name = SOUND + "-latest" * (kernel == "latest") + "-full" * full
    name += "".join(f"-{word}" for word in (device, variant, machine) if word)
    row = Row(name, "no fault")
    least = CONTROL_MIN_DEBUG if variant else CONTROL_MIN
    request = BuildRequest(
        kernel=kernel, kernel_variants=variants_of(variant),
        full=full or kinds.needs_full(machine),
    )  # fmt: skip
    how = replace(how, machine=machine)
    try:
        with own(out / row.name):
            _fill(row, request, device, ui, out, how, max(examples, least), None, SOUND)
    except UsageError as error:
        row.message = error.message
    return row


def _fill(
    row: Row, request: BuildRequest, device: str, ui: Ui, out: Path, how: How, examples: int,
    limit_s: float | None, silent: str,
) -> None:  # fmt: skip
    # The sanitised kernel runs with threads, as in `run`.
    how = replace(how, exact=how.exact and not request.kernel_variants)
    row.machines = EXACT if how.exact else THREADS
    row.feedback = how.feedback and how.exact
    tally = Tally()
    ends: list[Violation] = []
    try:
        for portion in _portions(request, device, how, limit_s):
            left = examples - tally.examples
            if not tally.findings and left > 0:
                ends += _campaign(
                    row, request, device, ui, out / row.name, how, left, portion, tally
                )
    except VmDied as error:
        # A driver that brings the kernel down while the machine boots was seen, too.
        row.message = error.message
        if error.panicked:
            row.status, row.oracle, row.message = KILLED, "kernel", error.summary
        return
    except HmmbenchError as error:
        row.message = error.message
        return
    row.examples = tally.found_examples or tally.examples
    row.seconds = round(tally.found_s or tally.run_s, 3)
    row.cpu_s = round(tally.found_cpu_s or tally.cpu_s, 3)
    row.status = silent
    if silent == SOUND and not row.examples:
        row.message = "no examples: the driver refuses the device there"
    finding = tally.finding
    if finding is None:
        # What a machine died of when nothing ran in it.
        for end in ends[:1]:
            row.status, row.oracle, row.message = status_of(end), end.oracle, end.message
    else:
        row.status = status_of(finding.violation)
        row.oracle, row.message = finding.violation.oracle, finding.violation.message
        row.shrink_s, row.rate = round(tally.shrunk_s, 3), round(finding.rate, 3)
        row.operations, row.recipe = finding.operations, str(finding.recipe)


def _portions(
    request: BuildRequest, device: str, how: How, limit_s: float | None
) -> list[Portion]:
    """The usual machine, or that which was asked for; then those that are drawn, if any are."""
    usual = Portion(how.exact, UNBOUNDED, limit_s, machine=how.machine)
    if not how.draw or limit_s is None or how.machine:
        return [usual]
    artifacts, spec = _built(request, device)
    others = drawn(
        Draw(how.draw, 1, build=how.full), how.seed,
        fleet.exact_machine(spec) if how.exact else spec, kernel_config(artifacts),
        kernel.read_config(kernel.FRAGMENTS / "full.config"),
    )  # fmt: skip
    each = DRAWN * limit_s / max(1, len(others))
    usual = replace(usual, limit_s=limit_s - each * len(others))
    return [usual, *(replace(one, limit_s=each) for one in others)]


def _campaign(
    row: Row, request: BuildRequest, device: str, ui: Ui, folder: Path, how: How, examples: int,
    portion: Portion, tally: Tally,
) -> list[Violation]:  # fmt: skip
    """Run examples on a machine; what machines died of in which nothing ran."""
    how = replace(how, machine=portion.machine)
    request = replace(request, full=request.full or kinds.needs_full(portion.machine))
    artifacts, spec = _built(request, device)
    made = fleet.exact_machine(spec, how.machine) if how.exact else kinds.made(spec, how.machine)
    row.kernel = row.kernel | depends.kernel(replace(request, kernel_patches=()), artifacts)
    with ui.stage(row.name) as stage, _machine(artifacts, spec, how, folder, ui) as (
        (target, *spare), points,
    ):  # fmt: skip
        if _refused(target, how):
            return []
        shown = examples if portion.limit_s is None else 0

        def note(tally: Tally, text: str) -> None:
            if text or tally.examples % 10 == 0:
                stage.progress(tally.examples, shown, text or f"{tally.examples} examples")

        # As in `run`, of the machine that was asked for.
        explored = how.feedback and how.exact and portion.first == 0
        Campaign(
            target, folder, seed=how.seed, examples=examples, limit_s=portion.limit_s,
            kernel=artifacts.kernel_release,
            delays=target.delay_points() if how.delays else (),
            shrink_s=how.shrink_s, note=note, audit="access", device=device, exact=points,
            cpus=made.cpus if how.exact else 0, spare=spare, machine=how.machine,
            injections=injections(made), first=portion.first, tally=tally,
            explorer=Explorer(how.seed, newest(), size=CHAIN) if explored else None,
        ).run()  # fmt: skip
        for one in (target, *spare):
            one.close()
        return fleet.totals((target, *spare)).ends


def _refused(target: VmTarget, how: How) -> bool:
    """Whether the driver does not take the device on a machine where it need not."""
    return kinds.may_be_refused(how.machine) and not target.has_driver()


def status_of(violation: Violation) -> str:
    """What a finding makes of a mutant: that QEMU dies is the device's fault, and no kill."""
    return ERROR if violation.oracle == "device" else KILLED


@contextmanager
def _machine(
    artifacts: Artifacts, spec: MachineSpec, how: How, out: Path, ui: Ui
) -> Iterator[tuple[Sequence[VmTarget], Points | None]]:
    if how.exact:
        with fleet.exact_fleet(
            artifacts, spec, how.machines, out, ui.say, machine=how.machine, look=how.feedback
        ) as (targets, points):
            yield targets, points
    else:
        with fleet.fleet(kinds.made(spec, how.machine), 1, out, ui.say) as targets:
            yield targets, None
