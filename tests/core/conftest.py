# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the device core through cffi.  The core is compiled on first use (hmmbench.device),
once a content hash."""

from __future__ import annotations

import os

import hg_lib
import pytest
from hypothesis import HealthCheck, Phase, settings

# One core example takes milliseconds, the first one also a compilation.
settings.register_profile(
    "core", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
# A run with a bug built in (test_breaks.py) only has to fail: no shrinking, nothing kept.
settings.register_profile(
    # The same examples each time: whether a break is caught must not be a matter of luck.
    "broken", settings.get_profile("core"), phases=[Phase.generate], database=None,
    derandomize=True,
)
settings.load_profile("broken" if os.environ.get("HG_CORE_BREAK") else "core")


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Compile before the first test, so that its time is not the first test's."""
    hg_lib.library()
