# SPDX-License-Identifier: GPL-2.0-or-later
"""What a session refuses before it asks the guest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hmmbench.base.errors import UsageError
from hmmbench.gpu.session import Gpu, Kernels

#: Nobody may be asked.
NONE: Any = None


@pytest.mark.parametrize("make", ["array", "empty", "zeros"])
def test_an_array_of_objects_is_refused(make: str) -> None:
    """Its bytes would be addresses in this process."""
    gpu = Gpu(NONE, NONE)
    words: tuple[Any, ...] = (3, np.dtype([("a", "u4"), ("b", object)]))
    if make == "array":
        words = ([{}, None],)
    with pytest.raises(UsageError, match="holds references"):
        getattr(gpu, make)(*words)


@pytest.mark.parametrize(("grid", "block", "said"), [
    (0, 32, "a grid of 0"), (-1, 32, "a grid of -1"), (1, 0, "a block of 0"),
])  # fmt: skip
def test_a_launch_of_no_thread_says_so(grid: int, block: int, said: str) -> None:
    with pytest.raises(UsageError, match=f"scale: {said} runs no thread"):
        Kernels(Gpu(NONE, NONE), 1).launch("scale", grid, block)
