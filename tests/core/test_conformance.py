# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench conformance` on a small checkout of our own in the style of riscv-tests: what passes,
fails, goes wild or does not build is told apart, and a device with a bug is found out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from breaks import BREAKS

from hmmbench import cli
from hmmbench.build.riscv import Tools
from hmmbench.device import library
from hmmbench.suites import conformance

#: In the manner of the project's tests: cases that leave at `fail` with TESTNUM set.
FRAME = """
#include "riscv_test.h"
RVTEST_RV64UF
RVTEST_CODE_BEGIN
{cases}
	j pass
fail:	RVTEST_FAIL
pass:	RVTEST_PASS
RVTEST_CODE_END
	.data
RVTEST_DATA_BEGIN
word:	.dword 41
RVTEST_DATA_END
"""

#: Conversion of infinity to an integer: the largest one, and NV alone.
INVALID = """
	li TESTNUM, 2
	li a0, 0x7f800000
	fmv.w.x fa0, a0
	fsflags x0
	fcvt.w.s a1, fa0
	frflags a2
	li a3, 0x7fffffff
	bne a1, a3, fail
	li TESTNUM, 3
	li a3, 16
	bne a2, a3, fail
"""

#: Name, cases, verdict, words of the detail.
TESTS = (
    ("rv64ui/good", "li TESTNUM, 2; la a0, word; ld a1, 0(a0); li a2, 41; bne a1, a2, fail",
     "pass", ""),
    ("rv64ui/wrong", "li TESTNUM, 2; addi a0, x0, 5; li a1, 5; bne a0, a1, fail;"
     "li TESTNUM, 7; addi a0, a0, 1; bne a0, a1, fail", "fail", "case 7 failed"),
    ("rv64um/illegal", "nop; .word 0xffffffff", "fail",
     "ended by illegal, pc 0x10008, address or value 0xffffffff"),
    ("rv64um/lost", "li a0, 0x5000; ld a1, 8(a0)", "fail",
     "ended by fault, pc 0x10008, address or value 0x5008"),
    ("rv64ua/forever", "1: j 1b", "fail", "ended by budget, pc 0x10004"),
    ("rv64ua/jump", "jr x0", "fail",
     "ended by fault, pc 0x10004, address or value 0x0"),
    ("rv64ua/silent", ".word 0x0b", "fail", "ended without a verdict"),
    ("rv64ud/typo", "nonsense a0", "error", "nonsense"),
    ("rv64uf/invalid", INVALID, "pass", ""),
)  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the tests above, and what is none of the five suites' tests."""
    root = tmp_path / "checkout"
    for name, cases, _, _ in (*TESTS, ("rv64mi/csr", "nonsense", "", "")):
        path = root / "isa" / f"{name}.S"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FRAME.format(cases=cases))
    (root / "isa" / "rv64ui" / "Makefrag").write_text("rv64ui_sc_tests = good\n")
    return root


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Exit code and what the command printed."""
    code = cli.main(["conformance", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_every_verdict(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = checkout.parent / "out" / "r.json"
    code, out, _ = run(capsys, "--riscv-tests", checkout, "--json", report)
    assert code == 1
    data = json.loads(report.read_text())
    assert {t["name"]: t["verdict"] for t in data["tests"]} == {t[0]: t[2] for t in TESTS}
    detail = {t["name"]: t["detail"] for t in data["tests"]}
    for name, _, verdict, words in TESTS:
        assert words in detail[name] if words else detail[name] == ""
        assert f"{name:24} {verdict}" in out
    assert (data["passed"], data["failed"], data["errors"], data["not_run"]) == (2, 6, 1, 0)
    assert "clang" in data["compiler"]
    assert out.endswith("2 of 9 passed\n")


@pytest.mark.parametrize(
    ("names", "code", "count"),
    [
        (["rv64ui/good"], 0, 1),
        (["rv64ui/good", "rv64uf", "rv64ui/good"], 0, 2),
        (["rv64ui/wrong"], 1, 1),
        (["rv64ui/"], 1, 2),
        (["rv64ud", "rv64ui/good"], 3, 2),
        (["rv64ud", "rv64ui/wrong"], 1, 2),
    ],
)
def test_exit_code_of_chosen_tests(
    checkout: Path, capsys: pytest.CaptureFixture[str], names: list[str], code: int, count: int
) -> None:
    got, out, _ = run(capsys, "--riscv-tests", checkout, *names)
    assert got == code
    assert f" of {count} passed" in out


def test_wrong_use_is_told(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, hint in (
        ([checkout.parent / "none"], "git clone"),
        ([checkout / "isa"], "git clone"),
        ([checkout, "rv64uf/fdiv"], "no test or suite rv64uf/fdiv"),
        ([checkout, "rv64mi"], "no test or suite rv64mi"),
        ([checkout, "--json", checkout], "is a folder"),
    ):
        code, out, err = run(capsys, "--riscv-tests", *words)
        assert (code, out) == (2, "")
        assert hint in err
    assert run(capsys)[0] == 2


@pytest.mark.parametrize("have", [(), ("clang-19",), ("ld.lld",)])
def test_missing_tools_are_named(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    have: tuple[str, ...],
) -> None:  # fmt: skip
    tools = checkout.parent / "bin"
    tools.mkdir()
    for name in have:
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    code, out, err = run(capsys, "--riscv-tests", checkout)
    assert (code, out) == (3, "")
    wanted = {(): "clang lld", ("clang-19",): "lld", ("ld.lld",): "clang"}[have]
    assert f"apt-get install {wanted}\n" in err


def test_missing_c_compiler_is_named(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/no/such/cc")
    code, _, err = run(capsys, "--riscv-tests", checkout)
    assert code == 3
    assert "apt-get install gcc" in err


def test_a_device_with_a_bug_fails(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = [b for b in BREAKS if b[0] == "fp: invalid conversion is inexact too"]
    monkeypatch.setattr(library, "default_edits", (row[1:4],))
    code, out, _ = run(capsys, "--riscv-tests", checkout, "rv64uf", "rv64ui/good")
    assert code == 1
    assert "case 3 failed" in out
    assert out.endswith("1 of 2 passed\n")


def test_program_too_large_for_the_memory(checkout: Path) -> None:
    path = checkout / "isa" / "rv64ui" / "large.S"
    path.write_text(FRAME.format(cases=".zero 9 << 20"))
    (outcome,) = conformance.run(checkout, ["rv64ui/large"], Tools.find())
    assert outcome.verdict == "error"
    assert "too large" in outcome.detail
