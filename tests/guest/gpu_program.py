# SPDX-License-Identifier: GPL-2.0-or-later
"""GPU programs for tests: C source to a linked file."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from host_agent import ROOT

DRIVER = ROOT / "guest-driver"
USER = DRIVER / "user"
#: Linker flags of a program that can be placed anywhere.
PIE = ("-pie", "--no-dynamic-linker")
INCLUDES = [
    f"-I{USER / 'lib'}", f"-I{DRIVER / 'include' / 'uapi'}", f"-I{USER / 'kernels'}",
    *(f"-I{USER / 'agent' / d}" for d in ("base", "engine", "repro")),
    f"-I{ROOT / 'qemu-device' / 'include'}",
]  # fmt: skip


def tool(*names: str) -> str:
    """The first of these programs that is installed."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    assert found, f"none of {names} is installed"
    return found


def run(*args: str | Path) -> str:
    """What a program prints; it has to succeed."""
    result = subprocess.run([str(a) for a in args], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def link(folder: Path, source: str, *flags: str, compiled: Sequence[str] = ()) -> Path:
    """A GPU program of this C source, compiled and linked with these flags."""
    (folder / "t.c").write_text(source)
    clang = tool("clang", "clang-19", "clang-16", "clang-14")
    run(clang, "--target=riscv64", "-march=rv64ima", "-mabi=lp64", "-mcmodel=medany", "-fPIE",
        "-ffreestanding", "-O2", "-nostdlibinc", *INCLUDES, *compiled, "-c", folder / "t.c",
        "-o", folder / "t.o")  # fmt: skip
    lld = tool("ld.lld", "ld.lld-19", "ld.lld-16", "ld.lld-14")
    run(lld, *flags, "-e", "0", "-o", folder / "t.elf", folder / "t.o")
    return folder / "t.elf"
