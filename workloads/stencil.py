# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps of a 5-point stencil between two grids: after the first two, no page faults any more."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {
    "tiny": {"n": 48, "steps": 4},
    "small": {"n": 200, "steps": 6},
    "large": {"n": 1000, "steps": 10},
}


def run(gpu: Gpu, n: int, steps: int) -> None:
    grid = np.random.default_rng(3).standard_normal((n, n), dtype=np.float32)

    a, b = gpu.array(grid), gpu.zeros((n, n), np.float32)
    kernels = gpu.kernels("stencil.c")
    for _ in range(steps):
        kernels.launch("step", 16, 128, a, b, n)
        a, b = b, a

    for _ in range(steps):
        new = grid.copy()
        across = (grid[:-2, 1:-1] + grid[2:, 1:-1]) + grid[1:-1, :-2]
        new[1:-1, 1:-1] = np.float32(0.25) * (across + grid[1:-1, 2:])
        grid = new
    same(a.numpy(), grid, f"the grid after {steps} steps")
