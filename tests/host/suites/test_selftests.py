# SPDX-License-Identifier: GPL-2.0-or-later
"""What is made of a guest's console: results, times, and whatever went wrong."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from hmmbench import cli
from hmmbench.commands import selftests as command
from hmmbench.commands.selftests import table
from hmmbench.suites import selftests
from hmmbench.suites.selftests import OURS, THEIRS, Run
from hmmbench.vm.errors import VmDied

CONSOLE = """[    1.000000] some driver: hello
[    2.000000] hmm-tests: TAP version 13
[    2.000010] hmm-tests: 1..3
[    2.000020] hmm-tests: # Starting 3 tests from 1 test cases.
[    2.500000] hmm-tests: #  RUN           hmm.private.one ...
[    2.600000] hmm-tests: #            OK  hmm.private.one
[    2.600001] hmm-tests: ok 1 hmm.private.one
[    4.000000] hmm-tests: #  RUN           hmm.private.two ...
[    4.100000] test_hmm: added new 256 MB chunk
[    4.200000] hmm-tests: ok 2 hmm.private.two # SKIP no such thing
[    4.250000] hmm-tests: #  RUN           hmm.private.three ...
[    4.300000] hmm-tests: ok 3 hmm.private.three
[    4.500000] hmm-tests: exit 0
"""
SPLAT = """[    4.260000] ------------[ cut here ]------------
[    4.260001] WARNING: CPU: 0 PID: 12 at mm/memremap.c:158 memunmap_pages+0x1/0x2
[    4.260002] ---[ end trace 0000000000000000 ]---
"""


def read(console: str, driver: str = OURS) -> Run:
    run = Run(driver)
    selftests.read(run, console)
    return run


def test_a_whole_run() -> None:
    run = read(CONSOLE)
    assert [(o.name, o.status, o.seconds) for o in run.outcomes] == [
        ("hmm.private.one", "pass", 1.5),
        ("hmm.private.two", "skip", 0.25),
        ("hmm.private.three", "pass", 0.25),
    ]
    assert (run.seconds, run.trouble, run.bad) == (2.0, "", False)
    assert run.text.startswith("TAP version 13\n1..3\n")
    assert "chunk" not in run.text


def test_what_came_after_the_end_of_the_guest() -> None:
    cut = CONSOLE[: CONSOLE.index("[    4.300000]")]
    run = read(cut)
    assert run.bad
    assert run.trouble == "the program did not end"
    last = run.outcomes[-1]
    assert (last.name, last.status, last.seconds) == ("hmm.private.three", "fail", None)


def test_what_was_reported_before_the_machine_was_lost() -> None:
    """An end from outside makes no failure, and hides none."""
    killed = VmDied("QEMU was ended by signal 9", exit_status=-9)
    cut = CONSOLE[: CONSOLE.index("[    4.300000]")]
    for console, statuses, trouble in (
        (cut, ["pass", "skip"], ""),
        (cut.replace("ok 1", "not ok 1"), ["fail", "skip"], "hmm.private.one failed before"),
        (cut + SPLAT, ["pass", "skip"], "the kernel printed: WARNING"),
        ("", [], ""),
        (SPLAT, [], "the kernel printed: WARNING"),
    ):
        run = Run(OURS)
        selftests.read(run, console, killed)
        assert [o.status for o in run.outcomes] == statuses
        assert run.trouble.startswith(trouble)
        assert bool(run.trouble) == bool(trouble)
    # One that was the device's doing is a failure of what was not reported, too.
    run = Run(OURS)
    selftests.read(run, cut, VmDied("QEMU ended", exit_status=-11))
    assert (run.outcomes[-1].status, run.oracle) == ("fail", "device")


def test_a_splat_is_bad_though_all_tests_passed() -> None:
    run = read(CONSOLE + SPLAT)
    assert run.count("fail") == 0
    assert run.bad
    assert "WARNING" in run.trouble


def test_nothing_tested_is_no_success() -> None:
    assert read(CONSOLE.replace("ok 1", "ok 1 # SKIP").replace("ok 3", "ok 3 # SKIP")).bad
    assert "no test plan" in read("[    2.0] hmm-tests: exit 127\n").trouble
    assert read("").bad


def test_beside_the_other() -> None:
    other = read(CONSOLE.replace("[    4.5", "[    4.75").replace("4.750000", "4.75"), THEIRS)
    ours = read(CONSOLE.replace("ok 2 hmm.private.two # SKIP no such thing", "not ok 2 two"))
    data = selftests.to_json(ours, other, {"kernel": "k"})
    assert (data["passed"], data["failed"], data["skipped"], data["kernel"]) == (2, 1, 0, "k")
    assert data["test_hmm"]["skipped"] == 1
    assert data["tests"][1]["status"] == "fail"
    assert data["tests"][0]["test_hmm"] == "pass"
    # of the tests that passed on both: 1.5 + 0.25 s here, 1.5 + 0.5 s there
    assert data["ratio"] == 0.875
    shown = "\n".join(table(ours, other, "k", "tcg"))
    assert "2 passed, 1 failed, 0 skipped" in shown
    assert "0.88 times" in shown
    assert selftests.to_json(ours, None, {})["ratio"] is None


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is needed for a machine, but no machine."""
    built = SimpleNamespace(kernel_source_dir=None, kernel_release="k")
    monkeypatch.setattr(command, "ensure", lambda *_: built)
    monkeypatch.setattr(command.depends, "built", lambda *_: {})
    monkeypatch.setattr(command.hmm_tests, "build", lambda *_: tmp_path)
    monkeypatch.setattr(command, "best_spec", lambda *_: (None, SimpleNamespace(name="tcg")))


@pytest.mark.usefixtures("builds")
def test_ours_are_judged_though_theirs_could_not_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(spec: object, driver: str, *_: object, **how: object) -> Run:
        if driver == THEIRS:
            raise VmDied("QEMU was ended by signal 9", exit_status=-9)
        return read(CONSOLE.replace("ok 1", "not ok 1"))

    monkeypatch.setattr(selftests, "run", run)
    out = tmp_path / "json"
    assert cli.main(["selftests", "--json", str(out), "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr()
    assert "NOT COMPARED with test_hmm: QEMU was ended by signal 9" in shown.err
    assert "1 passed, 1 failed" in shown.out
    data = json.loads(out.read_text())
    assert (data["failed"], data["test_hmm"], data["ratio"]) == (1, None, None)


@pytest.mark.usefixtures("builds")
def test_an_older_runs_evidence_is_not_mixed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run leaves what failed in it, file by file."""
    old = tmp_path / THEIRS / "trace.log"
    old.parent.mkdir()
    old.touch()

    def run(spec: object, driver: str, program: Path, keep: Path, **how: object) -> Run:
        assert not keep.exists()
        keep.mkdir()
        return read(CONSOLE, driver)

    monkeypatch.setattr(selftests, "run", run)
    (tmp_path / "of-the-user").touch()
    assert cli.main(["selftests", "--out", str(tmp_path)]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted([OURS, THEIRS, "before", "of-the-user"])
    assert (tmp_path / "before" / THEIRS / "trace.log").exists()
    assert f"what an earlier run left in {tmp_path}" in " ".join(capsys.readouterr().err.split())
