# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines for a target: restored from the snapshot, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec


class Opener:
    """Calling it gives an entered machine and ends the one before.

    say -- told when that had to be booted again, and why
    """

    def __init__(
        self,
        spec: MachineSpec,
        snapshots: Snapshots | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._spec = spec
        self._snapshots = snapshots or Snapshots()
        self._say = say
        self._current = ExitStack()

    def __call__(self) -> Machine:
        self._current.close()
        return self._current.enter_context(self._snapshots.open(self._spec, self._say))

    def __enter__(self) -> Opener:
        return self

    def __exit__(self, *_: object) -> None:
        self._current.close()
