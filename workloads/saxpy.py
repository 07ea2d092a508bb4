# SPDX-License-Identifier: GPL-2.0-or-later
"""y = a x + y on malloc'ed vectors: each page faults once, whoever touches it first."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"n": 5000}, "small": {"n": 200_000}, "large": {"n": 4_000_000}}


def run(gpu: Gpu, n: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(n, dtype=np.float32)
    y = rng.standard_normal(n, dtype=np.float32)
    a = np.float32(1.5)

    on_x, on_y = gpu.array(x), gpu.array(y)
    gpu.kernels("saxpy.c").launch("saxpy", 16, 128, on_x, on_y, n, a)

    same(on_y.numpy(), a * x + y, "y")
    same(on_x.numpy(), x, "x, which nobody writes")
