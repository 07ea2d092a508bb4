# SPDX-License-Identifier: GPL-2.0-or-later
"""The emulated GPU from Python: numpy arrays in a guest program's memory, kernels in C.

    from hmmbench import gpu
    import numpy as np

    with gpu.open() as g:
        x = g.array(np.arange(1000, dtype=np.float32))
        kernels = g.kernels("scale.c")
        kernels.launch("scale", 4, 64, x, len(x), 2.0)
        print(x.numpy(), g.counters()["faults"])

`open` restores a virtual machine from its snapshot and starts a program in it, the session,
whose memory is where arrays live: malloc'ed, mapped, on its stack, as asked.  A kernel gets the
pointers as they are.  docs/writing-workloads.md has the whole of it.
"""

from hmmbench.gpu.errors import JobFailed
from hmmbench.gpu.session import Array, Gpu, Job, Kernels, driver_counters, open

__all__ = ["Array", "Gpu", "Job", "JobFailed", "Kernels", "driver_counters", "open"]
