# SPDX-License-Identifier: GPL-2.0-or-later
"""The reader of C headers, on made-up text and on the project's own headers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hmmbench.device import cheader

ROOT = Path(__file__).resolve().parents[3]
HEADERS = [
    ROOT / "qemu-device/include/hmm_gpu_hw.h",
    ROOT / "guest-driver/user/agent/protocol.h",
    ROOT / "guest-driver/user/agent/base/program.h",
    ROOT / "guest-driver/user/kernels/accesses.h",
    ROOT / "guest-driver/include/uapi/hmm_gpu_drm.h",
    ROOT / "guest-driver/user/session/session.h",
    ROOT / "qemu-device/include/hmm_mailbox_hw.h",
]


def test_expressions() -> None:
    h = cheader.parse(
        """
#define A 0x10
#define B\t(A + 4)\t/* comment */
#define C B * 2 // other
#define D (1ULL << 40)
#define E 'd'
#define F 010
#define G ~0
#define H (A | 1) /* opens
 #define INSIDE 5
   closes */
#define I A-1
#define J 7 / 2
  #  define K 3
"""
    )
    assert dict(h) == {
        "A": 16, "B": 20, "C": 40, "D": 1 << 40, "E": 100, "F": 8, "G": -1,
        "H": 17, "I": 15, "J": 3, "K": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        '#define X "text"',
        "#define X(a) ((a) + 1)",
        "#define X (uint32_t)4",
        "#define X UNKNOWN + 1",
        "#define X __import__('os')",
        "#define X 1 / 0",
        "#define X 1.5",
        "#define X",
        "#undef X",
        "/* #define X 4 */",
    ],
)
def test_left_out(line: str) -> None:
    h = cheader.parse(line)
    assert "X" not in h
    with pytest.raises(AttributeError, match="X"):
        _ = h.X


def test_names() -> None:
    h = cheader.parse("#define HG_ERR_NONE 0\n#define HG_ERR_FAULT 1\n#define OTHER 1\n")
    assert h.names("HG_ERR_") == {0: "NONE", 1: "FAULT"}


@pytest.mark.parametrize("path", HEADERS, ids=lambda p: p.name)
def test_agrees_with_the_compiler(path: Path, tmp_path: Path) -> None:
    """Every number read from the real headers is the number the C compiler sees."""
    cc = shutil.which("cc")
    assert cc, "a C compiler is needed"
    header = cheader.load(path)
    assert len(header) > 10
    lines = [f'#include "{path}"', "#include <stdio.h>", "int main(void) {"]
    lines += [f'printf("{n} %lld\\n", (long long)({n}));' for n in header]
    source = tmp_path / "t.c"
    source.write_text("\n".join([*lines, "return 0; }"]))
    folders = [f"-I{header.parent}" for header in HEADERS]
    subprocess.run([cc, *folders, "-o", tmp_path / "t", source], check=True)
    out = subprocess.run([tmp_path / "t"], check=True, capture_output=True, text=True).stdout
    seen = {name: int(value) for name, value in (line.split() for line in out.splitlines())}
    assert seen == dict(header)
