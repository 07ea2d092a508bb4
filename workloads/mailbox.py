# SPDX-License-Identifier: GPL-2.0-or-later
"""Running CPU threads and running GPU threads ask and answer each other through one page."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.workload import same

SIZES = {
    "tiny": {"boxes": 2, "rounds": 20},
    "small": {"boxes": 2, "rounds": 300},
    "large": {"boxes": 4, "rounds": 20_000},
}

WORDS = 8


def run(gpu: Gpu, boxes: int, rounds: int) -> None:
    # The page stays where it is: both sides are at it all the time.
    gpu.policy("map")
    memory = gpu.zeros((boxes, WORDS), np.uint64, "anon")
    # One thread a block: the lanes of a warp would wait for each other.
    job = gpu.kernels("mailbox.c").launch("answer", boxes, 1, memory, rounds, wait=False)
    failed = gpu.call("converse", memory, rounds, boxes, timeout=300)
    if failed == 0:
        job.wait()

    same(np.int64(failed), np.int64(0), "starting threads")
    want = np.zeros((boxes, WORDS), np.uint64)
    want[:, 0] = 2 * rounds
    for box in range(boxes):
        value = 0
        for r in range(rounds):
            value = (3 * (value + r) + box) % (1 << 64)
        want[box, 1] = value
    same(memory.numpy(), want, "the mailboxes")
