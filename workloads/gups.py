# SPDX-License-Identifier: GPL-2.0-or-later
"""Random atomic updates of a table (GUPS): no locality, every warp wants 32 pages at once."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {
    "tiny": {"words": 1 << 12, "updates": 1000},
    "small": {"words": 1 << 16, "updates": 5_000},
    "large": {"words": 1 << 20, "updates": 100_000},
}


def hashes(count: int) -> np.ndarray:
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def run(gpu: Gpu, words: int, updates: int) -> None:
    table = np.arange(words, dtype=np.uint64)

    on_table = gpu.array(table)
    gpu.kernels("gups.c").launch("update", 16, 64, on_table, words, updates)

    h = hashes(updates)
    np.bitwise_xor.at(table, h & np.uint64(words - 1), h)
    same(on_table.numpy(), table, "the table")
