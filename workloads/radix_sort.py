# SPDX-License-Identifier: GPL-2.0-or-later
"""A radix sort of 8 passes: reads in order, writes scattered over the whole array."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"n": 3000}, "small": {"n": 30_000}, "large": {"n": 1_000_000}}

BITS, DIGITS = 4, 16
GRID, BLOCK, SCAN = 8, 32, 64


def run(gpu: Gpu, n: int) -> None:
    keys = np.random.default_rng(11).integers(0, 1 << 32, n, dtype=np.uint32)

    a, b = gpu.array(keys), gpu.empty(n, np.uint32)
    counts = gpu.empty(DIGITS * GRID * BLOCK, np.uint32)
    kernels = gpu.kernels("radix_sort.c")
    for shift in range(0, 32, BITS):
        args = (a, b, counts, n, shift, GRID * BLOCK)
        kernels.launch("count", GRID, BLOCK, *args)
        kernels.launch("scan", 1, SCAN, *args, shared=SCAN * 4)
        kernels.launch("move", GRID, BLOCK, *args)
        a, b = b, a

    same(a.numpy(), np.sort(keys), "the keys")
