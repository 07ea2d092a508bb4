# SPDX-License-Identifier: GPL-2.0-or-later
"""An array of pointers to structs with pointers, all malloc'ed, used by the GPU as it is."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import WrongResult, same

SIZES = {
    "tiny": {"rows": 20, "longest": 400},
    "small": {"rows": 150, "longest": 2000},
    "large": {"rows": 1000, "longest": 20_000},
}


def run(gpu: Gpu, rows: int, longest: int) -> None:
    lengths = np.random.default_rng(8).integers(0, longest, rows, dtype=np.uint64)

    pointers = gpu.call("build", gpu.array(lengths), rows)
    if pointers == 0:
        raise WrongResult("the guest has no memory for the rows")
    gpu.claim(int(lengths.sum()) * 4 + rows * 32)
    gpu.kernels("deep_copy.c").launch("rows", rows, 32, pointers)
    sums = gpu.zeros((rows, 2), np.uint64)
    gpu.call("collect", pointers, rows, sums)

    want = [int(np.arange(n, dtype=np.uint64).sum()) + int(n) * r * 1001
            for r, n in enumerate(lengths)]  # fmt: skip
    got = sums.numpy()
    same(got[:, 0], np.array(want, np.uint64), "sums by the GPU")
    same(got[:, 1], np.array(want, np.uint64), "sums by the CPU")
