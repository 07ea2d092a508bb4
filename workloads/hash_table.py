# SPDX-License-Identifier: GPL-2.0-or-later
"""CPU threads and GPU threads insert into one hash table by compare-and-swap, without a lock."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.suites.workload import same

SIZES = {
    "tiny": {"keys": 400, "slots": 1 << 10},
    "small": {"keys": 5000, "slots": 1 << 14},
    "large": {"keys": 200_000, "slots": 1 << 19},
}

#: What a CPU's insertion adds; a GPU's adds 1.
BY_CPU = np.uint64(1 << 32)


def run(gpu: Gpu, keys: int, slots: int) -> None:
    rng = np.random.default_rng(13)
    # Both sides insert mostly the same keys, some of them often.
    by_cpu, by_gpu = rng.integers(1, keys, (2, keys), dtype=np.uint64)

    table = gpu.zeros((slots, 2), np.uint64)
    refused = gpu.zeros(1, np.uint64)
    gpus, cpus = gpu.array(by_gpu), gpu.array(by_cpu)
    job = gpu.kernels("hash_table.c").launch(
        "insert", 8, 64, table, slots, gpus, keys, refused, wait=False
    )
    failed = gpu.call("insert_all", table, slots, cpus, keys, refused)
    job.wait()

    same(np.int64(failed), np.int64(0), "starting threads")
    same(refused.numpy(), np.zeros(1, np.uint64), "insertions that found no slot")
    content = table.numpy()
    used = content[content[:, 0] != 0]
    want = np.bincount(by_gpu, minlength=keys).astype(np.uint64)
    want += BY_CPU * np.bincount(by_cpu, minlength=keys).astype(np.uint64)
    # Where a key is depends on who came first; that it is there once does not.
    there = np.flatnonzero(want).astype(np.uint64)
    used = used[np.argsort(used[:, 0])]
    same(used[:, 0], there, "keys")
    same(used[:, 1], want[there], "values")
