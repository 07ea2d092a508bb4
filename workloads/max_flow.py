# SPDX-License-Identifier: GPL-2.0-or-later
"""Maximum flow on a grid by push-relabel: GPU pushes and CPU relabels on the same arrays."""

import numpy as np
from numpy.typing import NDArray

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import WrongResult, same

SIZES = {"tiny": {"side": 10}, "small": {"side": 32}, "large": {"side": 512}}

GRID, BLOCK = 16, 128
#: Bytes of stack a thread, which go to VRAM as well: the usual 4096 are a page for each lane.
LOCAL = 256
#: Far more than any of these needs.
TURNS = 2000
#: Rounds of pushes and relabels before the heights are made exact again.
ROUNDS = 128

I32 = NDArray[np.int32]


def to_the_sink(left: I32, to_sink: I32) -> I32:
    """How many arcs with room each node is from the sink; as many as there are nodes: cut off."""
    height, width = to_sink.shape
    nodes = height * width
    room = left.reshape(nodes, 4) > 0
    distance = np.full(nodes, nodes, np.int32)
    front = np.flatnonzero(to_sink.reshape(-1) > 0)
    far = 1
    while len(front):
        distance[front] = far
        far += 1
        nearer = []
        # Arc a leads from a node to `front`; none leads across an edge of the grid.
        for a, step in enumerate((-1, 1, -width, width)):
            start = front - step
            start = start[(start >= 0) & (start < nodes)]
            nearer.append(start[room[start, a] & (distance[start] == nodes)])
        front = np.unique(np.concatenate(nearer))
    return distance.reshape(to_sink.shape)


def run(gpu: Gpu, side: int) -> dict[str, int]:
    rng = np.random.default_rng(16)
    capacity = rng.integers(1, 20, (side, side, 4), dtype=np.int32)
    # Arcs out of the grid carry nothing.
    capacity[:, 0, 0] = capacity[:, -1, 1] = capacity[0, :, 2] = capacity[-1, :, 3] = 0
    # An image to be cut out: each pixel of the disc is drawn to the source, others to the sink,
    # but for the noise.
    across = np.arange(side) - side / 2
    disc = across**2 + across[:, None] ** 2 < (0.35 * side) ** 2
    pull = np.where(disc, 8, -8) + np.rint(rng.normal(0, 12, (side, side))).astype(np.int32)
    source, sink = np.maximum(pull, 0).astype(np.int32), np.maximum(-pull, 0).astype(np.int32)

    # The source has pushed all it can; the GPU does the rest.
    left, to_sink, excess = gpu.array(capacity), gpu.array(sink), gpu.array(source)
    height, arrived = gpu.zeros((side, side), np.int32), gpu.zeros(1, np.int64)
    kernels = gpu.kernels("max_flow.c")
    turns = 0
    while True:
        distance = to_the_sink(left.numpy(), to_sink.numpy())
        active = np.flatnonzero((excess.numpy() > 0) & (distance < side * side))
        if not len(active):
            break
        if turns == TURNS:
            raise WrongResult(f"after {TURNS} turns there is still something to push")
        turns += 1
        gpu.progress(turns, TURNS, f"turns, {len(active)} nodes with something to push")
        height.write(distance)
        kernels.launch("push_relabel", GRID, BLOCK, left, to_sink, excess, height, arrived, side,
                       side * side, ROUNDS, shared=12, local=LOCAL)  # fmt: skip

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
