# SPDX-License-Identifier: GPL-2.0-or-later
"""A linked list with a node on each page, chased by one thread: one fault after the other."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"nodes": 20}, "small": {"nodes": 500}, "large": {"nodes": 10_000}}

PAGE = 4096


def run(gpu: Gpu, nodes: int) -> None:
    rng = np.random.default_rng(7)
    order = rng.permutation(nodes)
    values = rng.integers(0, 1 << 63, nodes, dtype=np.uint64)

    memory = gpu.empty((nodes, PAGE // 8), np.uint64, "anon")
    content = np.zeros(memory.shape, np.uint64)
    addresses = memory.address + order.astype(np.uint64) * np.uint64(PAGE)
    content[order[:-1], 0] = addresses[1:]
    content[order, 1] = values
    memory.write(content)

    out = gpu.zeros(2, np.uint64, "anon")
    gpu.kernels("linked_list.c").launch("chase", 1, 1, int(addresses[0]), out)

    hashed = 0
    for value in values:
        hashed = (hashed * 31 + int(value)) % (1 << 64)
    same(out.numpy(), np.array([nodes, hashed], np.uint64), "count and hash")
