# SPDX-License-Identifier: GPL-2.0-or-later
"""A tiled matrix product: each page is read by many blocks, most reads are of shared memory."""

import numpy as np

from hmmbench.base.errors import UsageError
from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"n": 32}, "small": {"n": 128}, "large": {"n": 512}}

TILE = 16
#: Bytes of stack a thread, which go to VRAM as well: the usual 4096 are a page for each lane.
LOCAL = 512


def run(gpu: Gpu, n: int) -> None:
    if n % TILE:
        raise UsageError(f"n has to be a multiple of {TILE}, {n} is none")
    rng = np.random.default_rng(6)
    a = rng.standard_normal((n, n), dtype=np.float32)
    b = rng.standard_normal((n, n), dtype=np.float32)

    c = gpu.empty((n, n), np.float32)
    gpu.kernels("matmul.c").launch(
        "matmul", (n // TILE) ** 2, TILE * TILE, gpu.array(a), gpu.array(b), c, n,
        shared=2 * TILE * TILE * 4, local=LOCAL,
    )  # fmt: skip

    # In the kernel's order, so that the roundings are the same.
    want = np.zeros((n, n), np.float32)
    for k in range(n):
        want += a[:, k : k + 1] * b[k : k + 1, :]
    same(c.numpy(), want, "the product")
