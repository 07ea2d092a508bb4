# SPDX-License-Identifier: GPL-2.0-or-later
"""C compiled by a stock clang with -march=rv64imafd runs on the device and computes what numpy
computes, bit for bit: the compiler's idea of F and D, not the tests' own assembler's."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hg_lib import DEVICE, FULL, HW, PAGE, ROOT, SYS, Ctx, Device, Tables

CODE = 0x1_0000
DATA = 0x40_0000
STACK = 0x100_0000

SOURCE = """
#include "hmm_gpu_kernel.h"

struct args {
	const double *a, *b;
	double *out;
	const float *u, *v;
	float *w;
	int64_t *whole;
	uint32_t n;
};

static double poly(double x)
{
	static const double c[6] = { 1, -0.5, 0.25, 3, -7.125, 1e-3 };
	double y = 0;

	for (int i = 5; i >= 0; i--)
		y = y * x + c[i];
	return y;
}

HMM_KERNEL(start, struct args)
{
	for (uint32_t i = hmm_thread(); i < args->n; i += hmm_threads()) {
		double x = args->a[i], y = args->b[i];
		float u = args->u[i], v = args->v[i];

		args->out[i] = x > y ? __builtin_sqrt(x * x + y * y) : poly(x) / (y - 3);
		args->w[i] = (u < 0 ? -u : u) * v + (float)x;
		args->whole[i] = (int64_t)(x * 1000) + (int32_t)v + (int64_t)(uint32_t)(y * y);
	}
}
"""


def tool(*names: str) -> str:
    """The first of these programs that is installed."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise FileNotFoundError(f"none of {', '.join(names)} is installed")


def build(folder: Path, source: str) -> bytes:
    """Code bytes from CODE on; the entry is the first."""
    (folder / "t.c").write_text(source)
    clang = tool("clang", "clang-19", "clang-16", "clang-14")
    lld = tool("ld.lld", "ld.lld-19", "ld.lld-16", "ld.lld-14")
    kernels = ROOT / "guest-driver" / "user" / "kernels"
    (folder / "t.ld").write_text(
        f"SECTIONS {{ . = {CODE:#x}; .all : {{ *(.text.start) *(.text*) *(.rodata*) "
        "*(.srodata*) *(.sdata*) *(.data*) } /DISCARD/ : { *(.comment) *(.riscv*) "
        "*(.eh_frame*) *(.note*) } }"
    )
    for command in (
        [clang, "--target=riscv64", "-march=rv64imafd", "-mabi=lp64d", "-mcmodel=medany", "-fPIE",
         "-ffreestanding", "-ffp-contract=off", "-fno-math-errno", "-O2", "-nostdlibinc", "-Wall",
         "-Werror", f"-I{kernels}", f"-I{DEVICE / 'include'}", "-ffunction-sections", "-c",
         "t.c", "-o", "t.o"],
        [lld, "-o", "t.bin", "--oformat", "binary", "--script", "t.ld", "t.o"],
    ):  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "t.bin").read_bytes()


def reference(a: np.ndarray, b: np.ndarray, u: np.ndarray, v: np.ndarray) -> tuple[
    np.ndarray, np.ndarray, np.ndarray
]:  # fmt: skip
    """The same in numpy, operation by operation."""
    y = np.zeros_like(a)
    for c in (1e-3, -7.125, 3, 0.25, -0.5, 1):
        y = y * a + c
    out = np.where(a > b, np.sqrt(a * a + b * b), y / (b - 3))
    w = np.abs(u) * v + a.astype(np.float32)
    whole = (a * 1000).astype(np.int64) + v.astype(np.int32) + (b * b).astype(np.uint32)
    return out, w, whole


@pytest.mark.parametrize(("n", "lazy"), [(1000, False), (777, True)])
def test_compiled_kernel(tmp_path: Path, n: int, lazy: bool) -> None:
    code = build(tmp_path, SOURCE)
    rng = np.random.default_rng(n)
    a, b = rng.normal(0, 100, n), rng.normal(0, 100, n)
    u, v = (rng.normal(0, 100, n).astype(np.float32) for _ in range(2))
    out, w, whole = reference(a, b, u, v)
    arrays = [a, b, np.zeros(n), u, v, np.zeros(n, np.float32), np.zeros(n, np.int64)]
    with Device() as dev:
        dev.enable_faults()
        t = Tables(dev, 1)
        frames: dict[int, int] = {}

        def place(va: int, data: bytes) -> None:
            for off in range(0, len(data), PAGE):
                frames[va + off] = dev.alloc()
                dev.write(frames[va + off], data[off : off + PAGE])

        place(CODE, code)
        at, where = DATA + PAGE, []
        for array in arrays:
            where.append(at)
            place(at, array.tobytes())
            at += (array.nbytes + PAGE - 1) // PAGE * PAGE
        place(DATA, struct.pack("<7QI", *where, n))
        slots = 2 * 8 * 32
        place(STACK, bytes(slots * 512))
        if not lazy:
            for va, frame in frames.items():
                t.map(va, frame, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=3, block=64, local=STACK, local_bytes=512)
        dev.service(lambda f: t.map(f.addr, frames[f.addr], FULL | SYS),
                    lambda: dev.report(rep).complete)  # fmt: skip
        assert dev.report(rep).status == HW.HG_ERR_NONE, dev.report(rep)

        def fetch(k: int) -> bytes:
            pages = range(where[k], where[k] + arrays[k].nbytes, PAGE)
            return b"".join(dev.read(frames[va], PAGE) for va in pages)[: arrays[k].nbytes]

        assert fetch(2) == out.tobytes()
        assert fetch(5) == w.tobytes()
        assert fetch(6) == whole.astype(np.int64).tobytes()


SUMS = """
#include "hmm_gpu_kernel.h"

struct args {
	const float *in;
	float *sums;
	uint32_t *above;
	uint32_t n;
};

HMM_KERNEL(start, struct args)
{
	float *part = hmm_shared();
	uint32_t i = hmm_thread(), warps = hmm_ntid() / 32;
	float v = i < args->n ? args->in[i] : 0;

	/* lanes that branched must meet again for this */
	uint32_t above = hmm_ballot(v > 1);

	for (uint32_t d = 16; d; d /= 2) {
		union { float f; uint32_t u; } x = { .f = v };

		x.u = (uint32_t)hmm_shuffle_down(x.u, d);
		v += x.f;
	}
	if (hmm_lane() == 0) {
		args->above[i / 32] = above;
		part[hmm_tid() / 32] = v;
	}
	hmm_barrier();
	if (hmm_tid() == 0) {
		v = 0;
		for (uint32_t k = 0; k < warps; k++)
			v += part[k];
		args->sums[hmm_bid()] = v + (float)hmm_shared_size() * 0;
	}
}
"""


VOTES = """
#include "hmm_gpu_kernel.h"

struct args {
	uint32_t *p;
	uint64_t n;
};

HMM_KERNEL(start, struct args)
{
	uint32_t t = hmm_tid(), v = 1;

	if (args->p[t] & 1)
		v = args->p[t + 32] * 3;
	args->p[t] = hmm_ballot(v > 3);
	if (args->p[t + 1] & 1)
		args->p[t] += hmm_ballot(v > 5);
	args->p[t] -= hmm_ballot(t > args->n);
}
"""


def test_a_vote_is_one_copy_of_its_code(tmp_path: Path) -> None:
    """Inlined, the compiler could give lanes that branched copies of their own to wait at."""
    code = build(tmp_path, VOTES)
    words = struct.unpack(f"<{len(code) // 4}I", code[: len(code) // 4 * 4])
    assert words.count(HW.HG_INSN_WARP_SYNC) == 1


def test_compiled_sum_of_a_block(tmp_path: Path) -> None:
    """A sum by shuffles and block-shared memory, in the order of additions that it has."""
    code = build(tmp_path, SUMS)
    n, block = 1000, 256
    values = np.random.default_rng(1).normal(0, 1, n).astype(np.float32)
    padded = np.zeros(1024, np.float32)
    padded[:n] = values
    lanes = padded.reshape(-1, 32).copy()
    for d in (16, 8, 4, 2, 1):
        moved = lanes.copy()
        moved[:, : 32 - d] = lanes[:, d:]
        lanes = lanes + moved
    sums = []
    for warps in lanes[:, 0].reshape(-1, block // 32):
        total = np.float32(0)
        for part in warps:
            total += part
        sums.append(total)
    with Device() as dev:
        t = Tables(dev, 1)
        page = dev.alloc()
        dev.write(page, code)
        t.map(CODE, page, FULL | SYS)
        data = dev.alloc(4)
        for k in range(4):
            t.map(DATA + k * PAGE, data + k * PAGE, FULL | SYS)
        dev.write(data, struct.pack("<3QI", DATA + PAGE, DATA + 2 * PAGE, DATA + 3 * PAGE, n))
        dev.write(data + PAGE, values.tobytes())
        stack = dev.alloc(64)
        for k in range(64):
            t.map(STACK + k * PAGE, stack + k * PAGE, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=4, block=block, local=STACK, local_bytes=512,
                                    shared=4 * block // 32)  # fmt: skip
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == HW.HG_ERR_NONE, dev.report(rep)
        assert dev.read(data + 2 * PAGE, 16) == np.array(sums, np.float32).tobytes()
        bits = np.packbits(padded > 1, bitorder="little").tobytes()
        assert dev.read(data + 3 * PAGE, 128) == bits
