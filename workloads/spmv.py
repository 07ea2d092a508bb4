# SPDX-License-Identifier: GPL-2.0-or-later
"""A sparse matrix times a vector: rows of all lengths, reads that jump about."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"rows": 500}, "small": {"rows": 8_000}, "large": {"rows": 200_000}}


def run(gpu: Gpu, rows: int) -> None:
    rng = np.random.default_rng(9)
    lengths = np.minimum(rng.geometric(0.15, rows), 60)
    start = np.concatenate(([0], np.cumsum(lengths))).astype(np.uint32)
    column = rng.integers(0, rows, start[-1], dtype=np.uint32)
    value, x = rng.standard_normal(start[-1]), rng.standard_normal(rows)

    y = gpu.empty(rows, np.float64)
    gpu.kernels("spmv.c").launch(
        "spmv", 16, 64, gpu.array(start), gpu.array(column), gpu.array(value), gpu.array(x), y,
        rows,
    )  # fmt: skip

    # Element k of every row that has one, in the kernel's order.
    want = np.zeros(rows)
    for k in range(int(lengths.max())):
        has = np.flatnonzero(lengths > k)
        at = start[has] + np.uint32(k)
        want[has] += value[at] * x[column[at]]
    same(y.numpy(), want, "the product")
