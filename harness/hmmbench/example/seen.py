# SPDX-License-Identifier: GPL-2.0-or-later
"""What an exact machine shows of one execution from outside, which that does not notice.

Read while the machine stands at its answer, for campaigns that look for what is new
(campaign/features.py).  The guest is asked nothing: a request more would be another execution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hmmbench.symbols import SymbolTable
from hmmbench.vm.errors import QmpFailure, VmError
from hmmbench.vm.machine import Machine

#: What the compiler calls the counters of a function's branches where it counts them (gcov).
_COUNTERS = "__gcov0."

#: Bytes between two such counters that are read at once with them.
_GAP = 1 << 16


@dataclass(frozen=True)
class Seen:
    """Of one execution alone, not of what its machine ran before.

    device -- its counters
    driver -- the driver's own, by their names; empty where it tells none
    code   -- branches of kernel and driver that were taken, where they count ("function 3")
    log    -- what was decided, and where the CPUs were then (vm/decisions.py)
    """

    device: Mapping[str, int] = field(default_factory=dict)
    driver: Mapping[str, int] = field(default_factory=dict)
    code: frozenset[str] = frozenset()
    log: np.ndarray[Any, Any] | None = None


class Counted:
    """Where kernel and modules of a guest count their branches: nowhere, but in the kernel of
    `run --coverage`."""

    def __init__(self, table: SymbolTable) -> None:
        self.names: list[str] = []
        #: address and bytes of what is read at once; slots in it, and which name each has
        self.spans: list[tuple[int, int, list[tuple[int, int]]]] = []
        for symbol in table:
            if not symbol.name.startswith(_COUNTERS) or not symbol.size:
                continue
            if not self.spans or symbol.address - sum(self.spans[-1][:2]) > _GAP:
                self.spans.append((symbol.address, 0, []))
            at, _, slots = self.spans[-1]
            for n in range(symbol.size // 8):
                slots.append(((symbol.address - at) // 8 + n, len(self.names)))
                self.names.append(f"{symbol.name.removeprefix(_COUNTERS)} {n}")
            self.spans[-1] = at, symbol.address + symbol.size - at, slots

    def read(self, vm: Machine) -> np.ndarray[Any, Any]:
        """All of them as they are now.  Raises VmError, QmpFailure, OSError or ValueError."""
        out = np.zeros(len(self.names), "<u8")
        with TemporaryDirectory(prefix="hmmbench-code-") as folder:
            path = Path(folder, "counters")
            for at, size, slots in self.spans:
                # The kernel's half is in each CPU's tables, whatever process it runs.
                vm.qmp("memsave", val=at, size=size, filename=str(path))
                words = np.frombuffer(path.read_bytes()[: size // 8 * 8], "<u8")
                found = np.array(slots)
                out[found[:, 1]] = words[found[:, 0]]
        return out


class Looker:
    """Looks at the executions of one machine after another, in that machine's thread.

    counted -- see Counted; None: nothing is counted
    """

    def __init__(self, counted: Counted | None = None) -> None:
        self._counted = counted if counted is not None and counted.spans else None
        self._device: dict[str, int] = {}
        self._driver = ""
        self._code: np.ndarray[Any, Any] | None = None

    def begin(self, vm: Machine, driver: str) -> None:
        """`driver`: what its counters said at last, "" if it has begun anew."""
        self._device, self._driver = vm.gpu.counters(), driver
        self._code = self._branches(vm)

    def end(self, vm: Machine, driver: str, log: np.ndarray[Any, Any] | None) -> Seen:
        code = frozenset[str]()
        after = self._branches(vm)
        if after is not None and self._code is not None and self._counted is not None:
            code = frozenset(self._counted.names[n] for n in np.flatnonzero(after != self._code))
        return Seen(
            _more(self._device, vm.gpu.counters()), _more(numbers(self._driver), numbers(driver)),
            code, log,
        )  # fmt: skip

    def _branches(self, vm: Machine) -> np.ndarray[Any, Any] | None:
        with _may_fail():
            if self._counted is not None:
                return self._counted.read(vm)
        return None


@contextmanager
def _may_fail() -> Iterator[None]:
    """What cannot be read is not there; that must not cost the example."""
    with suppress(VmError, QmpFailure, OSError, ValueError, IndexError):
        yield


def _more(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What has come to each; all of one that is less, for it has begun anew (a reset of the device,
    another life of the driver)."""
    changed = {
        name: now - was if (was := before.get(name, 0)) <= now else now
        for name, now in after.items()
    }
    return {name: more for name, more in changed.items() if more > 0}


def numbers(text: str) -> dict[str, int]:
    """The driver's counters, of lines "name value"."""
    out: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().lstrip("-").isdigit():
            out.setdefault(name, int(value))
    return out
