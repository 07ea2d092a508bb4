# SPDX-License-Identifier: GPL-2.0-or-later
"""The sum of a vector, read once: warp shuffles, block-shared memory, one atomic a block."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"n": 5000}, "small": {"n": 400_000}, "large": {"n": 8_000_000}}

BLOCK = 128
#: Bytes of stack a thread, which go to VRAM as well: the usual 4096 are a page for each lane.
LOCAL = 256


def run(gpu: Gpu, n: int) -> None:
    x = np.random.default_rng(2).integers(0, 1 << 32, n, dtype=np.uint32)

    on_x, total = gpu.array(x), gpu.zeros(1, np.uint64)
    gpu.kernels("reduction.c").launch(
        "reduce", 16, BLOCK, on_x, n, total, shared=BLOCK // 32 * 8, local=LOCAL
    )

    same(total.numpy(), x.sum(dtype=np.uint64, keepdims=True), "the sum")
