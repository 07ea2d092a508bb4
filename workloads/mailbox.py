# SPDX-License-Identifier: GPL-2.0-or-later
"""Running CPU threads and running GPU threads talk for minutes, through a page that stays."""

import time

import numpy as np
from numpy.typing import NDArray

from hmmbench.gpu import Gpu, Job
from hmmbench.suites.workload import WrongResult, same

#: At least so many rounds of each box, and at least so many seconds.
SIZES = {
    "tiny": {"boxes": 2, "rounds": 20, "seconds": 0},
    "small": {"boxes": 2, "rounds": 200, "seconds": 1},
    "large": {"boxes": 4, "rounds": 5000, "seconds": 150},
}

#: struct box of mailbox.h: 8 words, then the message.
HEAD, WORDS = 8, 120
#: Seconds without an answer that are too many, and between two looks.
PATIENCE, LOOK = 60.0, 0.05


def talk(gpu: Gpu, boxes: int, rounds: int, seconds: float) -> bool:
    """Let them talk; false if there was a wrong answer, or none for PATIENCE."""
    begun = since = time.monotonic()
    last = 0
    while True:
        least = min(gpu.call("answered", box) for box in range(boxes))
        now = time.monotonic()
        if least > last:
            since, last = now, least
        gpu.progress(int(min(now - begun, seconds)), int(seconds), f"s, {least} rounds")
        if now > since + PATIENCE or any(gpu.call("wrong", box) for box in range(boxes)):
            return False
        if least >= rounds and now >= begun + seconds:
            return True
        time.sleep(LOOK)


def after(rounds: int, box: int) -> NDArray[np.uint64]:
    """A box's message v after its rounds r = 0, 1, ...: v[i] = 3 (v[i] + r + i) + box each."""
    of_r = (pow(3, rounds + 1, 1 << 66) - 6 * rounds - 3) % (1 << 66) // 4
    of_rest = (pow(3, rounds, 1 << 65) - 1) // 2
    values = [(of_r + of_rest * (3 * i + box)) % (1 << 64) for i in range(WORDS)]
    return np.array(values, np.uint64)


def run(gpu: Gpu, boxes: int, rounds: int, seconds: float) -> dict[str, float]:
    # The page stays where it is: both sides are at it all the time.
    gpu.policy("map")
    memory = gpu.zeros((boxes, HEAD + WORDS), np.uint64, "anon")
    # One thread a block: the lanes of a warp would wait for each other.
    job: Job = gpu.kernels("mailbox.c").launch("answer", boxes, 1, memory, wait=False)
    begun = time.monotonic()
    failed = gpu.call("begin", memory, boxes)
    if failed:
        raise WrongResult(f"a thread could not be started: error {failed}")
    sound = talk(gpu, boxes, rounds, seconds)
    took = time.monotonic() - begun
    gpu.call("end", not sound)
    # If the job failed, this says why there was no answer.
    job.wait(timeout=PATIENCE)

    done = [gpu.call("answered", box) for box in range(boxes)]
    for box in range(boxes):
        same(np.int64(gpu.call("wrong", box)), np.int64(0), f"answer {done[box] + 1} of box {box}")
    if not sound:
        raise WrongResult(f"a box had no answer for {PATIENCE:.0f} s; rounds of each: {done}")
    want = np.array([after(r, box) for box, r in enumerate(done)])
    same(memory.numpy()[:, HEAD:], want, "the mailboxes")
    return {"rounds": sum(done), "rounds/s": round(sum(done) / took)}
