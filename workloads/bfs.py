# SPDX-License-Identifier: GPL-2.0-or-later
"""Breadth-first search, a launch a level: CPU and GPU take turns at one word."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {"tiny": {"nodes": 500}, "small": {"nodes": 8_000}, "large": {"nodes": 200_000}}

FAR = np.uint32(0xFFFFFFFF)


def run(gpu: Gpu, nodes: int) -> None:
    rng = np.random.default_rng(10)
    degrees = rng.geometric(0.4, nodes)
    start = np.concatenate(([0], np.cumsum(degrees))).astype(np.uint32)
    neighbour = rng.integers(0, nodes, start[-1], dtype=np.uint32)
    first = np.full(nodes, FAR, np.uint32)
    first[0] = 0

    graph = gpu.array(start), gpu.array(neighbour)
    distance, reached = gpu.array(first), gpu.zeros(1, np.uint32)
    kernels = gpu.kernels("bfs.c")
    level = 0
    while True:
        reached.write(0)
        kernels.launch("level", 16, 64, *graph, distance, nodes, level, reached)
        if reached.numpy()[0] == 0:
            break
        level += 1

    want, front, far = first.copy(), np.array([0]), 0
    while len(front):
        far += 1
        edges = np.concatenate([neighbour[start[n] : start[n + 1]] for n in front])
        front = np.unique(edges[want[edges] == FAR])
        want[front] = far
    same(distance.numpy(), want, "distances")
    same(np.int64(level), np.int64(want[want != FAR].max()), "levels")
