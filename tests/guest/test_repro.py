# SPDX-License-Identifier: GPL-2.0-or-later
"""Reproducers (repro.h): one compiles without warnings, passes, and can fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from gpu_program import INCLUDES

#: With an operation of its own, as a driver's developer may have one.
PROGRAM = """
#include <stdlib.h>

#include "op.h"
#include "repro.h"

static int op_abort(const struct op_call *call)
{
    (void)call;
    abort();
}

static const struct op_kind own[] = {
    { 1000, "abort", op_abort, 0, NULL },
};
OP_FAMILY(own);

static const struct repro_op ops[] = {
    { OP(0, 0, 0, "mmap"), .region = 0, .len = 0x4000, .arg = HB_MAP_ANON_PRIVATE,
      .a = PROT_READ | PROT_WRITE, WANT(0) },
    { OP(0, 0, 0, "mmap"), .region = 1, .len = 0x2000, .arg = HB_MAP_FILE_SHARED,
      .a = PROT_READ | PROT_WRITE, WANT(0) },
    { OP(0, 0, 0, "mmap"), .region = 3, .len = 0x1000, .arg = HB_MAP_STACK, .a = 3, WANT(0) },
    { OP(0, 0, 0, "mmap"), .region = 4, .len = 0x1000, .arg = HB_MAP_GLOBAL, .a = 3, WANT(0) },
    { OP(0, 0, 0, "cpu_access"),
      ACCESSES({ WRITE(0, 0, 7) }, { READ(0, 0, 7) }, { READ(3, 8, 0) }, { READ(4, 8, 0) }) },
    { OP(0, 0, 0, "cpu_access"),
      ACCESSES({ ADD(0, 0, 1, 7) }, { CAS(0, 0, 20, 8, 8) }, { XCHG(0, 0, 8, 20) }, { DELAY(9) }) },
    { OP(0, 0, 0, "cpu_access"),
      ACCESSES({ READ(0, 0x8000), .signal = SIGSEGV }, { WRITE32(0, 0x8000, 1), .signal = -1 },
               { READ32(1, 0x1000), .signal = SIGBUS }) },
    { OP(0, 0, 0, "mremap"), .off = 0x1000, .len = 0x1000, .arg = 0, .a = 0x9000, .b = 0x1000,
      WANT(0) },
    { OP(0, 0, 0, "madvise"), .len = 0x1000, .a = 9999, WANT(-EINVAL) },
    { OP(1, 0, 0, "fork"), .arg = 1, WANT(0) },
    { OP(2, 0, 0, "cpu_access"), ACCESSES({ READ(0, 0, 8) }) },
    { OP(2, 0, 1, "cpu_access"), ACCESSES({ WRITE(1, 0, 77) }) },
    { OP(2, 1, 0, "cpu_access"),
      ACCESSES({ WRITE(0, 0, 10) }, { READ(0, 0, 10) }, { WRITE(1, 0, 99) }) },
    { OP(3, 1, 0, "sleep"), .a = 50000000 },
    { OP(3, 0, 0, "kill"), .arg = 1, WANT(0) },
    { OP(4, 0, 0, "cpu_access"), ACCESSES({ READ(1, 0, 99, 77) }) },
    PROBE
    { OP(5, 0, 1, "spawn"), .arg = 2, WANT(0) },
    { OP(6, 2, 0, "mmap"), .region = 2, .len = 0x1000, .arg = HB_MAP_FILE_SHARED, .a = 3, WANT(0) },
    { OP(6, 2, 0, "cpu_access"), ACCESSES({ READ(2, 0, 99, 77) }) },
    { OP(7, 2, 0, "exit") },
};
REPRO_MAIN(ops, .file_pages = { 1 })
"""


def build(folder: Path, library: Path, probe: str = "", timeout_s: int = 60) -> Path:
    source = PROGRAM.replace("PROBE", probe)
    (folder / "r.c").write_text(source)
    result = subprocess.run(
        ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", *INCLUDES,
         f"-DREPRO_TIMEOUT_S={timeout_s}", str(folder / "r.c"), f"-L{library}",
         "-lhmmgpu_engine", "-lhmmgpu", "-lpthread", "-o", str(folder / "r")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder / "r"


def run(program: Path, times: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, str(times)], capture_output=True, text=True, timeout=60, check=False
    )


def test_sound_program_passes_many_times(built: Path, tmp_path: Path) -> None:
    result = run(build(tmp_path, built), 30)
    assert (result.returncode, result.stdout) == (0, "no violation in 30 runs\n"), result.stderr


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ('"cpu_access"), ACCESSES({ READ(0, 0, 9, 10) })', "0x8, not 0x9 or another value"),
        ('"cpu_access"), ACCESSES({ READ(0, 0x8000, 9) })', "signal 11, not 0"),
        (
            '"cpu_access"), ACCESSES({ READ(0, 0, 9), .signal = SIGSEGV })',
            "process 0 actor 0 phase 4: CPU access 0, region 0 offset 0x0: signal 0, not 11",
        ),
        ('"munmap"), .off = 1, .len = 1, WANT(0)', "munmap: -22, not 0"),
        ('"abort")', "process 0 was ended by signal 6"),
        ('"sleep"), .a = 50000000', "process 0 actor 0 is in phase 4"),
    ],
)
def test_violations_are_seen(built: Path, tmp_path: Path, probe: str, message: str) -> None:
    result = run(build(tmp_path, built, f"{{ OP(4, 0, 0, {probe} }},", timeout_s=2), 5)
    assert (result.returncode, result.stdout) == (1, "violation in run 1 of 5\n")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ('"mlokc")', 'there is no operation of the name "mlokc"'),
        ('"policy"), WANT(0)', "opening the GPU: "),
        ('"mmap"), .region = 99', "region 99"),
    ],
)
def test_what_is_no_verdict(built: Path, tmp_path: Path, probe: str, message: str) -> None:
    """The environment, or the table, is not as it has to be; here there is no GPU."""
    result = run(build(tmp_path, built, f"{{ OP(4, 0, 0, {probe} }},"), 1)
    assert (result.returncode, result.stdout) == (3, "")
    assert message in result.stderr
