# SPDX-License-Identifier: GPL-2.0-or-later
"""The RISC-V project's own tests on a lane of the device core; no virtual machine.

A test is an assembler file of a checkout of riscv-tests, built by clang with the environment
header that is ours (tests/core/riscv-env/riscv_test.h). It runs as a launch of one thread and
leaves a word at RESULT: 1, or the number of the failed case * 2.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hmmbench.base import paths, processes
from hmmbench.base.errors import UsageError
from hmmbench.build.riscv import Tools
from hmmbench.device.core import FULL, HW, PAGE, RAM_SIZE, SYS, Ctx, Device, Tables

SUITES = ("rv64ui", "rv64um", "rv64ua", "rv64uf", "rv64ud")

#: Where the program is linked, and the word that it leaves.
BASE, RESULT = 0x10000, 0x800000

#: Instructions; the longest of the tests (rv64ui/ld_st) takes a few thousand.
BUDGET = 1_000_000

#: Their branches reach too far for clang's assembler: see riscv_test.h.
FAR = ("rv64ui/ld_st", "rv64ui/ma_data")

WHERE = "It is the source of the RISC-V project's riscv-tests: \
git clone https://github.com/riscv-software-src/riscv-tests"

_SCRIPT = f"SECTIONS {{ . = {BASE:#x}; .all : {{ *(.text*) *(.data*) *(.bss*) . = ALIGN(16); }} }}"

Verdict = Literal["pass", "fail", "error"]


@dataclass(frozen=True)
class ConformanceOutcome:
    """How one test ended; `error`: it could not be built, so nothing is known."""

    name: str
    verdict: Verdict
    detail: str = ""


def choose(checkout: Path, wanted: Iterable[str] = ()) -> list[str]:
    """Names (SUITE/TEST) of the tests to run, sorted in each suite; UsageError if the folder is
    no riscv-tests, or a wanted test or suite is not in it."""
    isa = checkout / "isa"
    if not checkout.is_dir():
        raise UsageError(f"there is no folder {checkout}", WHERE)
    have = [f"{s}/{p.stem}" for s in SUITES for p in sorted((isa / s).glob("*.S"))]
    if not have:
        raise UsageError(
            f"{checkout} is no checkout of riscv-tests: it has no isa/{SUITES[0]}/*.S", WHERE
        )
    names: list[str] = []
    for word in wanted:
        matching = [n for n in have if word.rstrip("/") in (n, n.partition("/")[0])]
        if not matching:
            raise UsageError(
                f"there is no test or suite {word} in {isa}",
                f"A suite ({', '.join(SUITES)}) or a test as {have[0]}",
            )
        names += matching
    return list(dict.fromkeys(names)) or have


def revision(checkout: Path) -> str | None:
    """The commit of the checkout; None if it is none of git's, or git is not there."""
    if not (checkout / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "HEAD"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def run(checkout: Path, names: Iterable[str], tools: Tools) -> Iterator[ConformanceOutcome]:
    """Build and run the tests one by one; EnvironmentFailure if the device core does not
    compile."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="hmmbench-conformance-") as folder:
            built = build(checkout.resolve() / "isa", name, Path(folder), tools)
        if isinstance(built, str):
            yield ConformanceOutcome(name, "error", f"does not build: {built}")
        else:
            said = execute(built)
            yield ConformanceOutcome(name, "fail" if said else "pass", said)


def build(isa: Path, name: str, folder: Path, tools: Tools) -> bytes | str:
    """The program's bytes from BASE on; or the tools' words why there are none."""
    (folder / "t.ld").write_text(_SCRIPT)
    environment = paths.project_root() / "tests" / "core" / "riscv-env"
    for command in (
        [tools.clang, "--target=riscv64", "-march=rv64imafd", "-mabi=lp64d", "-mno-relax",
         f"-DRESULT={RESULT:#x}", *(["-DFAR"] if name in FAR else []), f"-I{environment}",
         f"-I{isa / 'macros' / 'scalar'}", "-c", str(isa / f"{name}.S"), "-o", "t.o"],
        [tools.lld, "-e", "_start", "--oformat", "binary", "--script", "t.ld", "-o", "t.bin",
         "t.o"],
    ):  # fmt: skip
        done = processes.run(command, cwd=folder)
        if done.returncode:
            return (done.stderr + done.stdout).strip() or f"{command[0]} failed"
    code = (folder / "t.bin").read_bytes()
    # Half for the program, the rest for page tables and rings.
    return code if len(code) <= RAM_SIZE // 2 else f"it is too large ({len(code)} bytes)"


def execute(code: bytes) -> str:
    """Run a program on a lane of a fresh device: "" if it passed, else what happened."""
    # A test that goes wild may do anything, so the device's protocol checks are not asked.
    with Device(misused=True) as dev:
        dev.enable_faults()
        tables = Tables(dev, 1)
        for off in range(0, len(code), PAGE):
            page = dev.alloc()
            dev.write(page, code[off : off + PAGE])
            tables.map(BASE + off, page, FULL | SYS)
        out = dev.alloc()
        tables.map(RESULT, out, FULL | SYS)
        address = Ctx(dev, 1, 1).launch(BASE, 0, block=1, budget=BUDGET)
        dev.run()
        if not dev.report(address).complete:
            # It waits for a page that will not come. Cancelled, the report says where.
            dev.cancel(HW.HG_CANCEL_GLOBAL, 1)
            dev.run()
        report, word = dev.report(address), dev.u64(out)
    if not report.complete:
        return "does not end"
    if report.status != HW.HG_ERR_NONE:
        what = HW.names("HG_ERR_").get(report.status, str(report.status)).lower()
        return f"ended by {what}, pc {report.pc:#x}, address or value {report.addr:#x}"
    if word == 1:
        return ""
    return f"case {word // 2} failed" if word else "ended without a verdict"
