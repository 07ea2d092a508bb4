# SPDX-License-Identifier: GPL-2.0-or-later
"""What `hmmbench run` makes of its options, before and without any machine."""

from __future__ import annotations

import contextlib
import errno
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from fake import device_says
from rich.console import Console

from hmmbench import cli
from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.base.ui import Stage, Ui
from hmmbench.build import Artifacts, NotBuilt, kernel
from hmmbench.campaign import progress
from hmmbench.campaign.line_coverage import Collector
from hmmbench.campaign.portions import DRAWS, THREADS_FIRST
from hmmbench.campaign.runner import UNBOUNDED
from hmmbench.commands import options, run
from hmmbench.commands.options import Accel
from hmmbench.example.totals import Totals
from hmmbench.model.cells import Coverage
from hmmbench.oracle.violation import Violation
from hmmbench.report.filling import conclude, fill
from hmmbench.report.result import Report
from hmmbench.report.tally import Finding, Tally
from hmmbench.suites import doctor, driver_life, moments, selftests
from hmmbench.suites.driver_life import Part
from hmmbench.vm.agent import Agent, AgentError, ExecResult
from hmmbench.vm.errors import AgentTimeout, GuestHangs, QmpFailure, VmDied, VmError

#: What hmm-exact says where its hooks are, and where they are not.
NEEDS = "hmm-exact: needs -accel tcg,thread=single"
WITHOUT = "hmm-exact: this QEMU was built without exact.patch, which"


def qemu(folder: Path, said: str) -> Artifacts:
    """Builds of which nothing but QEMU is there, and it says this."""
    path = folder / "qemu"
    path.write_text(f"#!/bin/sh\necho 'qemu: -device hmm-exact: {said} so' >&2\nexit 1\n")
    path.chmod(0o755)
    return cast(Artifacts, SimpleNamespace(qemu=path))


def ui() -> tuple[Ui, io.StringIO]:
    said = io.StringIO()
    return Ui(Console(file=said, width=200)), said


def test_the_words_are_those_of_the_device() -> None:
    source = (paths.device_sources() / "qemu/hmm-exact.c").read_text()
    assert NEEDS in source
    assert WITHOUT in source


def test_exact_machines_are_the_default(tmp_path: Path) -> None:
    shown, said = ui()
    assert run._accel(None, qemu(tmp_path, NEEDS), shown) == Accel.exact
    assert said.getvalue() == ""


def test_a_qemu_without_the_patch_runs_threads_and_says_so(tmp_path: Path) -> None:
    shown, said = ui()
    assert run._accel(None, qemu(tmp_path, WITHOUT), shown) == Accel.threads
    assert "NO EXACT MACHINES: this QEMU was built without exact.patch" in said.getvalue()
    # Who asked for them is told, and gets nothing else.
    with pytest.raises(UsageError, match="--accel exact: this QEMU was built without"):
        run._accel(Accel.exact, qemu(tmp_path, WITHOUT), shown)


@pytest.mark.parametrize("wanted", [Accel.threads, Accel.kvm])
def test_a_qemu_is_not_asked_where_no_exact_machine_is(wanted: Accel) -> None:
    missing: Any = SimpleNamespace(qemu=Path("/nowhere/qemu"))
    assert run._accel(wanted, missing, ui()[0]) == wanted
    with pytest.raises(UsageError, match="cannot be asked"):
        run._accel(Accel.exact, missing, ui()[0])


def test_a_tenth_is_for_threads() -> None:
    both = run.portions(True, 305, None)
    assert [(one.exact, one.examples, one.limit_s) for one in both] == [
        (True, 275, None), (False, 30, None),
    ]  # fmt: skip
    # Other programs than those before, and none that a run of threads alone has.
    assert (both[0].first, both[1].first) == (0, THREADS_FIRST)
    assert [one.exact for one in run.portions(True, 9, None)] == [True]
    (alone,) = run.portions(False, 305, None)
    assert (alone.exact, alone.examples, alone.first) == (False, 305, 0)


def test_a_tenth_of_the_time_is_for_threads() -> None:
    both = run.portions(True, UNBOUNDED, 600.0)
    assert [(one.exact, one.limit_s) for one in both] == [(True, 540.0), (False, 60.0)]
    assert all(one.examples == UNBOUNDED for one in both)
    (alone,) = run.portions(False, UNBOUNDED, 600.0)
    assert alone.limit_s == 600.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes", "3", "--examples", "5"], "--minutes and --examples contradict"),
        (["--minutes", "3", "--profile", "long"], "--minutes and --profile contradict"),
        (["--minutes", "0"], "0.1"),
        (["--seed", "-3"], "--seed -3: a number from 0 on, or random"),
        (["--seed", "often"], "--seed often: a number from 0 on, or random"),
        (["--seed", ""], "a number from 0 on, or random"),
        (["--machine", "large"], "there is no machine 'large'"),
        (["--machine", "cpus-1+cpus-2"], "two of its kinds are about the same"),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[run._Wanted]:
    """What runs are asked for, which find nothing."""
    asked: list[run._Wanted] = []

    def nothing(wanted: run._Wanted, ui: Ui, report: object, done: list[Any]) -> Tally:
        asked.append(wanted)
        tally = Tally()
        done.append((tally, {}))
        return tally

    monkeypatch.setattr(run, "_run", nothing)
    return asked


def test_a_seed_that_is_drawn_is_in_every_result(
    tmp_path: Path, wanted: list[run._Wanted], capsys: pytest.CaptureFixture[str]
) -> None:
    """So that the same run can be had once more."""
    words = ["run", "--seed", "random", "--out", str(tmp_path)]
    for kind in ("json", "junit", "ktap"):
        words += [f"--{kind}", str(tmp_path / kind)]
    assert cli.main(words) == 0
    seed = wanted[0].seed
    err = capsys.readouterr().err
    assert f"seed {seed}\n" in err
    assert json.loads((tmp_path / "json").read_text())["seed"] == seed
    suite = ElementTree.parse(tmp_path / "junit").getroot()
    assert suite.find(f".//property[@name='seed'][@value='{seed}']") is not None
    assert suite.find(f".//testcase[@name='quick seed {seed}']") is not None
    assert f"seed {seed} " in (tmp_path / "ktap").read_text()
    assert f"seed {seed}" in (tmp_path / "report.html").read_text()
    assert cli.main(words) == 0
    assert wanted[1].seed != seed


def test_minutes_bound_a_run(tmp_path: Path, wanted: list[run._Wanted]) -> None:
    result = tmp_path / "json"
    words = ["run", "--out", str(tmp_path), "--json", str(result)]
    assert cli.main([*words, "--minutes", "1.5"]) == 0
    assert (wanted[0].examples, wanted[0].limit_s) == (UNBOUNDED, 90.0)
    data = json.loads(result.read_text())
    assert (data["minutes"], data["profile"]) == (1.5, "1.5 minutes")
    assert cli.main(words) == 0
    assert (wanted[1].examples, wanted[1].limit_s) == (300, None)
    data = json.loads(result.read_text())
    assert (data["minutes"], data["profile"]) == (0, "quick")


def test_machines_are_drawn_unless_one_is_asked_for(
    tmp_path: Path, wanted: list[run._Wanted]
) -> None:
    words = ["run", "--out", str(tmp_path)]
    for more, machine, draw in (
        ([], None, "quick"), (["--profile", "long"], None, "long"),
        (["--minutes", "30"], None, "default"), (["--machine", "usual"], "", None),
        (["--machine", "iommu"], "iommu", None), (["--kernel-variant", "kcsan"], None, None),
        (["--coverage"], None, None), (["--accel", "kvm"], None, None),
        (["--accel", "threads"], None, "quick"),
    ):  # fmt: skip
        assert cli.main([*words, *more]) == 0
        assert wanted[-1].machine == machine
        assert wanted[-1].draw == (DRAWS[draw] if draw else None)
        assert wanted[-1].request.full == (machine == "iommu")


def test_a_kernel_may_be_several_variants(tmp_path: Path, wanted: list[run._Wanted]) -> None:
    words = ["run", "--out", str(tmp_path)]
    for more, variants in (
        (["--kernel-debug"], ("debug",)),
        (["--kernel-variant", "debug-vm", "--kernel-variant", "lockdep"], ("lockdep", "debug-vm")),
        (["--kernel-debug", "--kernel-variant", "debug"], ("debug",)),
    ):
        assert cli.main([*words, *more]) == 0
        assert wanted[-1].request.kernel_variants == variants
        asked = [f"--kernel-variant {one}" for one in variants]
        assert " ".join(options.same(wanted[-1].request)) == " ".join(asked)
    assert tuple(options.Variant) == kernel.SANITISED
    for name in kernel.SANITISED:
        assert kernel.options((kernel.FRAGMENTS / f"{name}.config").read_text())


def test_a_run_of_which_every_machine_was_refused_is_no_pass() -> None:
    report = Report(portions=[{"machine": "swiotlb", "kind": "exact", "examples": 0,
                               "refused": "all DMA goes to copies"}])  # fmt: skip
    conclude(report)
    assert report.verdict == "short"
    assert report.error.startswith("no examples: ")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("zip() argument 2 is shorter"), "it could not be made: ValueError('zip() arg"),
        (OSError(28, "No space left on device"), "report.html: No space left on device"),
    ],
)
def test_a_page_that_cannot_be_made_costs_nothing_else(
    error: Exception, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A violation stays one, and is in every result."""

    def finds(wanted: run._Wanted, ui: Ui, report: Report, done: list[Any]) -> Tally:
        finding = Finding(Violation("values", "wrong"), tmp_path / "r.json", tmp_path, 3, 1.0)
        tally = Tally(findings=[finding])
        fill(report, tally, Totals())
        done.append((tally, {}))
        return tally

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(run, "_run", finds)
    monkeypatch.setattr(run, "write_page", fails)
    words = ["run", "--out", str(tmp_path)]
    for kind in ("json", "junit", "ktap"):
        words += [f"--{kind}", str(tmp_path / kind)]
    assert cli.main(words) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "no report page: " in told
    assert says.replace(" ", "") in told.replace(" ", "")
    said = json.loads((tmp_path / "json").read_text())
    assert (said["verdict"], said["html"], len(said["violations"])) == ("fail", "", 1)
    assert "wrong" in (tmp_path / "junit").read_text()
    assert "not ok" in (tmp_path / "ktap").read_text()


def shown(report: Report) -> str:
    said = io.StringIO()
    report.show(Console(file=said, width=200))
    return said.getvalue()


def test_lost_machines_are_in_the_report() -> None:
    report = Report()
    fill(report, Tally(), Totals(machines=7, lost=2))
    assert (report.machines, report.machines_lost) == (7, 2)
    assert "2 lost of 7" in shown(report)
    assert "lost" not in shown(Report())


@pytest.mark.parametrize(("undecided", "verdict"), [(60, "pass"), (61, "short")])
def test_a_pass_has_judged_what_it_ran(undecided: int, verdict: str) -> None:
    report = Report()
    fill(report, Tally(operations=2000, undecided=undecided), Totals())
    conclude(report)
    assert report.verdict == verdict
    assert run._CODES[verdict] == (0 if verdict == "pass" else 5)
    assert f"{undecided} words" in shown(report)
    assert ("could not be judged" in shown(report)) == (verdict == "short")
    assert report.error == "; ".join(report.shortfalls)


@pytest.mark.parametrize(
    ("audit", "accesses", "checks", "verdict"),
    [
        ("access", 1, 0, "short"), ("fill", 7000, 0, "short"), ("sampled", 7000, 0, "short"),
        ("access", 1, 1, "pass"), ("sampled", 9, 0, "pass"),
        # Nothing was there to be compared.
        ("fill", 0, 0, "pass"),
    ],
)  # fmt: skip
def test_an_audit_that_compared_nothing_is_no_pass(
    audit: str, accesses: int, checks: int, verdict: str
) -> None:
    report = Report(audit=audit)
    fill(report, Tally(gpu_accesses=accesses), Totals(faults=1, audit_checks=checks))
    conclude(report)
    assert report.verdict == verdict
    assert ("no mirror audit: " in shown(report)) == (verdict == "short")
    # A violation is one all the same.
    report.violations.append({"oracle": "values", "message": "wrong", "recipe": ""})
    conclude(report)
    assert report.verdict == "fail"


def test_an_audit_that_decided_nothing_is_no_pass() -> None:
    """The device counts a comparison before it knows whether it can make it."""
    report = Report(audit="access")
    fill(report, Tally(gpu_accesses=9), Totals(audit_checks=9, audit_undecided=9))
    conclude(report)
    assert report.verdict == "short"
    assert report.error.startswith("no mirror audit: the device compared nothing in 9 accesses")


@pytest.mark.parametrize(("undecided", "verdict"), [(60, "pass"), (61, "short")])
def test_an_audit_has_decided_what_it_counts(undecided: int, verdict: str) -> None:
    report = Report(audit="access")
    totals = Totals(faults=1, audit_checks=2000, audit_undecided=undecided)
    fill(report, Tally(gpu_accesses=2000), totals)
    conclude(report)
    assert report.verdict == verdict
    said = f"undecided: {undecided} of 2000 comparisons of the mirror audit could not be made"
    assert report.error == (said if verdict == "short" else "")


def rows(n: int) -> Coverage:
    coverage = Coverage()
    coverage.rows["migrate to VRAM"] = n
    return coverage


@pytest.mark.parametrize(
    ("tally", "totals", "name"),
    [
        (Tally(gpu_accesses=1), Totals(), "mirror oracle off"),
        (Tally(gpu_accesses=9), Totals(unready=3), "mirror oracle not ready"),
        (Tally(), Totals(missing=Counter({"pages_to_device": 2})), "hook missing"),
        (Tally(gpu_accesses=1000), Totals(audit_checks=9), "no faults"),
        (Tally(coverage=rows(20)), Totals(), "no migrations"),
        (Tally(promises=10), Totals(), "no promises"),
        (Tally(censuses=3), Totals(), "leaks not looked for"),
        (Tally(), Totals(unscanned=1, scans=2), "leaks not scanned"),
        (Tally(accounts=10), Totals(), "accounts not compared"),
        (Tally(pages_to_read=10), Totals(), "contents not read"),
    ],
)
def test_a_verdict_needs_evidence(
    tally: Tally, totals: Totals, name: str, tmp_path: Path
) -> None:
    report = Report(audit="off" if name == "mirror oracle off" else "fill")
    totals.audit_checks = 9 if report.audit == "fill" else 0
    fill(report, tally, totals)
    conclude(report)
    assert (report.verdict, run._CODES[report.verdict]) == ("short", 5)
    assert [said.partition(":")[0] for said in report.shortfalls] == [name]
    report.write_json(tmp_path / "json")
    report.write_ktap(tmp_path / "ktap")
    for text in (shown(report), (tmp_path / "json").read_text(), (tmp_path / "ktap").read_text()):
        assert name in text
    said = (tmp_path / "ktap").read_text()
    assert "not ok" in said
    assert "not ok 1 run" not in said
    assert ("mirror # SKIP" in said) == (report.audit == "off")


@pytest.mark.parametrize(
    ("part", "verdict"),
    [
        (Part("reset"), "pass"),
        (Part("reset", "BUG: lists", "kernel", "the whole"), "fail"),
        (Part("reset", "QEMU was ended by signal 9"), "short"),
    ],
)
def test_the_drivers_other_moments_are_judged(part: Part, verdict: str, tmp_path: Path) -> None:
    report = Report()
    for one in (Part("unbind"), part):
        moments.take(report, one)
    conclude(report)
    assert report.verdict == verdict
    report.write_junit(tmp_path / "junit")
    report.write_ktap(tmp_path / "ktap")
    for text in (shown(report), *((tmp_path / n).read_text() for n in ("junit", "ktap"))):
        assert part.what in text


@pytest.mark.parametrize("source", [True, False])
def test_all_moments_are_taken_and_told_of(
    source: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's own tests are not among them where a user's kernel has no source."""

    def build(*_: object) -> Path:
        if not source:
            raise UsageError("no source")
        return Path("tests")

    monkeypatch.setattr(moments, "Opener", contextlib.nullcontext)
    monkeypatch.setattr(moments.hmm_tests, "build", build)
    monkeypatch.setattr(driver_life, "parts", lambda *_: [Part("unbind"), Part("reset", "ended")])
    monkeypatch.setattr(
        driver_life, "kernels_own", lambda *_: Part("hmm-tests", "not ok 7", driver_life.OWN)
    )
    report = Report(examples=3)
    counted = Collector({}, failed=["a machine told nothing"])
    any_of: Any = SimpleNamespace(kernel_source_dir=None)
    moments.take_all(report, any_of, any_of, counted, ui()[0])
    last = "hmm-tests: not ok 7" if source else "hmm-tests: no source"
    told = ["3 examples", "unbind: done", "reset: ended", last, "a machine told nothing"]
    assert report.line_coverage_ran == told
    assert [violation["oracle"] for violation in report.violations] == [driver_life.OWN] * source
    assert report.shortfalls == ["not judged: reset: ended"]


def record(*checks: str) -> str:
    """What the device says of its own checks."""
    return device_says(
        *({"check": check, "address": 0, "asid": 1, "a": 2, "b": 3} for check in checks)
    )


class Life:
    """A machine for a part of the driver's life: what its agent answers, what its kernel has said
    and what its device saw."""

    def __init__(self, answer: VmError | int, said: str = "", seen: str | None = None) -> None:
        self.answer, self.said, self.seen = answer, said, record() if seen is None else seen
        self.asked = False

    agent = console = gpu = property(lambda self: self)

    check = Agent.check

    def execute(self, command: str, timeout: float = 30.0) -> ExecResult:
        self.asked = True
        if isinstance(self.answer, VmError):
            raise self.answer
        return ExecResult(self.answer, "as it says")

    def text(self) -> str:
        return self.said if self.asked else ""

    def violations(self) -> str:
        if self.seen == "":
            raise VmError("it is gone")
        return self.seen

    def qmp(self, command: str, *, path: str, property: str) -> str:
        return self.violations()

    def catch_up(self) -> None:
        """Nothing is under way."""

    def inject(self, rule: str = "") -> None:
        """It does as it is told."""

    def unplug_gpu(self, timeout: float) -> None:
        raise GuestHangs("the guest did not give the device up")

    def write_file(self, path: str, content: bytes, mode: int = 0) -> None:
        """There is room."""


KASAN = "[    1.0] BUG: KASAN: use-after-free in hg_reset+0x1/0x2"

#: What a machine answers, says and saw, and the oracle that this is a violation of.
ENDS: list[tuple[VmError | int, str, str, str]] = [
    (1, "", record(), "life"),
    (1, KASAN, record(), "kernel"),
    (AgentError("it says no"), "", record(), "life"),
    # It does not end, in two ways.
    (-errno.ETIMEDOUT, "", record(), "progress"),
    (AgentTimeout("no answer"), "", record(), "progress"),
    (VmDied("QEMU crashed", exit_status=-11), "", "", "device"),
    (VmDied("QEMU was killed", exit_status=-9), "", "", ""),
    (VmDied("it panicked", panicked=True), "", "", "kernel"),
    # What the kernel had reported by then is there all the same.
    (VmDied("QEMU crashed", exit_status=-11), KASAN, "", "kernel"),
    (VmDied("QEMU was killed", exit_status=-9), KASAN, "", "kernel"),
    # The device's own checks.
    (0, "", record("dma-refused"), "protocol"),
    (1, "", record("dma-refused"), "protocol"),
    (0, KASAN, record("dma-refused"), "kernel"),
]


@pytest.mark.parametrize(
    ("answer", "said", "seen", "oracle"), [(0, "", record(), ""), (0, KASAN, "", "kernel"), *ENDS]
)
def test_what_a_moment_came_to(
    answer: VmError | int, said: str, seen: str, oracle: str
) -> None:
    opener: Any = lambda: Life(answer, said, seen)  # noqa: E731
    part = driver_life._run("reset", lambda vm: None, opener, lambda vm: None, {})
    assert part.oracle == oracle
    assert bool(part.what) == bool(answer or said or "dma" in seen)


def test_a_moment_that_ends_its_machine_is_told_as_any_violation() -> None:
    """A title of one line, and the rest in the details."""
    for error, title in (
        (VmDied("QEMU ended", exit_status=-11, stderr="assert"), "QEMU crashed (SIGSEGV)"),
        (VmDied("it panicked", panicked=True, console="Oops"), "it panicked"),
    ):
        part = driver_life._broken("reset", error)
        assert (part.what, part.details) == (title, error.message)


@pytest.mark.parametrize(
    "error",
    [QmpFailure("device_del", "GenericError", "is busy"), VmDied("killed", exit_status=-9)],
)
def test_an_unplugging_that_could_not_be_asked_for_is_no_hang(
    error: VmError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unplug_gpu(vm: Life, timeout: float) -> None:
        raise error

    monkeypatch.setattr(Life, "unplug_gpu", unplug_gpu)
    opener: Any = lambda: Life(0)  # noqa: E731
    part = driver_life._run("unplug", driver_life._unplug, opener, lambda vm: None, {})
    assert (part.what, part.oracle) == (error.message, "")


@pytest.mark.parametrize(
    ("answer", "said", "seen", "oracle"),
    # Whether their own checks fail is in what they print.
    [end for end in ENDS if end[0] not in (0, 1) and not isinstance(end[0], AgentError)],
)
def test_what_the_kernels_own_tests_came_to(
    answer: VmError | int, said: str, seen: str, oracle: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As a moment: with a machine that was ended from outside nothing was judged."""
    @contextlib.contextmanager
    def machine(spec: object) -> Iterator[Life]:
        yield Life(answer, said, seen)

    monkeypatch.setattr(selftests, "Machine", machine)
    monkeypatch.setattr(selftests, "machine", lambda *_: None)
    (tmp_path / "program").touch()
    spec: Any = None
    part = driver_life.kernels_own(spec, tmp_path / "program", lambda vm: None)
    assert part.oracle == oracle
    assert part.what


def test_moments_after_one_that_could_not_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a device that the guest keeps is a hang."""
    monkeypatch.setattr(driver_life, "build", lambda *_: {})
    opened: list[int] = []

    def opener() -> Life:
        opened.append(1)
        if len(opened) == 2:
            raise VmError("no machine")
        return Life(0, "", record("dma-refused") if len(opened) == 1 else None)

    asked: Any = opener
    parts = driver_life.parts(asked, lambda vm: None)
    assert next(parts).oracle == "protocol"
    assert len(opened) == 1, "it is told before the next one begins"
    rest = list(parts)
    assert (rest[0].what, rest[0].oracle) == ("no machine", "")
    assert {part.name: part.oracle for part in rest if part.oracle} == {"unplug": "progress"}
    assert len(rest) > 5


@pytest.mark.parametrize("found", [True, False])
def test_a_run_that_breaks_off_keeps_what_it_found(
    found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def breaks(wanted: run._Wanted, ui: Ui, report: Report, done: list[Any]) -> Tally:
        done.append((Tally(), {}))
        if found:
            moments.take(report, Part("reset", "BUG: lists", "kernel"))
        raise VmError("no other machine")

    monkeypatch.setattr(run, "_run", breaks)
    out = tmp_path / "json"
    assert cli.main(["run", "--out", str(tmp_path / "out"), "--json", str(out)]) == (
        1 if found else 3
    )
    data = json.loads(out.read_text())
    assert (data["verdict"], data["error"]) == ("fail" if found else "error", "no other machine")
    assert len(data["violations"]) == found
    shown = capsys.readouterr()
    assert "no other machine" in shown.err
    assert ("BUG: lists" in shown.err + shown.out) == found


def test_an_older_run_is_not_mixed_in(tmp_path: Path, wanted: list[run._Wanted]) -> None:
    """Its recipes would be taken for this run's."""
    out = tmp_path / "out"
    words = ["run", "--out", str(out)]
    for number in (1, 2):
        (out / "violation-1").mkdir(parents=True)
        (out / "violation-1" / "recipe.json").write_text(f"{number}")
        (out / "of-the-user").write_text("stays")
        assert cli.main(words) == 0
        assert not (out / "violation-1").exists()
        assert (out / "before" / "violation-1" / "recipe.json").read_text() == f"{number}"
        assert (out / "of-the-user").exists()
    assert sorted(path.name for path in out.iterdir()) == ["before", "of-the-user", "report.html"]


class Shown(Stage):
    """What a stage is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def progress(self, done: int, total: int, text: str = "") -> None:
        self.texts.append(f"{done}/{total} {text}")

    def note(self, text: str) -> None:
        self.texts.append(text)


def test_the_speed_shown_is_that_of_the_machines_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads come second: what was done before them took no time of theirs."""
    now = [100.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tally = Tally(examples=270, operations=9000)
    shown = Shown()
    note = progress.Progress(shown, tally, 300, None)
    now[0] += 2
    tally.examples, tally.operations = 280, 9100
    note(tally, "")
    assert shown.texts == ["280/300 0 GPU accesses, 50 operations/s"]
    bounded = progress.Progress(shown, tally, UNBOUNDED, 60.0)
    now[0] += 10
    tally.operations += 70
    bounded(tally, "")
    assert shown.texts[1:] == ["280 examples, 0 GPU accesses, 7 operations/s, 50 s left"]


@pytest.mark.parametrize(
    ("said", "level", "words"),
    [(NEEDS, "ok", "`run` uses them"), (WITHOUT, "note", "`run` uses machines with threads")],
)
def test_doctor_says_which_machines_run_has(
    said: str, level: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "peek", lambda: qemu(tmp_path, said))
    (found,) = doctor._exact()
    assert (found.level, found.topic) == (level, "exact machines")
    assert words in found.text


def test_doctor_asks_no_qemu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Artifacts:
        raise NotBuilt("not built yet: qemu")

    monkeypatch.setattr(doctor, "peek", nothing)
    assert list(doctor._exact()) == []


def test_the_sanitised_kernel_takes_threads_and_says_why(
    tmp_path: Path, wanted: list[run._Wanted], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--out", str(tmp_path), "--kernel-debug"]
    assert cli.main(words) == 0
    assert "nobody has tried yet" in capsys.readouterr().err
    assert cli.main([*words, "--accel", "exact"]) == 0
    assert "nobody has tried yet" not in capsys.readouterr().err
    assert [one.accel for one in wanted] == [Accel.threads, Accel.exact]
