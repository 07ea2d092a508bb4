# SPDX-License-Identifier: GPL-2.0-or-later
"""A prefix sum in three launches: barriers and block-shared memory, results that feed launches."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"n": 5000}, "small": {"n": 100_000}, "large": {"n": 2_000_000}}

BLOCKS, BLOCK = 16, 128


def run(gpu: Gpu, n: int) -> None:
    data = np.random.default_rng(5).integers(0, 1 << 32, n, dtype=np.uint32)

    given, out, sums = gpu.array(data), gpu.empty(n, np.uint32), gpu.empty(BLOCKS, np.uint32)
    kernels = gpu.kernels("prefix_sum.c")
    for name, grid in (("sum_pieces", BLOCKS), ("scan_sums", 1), ("scan_pieces", BLOCKS)):
        kernels.launch(name, grid, BLOCK, given, out, sums, n, BLOCKS, shared=BLOCK * 4)

    same(out.numpy(), np.cumsum(data, dtype=np.uint32), "the prefix sums")
