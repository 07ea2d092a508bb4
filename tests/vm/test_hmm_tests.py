# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own HMM tests on this driver: they pass, and they see a driver that is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, BuildRequest, ensure, hmm_tests
from hmmbench.build.context import Context
from hmmbench.suites import selftests
from hmmbench.suites.selftests import OURS, THEIRS, Run
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import standard_spec

MUTANTS = Path(__file__).parent.parent / "mutants"


@pytest.fixture(scope="module")
def program(artifacts: Artifacts) -> Path:
    if artifacts.kernel_source_dir is None:
        pytest.skip("the kernel was given without its source")
    return hmm_tests.build(Context(Ui(quiet=True)), artifacts.kernel_source_dir)


def fake(tmp_path: Path, body: str) -> Path:
    """A program that only says it were hmm-tests."""
    path = tmp_path / "hmm-tests"
    path.write_text(f"#!/bin/sh\necho TAP version 13\necho 1..2\n{body}\n")
    return path


def words(run: Run) -> str:
    return f"{run.trouble}\n{run.text}"


def test_all_variants_pass(spec: MachineSpec, program: Path) -> None:
    run = selftests.run(spec, OURS, program)
    assert not run.bad, words(run)
    for kind in ("private", "coherent"):
        assert len([o for o in run.outcomes if f"_device_{kind}." in o.name]) >= 29, words(run)
    assert run.count("skip") == 0, words(run)
    assert run.audit_checks > 10000
    assert all(o.seconds is not None and o.seconds >= 0 for o in run.outcomes)


def test_beside_test_hmm(spec: MachineSpec, program: Path) -> None:
    chosen = "-t anon_read -t exclusive"
    ours = selftests.run(spec, OURS, program, args=chosen)
    theirs = selftests.run(spec, THEIRS, program, args=chosen)
    assert not ours.bad, words(ours)
    assert not theirs.bad, words(theirs)
    data = selftests.to_json(ours, theirs, {})
    assert (data["passed"], data["failed"]) == (4, 0)
    assert [
        (t["name"], t["status"], t["test_hmm"]) for t in data["tests"] if "private" in t["name"]
    ] == [
        ("hmm.hmm_device_private.anon_read", "pass", "pass"),
        ("hmm.hmm_device_private.exclusive", "pass", "pass"),
    ]
    assert data["ratio"] > 0


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        ("invalidate-keeps-entries", "anon_read_multiple"),
        ("fault-always-writable", "anon_write_prot"),
    ],
)
def test_a_broken_driver_fails(mutant: str, test: str, program: Path, spec: MachineSpec) -> None:
    broken = ensure(BuildRequest(driver_patches=(MUTANTS / f"{mutant}.patch",)), Ui(quiet=True))
    run = selftests.run(standard_spec(broken, spec.accel), OURS, program, args=f"-t {test}")
    assert run.bad
    assert [o.status for o in run.outcomes if "private" in o.name] == ["fail"], words(run)


def test_what_a_panic_kept_from_running_has_failed(spec: MachineSpec, tmp_path: Path) -> None:
    body = """echo "#  RUN           a.one ..."
echo ok 1 a.one
echo "#  RUN           a.two ..."
sleep 1; echo c >/proc/sysrq-trigger; sleep 100"""
    run = selftests.run(spec, OURS, fake(tmp_path, body), keep=tmp_path / "kept")
    assert [(o.name, o.status) for o in run.outcomes] == [("a.one", "pass"), ("a.two", "fail")]
    assert "panic" in run.trouble
    assert (tmp_path / "kept" / "console.log").is_file()


def test_a_program_that_hangs(spec: MachineSpec, tmp_path: Path) -> None:
    run = selftests.run(spec, OURS, fake(tmp_path, "echo ok 1 a; sleep 1000"), timeout=3)
    assert run.trouble == "not at its end after 3 s"
    assert [o.status for o in run.outcomes] == ["pass", "fail"]
