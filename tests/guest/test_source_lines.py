# SPDX-License-Identifier: GPL-2.0-or-later
"""From the address at which a job ended to function and source line (libhmmgpu's lines.c), against
what llvm-objdump says of every instruction, and with programs that really fail on the device."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from gpu_program import INCLUDES, PIE, USER, link, run, tool

from hmmbench.device.core import FULL, HW, PAGE, SYS, Ctx, Device, Report, Tables, map_code

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
                "-u", "second", compiled=[opt, *debug.split(), "-ffunction-sections",
                                          f"-I{folder / 'headers'}"])  # fmt: skip


#: Long lines and long gaps, so that GNU as takes every way to say how far the next row is.
FOR_HOST = """
#include "helper.h"
#define A(n) p[n] = p[n + 1] * (n + 3) + (p[n] ^ (p[n + 2] << 7))
uint64_t unused(uint64_t x)
{
	return x * x;
}
__attribute__((noinline)) static uint64_t callee(volatile uint64_t *p)
{
	A(0); A(1); A(2); A(3); A(4); A(5); A(6); A(7); A(8); A(9); A(10); A(11); A(12); A(13); A(14);
	A(20); A(21);
	return p[0];
}
uint64_t first(volatile uint64_t *p)
{
	for (int i = 0; i < 9; i++)
		p[i] = twice(p[i]) +
			callee(p);
	return 0;
}
uint64_t second(volatile uint64_t *p)
{
	p[3] = twice(p[2]);
""" + "\n" * 400 + """
	return callee(p);
}
"""  # fmt: skip


def host_program(folder: Path, debug: str) -> Path:
    """A program whose line tables GNU as wrote, of the host's instructions; said to be RISC-V's,
    since nothing runs it and nothing here reads the instructions."""
    (folder / "headers").mkdir()
    (folder / "headers" / "helper.h").write_text(
        HELPER.replace('"hmm_gpu_kernel.h"', "<stdint.h>")
    )
    (folder / "h.c").write_text(FOR_HOST)
    run("gcc", "-O2", *debug.split(), "-fPIE", "-ffunction-sections", f"-I{folder / 'headers'}",
        "-fcf-protection=none", "-fno-asynchronous-unwind-tables", "-nostdlib", "-static",
        f"-Wl,-Ttext-segment={BASE:#x},--gc-sections,-e,first,-u,second", folder / "h.c", "-o",
        folder / "h.elf")  # fmt: skip
    return folder / "h.elf"


def as_riscv(elf: Path) -> Path:
    """A copy with the machine number of RISC-V."""
    copy = elf.with_suffix(".riscv")
    data = bytearray(elf.read_bytes())
    data[18:20] = (243).to_bytes(2, "little")
    copy.write_bytes(data)
    return copy


def locate(harness: Path, elf: Path, *addresses: str) -> list[list[str]]:
    """[symbol, offset, folder, file, line] of each, or [error]."""
    return [line.split("|") for line in run(harness, "locate", elf, *addresses).splitlines()]


def disassembled(elf: Path) -> dict[int, tuple[str, int, str]]:
    """llvm-objdump's answers: symbol, line and file of each instruction (as linked), but not of
    nop: between functions it is of no line, and nothing can fail there."""
    objdump = tool("llvm-objdump", "llvm-objdump-19", "llvm-objdump-16", "llvm-objdump-14")
    answers, symbol, file, line = {}, "", "", 0
    for text in run(objdump, "-d", "-l", elf).splitlines():
        if m := re.fullmatch(r"[0-9a-f]+ <([^.].*)>:", text):
            symbol, file, line = m[1], "", 0
        elif m := re.fullmatch(r"; (.+):(\d+)", text):
            file, line = m[1], int(m[2])
        elif (m := re.match(r"\s*([0-9a-f]+): ", text)) and "\tnop" not in text:
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
    assert {"first", "second"} <= {symbol for symbol, _, _ in expected.values()}
    assert not any(symbol == "unused" for symbol, _, _ in expected.values())
    assert {Path(file).name for _, _, file in expected.values()} == {
        "t.c", "helper.h", "hmm_gpu_kernel.h",
    }  # fmt: skip
    assert differences(harness, elf) == []


def differences(harness: Path, elf: Path) -> list[str]:
    """Where libhmmgpu and llvm-objdump disagree about a program at fixed addresses."""
    expected = disassembled(elf)
    got = locate(harness, as_riscv(elf), *(hex(a) for a in expected))
    found = []
    for (addr, (symbol, line, file)), answer in zip(expected.items(), got, strict=True):
        start = min(a for a, e in expected.items() if e[0] == symbol)
        want = [symbol, str(addr - start), Path(file).name, str(line)]
        name = answer[3] if len(answer) == 5 else ""
        if not line or [*answer[:2], Path(name).name, *answer[4:]] != want:
            found.append(f"{addr:#x}: {answer}, not {want}")
        # a name that another folder is part of, and that folder (the compiler makes the folder
        # shorter and the name longer if it was started near the file)
        elif Path(name).name == "helper.h" and str(Path(answer[2], name)) != file:
            found.append(f"{addr:#x}: {answer}, not {file}")
    return found


@pytest.mark.parametrize("debug", ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"])
def test_tables_of_the_gnu_tools(harness: Path, tmp_path: Path, debug: str) -> None:
    elf = host_program(tmp_path, debug)
    symbols = {symbol for symbol, _, _ in disassembled(elf).values()}
    assert {"first", "second", "callee"} <= symbols
    assert "unused" not in symbols
    assert differences(harness, elf) == []


BREAKS = {
    "lines only go forward": ("lines.c", "now.line += leb(&c, 1)", "now.line += leb(&c, 0) & 63"),
    "a row reaches too far": ("lines.c", "addr < now.addr &&", "addr <= now.addr &&"),
    "line 0 is a line": ("lines.c", "if ((uint32_t)now.line)", "if (1)"),
    "a sequence goes on in the next": (
        "lines.c", "now = start;\n\t\t\tlast = (struct row){ 0 };\n\t\t\trows = placed = 0;", ";"),
    "special opcodes do not advance": ("lines.c", "now.addr += (op - u->opcode_base) /",
                                       "now.addr += 0 * (op - u->opcode_base) /"),
    "constant advance is forgotten": ("lines.c", "now.addr += (255 - u->opcode_base)",
                                      "now.addr += 0 * (255 - u->opcode_base)"),
    "fixed advance is forgotten": ("lines.c", "now.addr += fixed(&c, 2)", "fixed(&c, 2)"),
    "files are always the first": ("lines.c", "now.file = leb(&c, 0)", "leb(&c, 0)"),
    "folders of version 5": ("lines.c", "*dir = n;", "*dir = n + 1;"),
    "folders before version 5": ("lines.c", "found = NULL;\n\n\tfor (uint64_t i = 1;",
                                 "found = NULL;\n\n\tfor (uint64_t i = 0;"),
    "long advance is forgotten": ("lines.c", "now.addr += leb(&c, 0)", "leb(&c, 0)"),
    "64-bit tables": ("lines.c", "u->offset_size = 8;", "u->offset_size = 4;"),
    "labels of the compiler count": ("kernel.c", 'strncmp(name, ".L", 2) == 0', "0"),
}  # fmt: skip


def test_a_broken_reader_is_noticed(tmp_path: Path) -> None:
    """Each of the bugs above shows in a comparison with llvm-objdump."""
    elfs = []
    for n, debug in enumerate(("-gdwarf-4", "-gdwarf-5 -gdwarf64", "-g -O0")):
        (tmp_path / str(n)).mkdir()
        elfs.append(program(tmp_path / str(n), SOURCE, f"--image-base={BASE:#x}", debug=debug))
    elfs.append(host_program(tmp_path, "-gdwarf-5"))
    names = ("lines.c", "kernel.c", "hmmgpu.c", "print.c")
    sources = {n: (USER / "lib" / n).read_text() for n in names}
    harness = tmp_path / "harness"
    for name, (file, old, new) in BREAKS.items():
        for n, text in sources.items():
            assert n != file or text.count(old) == 1, f"{name}: the text to break is not there"
            (tmp_path / n).write_text(text.replace(old, new) if n == file else text)
        run("gcc", "-std=gnu11", *INCLUDES, "-w", *(tmp_path / n for n in sources),
            Path(__file__).with_name("loader_harness.c"), "-o", harness)  # fmt: skip
        assert any(differences(harness, elf) for elf in elfs), f"not noticed: {name}"


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
HMM_KERNEL(wild, struct args)
{
	uint64_t (*function)(uint64_t) = (uint64_t (*)(uint64_t))(args->n + 0x70000000);

	args->n = function(3) + 1; /* wild */
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
        ("wild", "FAULT", "access fault", 0),
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


