# SPDX-License-Identifier: GPL-2.0-or-later
"""Any memory of the process: stack, globals, a file, shared with a process, a library's buffer."""

import numpy as np

from hmmbench.gpu import Gpu
from hmmbench.gpu.session import MEMORY
from hmmbench.suites.workload import same

SIZES = {"tiny": {"n": 1500}, "small": {"n": 6_000}, "large": {"n": 60_000}}

FILE = "/tmp/hmmbench-mappings.bin"


def run(gpu: Gpu, n: int) -> None:
    kernels = gpu.kernels("mappings.c")
    data = np.random.default_rng(12).integers(0, 1 << 32, n, dtype=np.uint32)
    want = np.uint32(3) * data + np.uint32(1)
    agent = gpu.vm.agent
    try:
        for memory in MEMORY:
            x = gpu.array(data, memory, FILE if memory == "file" else "")
            kernels.launch("advance", 8, 64, x, n)
            if memory == "file":
                # Read by another process (the agent), from the file.
                same(np.frombuffer(agent.read_file(FILE), np.uint32), want, "the file's content")
            same(x.numpy(), want, memory)
            if memory == "shared":
                same(np.int64(gpu.call("in_second_process", x, n)), np.int64(0), "the process")
                kernels.launch("advance", 8, 64, x, n)
                again = np.uint32(3) * (want + np.uint32(1)) + np.uint32(1)
                same(x.numpy(), again, "shared with a process")
    finally:
        agent.execute(f"rm -f {FILE}")

    address = gpu.call("library_buffer", gpu.array(data), n)
    buffer = gpu.view(address, n, np.uint32)
    kernels.launch("advance", 8, 64, buffer, n)
    same(buffer.numpy(), want, "a library's buffer")
