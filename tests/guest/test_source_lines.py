# SPDX-License-Identifier: GPL-2.0-or-later
"""From the address at which a job ended to function and source line (libhmmgpu's lines.c), against
what llvm-objdump says of every instruction, and with programs that really fail on the device."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from gpu_program import PIE, link, run, tool

from hmmbench.core.device import FULL, HW, PAGE, SYS, Ctx, Device, Report, Tables, map_code

#: Where a program that is not position independent goes; free in every process.
BASE = 0x3000_0000_0000
STACK = 0x40_0000
ENOENT = "-2"

SOURCE = """
#include "helper.h"
struct args { uint64_t *p; uint64_t n; };
volatile uint64_t sink;
/* thrown away by the linker */
uint64_t unused(uint64_t x)
{
	for (uint64_t i = 0; i < 300; i++)
		sink += x * i;
	return sink;
}
static __attribute__((noinline)) uint64_t callee(uint64_t x)
{
	sink = x;
	return x / (sink | 1);
}
HMM_KERNEL(first, struct args)
{
	uint64_t s = 0;
	for (uint64_t i = 0; i < args->n; i++)
		s += twice(args->p[i])
			+ callee(i);
	args->p[0] = s;
}
HMM_KERNEL(second, struct args)
{
	args->p[hmm_tid()] = twice(args->n);
""" + "\n" * 400 + """
	args->p[1] = args->n;
}
"""  # fmt: skip

HELPER = """
#include "hmm_gpu_kernel.h"
static inline uint64_t twice(uint64_t x)
{
	return 2 * x +
		(x >> 3);
}
"""


def program(folder: Path, source: str, *flags: str, debug: str = "-g", opt: str = "-O2") -> Path:
    """A linked program with line tables; its helper.h is in another folder."""
    (folder / "headers").mkdir(exist_ok=True)
    (folder / "headers" / "helper.h").write_text(HELPER)
    return link(folder, source, *(flags or PIE), "--gc-sections", "-u", "first",
                "-u", "second", compiled=[*debug.split(), opt, "-ffunction-sections",
                                          f"-I{folder / 'headers'}"])  # fmt: skip


def locate(harness: Path, elf: Path, *addresses: str) -> list[list[str]]:
    """[symbol, offset, folder, file, line] of each, or [error]."""
    return [line.split("|") for line in run(harness, "locate", elf, *addresses).splitlines()]


def disassembled(elf: Path) -> dict[int, tuple[str, int, str]]:
    """llvm-objdump's answers: symbol, line and file of each instruction (as linked)."""
    objdump = tool("llvm-objdump", "llvm-objdump-19", "llvm-objdump-16", "llvm-objdump-14")
    answers, symbol, file, line = {}, "", "", 0
    for text in run(objdump, "-d", "-l", elf).splitlines():
        if m := re.fullmatch(r"[0-9a-f]+ <([^.].*)>:", text):
            symbol, file, line = m[1], "", 0
        elif m := re.fullmatch(r"; (.+):(\d+)", text):
            file, line = m[1], int(m[2])
        elif m := re.match(r"\s*([0-9a-f]+): ", text):
            answers[int(m[1], 16)] = (symbol, line, file)
    return answers


@pytest.mark.parametrize("opt", ["-O0", "-O2"])
@pytest.mark.parametrize("debug", ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5",
                                   "-gdwarf-5 -gdwarf64", "-g -mno-relax"])  # fmt: skip
def test_every_instruction_has_its_line(
    harness: Path, tmp_path: Path, debug: str, opt: str
) -> None:
    elf = program(tmp_path, SOURCE, f"--image-base={BASE:#x}", debug=debug, opt=opt)
    expected = disassembled(elf)
    got = locate(harness, elf, *(hex(a) for a in expected))
    first = {name: min(a for a, e in expected.items() if e[0] == name)
             for name in {e[0] for e in expected.values()}}  # fmt: skip
    assert {"first", "second"} <= set(first)
    assert "unused" not in first, "the linker was to leave a sequence without code"
    for (addr, (symbol, line, file)), answer in zip(expected.items(), got, strict=True):
        assert line, f"llvm-objdump knows no line of {addr:#x}"
        found, offset, folder, name, number = answer
        assert (found, int(offset)) == (symbol, addr - first[symbol])
        assert int(number) == line, f"{addr:#x} {answer}, {file}:{line}"
        where = Path(folder) / name if folder else Path(name)
        assert where.name == Path(file).name
        if name == "helper.h":
            assert str(where) == str(tmp_path / "headers" / "helper.h")
    names = {answer[3].rpartition("/")[2] for answer in got}
    assert names == {"t.c", "helper.h", "hmm_gpu_kernel.h"}


def test_position_independent_program(harness: Path, tmp_path: Path) -> None:
    elf = program(tmp_path, SOURCE)
    lines = {symbol: {line for s, line, _ in disassembled(elf).values() if s == symbol}
             for symbol in ("first", "second")}  # fmt: skip
    for symbol in lines:
        (answer,) = locate(harness, elf, f"{symbol}+4")
        assert answer[:2] == [symbol, "4"]
        assert int(answer[4]) in lines[symbol]


def test_what_is_not_known(harness: Path, tmp_path: Path) -> None:
    elf = program(tmp_path, SOURCE)
    assert locate(harness, elf, "0x10", "sink+0", "first+0x100000") == [[ENOENT]] * 3
    # no line tables: the function alone; neither: nothing
    bare = program(tmp_path, SOURCE, debug="-g0")
    assert locate(harness, bare, "first+4") == [["first", "4", "", "", "0"]]
    objcopy = tool("llvm-objcopy", "llvm-objcopy-19", "llvm-objcopy-16", "llvm-objcopy-14")
    elf = program(tmp_path, SOURCE, f"--image-base={BASE:#x}")
    at = hex(min(disassembled(elf)) + 4)
    run(objcopy, "--strip-all", elf, tmp_path / "stripped.elf")
    assert locate(harness, tmp_path / "stripped.elf", at) == [[ENOENT]]
    # lines without symbols
    run(objcopy, "--keep-section=.debug_line", "--keep-section=.debug_line_str", "--strip-all",
        elf, tmp_path / "lines.elf")  # fmt: skip
    ((symbol, _, _, name, line),) = locate(harness, tmp_path / "lines.elf", at)
    assert (symbol, name.rpartition("/")[2]) == ("", "t.c")
    assert int(line) > 0
    # compressed tables are not read
    run(objcopy, "--compress-debug-sections=zlib", elf, tmp_path / "small.elf")
    ((symbol, _, _, name, line),) = locate(harness, tmp_path / "small.elf", at)
    assert (bool(symbol), name, line) == (True, "", "0")


FAILING = """
#include "hmm_gpu_kernel.h"
struct args { uint64_t *p; uint64_t n; };
static __attribute__((noinline)) void visit(volatile uint64_t *p)
{
	if (hmm_tid() == 33)
		*p = 1; /* null */
}
HMM_KERNEL(null, struct args)
{
	visit(args->p);
	args->n++;
}
HMM_KERNEL(forever, struct args)
{
	for (;;) hmm_compiler_barrier(); /* forever */
}
HMM_KERNEL(overflow, struct args)
{
	volatile uint64_t *shared = hmm_shared();

	shared[hmm_tid()] = 1; /* overflow */
}
HMM_KERNEL(illegal, struct args)
{
	if (hmm_bid() == 1)
		__asm__ volatile(".word -1"); /* illegal */
}
HMM_KERNEL(stop, struct args)
{
	__asm__ volatile("ebreak"); /* stop */
}
HMM_KERNEL(odd, struct args)
{
	__atomic_fetch_add((uint64_t *)((uintptr_t)args + 4), 1, __ATOMIC_RELAXED); /* odd */
}
HMM_KERNEL(stuck, struct args)
{
	if (hmm_tid() != 5)
		hmm_barrier();
}
"""


def segments(elf: bytes) -> list[tuple[int, bytes]]:
    """Address and bytes of what is loaded, from the address's page on."""
    (at,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    found = []
    for n in range(count):
        kind, _, off, va, _, filesz, memsz, _ = struct.unpack_from("<IIQQQQQQ", elf, at + n * size)
        if kind == 1:
            data = bytes(va % PAGE) + elf[off : off + filesz] + bytes(memsz - filesz)
            found.append((va - va % PAGE, data))
    return found


def fail(elf: Path, entry: int) -> Report:
    """Run a program that fails on the device core; its report."""
    # 64 threads in 2 blocks; the pages that are missing never come
    with Device(misused=True) as dev:
        dev.enable_faults()
        tables = Tables(dev, 1)
        for va, data in segments(elf.read_bytes()):
            map_code(dev, tables, va, data)
        stack = dev.alloc(64)
        for k in range(64):
            tables.map(STACK + k * PAGE, stack + k * PAGE, FULL | SYS)
        args = STACK + 63 * PAGE  # beyond the stacks; zero
        address = Ctx(dev, 1, 1).launch(entry, args, grid=2, block=64, local=STACK,
                                        local_bytes=256, budget=20_000, shared=256)  # fmt: skip
        dev.run()
        if not dev.report(address).complete:
            dev.cancel(HW.HG_CANCEL_GLOBAL, 1)
            dev.run()
        report = dev.report(address)
        assert report.complete
        return report


@pytest.mark.parametrize(
    ("kernel", "status", "words", "thread"),
    [
        ("null", "FAULT", "access fault", 33),
        ("forever", "BUDGET", "instruction budget used up", 0),
        ("overflow", "FAULT", "access fault", 32),
        ("illegal", "ILLEGAL", "illegal instruction", 0),
        ("stop", "BREAK", "ebreak", 0),
        ("odd", "MISALIGNED", "misaligned jump or atomic", 0),
    ],
)
def test_a_failing_job_names_its_line(
    harness: Path, tmp_path: Path, kernel: str, status: str, words: str, thread: int
) -> None:
    elf = link(tmp_path, FAILING, f"--image-base={BASE:#x}", compiled=["-g"])
    entry = int(run(harness, "load", elf, kernel).split()[2], 16)
    report = fail(elf, entry)
    assert report.status == HW[f"HG_ERR_{status}"]
    assert report.thread == thread
    text = run(harness, "report", elf, str(report.status), hex(report.pc)).strip()
    line = next(n for n, s in enumerate(FAILING.splitlines(), 1) if f"/* {kernel} */" in s)
    function = "visit" if kernel == "null" else kernel
    assert text.startswith(words)
    assert f", in {function}+0x" in text
    assert re.search(rf" at \S*t\.c:{line}$", text)


def test_a_barrier_that_cannot_complete_names_its_function(harness: Path, tmp_path: Path) -> None:
    elf = link(tmp_path, FAILING, f"--image-base={BASE:#x}", compiled=["-g"])
    report = fail(elf, int(run(harness, "load", elf, "stuck").split()[2], 16))
    text = run(harness, "report", elf, str(report.status), hex(report.pc)).strip()
    assert text.startswith("barrier that cannot complete")
    assert re.search(r"hmm_gpu_kernel\.h:\d+$", text)


def test_text_without_a_kernel_or_a_place(harness: Path, tmp_path: Path) -> None:
    elf = link(tmp_path, FAILING, *PIE, compiled=["-g"])
    for status, at in ((1, "0x10"), (0, "null+0")):
        text = run(harness, "report", elf, str(status), at).strip()
        assert ", in " not in text
        assert ".c:" not in text


