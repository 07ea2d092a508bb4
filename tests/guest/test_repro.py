# SPDX-License-Identifier: GPL-2.0-or-later
"""hmmgpu_repro.h: a reproducer compiles without warnings, passes, and can fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_loader import INCLUDES

PROGRAM = """
#define REPRO_FILE_PAGES { 1, 0, 0, 0 }
#define REPRO_STACK_REGION 3
#define REPRO_GLOBAL_REGION 4
#include "hmmgpu_repro.h"

static void p0_a0(void)
{
    phase(0);
    WANT(0, map(0, 0, 4 * PAGE, HB_MAP_ANON_PRIVATE, PROT_READ | PROT_WRITE));
    WANT(0, map_file(1, 0, 2 * PAGE, HB_MAP_FILE_SHARED, PROT_READ | PROT_WRITE, 0, 0));
    WANT(0, map(3, 0, PAGE, HB_MAP_STACK, 3));
    WANT(0, map(4, 0, PAGE, HB_MAP_GLOBAL, 3));
    cpu({ WRITE(0, 0, 7) }, { READ(0, 0, 7) }, { READ(3, 8, 0) }, { READ(4, 8, 0) });
    cpu({ ADD(0, 0, 1, 7) }, { CAS(0, 0, 20, 8, 8) }, { XCHG(0, 0, 8, 20) }, { DELAY(9) });
    cpu_signal(SIGSEGV, { READ(0, 0x8000) }, { WRITE32(0, 0x8000, 1) });
    cpu_signal(SIGBUS, { READ32(1, 0x1000) });
    WANT(0, remap(0, 0x1000, PAGE, 0, 0x9000, PAGE, 0));
    WANT(-EINVAL, advise(0, 0, PAGE, 9999));
    phase(1);
    WANT(0, fork_process(1));
    phase(2);
    cpu({ READ(0, 0, 8) });
    phase(3);
    WANT(0, kill_process(1));
    phase(4);
    cpu({ READ(1, 0, 99, 77) });
    PROBE
}

static void p0_a1(void)
{
    phase(2);
    cpu({ WRITE(1, 0, 77) });
}

static void p1_a0(void)
{
    phase(2);
    cpu({ WRITE(0, 0, 10) }, { READ(0, 0, 10) }, { WRITE(1, 0, 99) });
    phase(3);
    pause_us(50000000);
}

static void p2_a0(void)
{
    phase(5);
    map_file(2, 0, PAGE, HB_MAP_FILE_SHARED, 3, 0, 0);
    cpu({ READ(2, 0, 99, 77) });
    phase(6);
    exit_process();
}

static const struct actor actors[] = {
    { 0, 0, p0_a0, .first = 0 },
    { 0, 1, p0_a1, .first = 2 },
    { 1, 0, p1_a0, .first = 2, .forked = 1 },
    { 2, 0, p2_a0, .first = 5 },
};
REPRO_MAIN(actors)
"""


def build(folder: Path, library: Path, probe: str = "", timeout_s: int = 60) -> Path:
    source = PROGRAM.replace("PROBE", probe)
    (folder / "r.c").write_text(source)
    result = subprocess.run(
        ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *INCLUDES,
         f"-DREPRO_TIMEOUT_S={timeout_s}", str(folder / "r.c"), str(library / "libhmmgpu.a"),
         "-lpthread", "-o", str(folder / "r")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder / "r"


def test_sound_program_passes_many_times(built: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [build(tmp_path, built), "30"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (0, "no violation in 30 runs\n"), result.stderr


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ("cpu({ READ(0, 0, 9, 10) });", "0x8, not 0x9 or another value"),
        ("cpu({ READ(0, 0x8000, 9) });", "signal 11, not 0"),
        ("cpu_signal(SIGSEGV, { READ(0, 0, 9) });", "signal 0, not 11"),
        ("WANT(0, unmap(0, 1, 1));", "unmap(0, 1, 1): -22, not 0"),
        ("abort();", "process 0 was ended by signal 6"),
        ("pause_us(50000000);", "process 0 actor 0 is in phase 4"),
    ],
)
def test_violations_are_seen(built: Path, tmp_path: Path, probe: str, message: str) -> None:
    program = build(tmp_path, built, probe, timeout_s=2)
    result = subprocess.run(
        [program, "5"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (1, "violation in run 1 of 5\n")
    assert message in result.stderr
