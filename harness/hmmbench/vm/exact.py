# SPDX-License-Identifier: GPL-2.0-or-later
"""The object hmm-exact of a machine: its schedule, and what it decided.

To be asked and told while the machine stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmmbench.vm.decisions import names
from hmmbench.vm.qmp import Qmp
from hmmbench.vm.spec import EXACT_PATH


class Exact:
    """Properties of the object; each method raises QmpFailure with its words."""

    def __init__(self, qmp: Qmp) -> None:
        self._qmp = qmp

    def _set(self, name: str, value: object) -> None:
        self._qmp.execute("qom-set", {"path": EXACT_PATH, "property": name, "value": value})

    def _get(self, name: str) -> Any:
        return self._qmp.execute("qom-get", {"path": EXACT_PATH, "property": name})

    def schedule(self, words: str) -> None:
        """Begin this schedule (hmm-exact-plan.c has the words), and an empty log."""
        self._set("schedule", words)

    def points(self, addresses: Sequence[int]) -> None:
        """Where functions begin or return to: places that schedules may name at no cost."""
        self._set("points", names(addresses))

    def watch(self, table: Path | None) -> None:
        """Look at the accesses of these instructions from now on (aim.py); None: no more."""
        self._set("watch", str(table or ""))

    def write_watch(self, path: Path) -> None:
        """What was found, as lines (hmm-exact-watch.c)."""
        self._set("write-watch", str(path))

    def met(self) -> set[tuple[int, int]]:
        """Of the schedule's addresses: a CPU was held at the first, another passed the second."""
        pairs = [pair.split(":") for pair in str(self._get("met")).split(",") if pair]
        return {(int(held, 16), int(passed, 16)) for held, passed in pairs}

    def state(self) -> dict[str, int]:
        """Hash and length of the log, virtual time, instructions, holds (hmm-exact-qom.c)."""
        return {str(name): int(value) for name, value in self._get("state").items()}

    def write_log(self, path: Path) -> None:
        """The log of decisions since the schedule began, for decisions.read()."""
        self._set("write-log", str(path))

    def write_memory(self, path: Path) -> None:
        """A hash of each page of RAM and VRAM, for decisions.pages()."""
        self._set("write-memory", str(path))

    def stand_after(self, ns: int) -> None:
        """Stand after so many nanoseconds of virtual time, if not before; -1: no more."""
        self._set("stand-after", ns)

    def deaf_for(self, ns: int) -> None:
        """The guest's own wish to stand does not count for so many nanoseconds from now."""
        self._set("deaf-for", ns)

    def stand_at_pc(self, addresses: Sequence[int]) -> None:
        """Stand where a CPU comes to one of these, which are points, too; once."""
        self._set("stand-at-pc", names(addresses))

    def stand_at(self, instruction: int) -> None:
        """Stand at this instruction (of all CPUs, as in the log); -1: no more."""
        self._set("stand-at", instruction)
