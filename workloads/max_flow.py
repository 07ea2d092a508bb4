# SPDX-License-Identifier: GPL-2.0-or-later
"""Maximum flow on a grid by push-relabel: GPU pushes and CPU relabels on the same arrays."""

import numpy as np
from numpy.typing import NDArray

from hmmbench.gpu import Gpu
from hmmbench.workload import WrongResult, same

SIZES = {"tiny": {"side": 10}, "small": {"side": 20}, "large": {"side": 60}}

#: Far more rounds than any of these needs.
TURNS = 2000

I32 = NDArray[np.int32]


def to_the_sink(left: I32, to_sink: I32) -> I32:
    """How many arcs with room each node is from the sink; as many as there are nodes: cut off."""
    far = np.int32(to_sink.size)
    distance = np.where(to_sink > 0, np.int32(1), far)
    while True:
        before = distance
        beyond = np.full((to_sink.shape[0] + 2, to_sink.shape[1] + 2), far)
        beyond[1:-1, 1:-1] = distance
        ends = beyond[1:-1, :-2], beyond[1:-1, 2:], beyond[:-2, 1:-1], beyond[2:, 1:-1]
        for arc, end in enumerate(ends):
            distance = np.where(left[..., arc] > 0, np.minimum(distance, end + 1), distance)
        if (distance == before).all():
            return distance.astype(np.int32)


def run(gpu: Gpu, side: int) -> dict[str, int]:
    rng = np.random.default_rng(16)
    capacity = rng.integers(1, 20, (side, side, 4), dtype=np.int32)
    # Arcs out of the grid carry nothing.
    capacity[:, 0, 0] = capacity[:, -1, 1] = capacity[0, :, 2] = capacity[-1, :, 3] = 0
    source, sink = np.zeros((2, side, side), np.int32)
    source[:, 0] = rng.integers(1, 40, side)
    sink[:, -1] = rng.integers(1, 40, side)

    # The source has pushed all it can; the GPU does the rest.
    left, to_sink, excess = gpu.array(capacity), gpu.array(sink), gpu.array(source)
    height, arrived = gpu.zeros((side, side), np.int32), gpu.zeros(1, np.int64)
    kernels = gpu.kernels("max_flow.c")
    turns = 0
    while True:
        distance = to_the_sink(left.numpy(), to_sink.numpy())
        if not ((excess.numpy() > 0) & (distance < side * side)).any():
            break
        if turns == TURNS:
            raise WrongResult(f"after {TURNS} turns there is still something to push")
        turns += 1
        height.write(distance)
        kernels.launch("push_relabel", 8, 64, left, to_sink, excess, height, arrived, side,
                       side * side, 4 * side)  # fmt: skip

    # It is a flow: no arc carries too much, and what enters a node leaves it, or is its excess.
    rest, flow = left.numpy(), capacity - left.numpy()
    same((rest < 0).sum(), np.int64(0), "arcs that carry more than they can")
    same(flow[:, :-1, 1], -flow[:, 1:, 0], "flow to the right")
    same(flow[:-1, :, 3], -flow[1:, :, 2], "flow down")
    into_sink = sink - to_sink.numpy()
    same(source - flow.sum(axis=2, dtype=np.int32) - into_sink, excess.numpy(), "excess")
    same((excess.numpy() < 0).sum(), np.int64(0), "nodes that owe")
    value = into_sink.sum(dtype=np.int64)
    same(arrived.numpy()[0], value, "what arrived")
    # And no larger one exists: it fills a cut.
    cut_off = to_the_sink(rest, to_sink.numpy()) == side * side
    beyond = np.pad(cut_off, 1, constant_values=True)
    ends = beyond[1:-1, :-2], beyond[1:-1, 2:], beyond[:-2, 1:-1], beyond[2:, 1:-1]
    cut = source[~cut_off].sum(dtype=np.int64) + sink[cut_off].sum(dtype=np.int64)
    for arc, end in enumerate(ends):
        cut += capacity[..., arc][cut_off & ~end].sum(dtype=np.int64)
    same(np.int64(value), np.int64(cut), "flow and cut")
    return {"flow": int(value), "turns": turns}
