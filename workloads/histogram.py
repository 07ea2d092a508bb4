# SPDX-License-Identifier: GPL-2.0-or-later
"""A histogram of bytes: atomics on block-shared memory, and on one page that all blocks want."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"n": 10_000}, "small": {"n": 400_000}, "large": {"n": 8_000_000}}

BINS = 256


def run(gpu: Gpu, n: int) -> None:
    # Uneven, as data is: some bins are hot.
    data = np.random.default_rng(4).binomial(255, 0.3, n).astype(np.uint8)

    on_data, bins = gpu.array(data), gpu.zeros(BINS, np.uint64)
    gpu.kernels("histogram.c").launch(
        "histogram", 16, 128, on_data, n, bins, shared=BINS * 4
    )

    same(bins.numpy(), np.bincount(data, minlength=BINS).astype(np.uint64), "the bins")
