# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the RISC-V project's riscv-tests (rv64ui, um, ua, uf, ud) on a lane of the device core.

    python tests/core/riscv_tests.py DIR [NAME...]

DIR is a checkout of riscv-tests, which is not part of this project; NAMEs like rv64uf/fdiv.
One line a test; exit code 0 all passed, 1 not, 2 usage, 3 no compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Tables

SUITES = ("rv64ui", "rv64um", "rv64ua", "rv64uf", "rv64ud")
BASE, RESULT = 0x10000, 0x800000
SCRIPT = f"SECTIONS {{ . = {BASE:#x}; .all : {{ *(.text*) *(.data*) *(.bss*) . = ALIGN(16); }} }}"
ENV = Path(__file__).parent / "riscv-env"


def tool(*names: str) -> str:
    """The first that is installed; exits with 3 if none is."""
    for name in names:
        if path := shutil.which(name):
            return path
    print(f"none of {', '.join(names)} is installed", file=sys.stderr)
    raise SystemExit(3)


# their branches reach too far for clang's assembler: see riscv_test.h
FAR = ("rv64ui/ld_st", "rv64ui/ma_data")


def build(isa: Path, name: str, folder: Path) -> bytes:
    """The program's bytes from BASE on; RuntimeError with the tools' words."""
    clang = tool("clang", "clang-19", "clang-16", "clang-14")
    lld = tool("ld.lld", "ld.lld-19", "ld.lld-16", "ld.lld-14")
    (folder / "t.ld").write_text(SCRIPT)
    for command in (
        [clang, "--target=riscv64", "-march=rv64imafd", "-mabi=lp64d", "-mno-relax",
         f"-DRESULT={RESULT:#x}", *(["-DFAR"] if name in FAR else []), f"-I{ENV}",
         f"-I{isa / 'macros' / 'scalar'}", "-c", str(isa / f"{name}.S"), "-o", "t.o"],
        [lld, "-e", "_start", "--oformat", "binary", "--script", "t.ld", "-o", "t.bin", "t.o"],
    ):  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
    return (folder / "t.bin").read_bytes()


def run(code: bytes) -> str:
    """The verdict: passed, or what happened instead."""
    with Device() as dev:
        dev.enable_faults()
        t = Tables(dev, 1)
        for off in range(0, len(code), PAGE):
            page = dev.alloc()
            dev.write(page, code[off : off + PAGE])
            t.map(BASE + off, page, FULL | SYS)
        out = dev.alloc()
        t.map(RESULT, out, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(BASE, 0, block=1, budget=10_000_000)
        dev.run()
        report, word = dev.report(rep), dev.u64(out)
        if not report.complete:
            return f"access fault at {[hex(f.addr) for f in dev.take_faults()]}"
        if report.status != HW.HG_ERR_NONE:
            return f"ended: {report}"
        return "passed" if word == 1 else f"case {word // 2} failed"


def main(args: list[str]) -> int:
    """See the module."""
    isa = Path(args[0], "isa") if args else Path()
    if not args or not isa.is_dir():
        print("usage: riscv_tests.py DIR [SUITE/NAME...]; DIR is riscv-tests", file=sys.stderr)
        return 2
    names = args[1:] or [
        f"{suite}/{p.stem}" for suite in SUITES for p in sorted((isa / suite).glob("*.S"))
    ]
    bad = 0
    for name in names:
        with tempfile.TemporaryDirectory() as tmp:
            try:
                verdict = run(build(isa.resolve(), name, Path(tmp)))
            except RuntimeError as e:
                verdict = f"does not build: {e}"
        bad += verdict != "passed"
        print(f"{name}: {verdict}", flush=True)
    print(f"{len(names) - bad} of {len(names)} passed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
