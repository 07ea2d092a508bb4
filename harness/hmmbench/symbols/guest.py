# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the guest has its modules, and the table of one guest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.symbols import elf
from hmmbench.symbols.points import (
    KINDS,
    CallSite,
    call_sites,
    calls_by_function,
    functions,
    kernel_functions,
)
from hmmbench.symbols.table import Symbol, SymbolTable, kernel_symbols, module_symbols

if TYPE_CHECKING:
    from hmmbench.build import Artifacts
    from hmmbench.vm.agent import Agent

#: module -> section -> address
Sections = Mapping[str, Mapping[str, int]]

# One program for all of some hundred files, which are named like hidden ones, mostly. The shell's
# own `read` takes a byte at a time, and these files give all at once or nothing.
_ASK = "grep -H ^0x /sys/module/*/sections/.[!.]* /sys/module/*/sections/[!.]* 2>/dev/null; true"


def sections(agent: Agent) -> dict[str, dict[str, int]]:
    """The addresses of the loaded modules' sections."""
    return parse(agent.check(_ASK))


def parse(text: str) -> dict[str, dict[str, int]]:
    """Lines "/sys/module/NAME/sections/SECTION:ADDRESS"."""
    found: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        path, _, at = line.rpartition(":")
        parts = path.split("/")
        if len(parts) == 6 and parts[:3] == ["", "sys", "module"] and parts[4] == "sections":
            address = int(at, 16)
            # A kernel that hides addresses says 0.
            if address:
                found.setdefault(parts[3], {})[parts[5]] = address
    return found


@dataclass(frozen=True)
class Places:
    """Where a schedule may hold a CPU (points.py).

    table      -- names them, and gives the addresses of names
    kernel     -- functions of the kernel that HMM drivers call
    functions  -- those of the modules under test
    calls      -- and their calls to what points.Kind lists
    kinds      -- addresses in them, by what they are (points.KINDS)
    """

    table: SymbolTable
    kernel: list[Symbol]
    functions: list[Symbol]
    calls: list[CallSite]
    kinds: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in KINDS})


def points(artifacts: Artifacts, places: Sections) -> Places:
    """Of kernel and driver as they are in this guest; a module that is not loaded has none."""
    table = of_guest(artifacts, places)
    found = Places(table, kernel_functions(table), [], [])
    files = {module_name(path): path for path in sorted(artifacts.module_dir.glob("*.ko"))}
    for name, file in _loaded(files, places):
        found.functions.extend(functions(table, name))
        read = elf.Elf(file)
        found.calls.extend(call_sites(table, name, read, places[name]))
        made = calls_by_function(table, name, read, places[name])
        for kind, addresses in KINDS.items():
            found.kinds[kind].extend(addresses(made))
    return found


def module_files(artifacts: Artifacts) -> dict[str, Path]:
    """The files of what may be loaded in the guest: the driver first, then the kernel's modules."""
    files: dict[str, Path] = {}
    for path in [
        *sorted(artifacts.module_dir.glob("*.ko")),
        *sorted(artifacts.kernel_build_dir.glob("lib/test_hmm.ko")),
        *artifacts.kernel_modules,
    ]:
        files.setdefault(module_name(path), path)
    return files


def module_name(path: Path) -> str:
    """The name that the kernel gives the module in this file."""
    return path.name.split(".")[0].replace("-", "_")


def of_guest(artifacts: Artifacts, places: Sections) -> SymbolTable:
    """Kernel and loaded modules; `places` is what sections() said of this guest."""
    if artifacts.system_map is None:
        raise EnvironmentFailure(
            f"the kernel in {artifacts.kernel_build_dir} has no System.map",
            "It is made with the kernel's image: build it again (make bzImage).",
        )
    return of_files(artifacts.system_map, module_files(artifacts), places)


def of_files(system_map: Path, files: Mapping[str, Path], places: Sections) -> SymbolTable:
    """The same by file names."""
    symbols = kernel_symbols(system_map)
    for name, file in _loaded(files, places):
        symbols += module_symbols(name, elf.Elf(file), places[name])
    return SymbolTable(symbols)


def _loaded(files: Mapping[str, Path], places: Sections) -> Iterable[tuple[str, Path]]:
    return ((name, file) for name, file in files.items() if name in places)
