# SPDX-License-Identifier: GPL-2.0-or-later
"""libhmmgpu's loader of GPU programs, under ASan and UBSan; and the headers' manners."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpu_program import INCLUDES, PIE, link, run, tool

ENOEXEC, EEXIST, ENOENT = -8, -17, -2

SOURCE = """
#include "hmm_gpu_kernel.h"
uint64_t answer = 42;
uint64_t zero;
uint64_t *pointer = &answer;
const uint64_t constant = 7;
const char text[] = "x";
HMM_KERNEL(start, uint64_t) { *args += answer + *pointer + constant + zero; }
"""


def load(harness: Path, elf: Path, *symbols: str) -> tuple[int, dict[str, tuple[int, int]]]:
    lines = run(harness, "load", elf, *symbols).splitlines()
    found = {}
    for line in lines[1:]:
        name, address, word = line.split()
        found[name] = (-1, int(word)) if address == "error" else (int(address, 16), int(word, 16))
    return int(lines[0]), found


def test_position_independent_program(harness: Path, tmp_path: Path) -> None:
    status, found = load(
        harness, link(tmp_path, SOURCE, *PIE),
        "answer", "zero", "pointer", "constant", "start", "nothing",
    )  # fmt: skip
    assert status == 0
    assert found["answer"][1] == 42
    assert found["zero"][1] == 0
    assert found["constant"][1] == 7
    assert found["pointer"][1] == found["answer"][0], "the relocation was not applied"
    assert found["nothing"] == (-1, ENOENT)


def test_program_at_fixed_addresses(harness: Path, tmp_path: Path) -> None:
    elf = link(tmp_path, SOURCE, "--image-base=0x300000000000")
    status, found = load(harness, elf, "answer", "pointer")
    assert status == 0
    assert 0x300000000000 <= found["answer"][0] < 0x300000010000
    assert found["pointer"][1] == found["answer"][0]


def test_symbols_of_a_stripped_program(harness: Path, tmp_path: Path) -> None:
    elf = link(tmp_path, SOURCE, *PIE, "--strip-all", "--export-dynamic")
    assert load(harness, elf, "answer")[1]["answer"][1] == 42


def test_what_is_no_gpu_program_is_refused(
    harness: Path, tmp_path: Path, built: Path
) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    for path in (empty, Path(__file__), built / "agent", built / "hmmgpu.o"):
        assert load(harness, path)[0] == ENOEXEC
    assert load(harness, tmp_path)[0] == ENOEXEC
    assert load(harness, tmp_path / "none")[0] == ENOENT
    # It needs a library: there is no dynamic linker.
    source = "extern int elsewhere(void); int start(void) { return elsewhere(); }"
    elf = link(tmp_path, source, "-shared", "--unresolved-symbols=ignore-all")
    assert load(harness, elf)[0] == ENOEXEC
    # It wants to be where NULL points.
    assert load(harness, link(tmp_path, SOURCE, "--image-base=0"))[0] == ENOEXEC


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_damaged_programs_do_no_harm(
    harness: Path, tmp_path: Path, built: Path, seed: int
) -> None:
    traced = link(tmp_path, SOURCE, *PIE, compiled=["-g"]).rename(tmp_path / "traced.elf")
    for elf in (built / "kernels.elf", link(tmp_path, SOURCE, *PIE), traced):
        loaded, _, count, _, located = run(harness, "fuzz", elf, "4000", str(seed)).split()
        # Some survive and some do not; else the fuzzer tests nothing.
        assert 0 < int(loaded) < int(count)
        assert (int(located) > 0) == (elf == traced)


def test_headers_in_c_and_cplusplus(tmp_path: Path) -> None:
    for name, compiler in (("t.c", ["gcc", "-std=c11"]), ("t.cc", ["g++", "-std=c++11"])):
        (tmp_path / name).write_text(
            '#include "hmmgpu.h"\nint main() { return hmmgpu_status_name(0) == 0; }\n'
        )
        run(*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", *INCLUDES, "-fsyntax-only",
            tmp_path / name)  # fmt: skip


def test_accesses_kernel_uses_no_stack(built: Path) -> None:
    """Its pages are code, tables and results; a stack would add faults to every program."""
    objdump = tool("llvm-objdump", "llvm-objdump-19", "llvm-objdump-16", "llvm-objdump-14")
    text = run(objdump, "-d", built / "accesses.gpu.o")
    assert "amoadd.d" in text
    assert not re.search(r"\bsp\b", text)
