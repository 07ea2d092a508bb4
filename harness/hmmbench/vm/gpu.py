# SPDX-License-Identifier: GPL-2.0-or-later
"""The GPU of a machine as QEMU knows it: told and asked over QMP, whatever the guest does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hmmbench.vm.qmp import Qmp
from hmmbench.vm.spec import GPU_PATH


class Gpu:
    """Properties of the device.  All raise QmpFailure, and VmDied when QEMU has ended."""

    def __init__(self, qmp: Qmp) -> None:
        self._qmp = qmp

    def inject(self, rules: str | Iterable[str] = "") -> None:
        """Replace all injection rules (docs/device.md has the grammar); none ends injection.

        Raises QmpFailure with the device's words for a rule it does not understand.
        """
        text = rules if isinstance(rules, str) else ";".join(rules)
        self._set("inject", text)

    def injected(self) -> str:
        """The rules in force, with their hits."""
        return str(self._get("inject"))

    def set_audit(self, mode: str) -> None:
        """Mirror audit: off, fill, sampled, sampled=N or access.  Raises QmpFailure."""
        self._set("audit", mode)

    def violations(self) -> str:
        """What the device's own checks found, as JSON text (docs/audit.md, checks.md)."""
        return str(self._get("violations"))

    def clear_violations(self) -> None:
        self._set("clear-violations", True)

    def audit_full(self) -> int:
        """Compare all of every mirror now (processes at rest); how many entries that were."""
        self._set("audit-full", True)
        return int(self._get("audit-full-compared"))

    def frame(self, address: int) -> int:
        """The physical address that a bus address leads to.  Raises LookupError: it leads to
        none."""
        self._set("frame", address)
        found = int(self._get("frame"))
        if found == (1 << 64) - 1:
            raise LookupError(f"bus address {address:#x} leads nowhere")
        return found

    def counters(self) -> dict[str, int]:
        """All counters of the device (HG_CNT_*), by the device's names."""
        return {str(n): int(v) for n, v in self._get("counters").items()}

    def keep_events(self) -> None:
        """From here on an exact machine keeps its device's events, which it does not notice."""
        self._set("keep-events", True)

    def write_events(self, path: Path) -> None:
        """They go to a file, for device.events.read()."""
        self._set("write-events", str(path))

    def stand_at_violation(self, on: bool) -> None:
        """An exact machine stands where a check of its device finds something."""
        self._set("stand-at-violation", on)

    def engines(self) -> list[str]:
        """Names of the device's engines, in its order."""
        of_each = (("SM", int(self._get("sms"))), ("copy engine", int(self._get("ces"))))
        return [f"{name} {n}" for name, count in of_each for n in range(count)] + ["front end"]

    def _set(self, name: str, value: object) -> None:
        self._qmp.execute("qom-set", {"path": GPU_PATH, "property": name, "value": value})

    def _get(self, name: str) -> Any:
        return self._qmp.execute("qom-get", {"path": GPU_PATH, "property": name})
