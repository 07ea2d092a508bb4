# SPDX-License-Identifier: GPL-2.0-or-later
"""CPU, GPU, CPU on one array: by explicit copies, on one pointer, on one pointer with prefetch."""

from collections.abc import Callable

import numpy as np

from hmmbench.gpu import Array, Gpu, Kernels
from hmmbench.suites.workload import same

SIZES = {"tiny": {"n": 4000}, "small": {"n": 100_000}, "large": {"n": 2_000_000}}


def explicit(gpu: Gpu, kernels: Kernels, data: Array) -> None:
    """A buffer of the GPU's own, and everything copied there and back."""
    gpu.policy("map")
    buffer = gpu.empty(data.shape, data.dtype, "anon")
    buffer.prefetch()
    gpu.copy(buffer, data)
    kernels.launch("scramble", 16, 128, buffer, len(data))
    gpu.copy(data, buffer)
    buffer.free()


def unified(gpu: Gpu, kernels: Kernels, data: Array) -> None:
    """The CPU's pointer is the GPU's; pages come when they are touched."""
    gpu.policy("migrate")
    kernels.launch("scramble", 16, 128, data, len(data))


def prefetched(gpu: Gpu, kernels: Kernels, data: Array) -> None:
    """The same, told beforehand and afterwards."""
    gpu.policy("migrate")
    data.prefetch()
    kernels.launch("scramble", 16, 128, data, len(data))
    data.to_system()


WAYS: tuple[Callable[[Gpu, Kernels, Array], None], ...] = (explicit, unified, prefetched)


def run(gpu: Gpu, n: int) -> dict[str, dict[str, int]]:
    index = np.arange(n, dtype=np.uint64)
    want = index * index * np.uint64(0x9E3779B97F4A7C15) + index
    figures = {}
    for way in WAYS:
        kernels = gpu.kernels("one_pointer.c")
        data = gpu.empty(n, np.uint64, "anon")
        with gpu.counting() as grown:
            gpu.call("make", data, n)
            way(gpu, kernels, data)
            total = gpu.call("total", data, n)
        same(np.array([total]).astype(np.uint64), want.sum(keepdims=True), f"{way.__name__}: sum")
        same(data.numpy(), want, way.__name__)
        data.free()
        figures[way.__name__] = {
            name: grown[name]
            for name in ("faults", "cpu_faults", "pages_to_device", "pages_to_system")
        } | {"engine_copy_bytes": grown["dev_copy_bytes"]}
    return figures
