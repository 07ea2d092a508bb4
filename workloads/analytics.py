# SPDX-License-Identifier: GPL-2.0-or-later
"""Hash join and group-by over columns of mapped files, which are read where they are."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {
    "tiny": {"customers": 200, "orders": 2000},
    "small": {"customers": 5000, "orders": 60_000},
    "large": {"customers": 100_000, "orders": 2_000_000},
}

FILE = "/tmp/hmmbench-analytics-"
REGIONS = 16


def run(gpu: Gpu, customers: int, orders: int) -> None:
    rng = np.random.default_rng(14)
    everybody = rng.permutation(customers * 2).astype(np.uint64) + np.uint64(1)
    columns = {
        "ids": everybody[:customers],
        "regions": rng.integers(0, REGIONS, customers, dtype=np.uint8),
        # About half of the orders are of people who are no customers.
        "buyers": rng.choice(everybody, orders),
        "amounts": rng.integers(1, 100_000, orders, dtype=np.uint32),
    }
    try:
        on = {n: gpu.array(c, "file", FILE + n) for n, c in columns.items()}
        slots = 1 << (2 * customers).bit_length()
        table = gpu.zeros((slots, 2), np.uint64, "anon")
        groups = gpu.zeros((REGIONS, 2), np.uint64)
        args = (table, slots, on["ids"], on["regions"], customers, on["buyers"], on["amounts"],
                orders, groups)  # fmt: skip
        kernels = gpu.kernels("analytics.c")
        kernels.launch("build", 16, 64, *args)
        kernels.launch("probe", 16, 64, *args, shared=REGIONS * 16)
        got = groups.numpy()
    finally:
        gpu.vm.agent.execute(f"rm -f {FILE}*")

    region = np.full(2 * customers + 1, REGIONS)
    region[columns["ids"]] = columns["regions"]
    of_order = region[columns["buyers"]]
    want = np.zeros((REGIONS, 2), np.uint64)
    for r in range(REGIONS):
        amounts = columns["amounts"][of_order == r]
        want[r] = len(amounts), amounts.sum(dtype=np.uint64)
    same(got, want, "count and sum of each region")
