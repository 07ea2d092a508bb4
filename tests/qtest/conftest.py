# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of the glue's tests: the QEMU under test, and one machine with one device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from qtest_machine import Machine


@pytest.fixture(scope="session")
def qemu() -> Path:
    """HMMBENCH_QEMU, else the bench's own build (made now if it is not cached)."""
    given = os.environ.get("HMMBENCH_QEMU")
    if given:
        path = Path(given).resolve()
        if not os.access(path, os.X_OK):
            pytest.fail(f"HMMBENCH_QEMU={given} is no program that can be run")
        return path
    from hmmbench import build

    return build.ensure().qemu


@pytest.fixture(scope="session")
def full_qemu() -> Path:
    """That of the full configuration: for tests that `test --full` alone runs.

    HMMBENCH_FULL_QEMU as HMMBENCH_QEMU."""
    if given := os.environ.get("HMMBENCH_FULL_QEMU"):
        return Path(given).resolve()
    from hmmbench import build

    return build.ensure(build.BuildRequest(full=True)).qemu


@pytest.fixture
def start(qemu: Path) -> Iterator[Callable[..., Machine]]:
    """Starts machines (arguments as of Machine) that end with the test."""
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(Machine(qemu, *args, **kwargs))


@pytest.fixture
def machine(start: Callable[..., Machine]) -> Machine:
    """A machine with the device enumerated, bus mastering and MSI-X on."""
    machine = start()
    machine.enumerate()
    return machine
